//! MessagePack with named fields: an unknown field of a newer peer is skipped, a missing one has its default.

use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tarpc::{ClientMessage, Response, ServerError};

use super::{cancel, request};
use crate::frame::{Decoded, FrameCodec, put_frame};
use crate::service::{SessiondRequest, SessiondResponse};

/// What a client sends. Without a call it cancels the call of that id.
#[derive(Serialize, Deserialize)]
struct Call<Req> {
    id: u64,
    #[serde(default)]
    deadline_ms: u64,
    #[serde(default = "none")]
    call: Option<Req>,
}

fn none<T>() -> Option<T> {
    None
}

/// What a server sends: a reply, or a refusal of the request as such (too many in flight).
#[derive(Serialize, Deserialize)]
struct Reply<Resp> {
    id: u64,
    #[serde(default = "none")]
    reply: Option<Resp>,
    #[serde(default = "none")]
    refused: Option<String>,
}

fn invalid(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a frame of this protocol: {error}"))
}

/// The server's side.
pub(super) struct Server {
    out_max: usize,
}

impl Server {
    pub(super) fn new(out_max: usize) -> Self {
        Self { out_max }
    }
}

impl FrameCodec for Server {
    type In = ClientMessage<SessiondRequest>;
    type Out = Response<SessiondResponse>;

    fn decode(&mut self, frame: &[u8], _: &mut BytesMut) -> io::Result<Decoded<Self::In>> {
        let Call { id, deadline_ms, call } = rmp_serde::from_slice(frame).map_err(invalid)?;
        Ok(Decoded::Item(match call {
            Some(call) => request(id, Duration::from_millis(deadline_ms), call),
            None => cancel(id),
        }))
    }

    fn encode(&mut self, response: Self::Out, outbound: &mut BytesMut) -> io::Result<()> {
        let id = response.request_id;
        let reply = match response.message {
            Ok(reply) => Reply { id, reply: Some(reply), refused: None },
            Err(error) => Reply { id, reply: None, refused: Some(error.detail) },
        };
        put_frame(outbound, self.out_max, |writer| rmp_serde::encode::write_named(writer, &reply))
    }
}

/// The client's side.
pub(super) struct Client<Req, Resp> {
    out_max: usize,
    service: PhantomData<fn(Req) -> Resp>,
}

impl<Req, Resp> Client<Req, Resp> {
    pub(super) fn new(out_max: usize) -> Self {
        Self { out_max, service: PhantomData }
    }
}

impl<Req: Serialize, Resp: DeserializeOwned> FrameCodec for Client<Req, Resp> {
    type In = Response<Resp>;
    type Out = ClientMessage<Req>;

    fn decode(&mut self, frame: &[u8], _: &mut BytesMut) -> io::Result<Decoded<Self::In>> {
        let Reply { id, reply, refused } = rmp_serde::from_slice(frame).map_err(invalid)?;
        let message = reply.ok_or_else(|| {
            ServerError::new(io::ErrorKind::WouldBlock, refused.unwrap_or_else(|| "refused".into()))
        });
        Ok(Decoded::Item(Response { request_id: id, message }))
    }

    fn encode(&mut self, message: Self::Out, outbound: &mut BytesMut) -> io::Result<()> {
        let call = match message {
            ClientMessage::Request(request) => {
                let left = request.context.deadline.saturating_duration_since(Instant::now());
                let deadline_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                Call { id: request.id, deadline_ms, call: Some(request.message) }
            }
            ClientMessage::Cancel { request_id, .. } => Call { id: request_id, deadline_ms: 0, call: None },
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        put_frame(outbound, self.out_max, |writer| rmp_serde::encode::write_named(writer, &call))
    }
}
