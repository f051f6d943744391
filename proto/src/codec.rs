//! Two codecs behind one service, on the daemon's side. tarpc's own envelope never reaches the
//! wire: both translate to and from it.

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod golden;
mod json_rpc;
mod message_pack;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tarpc::{ClientMessage, Request, Response, Transport, context, trace};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::frame::{Budget, Decoded, FrameCodec, Frames};
use crate::hello::{Codec, FRAME_MAX};
use crate::service::{SessiondRequest, SessiondResponse};

/// The longest deadline that a request may have; a longer one is taken for this. tarpc itself
/// panics beyond two years.
pub const DEADLINE_MAX: Duration = Duration::from_secs(3600);

/// The deadline of a JSON-RPC request, which can't carry one.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// A transport for the server's side of a connection, after the hello.
pub fn server<S>(
    stream: S,
    codec: Codec,
    frame_max: u32,
    budget: Budget,
) -> impl Transport<
    Response<SessiondResponse>,
    ClientMessage<SessiondRequest>,
    TransportError = io::Error,
    Error = io::Error,
> + Unpin
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let out_max = frame_max.min(FRAME_MAX) as usize;
    let codec = match codec {
        Codec::MessagePack => ServerCodec::MessagePack(message_pack::Server::new(out_max)),
        Codec::JsonRpc => ServerCodec::JsonRpc(json_rpc::Server::new(out_max)),
    };
    Frames::new(stream, codec, FRAME_MAX as usize, budget)
}

/// The codec that the client asked for.
enum ServerCodec {
    MessagePack(message_pack::Server),
    JsonRpc(json_rpc::Server),
}

impl FrameCodec for ServerCodec {
    type In = ClientMessage<SessiondRequest>;
    type Out = Response<SessiondResponse>;

    fn decode(&mut self, frame: &[u8], outbound: &mut BytesMut) -> io::Result<Decoded<Self::In>> {
        match self {
            Self::MessagePack(codec) => codec.decode(frame, outbound),
            Self::JsonRpc(codec) => codec.decode(frame, outbound),
        }
    }

    fn encode(&mut self, response: Self::Out, outbound: &mut BytesMut) -> io::Result<()> {
        match self {
            Self::MessagePack(codec) => codec.encode(response, outbound),
            Self::JsonRpc(codec) => codec.encode(response, outbound),
        }
    }
}

/// What is told in place of an answer that is larger than a frame may be.
const TOO_LARGE: &str = "the answer does not fit into a frame; ask for less at once";

/// What serde has against a message, without what stood in it: that might be a token, and this may
/// be logged. What was expected comes from our own types and stands at the end.
fn without_values(error: &dyn std::fmt::Display) -> String {
    const EXPECTED: &str = ", expected ";
    let text = error.to_string();
    let quotes = ["invalid ", "unknown "]
        .iter()
        .any(|start| text.starts_with(start));
    match text.rfind(EXPECTED) {
        Some(at) => format!("expected {}", &text[at + EXPECTED.len()..]),
        None if quotes => "a field or a value that is not known".into(),
        None => text,
    }
}

/// A request as tarpc has it, its deadline clamped to [`DEADLINE_MAX`].
fn request<Req>(id: u64, deadline: Duration, message: Req) -> ClientMessage<Req> {
    // tarpc looks at the spans of this process for it, in which no call of a peer's can be.
    static OUTSIDE: LazyLock<context::Context> = LazyLock::new(context::current);
    let mut context = *OUTSIDE;
    context.trace_context = trace::Context::default();
    context.deadline = Instant::now() + deadline.min(DEADLINE_MAX);
    ClientMessage::Request(Request {
        context,
        id,
        message,
    })
}

/// A cancellation as tarpc has it.
fn cancel<Req>(request_id: u64) -> ClientMessage<Req> {
    ClientMessage::Cancel {
        trace_context: trace::Context::default(),
        request_id,
    }
}
