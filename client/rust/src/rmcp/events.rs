//! The events of a response (Server-Sent Events, HTML Living Standard, section 9.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_proto::streams::EventId;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::body::DurableBody;
use super::options::DurableOptions;
use super::readers::Readers;
use super::tail::Tail;

/// Parts of a body that wait for the client.
const PARTS: usize = 16;
/// How often it is looked whether a client is there that gets no comments.
const LOOK: Duration = Duration::from_secs(25);

/// A message on its way to the client. Without an id it was not kept.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) id: Option<EventId>,
    pub(super) text: String,
}

/// What a response says.
pub(super) enum Events {
    /// This message.
    One(String),
    /// What a stream has said from a place on, and what it says then, out of the daemon.
    Kept(Tail),
    /// What is said on a stream that was just opened.
    Fresh(Fresh),
}

/// A stream that was just opened: this process says what it keeps there.
pub(super) struct Fresh {
    /// What becomes of it when the client is too slow: the daemon has the rest.
    pub(super) tail: Tail,
    pub(super) told: Receiver<Told>,
    /// Whether more was kept than the client was told.
    pub(super) is_behind: Arc<AtomicBool>,
}

impl Events {
    /// The body of the response.
    pub(super) fn body(self, options: &DurableOptions, readers: &Readers) -> DurableBody {
        let (parts, body) = channel(PARTS);
        let writer = Writer { parts, retry: options.retry, comments: options.rmcp.sse_keep_alive };
        let cancelled = options.rmcp.cancellation_token.clone();
        let place = self.tail().map(|tail| readers.come(tail.session.id(), &tail.stream));
        tokio::spawn(async move {
            let ended = async {
                match &place {
                    Some(place) => place.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = writer.parts.closed() => {}
                () = cancelled.cancelled() => {}
                () = ended => {}
                () = self.write(&writer) => {}
            }
        });
        DurableBody::events(body)
    }

    fn tail(&self) -> Option<&Tail> {
        match self {
            Self::One(_) => None,
            Self::Kept(tail) | Self::Fresh(Fresh { tail, .. }) => Some(tail),
        }
    }

    async fn write(self, writer: &Writer) {
        match self {
            Self::One(text) => writer.event(None, &text).await,
            Self::Kept(tail) => {
                writer.begin(tail.primed.as_ref()).await;
                tail.follow(writer).await;
            }
            Self::Fresh(Fresh { mut tail, mut told, is_behind }) => {
                writer.begin(tail.primed.as_ref()).await;
                loop {
                    match timeout(writer.pause(), told.recv()).await {
                        Err(_) => writer.comment().await,
                        Ok(None) => break,
                        Ok(Some(Told { id, text })) => {
                            writer.event(id.as_ref(), &text).await;
                            tail.is_past(id);
                        }
                    }
                }
                if is_behind.load(Ordering::Acquire) {
                    tail.follow(writer).await;
                }
            }
        }
    }
}

/// Writes events. Where nobody reads them any more, they are nobody's.
pub(super) struct Writer {
    parts: Sender<Bytes>,
    retry: Duration,
    comments: Option<Duration>,
}

impl Writer {
    async fn write(&self, text: String) {
        let _ = self.parts.send(text.into()).await;
    }

    /// Tells when to come back, and with which id, if there is one already.
    async fn begin(&self, primed: Option<&EventId>) {
        let retry = self.retry.as_millis();
        self.write(match primed {
            Some(EventId(id)) => format!("id: {id}\nretry: {retry}\ndata: \n\n"),
            None => format!("retry: {retry}\n\n"),
        })
        .await;
    }

    pub(super) async fn event(&self, id: Option<&EventId>, text: &str) {
        let id = id.map(|EventId(id)| format!("id: {id}\n")).unwrap_or_default();
        // JSON that another client has stored may have several lines.
        let text = text.replace(['\r', '\n'], " ");
        self.write(format!("event: message\n{id}data: {text}\n\n")).await;
    }

    /// After how long without an event there is a comment.
    pub(super) fn pause(&self) -> Duration {
        self.comments.unwrap_or(LOOK)
    }

    pub(super) async fn comment(&self) {
        if self.comments.is_some() {
            self.write(": waiting\n\n".into()).await;
        }
    }
}
