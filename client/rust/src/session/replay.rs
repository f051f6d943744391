//! What a session has said, and what it says next.

use std::time::Duration;

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::client::CallError;
use mcp_sessiond_proto::sessions::SessionRef;
use mcp_sessiond_proto::streams::{
    Cursor, EventId, FindEventRequest, FoundEvent, PruneRequest, ReplayRequest, Replayed,
    WAIT_MAX_MS, WaitRequest,
};
use tokio::time::{Instant, sleep};

use super::Session;
use crate::connection::Connection;
use crate::deadline::Deadline;
use crate::error::SessionError;
use crate::runtime::driven;

/// The pause after a `wait` that ended before its time with nothing to tell: the daemon is about to
/// exit.
pub(super) const ENDED_EARLY_PAUSE: Duration = Duration::from_millis(50);

impl Session {
    /// Deletes the oldest events of all streams, so that at most `keep` stay. Whoever comes for a
    /// deleted event later is told of the gap. Returns how many were deleted.
    ///
    /// # Errors
    /// Those of every change ([`Session::update`]).
    pub async fn prune(&self, keep: u64) -> Result<u64, SessionError> {
        let pruned = self.call(|connection, context, of| {
            let request = PruneRequest {
                of,
                stream: None,
                keep: Some(keep),
                older_than_ms: None,
            };
            async move { connection.prune_events(context, request).await }
        });
        pruned.await.map(|pruned| pruned.events)
    }

    /// The stream of an event id, and whether that stream is complete.
    ///
    /// # Errors
    /// `unknown_cursor`; `unknown_session`, `session_terminated`, `binding_mismatch`.
    pub async fn find_event(&self, event: &EventId) -> Result<FoundEvent, SessionError> {
        self.call(|connection, context, of| {
            let request = FindEventRequest {
                of,
                event: event.clone(),
            };
            async move { connection.find_event(context, request).await }
        })
        .await
    }

    /// What was said after a place: one page, and where the next one begins (`next`), if there is
    /// more (`more`).
    ///
    /// # Errors
    /// `unknown_cursor`, `unknown_stream`; `unknown_session`, `session_terminated`,
    /// `binding_mismatch`.
    pub async fn replay(&self, after: &Cursor) -> Result<Replayed, SessionError> {
        self.call(|connection, context, of| {
            let request = ReplayRequest {
                of,
                after: after.clone(),
                most: None,
            };
            async move { connection.replay(context, request).await }
        })
        .await
    }

    /// All that was said after a place, as one page. A session holds so much of it that it fits
    /// into memory.
    ///
    /// # Errors
    /// As [`Session::replay`].
    pub async fn replay_all(&self, after: &Cursor) -> Result<Replayed, SessionError> {
        let mut all = self.replay(after).await?;
        while let (true, [next]) = (all.more, all.next.as_slice()) {
            let page = self.replay(next).await?;
            let Replayed {
                events,
                gaps,
                next,
                more,
                ..
            } = page;
            all.events.extend(events);
            all.gaps.extend(gaps);
            (all.next, all.more) = (next, more);
        }
        Ok(all)
    }

    /// What is said next after up to 64 cursors of different streams, or after one number. Where
    /// nothing is said before the time is over, there are no events; `next` is where to go on
    /// either way. Other calls are not kept waiting, and dropping this future does no harm.
    ///
    /// # Errors
    /// `invalid_argument`; as [`Session::replay`].
    ///
    /// ```no_run
    /// # async fn example(session: mcp_sessiond_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use mcp_sessiond_client::Cursor;
    /// use std::time::Duration;
    ///
    /// let mut after = vec![Cursor::Number(0)];
    /// loop {
    ///     let said = session.wait(&after, Duration::from_secs(15)).await?;
    ///     for event in said.events {
    ///         println!("{}", event.message.as_str());
    ///     }
    ///     after = said.next;
    /// }
    /// # }
    /// ```
    pub async fn wait(&self, after: &[Cursor], time: Duration) -> Result<Replayed, SessionError> {
        driven(self.wait_here(after, time)).await
    }

    async fn wait_here(&self, after: &[Cursor], time: Duration) -> Result<Replayed, SessionError> {
        let until = Instant::now().checked_add(time);
        let mut after = after.to_vec();
        loop {
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            let part = left.min(Duration::from_millis(WAIT_MAX_MS.into()));
            let began = Instant::now();
            let replayed = self.wait_once(&after, part).await?;
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            let is_told = !(replayed.events.is_empty()
                && replayed.gaps.is_empty()
                && replayed.ended.is_empty());
            if is_told || is_over {
                return Ok(replayed);
            }
            after = replayed.next;
            if began.elapsed() < part {
                sleep(ENDED_EARLY_PAUSE.min(part)).await;
            }
        }
    }

    async fn wait_once(&self, after: &[Cursor], time: Duration) -> Result<Replayed, SessionError> {
        self.waiting_call(time, |connection, context, of, timeout_ms| {
            let request = WaitRequest {
                of,
                after: after.to_vec(),
                most: None,
                timeout_ms: Some(timeout_ms),
            };
            async move { connection.wait(context, request).await }
        })
        .await
    }

    /// Makes a call that may wait for so long, on a connection on which it keeps no other call
    /// waiting. It is told how many ms are left.
    pub(super) async fn waiting_call<T, F>(
        &self,
        time: Duration,
        call: impl Fn(Connection, Duration, SessionRef, u32) -> F,
    ) -> Result<T, SessionError>
    where
        F: Future<Output = Result<Result<T, Error>, CallError>>,
    {
        let until = Instant::now() + time;
        let deadline = Deadline::new(time + self.0.connections.options.timeout);
        let (client, _permit) = self.0.connections.for_waiting_call(deadline).await?;
        let call = |connection: Connection, context, of| {
            // What was waited before a connection broke counts.
            let left = until.saturating_duration_since(Instant::now());
            let left_ms = u32::try_from(left.as_micros().div_ceil(1_000)).unwrap_or(WAIT_MAX_MS);
            call(connection, context, of, left_ms)
        };
        Ok(client
            .repeat(
                deadline,
                async || self.ready_on(&client, deadline).await,
                call,
            )
            .await?
            .0)
    }
}
