//! The events of a response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mcp_sessiond_http_session::sse;
use mcp_sessiond_proto::Json;
use mcp_sessiond_proto::streams::EventId;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use super::body::DurableBody;
use super::options::DurableOptions;
use super::readers::Readers;
use super::tail::Tail;
use super::writer::Writer;

/// Parts of a body that wait for the client.
const PARTS: usize = 16;

/// A message on its way to the client.
#[derive(Debug)]
pub(super) struct Delivery {
    /// The event, by its position in the stream and its id. None: it was not kept.
    pub(super) event: Option<(u64, EventId)>,
    pub(super) message: Json,
}

/// The events of a response.
pub(super) enum Events {
    /// This message.
    One(String),
    /// What a stream has said from a place on, and what it says then, out of the daemon.
    Stored(Tail),
    /// What is said on a stream that was just opened.
    New(NewStream),
}

/// A stream that was just opened: this process says what it keeps there.
pub(super) struct NewStream {
    /// What becomes of it when the client is too slow: the daemon has the rest.
    pub(super) tail: Tail,
    pub(super) deliveries: Receiver<Delivery>,
    /// Whether more was kept than the client was told.
    pub(super) is_behind: Arc<AtomicBool>,
}

impl Events {
    /// The body of the response.
    pub(super) fn body(self, options: &DurableOptions, readers: &Readers) -> DurableBody {
        let (parts, body) = channel(PARTS);
        let writer = Writer::new(parts, options.retry, options.rmcp.sse_keep_alive);
        let cancelled = options.rmcp.cancellation_token.clone();
        let slot = self
            .tail()
            .map(|tail| readers.register(tail.session.id(), tail.reader.stream()));
        tokio::spawn(async move {
            let ended = async {
                match &slot {
                    Some(slot) => slot.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = writer.closed() => {}
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
            Self::Stored(tail) | Self::New(NewStream { tail, .. }) => Some(tail),
        }
    }

    async fn write(self, writer: &Writer) {
        match self {
            Self::One(text) => writer.write(sse::event(None, &text)).await,
            Self::Stored(tail) => {
                writer.begin(tail.primed.as_ref()).await;
                tail.follow(writer).await;
            }
            Self::New(NewStream {
                mut tail,
                mut deliveries,
                is_behind,
            }) => {
                writer.begin(tail.primed.as_ref()).await;
                loop {
                    match timeout(writer.pause(), deliveries.recv()).await {
                        Err(_) => writer.comment().await,
                        Ok(None) => break,
                        Ok(Some(Delivery { event, message })) => {
                            let message = message.as_str();
                            let text = match event {
                                Some((position, id)) => tail
                                    .reader
                                    .event(position, &id, message)
                                    .map(|part| part.text),
                                None => Some(sse::event(None, message)),
                            };
                            writer.write(text.unwrap_or_default()).await;
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
