//! How calls are carried out: those that change something go on although the caller hangs up; how long each takes, and what is refused, is
//! counted.

use std::time::Instant;

use mcp_sessiond_proto::Error;

use super::Service;
use crate::counters::{Histogram, Meters, us_since};

impl Service {
    /// Runs what changes state to its end, although the caller may hang up.
    pub(super) async fn detached<T: Send + 'static>(
        &self,
        histogram: fn(&Meters) -> &Histogram,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let working = async {
            tokio::spawn(work).await.unwrap_or_else(|_| {
                Err(Error::OutcomeUnknown {
                    sentence: "the daemon has failed at this".into(),
                    retry_after_ms: 1_000,
                })
            })
        };
        self.measured(histogram, working).await
    }

    /// Takes down how long it took, and a refusal under its code.
    pub(super) async fn measured<T>(
        &self,
        histogram: fn(&Meters) -> &Histogram,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        let done = work.await;
        let meters = &self.daemon().meters;
        histogram(meters).record(us_since(began));
        if let Err(error) = &done {
            meters.counters.refused(error);
        }
        done
    }

    /// Takes down a refusal under its code. How long it took is the caller's to say.
    pub(super) async fn unmeasured<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let done = work.await;
        if let Err(error) = &done {
            self.daemon().meters.counters.refused(error);
        }
        done
    }
}
