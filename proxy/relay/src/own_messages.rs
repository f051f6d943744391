//! The messages that the relay itself writes: answers in place of a peer, and requests of its
//! own.

use alloc::format;
use alloc::string::String;
use alloc::string::ToString;

use bytes::Bytes;

/// JSON-RPC's code for a call whose failure is the connection's.
const CONNECTION: i32 = -32000;
/// JSON-RPC's code for what can't be read.
const UNREADABLE: i32 = -32700;
/// JSON-RPC's code for a method that does not exist.
const NO_METHOD: i32 = -32601;
/// JSON-RPC's code for an invalid request.
const INVALID: i32 = -32600;

/// A text as a JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn error(id: &str, code: i32, message: &str, data: &str) -> Bytes {
    let message = quoted(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}{data}}}}}"#)
        .into()
}

/// A call ended without an answer, and nobody knows what it has done.
pub(super) fn unknown(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, r#","data":{"outcome":"unknown"}"#)
}

/// A call was not made.
pub(super) fn not_sent(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, r#","data":{"outcome":"not_sent"}"#)
}

/// A call failed.
pub(super) fn failed(id: &str, message: &str) -> Bytes {
    error(id, CONNECTION, message, "")
}

/// A server has ended before it had answered `initialize`.
pub(super) fn ended_uninitialized(why: &str) -> String {
    format!("the server ended ({why}) before it had initialised")
}

/// The host has said that it can't do what it is asked for. It would answer with the same code.
pub(super) fn not_able(id: &str) -> Bytes {
    error(
        id,
        NO_METHOD,
        "Method not found: the host that is attached does not have this capability",
        "",
    )
}

/// A call failed with an error that somebody else has given: a JSON-RPC error object.
pub(super) fn failed_with(id: &str, error: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into()
}

/// A message for the host's log.
pub(super) fn log(text: &str) -> Bytes {
    let text = quoted(text);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"warning","logger":"mcp-sessiond","data":{text}}}}}"#
    )
    .into()
}

/// There is no such method here, for a reason.
pub(super) fn no_method(id: &str, message: &str) -> Bytes {
    error(id, NO_METHOD, message, "")
}

/// A message was too large to be read.
pub(super) fn too_large(id: &str) -> Bytes {
    error(
        id,
        INVALID,
        "a message of more than 16 MiB is not relayed",
        "",
    )
}

/// A request has two progress tokens.
pub(super) fn unclear_token(id: &str) -> Bytes {
    let why = "Invalid Request: `params._meta` or its `progressToken` is there twice; this was not relayed";
    error(id, INVALID, why, "")
}

/// A message could not be read.
pub(super) fn unreadable(id: &str) -> Bytes {
    error(
        id,
        UNREADABLE,
        "Parse error: this can't be read as JSON-RPC, and was not relayed",
        "",
    )
}

/// An empty result.
pub(super) fn empty_result(id: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into()
}

/// A ping of ours.
pub(super) fn ping(number: u64) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#).into()
}

/// A notification without parameters.
pub(super) fn notification(method: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#).into()
}

/// A request is cancelled.
pub(super) fn cancelled(number: u64, reason: &str) -> Bytes {
    let reason = quoted(reason);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number},"reason":{reason}}}}}"#
    )
    .into()
}

/// A request of ours, with parameters that a host has sent.
pub(super) fn request(number: u64, method: &str, params: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}"#).into()
}
