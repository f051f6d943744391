//! Signals: which of them are blocked, for whom; waiting for those of a front, which end it or are
//! its servers'; and death by one.
//!
//! A host may have blocked signals that we need, and what we block must not be blocked in the
//! server that we start. So each of our programs sets its own mask first, and gives the host's to
//! whatever it starts.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use mcp_sessiond_process::signals::not_ignored;
use mcp_sessiond_process::start_clock_ms;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// The signals by which somebody asks a program to end.
pub const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// A write beyond the limit of a file's size fails from now on, and does not end this process. What it
/// starts has what the host had set: an exec takes a handler away, and not what is ignored.
pub(crate) fn survive_file_limit() {
    for signal in not_ignored(&[Signal::SIGXFSZ]) {
        // Where it can't be done, the next write is as it was.
        drop(flag::register(signal, Arc::default()));
    }
}

/// The signals that a front waits for: those, and what it hands on to its servers.
pub const FRONT: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

/// The signal that has asked this process to end; 0: none has.
static SIGNALLED: AtomicI32 = AtomicI32::new(0);

/// The number of the signal that ends this process, and 0 where its host has closed its end; and the
/// time, in ms of the clock that start times are read from: keepers hear of both with the leave, and
/// one that is stopped reads it later.
pub(crate) fn leaving_now() -> (u64, u64) {
    let signal = u64::try_from(SIGNALLED.load(Ordering::Relaxed)).unwrap_or(0);
    (signal, start_clock_ms())
}

/// This signal has asked this process to end.
fn note_signal(signal: Signal) {
    SIGNALLED.store(signal as i32, Ordering::Relaxed);
}

/// The mask that this program was started with.
#[derive(Debug, Clone, Copy)]
pub struct GivenMask(SigSet);

impl GivenMask {
    /// Blocks these signals, in this thread and in those that it starts from now on.
    pub fn block(signals: &[Signal]) -> Self {
        Self::change(SigmaskHow::SIG_BLOCK, signals)
    }

    /// Lets these signals in, in this thread and in those that it starts from now on.
    pub fn unblock(signals: &[Signal]) -> Self {
        Self::change(SigmaskHow::SIG_UNBLOCK, signals)
    }

    fn change(how: SigmaskHow, signals: &[Signal]) -> Self {
        let set: SigSet = signals.iter().copied().collect();
        Self(
            set.thread_swap_mask(how)
                .unwrap_or_else(|_| SigSet::empty()),
        )
    }

    /// Does something as it would be done in the program that has started this one: what is started
    /// meanwhile inherits its mask.
    pub fn while_in_force<T>(&self, act: impl FnOnce() -> T) -> T {
        let ours = self.0.thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let done = act();
        if let Ok(ours) = ours {
            let _ = ours.thread_set_mask();
        }
        done
    }
}

/// How far a front has come that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Leaving {
    /// It stays.
    #[default]
    No,
    /// Its host has closed its end. What the host waits for may still be answered.
    Closed,
    /// What the host waits for was not answered in time: the same.
    Late,
    /// It waits for no answer any more, but for servers that end with it.
    Done,
}

/// What a signal to a front means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The front is to end.
    End(Signal),
    /// It is for the server.
    ForServer(Signal),
}

impl Heard {
    /// `is_first`: no signal has asked this process to end before. After one that has, the next one
    /// is the server's, too, which has its time to end.
    fn of(signal: Signal, had_terminal: bool, is_first: bool) -> Self {
        let is_for_server = match signal {
            // Where a terminal has closed, whoever ran on it ends.
            Signal::SIGHUP => !had_terminal || has_terminal(),
            signal => !ENDING.contains(&signal),
        };
        match is_for_server || !is_first {
            true => Self::ForServer(signal),
            false => Self::End(signal),
        }
    }
}

/// Whether this process has a controlling terminal that still exists.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Calls this, in a thread of its own, whenever a [signal of a front's](FRONT) comes. All
/// other threads have [blocked](GivenMask::block) these signals, so that none of their calls is
/// interrupted, and a signal that has come before this is called waits for it.
///
/// # Errors
/// When there can be no more threads or descriptors.
pub(crate) fn when_signalled(mut act: impl FnMut(Heard) + Send + 'static) -> io::Result<()> {
    survive_file_limit();
    let mut signals = Signals::new(not_ignored(&FRONT))?;
    let had_terminal = has_terminal();
    let waiting = move || {
        let _ = GivenMask::unblock(&FRONT);
        for signal in &mut signals {
            if let Ok(signal) = Signal::try_from(signal) {
                let heard = Heard::of(signal, had_terminal, leaving_now().0 == 0);
                if let Heard::End(signal) = heard {
                    note_signal(signal);
                }
                act(heard);
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(waiting)
        .map(drop)
}

/// The exit code of a front that has left a call unanswered (EX_TEMPFAIL of sysexits.h).
const UNANSWERED: i32 = 75;

/// Whether what the host waits for was not answered in time.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// What the host waits for was not answered in time.
pub(crate) fn note_unanswered() {
    IS_LATE.store(true, Ordering::Relaxed);
}

/// Ends this process as the signal ends it that has asked it to, if one has.
pub(crate) fn exit() -> ! {
    match Signal::try_from(SIGNALLED.load(Ordering::Relaxed)) {
        Ok(signal) => die_of(signal),
        Err(_) if IS_LATE.load(Ordering::Relaxed) => std::process::exit(UNANSWERED),
        Err(_) => std::process::exit(0),
    }
}

/// Ends this process by this signal, as if it had not been caught.
pub fn die_of(signal: Signal) -> ! {
    // A signal of its own does not end the first process of a container.
    if std::process::id() != 1 {
        let _ = emulate_default_handler(signal as i32);
    }
    std::process::exit(128 + signal as i32)
}
