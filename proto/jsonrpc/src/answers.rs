//! The messages that we write ourselves: answers in place of a peer, and requests of our own.

use alloc::format;
use alloc::string::String;
use alloc::string::ToString;

use bytes::Bytes;

use crate::code::{CONNECTION, INVALID_REQUEST, NO_METHOD, UNREADABLE};

/// Why an answer of the host has not come that can't be read.
pub const UNREADABLE_ANSWER: &str = "the host's answer can't be read as JSON";
/// The same of the server.
pub const UNREADABLE_SERVER_ANSWER: &str = "the server's answer can't be read as JSON";
/// Why an answer of the host has not come that is too large.
pub const OVERSIZED_ANSWER: &str = "the host's answer has more than 16 MiB and can't be relayed";
/// The same of the server.
pub const OVERSIZED_SERVER_ANSWER: &str =
    "the server's answer has more than 16 MiB and can't be relayed";

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn error(id: &str, code: i64, message: &str, data: &str) -> Bytes {
    let message = quoted(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#)
        .into()
}

/// A call ended without an answer, and nobody knows what it has done.
pub fn unknown(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, r#","data":{"outcome":"unknown"}"#)
}

/// A call was not made.
pub fn not_sent(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, r#","data":{"outcome":"not_sent"}"#)
}

/// A call failed.
pub fn failed(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, "")
}

/// A server has ended before it had answered `initialize`.
pub fn ended_uninitialized(why: &str) -> String {
    format!("the server ended ({why}) before it had initialised")
}

/// The host has said that it can't do what it is asked for. It would answer with the same code.
pub fn not_able(id: &str) -> Bytes {
    error(
        id,
        NO_METHOD,
        "Method not found: the host that is attached does not have this capability",
        "",
    )
}

/// A call failed with an error that somebody else has given: a JSON-RPC error object.
pub fn failed_with(id: &str, error: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into()
}

/// A message for the host's log.
pub fn log(text: &str) -> Bytes {
    let text = quoted(text);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"warning","logger":"mcp-sessiond","data":{text}}}}}"#
    )
    .into()
}

/// There is no such method here, for a reason.
pub fn no_method(id: &str, message: &str) -> Bytes {
    error(id, NO_METHOD, message, "")
}

/// A message was too large to be read.
pub fn too_large(id: &str) -> Bytes {
    error(
        id,
        INVALID_REQUEST,
        "a message of more than 16 MiB is not relayed",
        "",
    )
}

/// A request has two progress tokens.
pub fn unclear_token(id: &str) -> Bytes {
    let why = "Invalid Request: `params._meta` or its `progressToken` is there twice; this was not relayed";
    error(id, INVALID_REQUEST, why, "")
}

/// A message could not be read.
pub fn unreadable(id: &str) -> Bytes {
    error(
        id,
        UNREADABLE,
        "Parse error: this can't be read as JSON-RPC, and was not relayed",
        "",
    )
}

/// An empty result.
pub fn empty_result(id: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into()
}

/// A ping of ours.
pub fn ping(number: u64) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#).into()
}

/// A notification without parameters.
pub fn notification(method: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#).into()
}

/// A request is cancelled.
pub fn cancelled(number: u64, reason: &str) -> Bytes {
    let reason = quoted(reason);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number},"reason":{reason}}}}}"#
    )
    .into()
}

/// A request of ours, with parameters that a host has sent.
pub fn request(number: u64, method: &str, params: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}"#).into()
}

/// What the server gets in the place of an answer of the host that can't be read, under the id of
/// its request.
pub fn unreadable_answer(id: &str) -> Bytes {
    failed(id, UNREADABLE_ANSWER)
}
