//! The messages that we write ourselves: answers in place of a peer, and requests of our own.

use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use core::fmt::Display;

use bytes::Bytes;

use crate::code::{CONNECTION, INVALID_REQUEST, NO_METHOD, UNREADABLE};

/// Why an answer of the host has not come that can't be read.
pub const UNREADABLE_ANSWER: &str = "the host's answer can't be read as JSON";
/// The same of the server, which has carried the call out: see [`not_kept`].
pub const UNREADABLE_SERVER_ANSWER: &str =
    "the server has answered this call, and its answer can't be read as JSON";
/// Why an answer of the host has not come that is too large.
pub const OVERSIZED_ANSWER: &str =
    "the host's answer is larger than `wrap.message_max_mib` allows, and can't be relayed";
/// The same of the server, which has carried the call out: see [`not_kept`].
pub const OVERSIZED_SERVER_ANSWER: &str = "the server has answered this call, and its answer is larger than `wrap.message_max_mib` allows, so it is not passed on";

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// What is known of a call that its server has not answered: `data.outcome` of the error that it
/// gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It may have been carried out or not.
    Unknown,
    /// The server has not got it.
    NotSent,
    /// It was carried out, and its answer can't be had.
    NotKept,
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NotSent => "not_sent",
            Self::NotKept => "not_kept",
        }
    }
}

/// An error with this code and this sentence. Ids are raw text here and below.
pub fn error(id: &str, code: i64, message: &str, outcome: Option<Outcome>) -> String {
    let message = quoted(message);
    let data = outcome.map_or_else(String::new, |outcome| {
        format!(r#","data":{{"outcome":"{}"}}"#, outcome.as_str())
    });
    failure(
        id,
        &format!(r#"{{"code":{code},"message":{message}{data}}}"#),
    )
}

/// A call ended without an answer, and nobody knows what it has done.
pub fn unknown(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, Some(Outcome::Unknown)).into()
}

/// Why a request has no answer, where whoever was asked is gone. `gone`: how, as in "the server was
/// stopped".
pub fn unanswered(gone: &str) -> String {
    format!("{gone} before it answered; the outcome is unknown")
}

/// A call was not made.
pub fn not_sent(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, Some(Outcome::NotSent)).into()
}

/// A call was carried out, and its answer can't be had.
pub fn not_kept(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, Some(Outcome::NotKept)).into()
}

/// A call failed.
pub fn failed(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, None).into()
}

/// A call failed with an error that somebody else has given: a JSON-RPC error object.
pub fn failure(id: &str, error: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// A call has this result.
pub fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// A server has ended before it had answered `initialize`.
pub fn ended_uninitialized(why: &str) -> String {
    format!("the server ended ({why}) before it had initialised")
}

/// The host has said that it can't do what it is asked for. It would answer with the same code.
pub fn not_able(id: &str) -> Bytes {
    let why = "Method not found: the host that is attached does not have this capability";
    error(id, NO_METHOD, why, None).into()
}

/// A message for the host's log, of this level of MCP's.
pub fn log(level: &str, text: &str) -> String {
    let text = quoted(text);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","logger":"mcp-sessiond","data":{text}}}}}"#
    )
}

/// There is no such method here, for a reason.
pub fn no_method(id: &str, message: &str) -> Bytes {
    error(id, NO_METHOD, message, None).into()
}

/// A message was too large to be read.
pub fn too_large(id: &str) -> Bytes {
    let why = "a message that is larger than `wrap.message_max_mib` allows is not relayed";
    error(id, INVALID_REQUEST, why, None).into()
}

/// A request has two progress tokens.
pub fn unclear_token(id: &str) -> Bytes {
    let why = "Invalid Request: `params._meta` or its `progressToken` is there twice; this was not relayed";
    error(id, INVALID_REQUEST, why, None).into()
}

/// What was sent is not a request, or not even JSON. Its sender gets this.
pub fn not_a_request(id: &str, is_json: bool) -> Bytes {
    let (code, what) = if is_json {
        (INVALID_REQUEST, "a JSON-RPC 2.0 request")
    } else {
        (UNREADABLE, "JSON")
    };
    let why = format!("this is not {what}; it was not sent to a server");
    error(id, code, &why, None).into()
}

/// A message could not be read.
pub fn unreadable(id: &str) -> Bytes {
    let why = "Parse error: this can't be read as JSON-RPC, and was not relayed";
    error(id, UNREADABLE, why, None).into()
}

/// An empty result.
pub fn empty_result(id: &str) -> Bytes {
    result(id, "{}").into()
}

/// A ping of ours.
pub fn ping(number: u64) -> Bytes {
    bare_request(number, "ping")
}

/// A request of ours without parameters.
pub fn bare_request(number: u64, method: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{method}"}}"#).into()
}

/// A notification without parameters.
pub fn notification(method: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#).into()
}

/// A request is cancelled.
pub fn cancelled(id: impl Display, reason: &str) -> Bytes {
    let reason = quoted(reason);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":{reason}}}}}"#
    )
    .into()
}

/// A request of ours, with parameters that a host has sent.
pub fn request(id: impl Display, method: &str, params: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#).into()
}

/// What the server gets in the place of an answer of the host that can't be read, under the id of
/// its request.
pub fn unreadable_answer(id: &str) -> Bytes {
    failed(id, UNREADABLE_ANSWER)
}
