//! Time for lifetimes: it never steps back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How far a time on record may be ahead of ours and still be believed, in ms: the clocks of a fleet differ by less, and
/// one that is wrong by years must not end everybody's sessions.
const AHEAD_MAX_MS: u64 = 3_600_000;

/// Milliseconds since the Unix epoch that only grow: the time of day at the start, and from then on the monotonic
/// clock's, and never less than what is on record.
#[derive(Debug)]
pub struct Clock {
    source: Source,
    floor: AtomicU64,
}

#[derive(Debug)]
enum Source {
    System {
        start_ms: u64,
        began: Instant,
    },
    /// For tests whose subject is time.
    Manual(AtomicU64),
}

impl Clock {
    /// The machine's.
    #[must_use]
    pub fn system() -> Self {
        let start_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let start_ms = u64::try_from(start_ms).unwrap_or(u64::MAX);
        Self { source: Source::System { start_ms, began: Instant::now() }, floor: AtomicU64::new(0) }
    }

    /// One that stands still unless it is [advanced](Clock::advance).
    #[must_use]
    pub fn manual(now_ms: u64) -> Self {
        Self { source: Source::Manual(AtomicU64::new(now_ms)), floor: AtomicU64::new(0) }
    }

    /// Lets time pass on a manual clock; the machine's is not impressed.
    pub fn advance(&self, ms: u64) {
        if let Source::Manual(now) = &self.source {
            now.fetch_add(ms, Ordering::Relaxed);
        }
    }

    /// Now, in ms since the Unix epoch.
    #[must_use]
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
            Source::System { start_ms, began } => {
                start_ms.saturating_add(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))
            }
            Source::Manual(now) => now.load(Ordering::Relaxed),
        }
    }
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
        assert_eq!(clock.now_ms(), 5_000, "it waits until the time has come again");
        clock.observe(u64::MAX);
        assert_eq!(clock.now_ms(), 5_000);
        clock.advance(10_000);
        assert_eq!(clock.now_ms(), 12_000);
    }
}
