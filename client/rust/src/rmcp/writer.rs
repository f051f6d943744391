//! Writes the events of a response.

use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_http_session::sse;
use mcp_sessiond_proto::streams::EventId;
use tokio::sync::mpsc::Sender;

/// How often it is looked whether a client is there that gets no comments.
const CHECK_EVERY: Duration = Duration::from_secs(25);

/// Writes events. Where nobody reads them any more, they are nobody's.
pub(super) struct Writer {
    parts: Sender<Bytes>,
    retry: Duration,
    comments: Option<Duration>,
}

impl Writer {
    /// `comments`: after how long without an event there is one; None: there are none.
    pub(super) fn new(parts: Sender<Bytes>, retry: Duration, comments: Option<Duration>) -> Self {
        Self {
            parts,
            retry,
            comments,
        }
    }

    /// The client has hung up.
    pub(super) async fn closed(&self) {
        self.parts.closed().await;
    }

    pub(super) async fn write(&self, text: String) {
        let _ = self.parts.send(text.into()).await;
    }

    /// Tells when to come back, and with which id, if there is one already.
    pub(super) async fn begin(&self, primed: Option<&EventId>) {
        let retry = u64::try_from(self.retry.as_millis()).unwrap_or(u64::MAX);
        self.write(match primed {
            Some(id) => sse::priming(id, retry, true),
            None => sse::retry(retry),
        })
        .await;
    }

    /// After how long without an event there is a comment.
    pub(super) fn pause(&self) -> Duration {
        self.comments.unwrap_or(CHECK_EVERY)
    }

    pub(super) async fn comment(&self) {
        if self.comments.is_some() {
            self.write(sse::COMMENT.into()).await;
        }
    }
}
