//! Signals: which of them are blocked, for whom; waiting for those that end a front, and death by
//! one.
//!
//! A host may have blocked signals that we need, and what we block must not be blocked in the
//! server that we start. So each of our programs sets its own mask first, and gives the host's to
//! whatever it starts.

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

use mcp_sessiond_process::signals::not_ignored;
use mcp_sessiond_process::start_clock_ms;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// The signals by which somebody asks a program to end.
pub const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

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
pub(crate) fn note_signal(signal: Signal) {
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

/// Calls this, in a thread of its own, whenever a signal comes that asks this process to end. All
/// other threads have [blocked](GivenMask::block) these signals, so that none of their calls is
/// interrupted, and a signal that has come before this is called waits for it.
///
/// # Errors
/// When there can be no more threads or descriptors.
pub(crate) fn when_told_to_end(mut act: impl FnMut(Signal) + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(not_ignored(&ENDING))?;
    let waiting = move || {
        let _ = GivenMask::unblock(&ENDING);
        for signal in &mut signals {
            if let Ok(signal) = Signal::try_from(signal) {
                act(signal);
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(waiting)
        .map(drop)
}

/// Ends this process by this signal, as if it had not been caught.
pub fn die_of(signal: Signal) -> ! {
    // A signal of its own does not end the first process of a container.
    if std::process::id() != 1 {
        let _ = emulate_default_handler(signal as i32);
    }
    std::process::exit(128 + signal as i32)
}
