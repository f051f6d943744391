//! The terminal: taken as a whole, and given back as it was, whatever happens.

pub(crate) mod signals;

use std::io::{self, Stdout, stdout};
use std::os::fd::AsFd as _;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

/// Whether it is taken.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal that is given back when this is dropped, and before a panic says anything.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(crate) fn new() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                let _ = give_back();
                usual(panic);
            }));
        });
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let screen = Self { terminal };
        take()?;
        Ok(screen)
    }

    pub(crate) fn draw(&mut self, what: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        // A thread that has panicked has given it back for good.
        if !IS_TAKEN.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.terminal.draw(what).map(drop)
    }

    /// Gives the terminal back and stops; takes it again when it was continued.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        give_back()?;
        signals::stop_here();
        self.again()
    }

    /// Takes the terminal again from whoever had it while this was stopped.
    pub(crate) fn again(&mut self) -> io::Result<()> {
        give_back()?;
        take()?;
        // Another one knows nothing of what was drawn. To have this one cleared would ask the
        // terminal where its cursor is, and the thread that reads keys would get the answer.
        self.terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        execute!(stdout(), Clear(ClearType::All))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::SeqCst);
    execute!(stdout(), EnterAlternateScreen, Hide)
}

fn give_back() -> io::Result<()> {
    if !IS_TAKEN.swap(false, Ordering::SeqCst) {
        return Ok(());
    }
    let shown = execute!(stdout(), LeaveAlternateScreen, Show);
    disable_raw_mode().and(shown)
}

/// Whether it may be painted: NO_COLOR and its like are asked as for everything else that is
/// printed.
pub(crate) fn has_colours() -> bool {
    AutoStream::choice(&stdout()) != ColorChoice::Never
}

/// Whether the terminal is still there.
pub(crate) fn is_there() -> bool {
    let output = stdout();
    let mut asked = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let _ = poll(&mut asked, PollTimeout::ZERO);
    let closed = PollFlags::POLLERR | PollFlags::POLLHUP;
    !asked[0]
        .revents()
        .is_some_and(|told| told.intersects(closed))
}
