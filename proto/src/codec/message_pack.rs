//! MessagePack with named fields. What of a request this build can't read is refused, and the
//! connection goes on.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use tarpc::{ClientMessage, Response};

use super::{cancel, request, without_values};
use crate::debug::SweepRequest;
use crate::frame::{Decoded, FrameCodec, put_frame};
use crate::service::{SessiondRequest, SessiondResponse};

/// What a client sends. Without a call it cancels the call of that id.
#[derive(Serialize, Deserialize)]
pub(super) struct Call<Req> {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) deadline_ms: u64,
    #[serde(default = "none")]
    pub(super) call: Option<Req>,
}

fn none<T>() -> Option<T> {
    None
}

/// What a server sends: a reply, or a refusal of the request as such: too many are in flight, or it
/// is not readable.
#[derive(Serialize, Deserialize)]
pub(super) struct Reply<Resp> {
    pub(super) id: u64,
    #[serde(default = "none")]
    pub(super) reply: Option<Resp>,
    #[serde(default = "none")]
    pub(super) refused: Option<String>,
    /// The refusal is for good: the call is not one that this daemon can read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unreadable: bool,
}

fn invalid(error: &rmp_serde::decode::Error) -> io::Error {
    let text = format!("not a frame of this protocol: {}", without_values(error));
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The methods that have no argument, and `sweep`, which had none. serde would take anything for
/// that.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
enum Bare {
    Ping {},
    About {},
    ListHosts {},
    Stats {},
    Metrics {},
    Settings {},
    Sweep {},
}

/// Reads a call, and refuses what it does not know.
fn read(frame: &[u8]) -> Result<Call<SessiondRequest>, rmp_serde::decode::Error> {
    let call: Call<SessiondRequest> = match rmp_serde::from_slice(frame) {
        Ok(call) => call,
        Err(error) => {
            // As clients of before send it.
            let Ok(Call {
                id,
                deadline_ms,
                call: Some(Bare::Sweep {}),
            }) = rmp_serde::from_slice(frame)
            else {
                return Err(error);
            };
            let call = Some(SessiondRequest::Sweep {
                request: SweepRequest::default(),
            });
            return Ok(Call {
                id,
                deadline_ms,
                call,
            });
        }
    };
    let is_bare = matches!(
        call.call,
        Some(
            SessiondRequest::Ping {}
                | SessiondRequest::About {}
                | SessiondRequest::ListHosts {}
                | SessiondRequest::Stats {}
                | SessiondRequest::Metrics {}
                | SessiondRequest::Settings {}
        )
    );
    if is_bare {
        rmp_serde::from_slice::<Call<Bare>>(frame)?;
    }
    Ok(call)
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

    fn decode(&mut self, frame: &[u8], outbound: &mut BytesMut) -> io::Result<Decoded<Self::In>> {
        let Call {
            id,
            deadline_ms,
            call,
        } = match read(frame) {
            Ok(call) => call,
            // A newer client's call is no reason to end what else the connection carries.
            Err(error) => {
                let Call::<IgnoredAny> { id, .. } =
                    rmp_serde::from_slice(frame).map_err(|_| invalid(&error))?;
                let refused = format!(
                    "this daemon can't read the call: {}",
                    without_values(&error)
                );
                let refused = Some(refused);
                let reply = Reply::<SessiondResponse> {
                    id,
                    reply: None,
                    refused,
                    unreadable: true,
                };
                put_frame(outbound, self.out_max, |writer| {
                    rmp_serde::encode::write_named(writer, &reply)
                })?;
                return Ok(Decoded::Answered);
            }
        };
        Ok(Decoded::Item(match call {
            Some(call) => request(id, Duration::from_millis(deadline_ms), call),
            None => cancel(id),
        }))
    }

    fn encode(&mut self, response: Self::Out, outbound: &mut BytesMut) -> io::Result<()> {
        let id = response.request_id;
        let reply = match response.message {
            Ok(reply) => Reply {
                id,
                reply: Some(reply),
                refused: None,
                unreadable: false,
            },
            Err(error) => Reply {
                id,
                reply: None,
                refused: Some(error.detail),
                unreadable: false,
            },
        };
        let put = put_frame(outbound, self.out_max, |writer| {
            rmp_serde::encode::write_named(writer, &reply)
        });
        put.or_else(|_| {
            // What else the connection carries is not ended by it.
            let refused = Some(super::TOO_LARGE.into());
            let reply = Reply::<SessiondResponse> {
                id,
                reply: None,
                refused,
                unreadable: true,
            };
            put_frame(outbound, self.out_max, |writer| {
                rmp_serde::encode::write_named(writer, &reply)
            })
        })
    }
}
