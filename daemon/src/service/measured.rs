//! How calls are carried out: those that change something go on although the caller hangs up; how long each takes, and what is refused, is
//! counted.

use std::time::Instant;

use mcp_sessiond_proto::Error;

use super::Service;
use crate::counters::{Histogram, Meters, us_since};

// No `async fn`: the future of one holds its arguments twice, and tarpc's future of a call is as large as that of the largest method.
// Those are moved for every call, so what is large is on the heap before anything awaits it.
impl Service {
    /// Runs what changes state to its end, although the caller may hang up. It begins at once.
    pub(super) fn detached<T: Send + 'static>(
        &self,
        histogram: fn(&Meters) -> &Histogram,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        let began = Instant::now();
        let working = tokio::spawn(work);
        async move {
            let done = working.await.unwrap_or_else(|_| {
                Err(Error::OutcomeUnknown {
                    sentence: "the daemon has failed at this".into(),
                    retry_after_ms: 1_000,
                })
            });
            self.count(histogram, began, done.as_ref().err());
            done
        }
    }

    /// Takes down how long it took, and a refusal under its code.
    pub(super) fn measured<'a, T: Send + 'a>(
        &'a self,
        histogram: fn(&Meters) -> &Histogram,
        work: impl Future<Output = Result<T, Error>> + Send + 'a,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'a {
        let began = Instant::now();
        let work = Box::pin(work);
        async move {
            let done = work.await;
            self.count(histogram, began, done.as_ref().err());
            done
        }
    }

    /// Takes down a refusal under its code. How long it took is the caller's to say.
    pub(super) fn unmeasured<'a, T: Send + 'a>(
        &'a self,
        work: impl Future<Output = Result<T, Error>> + Send + 'a,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'a {
        let work = Box::pin(work);
        async move {
            let done = work.await;
            if let Err(error) = &done {
                self.daemon().meters.counters.refused(error);
            }
            done
        }
    }

    fn count(&self, histogram: fn(&Meters) -> &Histogram, began: Instant, refused: Option<&Error>) {
        let meters = &self.daemon().meters;
        histogram(meters).record(us_since(began));
        if let Some(error) = refused {
            meters.counters.refused(error);
        }
    }
}
