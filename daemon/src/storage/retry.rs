//! What a backend behind a network does about failures that pass: it tries again, for a bounded
//! time.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Mutex;
use std::time::Duration;

use mcp_sessiond_proto::Lock as _;
use tokio::time::{self, Instant};

use super::StorageError;

/// No attempt starts later than this after the first one did.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// The pause before the second attempt is at most this. Each further one may be twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// And no pause is longer than this.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Why an attempt failed. The sentences are for people, as those of [`StorageError::Unavailable`].
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was done, and the next attempt may succeed.
    Passing(String),
    /// The next attempt may succeed, but whether this one did is unknown.
    Unknown(String),
    /// Every further attempt would fail alike.
    Final(StorageError),
}

impl Failure {
    /// For what changes nothing, or has not begun: then it is known that nothing was done.
    pub(super) fn known(self) -> Self {
        match self {
            Self::Unknown(why) => Self::Passing(why),
            Self::Final(error) => Self::Final(error.known()),
            Self::Passing(why) => Self::Passing(why),
        }
    }
}

/// Decides whether there is another attempt, and when.
#[derive(Debug)]
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
    unknown: bool,
}

impl Patience {
    /// The first attempt starts now.
    pub(super) fn new() -> Self {
        Self {
            until: Instant::now() + PATIENCE,
            pause: FIRST_PAUSE,
            unknown: false,
        }
    }

    /// Whether one of the attempts may have succeeded although it failed.
    pub(super) fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// When there is none: what the failure is for the caller.
    pub(super) async fn pause(&mut self, failure: Failure) -> Result<(), StorageError> {
        let why = match failure {
            Failure::Passing(why) => why,
            Failure::Unknown(why) => {
                self.unknown = true;
                why
            }
            Failure::Final(error) if self.unknown => return Err(error.unknown()),
            Failure::Final(error) => return Err(error),
        };
        let next = Instant::now() + jittered(self.pause);
        if next > self.until {
            let error = StorageError::Unavailable(why);
            return Err(if self.unknown { error.unknown() } else { error });
        }
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        time::sleep_until(next).await;
        Ok(())
    }
}

/// Between half of a pause and all of it, so that those who failed together don't come back
/// together.
fn jittered(pause: Duration) -> Duration {
    // Every state of this kind has keys of its own, which are random enough for a pause.
    let random = RandomState::new().build_hasher().finish() >> 32;
    pause / 2 + pause.mul_f64(0.5 * random as f64 / f64::from(u32::MAX))
}

/// Attempts something that may be done twice, until it succeeds or there is no point in going on.
pub(super) async fn patiently<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, StorageError>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut patience = Patience::new();
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(failure) => patience.pause(failure.known()).await?,
        }
    }
}

/// The last failure, until something succeeds.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<Option<StorageError>>);

impl Health {
    /// Notes what something came to. That somebody else was faster, or that a record is damaged, is
    /// no failure of the database's.
    pub(super) fn note<T>(&self, outcome: Result<T, StorageError>) -> Result<T, StorageError> {
        let failure = match &outcome {
            Err(error @ (StorageError::Unavailable(_) | StorageError::Unknown { .. })) => {
                Some(error.clone().known())
            }
            Ok(_) | Err(_) => None,
        };
        *self.0.locked() = failure;
        outcome
    }

    /// How it was at last.
    ///
    /// # Errors
    /// The failure.
    pub(super) fn check(&self) -> Result<(), StorageError> {
        self.0.locked().clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable(why: &str) -> StorageError {
        StorageError::Unavailable(why.into())
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_with_patience() {
        let (start, mut attempts) = (Instant::now(), 0);
        let outcome: Result<(), _> = patiently(|| {
            attempts += 1;
            async { Err(Failure::Unknown("down".into())) }
        })
        .await;
        assert_eq!(
            outcome,
            Err(unavailable("down")),
            "what may be done twice leaves no doubt"
        );
        let taken = start.elapsed();
        assert!(
            taken <= PATIENCE && taken >= PATIENCE - LONGEST_PAUSE,
            "{taken:?}"
        );
        assert!((8..30).contains(&attempts), "{attempts} attempts");
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_is_not_told() {
        let mut left = 3;
        let outcome = patiently(|| {
            left -= 1;
            let outcome = if left == 0 {
                Ok("done")
            } else {
                Err(Failure::Passing("busy".into()))
            };
            async { outcome }
        })
        .await;
        assert_eq!(outcome, Ok("done"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_final_is_told_at_once() {
        let start = Instant::now();
        let outcome: Result<(), _> =
            patiently(|| async { Err(Failure::Final(StorageError::Damaged("a row".into()))) })
                .await;
        assert_eq!(outcome, Err(StorageError::Damaged("a row".into())));
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn doubt_stays() {
        let mut patience = Patience::new();
        patience
            .pause(Failure::Unknown("lost".into()))
            .await
            .expect("another attempt");
        let outcome = loop {
            if let Err(error) = patience.pause(Failure::Passing("down".into())).await {
                break error;
            }
        };
        assert!(patience.is_unknown());
        assert_eq!(outcome, unavailable("down").unknown());
    }

    #[test]
    fn health_is_that_of_the_last_call() {
        let health = Health::default();
        assert_eq!(health.check(), Ok(()));
        let _ = health.note::<()>(Err(unavailable("down")));
        assert_eq!(health.check(), Err(unavailable("down")));
        let _ = health.note::<()>(Err(StorageError::Conflict));
        assert_eq!(health.check(), Ok(()), "it answered");
    }
}
