//! Which signals a process may wait for.

use nix::sys::signal::Signal;

use crate::sys;

/// The numbers of those of these signals that are not ignored, to be waited for. What was ignored
/// when this process started stays so, as SIGHUP below `nohup`: nothing here ignores a signal
/// later.
pub fn not_ignored(signals: &[Signal]) -> Vec<i32> {
    let signals = signals.iter().filter(|signal| !sys::is_ignored(**signal));
    signals.map(|signal| *signal as i32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_not_waited_for() {
        // Rust has every program ignore SIGPIPE.
        let asked = [Signal::SIGUSR1, Signal::SIGPIPE, Signal::SIGUSR2];
        let expected = [Signal::SIGUSR1, Signal::SIGUSR2].map(|signal| signal as i32);
        assert_eq!(not_ignored(&asked), expected);
    }
}
