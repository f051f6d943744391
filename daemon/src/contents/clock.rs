//! Time for lifetimes: it never steps back, and goes on while the machine sleeps.

use mcp_sessiond_proto::time::now_ms;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};

/// How far a time on record may be ahead of ours and still be believed, in ms: the clocks of a
/// fleet differ by less, and one that is wrong by years must not end everybody's sessions.
const AHEAD_MAX_MS: u64 = 3_600_000;

/// Milliseconds since the Unix epoch that only grow: the time of day at the start, and from then on
/// the clock of the machine's uptime, and never less than what is on record.
#[derive(Debug)]
pub struct Clock {
    source: Source,
    floor: AtomicU64,
}

#[derive(Debug)]
enum Source {
    System {
        start_ms: u64,
        began_ms: u64,
    },
    /// For tests whose subject is time.
    Manual(AtomicU64),
}

impl Clock {
    /// The machine's.
    pub fn system() -> Self {
        Self {
            source: Source::System {
                start_ms: now_ms(),
                began_ms: uptime_ms(),
            },
            floor: AtomicU64::new(0),
        }
    }

    /// One that stands still unless it is [advanced](Clock::advance).
    pub fn manual(now_ms: u64) -> Self {
        Self {
            source: Source::Manual(AtomicU64::new(now_ms)),
            floor: AtomicU64::new(0),
        }
    }

    /// Lets time pass on a manual clock; the machine's is not impressed.
    pub fn advance(&self, ms: u64) {
        if let Source::Manual(now) = &self.source {
            now.fetch_add(ms, Ordering::Relaxed);
        }
    }

    /// Now, in ms since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        self.raw_ms().max(self.floor.load(Ordering::Relaxed))
    }

    /// This time is on record, so it has passed.
    pub fn observe(&self, recorded_ms: u64) {
        if recorded_ms <= self.raw_ms().saturating_add(AHEAD_MAX_MS) {
            self.floor.fetch_max(recorded_ms, Ordering::Relaxed);
        }
    }

    fn raw_ms(&self) -> u64 {
        match &self.source {
            Source::System { start_ms, began_ms } => {
                start_ms.saturating_add(uptime_ms().saturating_sub(*began_ms))
            }
            Source::Manual(now) => now.load(Ordering::Relaxed),
        }
    }
}

/// Milliseconds since the machine was started, those in which it slept among them: `Instant` leaves
/// these out.
fn uptime_ms() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    // On macOS this one goes on while the machine sleeps.
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;
    // Fails only for a clock that there is not.
    let now = clock_gettime(CLOCK).map_or((0, 0), |now| (now.tv_sec(), now.tv_nsec()));
    let (seconds, nanoseconds) = (
        u64::try_from(now.0).unwrap_or(0),
        u64::try_from(now.1).unwrap_or(0),
    );
    seconds
        .saturating_mul(1_000)
        .saturating_add(nanoseconds / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_record_has_passed_unless_it_can_not_be() {
        let clock = Clock::manual(1_000);
        clock.observe(5_000);
        assert_eq!(clock.now_ms(), 5_000);
        clock.advance(1_000);
        assert_eq!(
            clock.now_ms(),
            5_000,
            "it waits until the time has come again"
        );
        clock.observe(u64::MAX);
        assert_eq!(clock.now_ms(), 5_000);
        clock.advance(10_000);
        assert_eq!(clock.now_ms(), 12_000);
    }
}
