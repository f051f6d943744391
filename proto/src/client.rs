//! The client's side of a connection, after the hello: calls in MessagePack with named fields,
//! several at a time.
//!
//! An unknown field of a newer daemon's answer is skipped, a missing one has its default.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_core::Stream as _;
use futures_sink::Sink as _;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::frame::{Budget, Decoded, FrameCodec, Frames, put_frame};
use crate::hello::FRAME_MAX;

/// Why there is no answer to a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The connection has ended. Whether the call was carried out is unknown.
    #[error("the connection has ended")]
    Ended,
    /// The time is over. Whether the call was carried out is unknown.
    #[error("the time for it is over")]
    Late,
    /// The call is none that could be sent. Nothing was.
    #[error("this can't be sent: {0}")]
    NotSent(String),
    /// The daemon has too many calls of this connection under way. Try again soon.
    #[error("{0}")]
    Crowded(String),
    /// The daemon can't read the call, or its answer would not fit into a frame.
    #[error("{0}")]
    Refused(String),
    /// The answer is none of this protocol.
    #[error("the daemon's answer can't be read")]
    Unreadable,
}

/// Calls over one connection: the methods of the service. Clones share the connection, which ends
/// with the last of them.
#[derive(Debug, Clone)]
pub struct Client {
    orders: mpsc::UnboundedSender<Order>,
    last: Arc<AtomicU64>,
    frame_max: usize,
}

/// For whoever drives the connection.
#[derive(Debug)]
enum Order {
    Call {
        id: u64,
        frame: Bytes,
        answer: oneshot::Sender<Bytes>,
    },
    Cancel {
        id: u64,
    },
}

/// A client on a stream after the hello, which has told the largest frame that the daemon takes.
/// The future drives the connection, and returns when that has ended.
pub fn over<S>(stream: S, frame_max: u32) -> (Client, impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (orders, received) = mpsc::unbounded_channel();
    let frames = Frames::new(stream, Raw, FRAME_MAX as usize, Budget::new(usize::MAX));
    let client = Client {
        orders,
        last: Arc::default(),
        frame_max: frame_max.min(FRAME_MAX) as usize,
    };
    (client, drive(frames, received))
}

impl Client {
    /// A call as a frame, and the id that its answer will have.
    pub(crate) fn encode(
        &self,
        within: Duration,
        method: &str,
        arguments: impl Serialize,
    ) -> Result<(u64, Bytes), CallError> {
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        let frame = call(id, within, method, arguments, self.frame_max)
            .map_err(|error| CallError::NotSent(error.to_string()))?;
        Ok((id, frame))
    }

    /// Sends a call, and waits for its answer. Where the future is dropped, or the time is over, the
    /// daemon is told that nobody waits.
    pub(crate) async fn exchange(
        &self,
        id: u64,
        within: Duration,
        frame: Bytes,
    ) -> Result<Bytes, CallError> {
        let (answer, answered) = oneshot::channel();
        self.orders
            .send(Order::Call { id, frame, answer })
            .map_err(|_| CallError::Ended)?;
        let mut waiting = Waiting {
            orders: Some(&self.orders),
            id,
        };
        let frame = timeout(within, answered)
            .await
            .map_err(|_| CallError::Late)?;
        waiting.orders = None;
        frame.map_err(|_| CallError::Ended)
    }
}

/// A call that nobody has answered yet.
struct Waiting<'a> {
    orders: Option<&'a mpsc::UnboundedSender<Order>>,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(orders) = self.orders {
            // Where the connection has ended, so has the call.
            drop(orders.send(Order::Cancel { id: self.id }));
        }
    }
}

async fn drive<S: AsyncRead + AsyncWrite + Unpin>(
    mut frames: Frames<S, Raw>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let mut open = HashMap::new();
    // However it ends, whoever waits learns it from what is dropped here.
    drop(poll_fn(|context| poll(Pin::new(&mut frames), &mut orders, &mut open, context)).await);
}

fn poll<S: AsyncRead + AsyncWrite + Unpin>(
    mut frames: Pin<&mut Frames<S, Raw>>,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    open: &mut HashMap<u64, oneshot::Sender<Bytes>>,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let mut is_left = false;
    loop {
        let has_room = frames.as_mut().poll_ready(context)?.is_ready();
        if has_room {
            match orders.poll_recv(context) {
                Poll::Ready(Some(Order::Call { id, frame, answer })) => {
                    open.insert(id, answer);
                    frames.as_mut().start_send(frame)?;
                    continue;
                }
                Poll::Ready(Some(Order::Cancel { id })) => {
                    if open.remove(&id).is_some() {
                        frames.as_mut().start_send(cancellation(id)?)?;
                    }
                    continue;
                }
                Poll::Ready(None) => is_left = true,
                Poll::Pending => {}
            }
        }
        match frames.as_mut().poll_flush(context)? {
            Poll::Ready(()) if is_left => return Poll::Ready(Ok(())),
            // There is room now.
            Poll::Ready(()) if !has_room => {}
            _ => break,
        }
    }
    loop {
        match frames.as_mut().poll_next(context) {
            Poll::Ready(Some(Ok((id, frame)))) => {
                if let Some(answer) = open.remove(&id) {
                    // Whoever waited may be gone.
                    drop(answer.send(frame));
                }
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
            Poll::Ready(None) => return Poll::Ready(Ok(())),
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// Frames as they are. Of what comes in only the id is read.
struct Raw;

impl FrameCodec for Raw {
    type In = (u64, Bytes);
    type Out = Bytes;
    const ANSWERS: bool = false;

    fn decode(&mut self, frame: &[u8], _: &mut BytesMut) -> io::Result<Decoded<Self::In>> {
        #[derive(Deserialize)]
        struct Head {
            id: u64,
        }
        let head: Head = rmp_serde::from_slice(frame).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Decoded::Item((head.id, Bytes::copy_from_slice(frame))))
    }

    fn encode(&mut self, frame: Self::Out, outbound: &mut BytesMut) -> io::Result<()> {
        outbound.put(frame);
        Ok(())
    }
}

/// What a client sends. Without a call it cancels the call of that id.
#[derive(Serialize)]
struct Call<'a, A> {
    id: u64,
    deadline_ms: u64,
    call: Option<Tagged<'a, A>>,
}

/// The arguments of a call, under its name.
struct Tagged<'a, A>(&'a str, A);

impl<A: Serialize> Serialize for Tagged<'_, A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(&variant(self.0), &self.1)?;
        map.end()
    }
}

/// `store_token` is `StoreToken` in MessagePack.
pub(crate) fn variant(method: &str) -> String {
    let capital = |part: &str| part[..1].to_ascii_uppercase() + &part[1..];
    method.split('_').map(capital).collect()
}

fn put(max: usize, call: &impl Serialize) -> io::Result<Bytes> {
    let mut frame = BytesMut::new();
    put_frame(&mut frame, max, |writer| {
        rmp_serde::encode::write_named(writer, call)
    })?;
    Ok(frame.freeze())
}

/// A call as a frame.
pub(crate) fn call(
    id: u64,
    within: Duration,
    method: &str,
    arguments: impl Serialize,
    max: usize,
) -> io::Result<Bytes> {
    let deadline_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    put(
        max,
        &Call {
            id,
            deadline_ms,
            call: Some(Tagged(method, arguments)),
        },
    )
}

/// The cancellation of a call, as a frame.
pub(crate) fn cancellation(id: u64) -> io::Result<Bytes> {
    put(
        FRAME_MAX as usize,
        &Call::<()> {
            id,
            deadline_ms: 0,
            call: None,
        },
    )
}

/// The answer in a frame.
pub(crate) fn reply<A: DeserializeOwned>(frame: &[u8]) -> Result<A, CallError> {
    #[derive(Deserialize)]
    #[serde(bound = "A: DeserializeOwned")]
    struct Reply<A> {
        #[serde(default = "none")]
        reply: Option<Answer<A>>,
        #[serde(default)]
        refused: Option<String>,
        #[serde(default)]
        unreadable: bool,
    }
    fn none<A>() -> Option<A> {
        None
    }
    let Reply {
        reply,
        refused,
        unreadable,
    } = rmp_serde::from_slice(frame).map_err(|_| CallError::Unreadable)?;
    let refused = || refused.unwrap_or_else(|| "refused".into());
    match reply {
        Some(Answer(answer)) => Ok(answer),
        None if unreadable => Err(CallError::Refused(refused())),
        None => Err(CallError::Crowded(refused())),
    }
}

/// An answer, whatever the name is that it stands under: the id tells which call it answers.
struct Answer<A>(A);

impl<'de, A: DeserializeOwned> Deserialize<'de> for Answer<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only<A>(PhantomData<A>);
        impl<'de, A: DeserializeOwned> Visitor<'de> for Only<A> {
            type Value = Answer<A>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an answer under the name of its call")
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Answer<A>, M::Error> {
                let named = map.next_entry::<IgnoredAny, A>()?;
                let (_, answer) =
                    named.ok_or_else(|| serde::de::Error::invalid_length(0, &self))?;
                Ok(Answer(answer))
            }
        }
        deserializer.deserialize_map(Only(PhantomData))
    }
}

#[cfg(test)]
mod tests;
