//! The terminal: taken as a whole, and given back as it was, whatever happens.

pub(crate) mod line;
pub(crate) mod signals;

use std::io::{self, Write as _, stdout};
use std::os::fd::AsFd as _;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::{AutoStream, ColorChoice};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::Print;
use crossterm::terminal::{
    self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use crossterm::{execute, queue};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::line::Line;

/// Whether it is taken.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal that is given back when this is dropped, and before a panic says anything.
pub(crate) struct Screen {
    /// The columns and rows that it had.
    size: (u16, u16),
    /// What stands in its rows, as it was written.
    drawn: Vec<String>,
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
        let screen = Self {
            size: (0, 0),
            drawn: Vec::new(),
        };
        take()?;
        Ok(screen)
    }

    /// Writes the rows that are others than those that stand there. `what` makes them, for so many
    /// columns and rows.
    pub(crate) fn draw(&mut self, what: impl FnOnce(usize, usize) -> Vec<Line>) -> io::Result<()> {
        // A thread that has panicked has given it back for good.
        if !IS_TAKEN.load(Ordering::SeqCst) {
            return Ok(());
        }
        let size = terminal::size()?;
        let (columns, rows) = (usize::from(size.0), usize::from(size.1));
        let mut output = stdout().lock();
        if size != self.size {
            queue!(output, Clear(ClearType::All))?;
            (self.size, self.drawn) = (size, Vec::new());
        }
        let lines = what(columns, rows).into_iter();
        let mut lines: Vec<String> = lines.map(|line| line.painted(columns)).collect();
        lines.resize(rows, String::new());
        self.drawn.resize(rows, String::new());
        for (at, (row, line)) in (0..).zip(self.drawn.iter().zip(&lines)) {
            if row != line {
                queue!(
                    output,
                    MoveTo(0, at),
                    Clear(ClearType::CurrentLine),
                    Print(line)
                )?;
            }
        }
        self.drawn = lines;
        output.flush()
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
        self.size = (0, 0);
        Ok(())
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
