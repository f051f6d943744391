//! The clock that all processes of a machine read alike.

use nix::time::{ClockId, clock_gettime};

/// Milliseconds of `CLOCK_MONOTONIC`: a moment that one process names is the same to another.
pub fn monotonic_ms() -> u64 {
    let Ok(time) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
        return 0;
    };
    u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000
        + u64::try_from(time.tv_nsec()).unwrap_or(0) / 1_000_000
}
