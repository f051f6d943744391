//! How often a list that has changed is fetched.

use std::time::Duration;

use tokio::time::Instant;

/// The first and the longest pause between two times that a list is fetched. Some servers say at
/// each request for their list that it has changed.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Whether a list is being fetched, and how fast it has changed.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    runs: bool,
    again: bool,
    pause: Duration,
    last: Option<Instant>,
}

impl Pace {
    /// It has changed. False: it is being fetched already, and will be once more.
    pub(crate) fn begin(&mut self) -> bool {
        self.again = self.runs;
        !std::mem::replace(&mut self.runs, true)
    }

    /// How long to wait before it is fetched. Changes during the wait are in that fetch.
    pub(crate) fn pause(&mut self) -> Duration {
        let is_quick = self.last.is_some_and(|last| last.elapsed() < PAUSE.0);
        self.pause = if is_quick {
            (self.pause * 2).clamp(PAUSE.0, PAUSE.1)
        } else {
            Duration::ZERO
        };
        self.pause
    }

    /// It is fetched now.
    pub(crate) fn fetch(&mut self) {
        self.again = false;
    }

    /// It was fetched. True: it has changed since that began.
    pub(crate) fn end(&mut self) -> bool {
        self.last = Some(Instant::now());
        self.runs = std::mem::take(&mut self.again);
        self.runs
    }
}
