//! `mcp-sessiond status -w`: the same list, drawn again as it changes, with keys.
//!
//! The daemon tells nobody of servers unasked, and keepers neither, so they are asked once a
//! second, by a thread of their own: one that hangs keeps nobody waiting at the keys.

mod model;
mod view;
mod work;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use mcp_sessiond_process::fault;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::interval;

use self::model::{Effect, Key, Model};
use self::work::{Log, Poller, keys};
use crate::exit_code::{SOFTWARE, USAGE};
use crate::runtime::block_on;
use crate::ui::output::warn;
use crate::ui::screen::signals::{SignalEvent, Signals};
use crate::ui::screen::{self, Screen, signals};

/// How often it is drawn where nothing has changed, and looked whether the terminal is still there.
const TICK: Duration = Duration::from_secs(1);

/// Why it ends.
enum End {
    /// The user wants it so, or the terminal has been closed.
    Left,
    /// A thread has ended that should not.
    Broken,
}

pub(super) fn run(is_wide: bool) -> ExitCode {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        warn("`status -w` needs a terminal; use `mcp-sessiond status`");
        return ExitCode::from(USAGE);
    }
    if std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb") {
        warn(
            "`status -w` needs a terminal that can be drawn on, and TERM names none; use `mcp-sessiond status`",
        );
        return ExitCode::from(USAGE);
    }
    match block_on(watch(is_wide)) {
        Ok(Ok(End::Left)) => ExitCode::SUCCESS,
        // What has panicked has said why.
        Ok(Ok(End::Broken)) => ExitCode::from(SOFTWARE),
        Ok(Err(error)) | Err(error) => {
            warn(format_args!("the terminal: {error}"));
            ExitCode::from(SOFTWARE)
        }
    }
}

async fn watch(is_wide: bool) -> io::Result<End> {
    let mut signals = Signals::new()?;
    let mut screen = Screen::new()?;
    let mut keys = keys();
    let mut looks = Poller::start();
    let mut model = Model::new(is_wide, screen::has_colours());
    // What an action has come to, and the lines of a log.
    let (say, mut said) = unbounded_channel();
    let mut log: Option<Log> = None;
    let mut ticks = interval(TICK);
    loop {
        screen.draw(|columns, rows| view::lines(&mut model, columns, rows))?;
        let effect = tokio::select! {
            signalled = signals.next() => match signalled {
                SignalEvent::End => return Ok(End::Left),
                SignalEvent::Stop => {
                    screen.stop()?;
                    Effect::Nothing
                }
                SignalEvent::Continued => {
                    screen.again()?;
                    Effect::Nothing
                }
            },
            event = keys.recv() => match event {
                Some(Event::Key(event)) => match key(event) {
                    Some(key) => model.press(key),
                    None => Effect::Nothing,
                },
                // It is drawn again anyway.
                Some(_) => Effect::Nothing,
                None => return Ok(if screen::is_there() { End::Broken } else { End::Left }),
            },
            seen = looks.next() => match seen {
                Some(seen) => {
                    model.see(seen);
                    Effect::Nothing
                }
                None => return Ok(End::Broken),
            },
            Some(outcome) = said.recv() => {
                model.done(outcome);
                looks.hurry();
                Effect::Nothing
            },
            lines = lines_of(&mut log) => {
                match lines {
                    Some(lines) => model.read(lines),
                    None => log = None,
                }
                Effect::Nothing
            },
            _ = ticks.tick() => {
                if !screen::is_there() {
                    return Ok(End::Left);
                }
                Effect::Nothing
            }
        };
        match effect {
            Effect::Nothing => {}
            Effect::Leave => return Ok(End::Left),
            Effect::Suspend => signals::suspend_group(),
            Effect::Log(keeper) => log = Some(work::log(keeper)),
            Effect::Close => log = None,
            Effect::Do(action, keeper) => work::start_action(action, keeper, say.clone()),
        }
    }
}

/// The next lines of the log that is shown.
async fn lines_of(log: &mut Option<Log>) -> Option<Vec<String>> {
    match log {
        Some(log) => log.next().await,
        None => std::future::pending().await,
    }
}

/// What a key means. None: nothing.
fn key(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return match event.code {
            KeyCode::Char('c') => Some(Key::Leave),
            KeyCode::Char('z') => Some(Key::Suspend),
            _ => None,
        };
    }
    match event.code {
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        KeyCode::Left => Some(Key::Left),
        KeyCode::Right => Some(Key::Right),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Esc => Some(Key::Back),
        KeyCode::Char('P') => {
            fault::panic_if_asked();
            None
        }
        KeyCode::Char(letter) => Some(Key::Letter(letter)),
        _ => None,
    }
}
