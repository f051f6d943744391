//! `mcp-sessiond status -w`: the same list, drawn again as it changes, with keys.
//!
//! The daemon tells nobody of servers unasked, and keepers neither, so they are asked once a
//! second, by a thread of their own: one that hangs keeps nobody waiting at the keys.

mod model;
mod screen;
mod signals;
mod view;
mod work;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use mcp_sessiond_process::fault;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::interval;

use self::model::{Key, Model, Wish};
use self::screen::Screen;
use self::signals::{Signalled, Signals};
use self::work::{Log, Looks, keys};
use crate::{FAILED, USAGE, block_on, complain};

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
        complain("`status -w` needs a terminal; use `mcp-sessiond status`");
        return ExitCode::from(USAGE);
    }
    if std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb") {
        complain(
            "`status -w` needs a terminal that can be drawn on, and TERM names none; use `mcp-sessiond status`",
        );
        return ExitCode::from(USAGE);
    }
    match block_on(watch(is_wide)) {
        Ok(Ok(End::Left)) => ExitCode::SUCCESS,
        // What has panicked has said why.
        Ok(Ok(End::Broken)) => ExitCode::from(FAILED),
        Ok(Err(error)) | Err(error) => {
            complain(format_args!("the terminal: {error}"));
            ExitCode::from(FAILED)
        }
    }
}

async fn watch(is_wide: bool) -> io::Result<End> {
    let mut signals = Signals::new()?;
    let mut screen = Screen::new()?;
    let mut keys = keys();
    let mut looks = Looks::start();
    let mut model = Model::new(is_wide, screen::has_colours());
    // What an order has come to, and the lines of a log.
    let (say, mut said) = unbounded_channel();
    let mut log: Option<Log> = None;
    let mut ticks = interval(TICK);
    loop {
        screen.draw(|frame| view::draw(frame, &mut model))?;
        let wish = tokio::select! {
            signalled = signals.next() => match signalled {
                Signalled::End => return Ok(End::Left),
                Signalled::Stop => {
                    screen.stop()?;
                    Wish::Nothing
                }
                Signalled::Continued => {
                    screen.again()?;
                    Wish::Nothing
                }
            },
            event = keys.recv() => match event {
                Some(Event::Key(event)) => match key(event) {
                    Some(key) => model.press(key),
                    None => Wish::Nothing,
                },
                // It is drawn again anyway.
                Some(_) => Wish::Nothing,
                None => return Ok(if screen::is_there() { End::Broken } else { End::Left }),
            },
            seen = looks.next() => match seen {
                Some(seen) => {
                    model.see(seen);
                    Wish::Nothing
                }
                None => return Ok(End::Broken),
            },
            Some(outcome) = said.recv() => {
                model.done(outcome);
                looks.hurry();
                Wish::Nothing
            },
            lines = lines_of(&mut log) => {
                match lines {
                    Some(lines) => model.read(lines),
                    None => log = None,
                }
                Wish::Nothing
            },
            _ = ticks.tick() => {
                if !screen::is_there() {
                    return Ok(End::Left);
                }
                Wish::Nothing
            }
        };
        match wish {
            Wish::Nothing => {}
            Wish::Leave => return Ok(End::Left),
            Wish::Suspend => signals::suspend_group(),
            Wish::Log(keeper) => log = Some(work::log(keeper)),
            Wish::Close => log = None,
            Wish::Do(order, keeper) => work::carry_out(order, keeper, say.clone()),
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
