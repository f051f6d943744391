//! How long a backend goes on trying.

use std::time::{Duration, Instant};

/// No attempt begins later than this after the first one.
const BOUND: Duration = Duration::from_secs(3);

const FIRST_PAUSE: Duration = Duration::from_millis(25);

const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// The attempts at one request: pauses between them grow, and are drawn at random, lest all that were refused come
/// back at once.
#[derive(Debug)]
pub(super) struct Patience {
    since: Instant,
    pause: Duration,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), pause: FIRST_PAUSE }
    }

    /// Pauses before the next attempt. False: there shall be none.
    pub(super) async fn again(&mut self) -> bool {
        let pause = self.pause.mul_f64(fastrand::f64() + 0.5);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        if self.since.elapsed() + pause > BOUND {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}
