//! By when a call has to be answered, with everything that belongs to it.

use std::time::Duration;

#[cfg(unix)]
use nix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, timeout_at};

use crate::error::Reason;

/// How long one call may take in all, and the moment at which that time is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    whole: Duration,
    until: Instant,
}

impl Deadline {
    pub(crate) fn new(whole: Duration) -> Self {
        Self {
            whole,
            until: Instant::now() + whole,
        }
    }

    pub(crate) fn remaining(self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(crate) fn passed(self) -> Reason {
        Reason::NoAnswer(self.whole)
    }

    /// When it is at its end, by the clock that all processes of the machine read alike
    /// (`CLOCK_MONOTONIC`), in ms.
    #[cfg(unix)]
    pub(crate) fn until_ms(self) -> Option<u64> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).ok()?;
        let now = Duration::new(
            now.tv_sec().try_into().ok()?,
            now.tv_nsec().try_into().ok()?,
        );
        u64::try_from((now + self.remaining()).as_millis()).ok()
    }

    /// The daemon is not told: there is no such clock here.
    #[cfg(not(unix))]
    pub(crate) fn until_ms(self) -> Option<u64> {
        None
    }

    /// The output of `work`, if it comes in time.
    pub(crate) async fn bound<T>(self, work: impl Future<Output = T>) -> Result<T, Reason> {
        timeout_at(self.until, work)
            .await
            .map_err(|_| self.passed())
    }
}
