//! How calls are carried out: those that change something go on although the caller hangs up; how long each takes, and what is refused, is
//! counted.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::task::Poll;
use std::time::Instant;

use futures::FutureExt as _;
use mcp_sessiond_proto::Error;

use super::Service;
use crate::counters::{Histogram, Meters, us_since};

// No `async fn`: the future of one holds its arguments twice, and tarpc's future of a call is as large as that of the largest method.
// Those are moved for every call, so what is large is on the heap before anything awaits it.
impl Service {
    /// Runs what changes state to its end, although the caller may hang up. It begins in the caller's task, where most of it
    /// ends at once; what has to wait gets a task of its own.
    pub(super) fn detached<T: Send + 'static>(
        &self,
        histogram: fn(&Meters) -> &Histogram,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        let began = Instant::now();
        // It may panic, as a task may: then this call has failed, and what else the connection carries goes on.
        let mut work = Box::pin(AssertUnwindSafe(work).catch_unwind());
        async move {
            let begun = poll_fn(|task| Poll::Ready(work.as_mut().poll(task))).await;
            let ended = match begun {
                Poll::Ready(ended) => ended.ok(),
                Poll::Pending => tokio::spawn(work).await.ok().and_then(Result::ok),
            };
            let done = ended.unwrap_or_else(|| {
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
