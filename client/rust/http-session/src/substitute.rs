//! What we say ourselves: errors in the place of an answer, and lines for the client's log.

use alloc::format;
use alloc::string::String;
use core::cell::OnceCell;
use core::time::Duration;

use mcp_sessiond_jsonrpc::answers::{self, Outcome};
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::message::{Kind, Line};
use mcp_sessiond_proto::Json;

/// The error that a call gets which the server has not answered.
fn call_error(id: &str, message: &str, outcome: Outcome) -> Json {
    Json::trusted(answers::error(id, code::CONNECTION, message, Some(outcome)))
}

/// The server ended with the call: it may have been carried out or not.
pub fn outcome_unknown(id: &str) -> Json {
    call_error(
        id,
        "the server ended before it had answered: the outcome of this call is unknown",
        Outcome::Unknown,
    )
}

/// The client has left too many messages of the call unread.
pub fn unread(id: &str) -> Json {
    let message = "the client has left too many messages unread: the call was cancelled, and its outcome is unknown";
    call_error(id, message, Outcome::Unknown)
}

/// The server has never got the call.
pub fn not_started(id: &str) -> Json {
    call_error(
        id,
        "this call was not started: the server ended before it had got it",
        Outcome::NotSent,
    )
}

/// A call that was refused before anything of it was sent to the server.
pub fn refused(id: &str, code: i64, message: &str) -> Json {
    let outcome = Some(Outcome::NotSent);
    Json::trusted(answers::error(id, code, message, outcome))
}

/// What the server gets for a request of its own that no client will see, for this reason.
pub fn undeliverable_request(id: &str, message: &str) -> String {
    answers::error(id, code::CONNECTION, message, None)
}

/// What is kept in the place of a request of the server's that is too large: a client that did not
/// get the request ignores its cancellation (MCP 2025-11-25, Cancellation). None: it is no request.
pub fn in_place_of_request(request: &Json) -> Option<Json> {
    let copy = OnceCell::new();
    let message = Line::of(request.as_str().as_bytes(), &copy).message()?;
    let Kind::Request { id, .. } = message.kind else {
        return None;
    };
    let cancelled = answers::cancelled(id, "this request is too large to be kept");
    Some(Json::trusted(
        String::from_utf8_lossy(&cancelled).into_owned(),
    ))
}

/// The call was carried out, and its answer has a value which JSON does not have.
pub(crate) fn answer_not_json(id: &str, name: &str, place: &str) -> Json {
    let message = format!(
        "the call was carried out, but its answer has `{name}` at `{place}`, which is not JSON and can't be passed on: \
         the server must send null or a string there"
    );
    call_error(id, &message, Outcome::NotKept)
}

/// The call was carried out, and its answer can't be read.
pub(crate) fn unreadable_answer(id: &str) -> Json {
    let message = "the call was carried out, but its answer can't be read: it is not JSON, is nested too deeply, or has a member twice";
    call_error(id, message, Outcome::NotKept)
}

/// The request of this id is not carried out, since it is not JSON, for this reason (JSON-RPC 2.0,
/// section 5.1, invalid params).
pub fn not_json_params(id: &str, why: &str) -> String {
    answers::error(id, code::INVALID_PARAMS, why, Some(Outcome::NotSent))
}

/// The call was carried out, and there is no room for its answer.
pub fn answer_not_stored(id: &str, bytes: usize, limit: &str) -> Json {
    let message = format!(
        "the call was carried out, but its answer of {bytes} bytes could not be stored: {limit}"
    );
    call_error(id, &message, Outcome::NotKept)
}

/// A message of ours for the client's log.
pub fn log_message(text: &str) -> Json {
    Json::trusted(answers::log("warning", text))
}

/// So many messages of a stream were deleted before the client came for them.
pub(crate) fn gap(count: u64) -> String {
    let were = match count {
        1 => "message of this stream was",
        _ => "messages of this stream were",
    };
    let text = format!("{count} {were} deleted before the client fetched them");
    answers::log("warning", &text)
}

/// A notification that the session has ended, with its server, to make room for another one.
pub fn made_room_notice(uncalled: Duration) -> String {
    let seconds = uncalled.as_secs();
    answers::log(
        "error",
        &format!(
            "this session has ended, with its server, and what the server had in memory is lost: there was no call for \
         {seconds} s, and a new client needed the space (http.sessions). `initialize` begins a new session"
        ),
    )
}
