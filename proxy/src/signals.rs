//! Signals: which of them are blocked, for whom.
//!
//! A host may have blocked signals that we need, and what we block must not be blocked in the
//! server that we start. So each of our programs sets its own mask first, and gives the host's to
//! whatever it starts.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// The signals by which somebody asks a program to end.
pub const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// The mask that this program was started with.
#[derive(Debug, Clone, Copy)]
pub struct GivenMask(SigSet);

impl GivenMask {
    /// Blocks these signals, in this thread and in those that it starts from now on.
    #[must_use]
    pub fn block(signals: &[Signal]) -> Self {
        Self::change(SigmaskHow::SIG_BLOCK, signals)
    }

    /// Lets these signals in, in this thread and in those that it starts from now on.
    #[must_use]
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

/// Ends this process by this signal, as if it had not been caught.
pub fn die_of(signal: Signal) -> ! {
    let set: SigSet = [signal].into_iter().collect();
    let _ = nix::sys::signal::raise(signal);
    let _ = set.thread_unblock();
    // It was ignored.
    std::process::exit(128 + signal as i32)
}
