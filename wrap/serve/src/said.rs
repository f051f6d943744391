//! What is read of messages, in either direction, and the few that are written here.

use std::cell::OnceCell;

use axum::http::StatusCode;
use bytes::Bytes;
use mcp_sessiond_client::Json;
use mcp_sessiond_relay::message::{Kind, Line, Message, Part};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::refusal::{CONNECTION, Refusal, UNREADABLE};
use crate::which::{Call, Id, Said};

/// A message of a client.
#[derive(Debug)]
pub struct Posted {
    /// What it is.
    pub kind: PostedKind,
    /// It, as one line.
    pub line: Bytes,
}

/// The kinds of messages of a client.
#[derive(Debug)]
pub enum PostedKind {
    /// It wants an answer.
    Call(Call),
    /// The parameters of `initialize`, and the id by which the answer is known.
    Initialize(Id, Box<RawValue>),
    /// `notifications/initialized`.
    Initialized,
    /// It does not want the answer to this call any more.
    Cancelled(Id),
    /// The answer to this request of the server's.
    Answer(Id),
    /// Any other notification.
    Other,
}

/// The messages of a POST, and whether they came as a batch.
///
/// # Errors
/// What is no JSON-RPC.
pub fn posted(body: &Bytes) -> Result<(Vec<Posted>, bool), Refusal> {
    let unreadable =
        || Refusal { code: UNREADABLE, ..Refusal::invalid("the body is no message of JSON-RPC 2.0") };
    std::str::from_utf8(body).map_err(|_| unreadable())?;
    let copy = OnceCell::new();
    let read = |part: Part<'_>| match part {
        Part::Message(message) => posted_one(&message).ok_or_else(unreadable),
        Part::Unreadable(_) | Part::Other => Err(unreadable()),
    };
    match Line::of(body, &copy) {
        Line::Blank => Err(unreadable()),
        Line::One(part) => Ok((vec![read(part)?], false)),
        Line::Batch(parts) => {
            Ok((parts.into_iter().map(|(_, part)| read(part)).collect::<Result<_, _>>()?, true))
        }
    }
}

fn posted_one(message: &Message<'_>) -> Option<Posted> {
    let kind = match &message.kind {
        Kind::Request { id, method } if method == "initialize" => {
            let params = RawValue::from_string(one_line(message.params.unwrap_or("{}"))).ok()?;
            PostedKind::Initialize((*id).into(), params)
        }
        Kind::Request { id, .. } => {
            let token = message.asked_progress().map(Id::from);
            PostedKind::Call(Call { id: (*id).into(), token })
        }
        Kind::Notification { method } if method == "notifications/initialized" => PostedKind::Initialized,
        Kind::Notification { method } if method == "notifications/cancelled" => {
            message.cancelled().map_or(PostedKind::Other, |id| PostedKind::Cancelled(id.into()))
        }
        Kind::Notification { .. } => PostedKind::Other,
        Kind::Answer { id, .. } => PostedKind::Answer((*id).into()),
    };
    Some(Posted { kind, line: one_line(message.text).into() })
}

/// The same JSON without line ends, which it has between its tokens only.
fn one_line(text: &str) -> String {
    text.trim().replace(['\n', '\r'], " ")
}

/// The messages of a line that a server has said. What is no message is not among them.
pub fn heard(line: &Bytes, mut hear: impl FnMut(Said<'_>, Json)) {
    let copy = OnceCell::new();
    let mut one = |part: &Part<'_>| {
        let Part::Message(message) = part else { return };
        // An event's data has no line ends.
        let text = one_line(message.text);
        let said = match &message.kind {
            Kind::Answer { id, .. } => Said::Answer(id),
            Kind::Request { id, .. } => Said::Ask(id),
            Kind::Notification { method } if method == "notifications/progress" => {
                message.progress().map_or(Said::Other, Said::Progress)
            }
            Kind::Notification { method } if method == "notifications/cancelled" => {
                message.cancelled().map_or(Said::Other, Said::Cancelled)
            }
            Kind::Notification { .. } => Said::Other,
        };
        hear(said, Json::trusted(text));
    };
    match Line::of(line, &copy) {
        Line::Blank => {}
        Line::One(part) => one(&part),
        Line::Batch(parts) => parts.iter().for_each(|(_, part)| one(part)),
    }
}

/// The id that a message answers.
#[must_use]
pub fn answers(message: &Json) -> Option<Id> {
    let mut found = None;
    heard(&Bytes::copy_from_slice(message.as_str().as_bytes()), |said, _| {
        if let Said::Answer(id) = said {
            found = Some(id.into());
        }
    });
    found
}

/// A result under this id.
#[must_use]
pub fn result(id: &str, result: &RawValue) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// An error under this id.
#[must_use]
pub fn error(id: &str, error: &RawValue) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// A call has ended without an answer.
fn lost(id: &str, message: &str, outcome: &str) -> Json {
    let error = json!({"code": CONNECTION, "message": message, "data": {"outcome": outcome}});
    Json::trusted(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

/// Nobody knows what a call has done.
#[must_use]
pub fn unknown(id: &str) -> Json {
    lost(id, "the server ended before it had answered: the outcome of this call is unknown", "unknown")
}

/// The server was gone before it had taken the call.
#[must_use]
pub fn not_started(id: &str) -> Json {
    lost(id, "the server was gone before it had taken this call, which was not started", "not_sent")
}

/// The server has refused the request that the call came in, with this status of HTTP and this body.
#[must_use]
pub fn refused(id: &str, status: StatusCode, body: &[u8]) -> Json {
    #[derive(Deserialize)]
    struct Body {
        error: Said,
    }
    #[derive(Deserialize)]
    struct Said {
        message: String,
    }
    let says = serde_json::from_slice::<Body>(body).map(|body| format!(": {}", body.error.message));
    let message = format!("the server has refused this call with HTTP {status}{}", says.unwrap_or_default());
    // A server that fails may have begun.
    lost(id, &message, if status.is_server_error() { "unknown" } else { "not_sent" })
}

/// The answer is too large to be kept.
#[must_use]
pub fn too_large(id: &str, bytes: usize) -> Json {
    let message = format!("the answer has {bytes} bytes, more than is kept (limits.message_bytes)");
    lost(id, &message, "not_kept")
}

/// Messages of a stream are not there any more.
#[must_use]
pub fn gap(count: u64) -> String {
    let data = format!("{count} earlier messages of this stream were pruned, and are lost");
    let params = json!({"level": "error", "logger": "mcp-sessiond", "data": data});
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).to_string()
}

/// What came back to the `initialize` of ours: a result, or an error.
#[derive(Debug, Deserialize)]
pub struct Handshaken {
    /// The server takes it.
    #[serde(default)]
    pub result: Option<Box<RawValue>>,
    /// It does not.
    #[serde(default)]
    pub error: Option<Box<RawValue>>,
}
