//! The clock that all processes of a machine read alike.

use mcp_sessiond_identity::StartTime;
use nix::time::{ClockId, clock_gettime};

/// The clock that start times of processes are read from.
#[cfg(target_os = "linux")]
const START_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const START_CLOCK: ClockId = ClockId::CLOCK_REALTIME;

/// Microseconds of one unit of a [`StartTime`]: on Linux `USER_HZ`, which programs are told as 100
/// everywhere.
#[cfg(target_os = "linux")]
const START_UNIT_US: u64 = 10_000;
#[cfg(not(target_os = "linux"))]
const START_UNIT_US: u64 = 1;

/// Milliseconds of `CLOCK_MONOTONIC`: a moment that one process names is the same to another.
pub fn monotonic_ms() -> u64 {
    ms_of(ClockId::CLOCK_MONOTONIC)
}

/// Milliseconds of the clock that start times of processes are read from: on Linux
/// `CLOCK_BOOTTIME`, on macOS the time of day.
pub fn start_clock_ms() -> u64 {
    ms_of(START_CLOCK)
}

/// The latest millisecond of [`start_clock_ms`] at which a process can have started that has this
/// start time.
pub fn latest_start_ms(start: StartTime) -> u64 {
    start
        .0
        .saturating_add(1)
        .saturating_mul(START_UNIT_US)
        .saturating_sub(1)
        / 1_000
}

fn ms_of(clock: ClockId) -> u64 {
    let Ok(time) = clock_gettime(clock) else {
        return 0;
    };
    u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000
        + u64::try_from(time.tv_nsec()).unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PinnedProcess;

    #[test]
    fn a_process_has_started_between_the_moments_before_and_after_it() {
        let before = start_clock_ms();
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat");
        let start = PinnedProcess::open(child.id())
            .expect("it lives")
            .id()
            .start;
        let after = start_clock_ms();
        let latest = latest_start_ms(start);
        assert!(before <= latest, "{before} {latest}");
        assert!(latest < after + 10, "{latest} {after}");
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }
}
