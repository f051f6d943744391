//! What the storage holds in all, for the metrics.

use std::time::{Duration, Instant};

use mcp_sessiond_proto::Error;

use super::head::{self, Head};
use super::{Contents, is_session};

/// Records that are asked for at once.
const BATCH: usize = 500;

/// A shared storage is asked for all of its records no more often.
const SHARED_AGE: Duration = Duration::from_secs(60);

/// What the storage holds, whoever put it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Sessions of services that live.
    pub of_services: u64,
    /// Sessions of hosts that live, and have contents.
    pub of_hosts: u64,
    /// Events that can be replayed.
    pub events: u64,
    /// Bytes of their messages.
    pub event_bytes: u64,
    /// Bytes of state.
    pub state_bytes: u64,
}

impl Contents {
    /// Counts what the storage holds. What others share may be told as it was a minute ago.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn usage(&self) -> Result<Usage, Error> {
        let mut last = self.usage.lock().await;
        let is_new = |(counted, _): &(Instant, Usage)| counted.elapsed() < SHARED_AGE;
        match last.filter(is_new) {
            Some((_, usage)) if self.store.is_shared() => Ok(usage),
            _ => {
                let usage = self.count_all().await?;
                *last = Some((Instant::now(), usage));
                Ok(usage)
            }
        }
    }

    async fn count_all(&self) -> Result<Usage, Error> {
        let mut usage = Usage::default();
        let mut after = None;
        loop {
            let listed = self.store.list_all(after.as_ref(), BATCH).await;
            let listed = listed.map_err(|error| self.failed(&error))?;
            let Some(last) = listed.last() else {
                return Ok(usage);
            };
            after = Some(last.place.clone());
            for record in listed.iter().filter(|record| is_session(&record.place)) {
                // One that can't be read is told of when somebody asks for it.
                let Ok(head) = head::decode::<Head>(&record.head) else {
                    continue;
                };
                if head.is_terminated() {
                    continue;
                }
                let is_hosts = record.place.owner.starts_with("host ");
                *(if is_hosts {
                    &mut usage.of_hosts
                } else {
                    &mut usage.of_services
                }) += 1;
                usage.events += u64::from(head.events);
                usage.event_bytes += head.event_bytes;
                usage.state_bytes += head.state_bytes;
            }
            // Others are answered in between.
            tokio::task::yield_now().await;
        }
    }
}
