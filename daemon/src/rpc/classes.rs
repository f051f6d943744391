//! How calls are carried out: those that change something go on although the caller hangs up; how
//! long each takes, and what is refused, is counted.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::task::Poll;
use std::time::Instant;

use futures::FutureExt as _;
use mcp_sessiond_proto::Error;

use super::Handlers;
use crate::counters::{Histogram, Meters};

// No `async fn`: the future of one holds its arguments twice, and tarpc's future of a call is as
// large as that of the largest method. Those are moved for every call, so what is large is on the
// heap before anything awaits it.
impl Handlers {
    /// Runs what changes state to its end, although the caller may hang up. It begins in the
    /// caller's task, where most of it ends at once; what has to wait gets a task of its own.
    pub(super) fn detached<T: Send + 'static>(
        &self,
        histogram: fn(&Meters) -> &Histogram,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        let began = Instant::now();
        let work = to_its_end(work);
        async move {
            let done = work.await.unwrap_or_else(|| {
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
    pub(super) fn counted<'a, T: Send + 'a>(
        &'a self,
        work: impl Future<Output = Result<T, Error>> + Send + 'a,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'a {
        let work = Box::pin(work);
        async move {
            let done = work.await;
            if let Err(error) = &done {
                self.0.daemon.meters.counters.refused(error);
            }
            done
        }
    }

    fn count(&self, histogram: fn(&Meters) -> &Histogram, began: Instant, refused: Option<&Error>) {
        let meters = &self.0.daemon.meters;
        let us = began.elapsed().as_micros();
        histogram(meters).record(u64::try_from(us).unwrap_or(u64::MAX));
        if let Some(error) = refused {
            meters.counters.refused(error);
        }
    }
}

/// Runs work to its end, although nobody may wait for it any more: here if it ends at once, else in
/// a task of its own. None: it has panicked. Then what waits for it has failed, and what else the
/// connection carries goes on.
fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Option<T>> + Send {
    // One type for all work: what runs a task is compiled for each type that is spawned.
    let mut work = AssertUnwindSafe(work).catch_unwind().boxed();
    async move {
        let begun = poll_fn(|task| Poll::Ready(work.as_mut().poll(task))).await;
        match begun {
            Poll::Ready(ended) => ended.ok(),
            Poll::Pending => tokio::spawn(work).await.ok().and_then(Result::ok),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::to_its_end;

    #[tokio::test]
    async fn work_that_need_not_wait_ends_where_it_was_begun() {
        let task = || tokio::task::try_id();
        let here = task();
        assert_eq!(to_its_end(async move { task() }).await, Some(here));
    }

    #[tokio::test]
    async fn what_waits_comes_to_its_end_though_nobody_waits_for_it() {
        let (go, gone) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let mut work = Box::pin(to_its_end(async move {
            drop(gone.await);
            tell.send(()).expect("somebody who listens");
        }));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        go.send(()).expect("it waits");
        told.await.expect("it has come to its end");
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_of_this_work_alone_now_or_later() {
        assert_eq!(to_its_end(async { panic!("at once") }).await, None::<()>);
        let later = to_its_end(async {
            yield_now().await;
            panic!("later")
        });
        assert_eq!(later.await, None::<()>);
    }
}
