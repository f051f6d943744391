//! How long a call may take, with all that it takes.

use std::time::Duration;

#[cfg(unix)]
use nix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, timeout_at};

use crate::error::Reason;

/// How long one call may take, and until when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    whole: Duration,
    until: Instant,
}

impl Patience {
    pub(crate) fn new(whole: Duration) -> Self {
        Self {
            whole,
            until: Instant::now() + whole,
        }
    }

    pub(crate) fn left(self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(crate) fn out(self) -> Reason {
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
        u64::try_from((now + self.left()).as_millis()).ok()
    }

    /// Nobody is told.
    #[cfg(not(unix))]
    pub(crate) fn until_ms(self) -> Option<u64> {
        None
    }

    /// What comes of it in time.
    pub(crate) async fn bound<T>(self, work: impl Future<Output = T>) -> Result<T, Reason> {
        timeout_at(self.until, work).await.map_err(|_| self.out())
    }
}
