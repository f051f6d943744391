//! JSON-RPC messages: how they are read, in either direction, how they are addressed to the server,
//! and the few that `serve` writes itself.
//!
//! A client may use an id again while a former call of that id is open: a page that was reloaded
//! counts from 0. So the server gets other ids and progress tokens, which name the stream of the
//! call as well: `"STREAM/ID"`. What it answers is given the client's own again before it is
//! stored. A server that was started again may use an id again, too, while its client still thinks
//! about the former request. So the client gets `"INCARNATION/ID"`, and an answer to a former
//! server is dropped.

use std::cell::OnceCell;
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_client::{Json, StreamId};
use mcp_sessiond_jsonrpc::answers::{self, Outcome};
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::id_prefix::tag;
pub use mcp_sessiond_jsonrpc::id_prefix::{
    answering, asked_by, from_asked, parts, prefixed, tagged,
};
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message, Part};
use mcp_sessiond_jsonrpc::object::raw;
use mcp_sessiond_jsonrpc::readable::Readable;
use mcp_sessiond_jsonrpc::{Edits, NotJson, edited, one_line};
use serde_json::value::RawValue;

use crate::refusal::Refusal;

/// The id of a JSON-RPC request, or a progress token, as the JSON text that it was sent as.
pub type Id = Box<str>;

/// A message of the server, as far as its stream depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerMessage {
    /// The answer to a call, which the client knows by this id.
    Answer(StreamId, Id),
    /// Progress of a call of this stream.
    Progress(StreamId),
    /// The server cancels this request of its own.
    Cancelled(Id),
    /// A request of the server's own.
    Request(Id),
    /// Any other notification.
    Other,
    /// A request of the server's own that no client can be sent, for this reason.
    Unsendable(Id, String),
}

/// A message of a client.
#[derive(Debug)]
pub struct Posted {
    /// What it is.
    pub kind: PostedKind,
    /// The message, as one line.
    pub line: Bytes,
}

/// The kinds of messages of a client.
#[derive(Debug)]
pub enum PostedKind {
    /// A request, and its id.
    Call(Id),
    /// A request that is not JSON, its id, and why.
    NotJson(Id, String),
    /// `initialize`: its parameters, and its id.
    Initialize(Id, Box<RawValue>),
    /// `notifications/initialized`.
    Initialized,
    /// The client cancels its request of this id.
    Cancelled(Id),
    /// The answer to the server's request of this id.
    Answer(Id),
    /// Progress of the server's request that has this token.
    Progress(Id),
    /// Any other notification.
    Other,
}

impl PostedKind {
    /// The id of a request.
    pub fn call(&self) -> Option<&Id> {
        if let Self::Call(id) = self {
            Some(id)
        } else {
            None
        }
    }
}

/// The messages of a POST that has calls.
#[derive(Debug, Default)]
pub struct Calls {
    /// The ids of the calls.
    pub calls: Vec<Id>,
    /// The calls, in the same order.
    pub lines: Vec<Bytes>,
    /// Messages that want no answer.
    pub rest: Vec<Posted>,
}

impl Calls {
    /// Divides the messages of a POST.
    ///
    /// # Errors
    /// When two calls have one id.
    pub fn of(messages: Vec<Posted>) -> Result<Self, Refusal> {
        let mut of = Self::default();
        for message in messages {
            let PostedKind::Call(id) = message.kind else {
                of.rest.push(message);
                continue;
            };
            if of.calls.contains(&id) {
                return Err(Refusal::invalid(
                    "two requests of one batch have the same id",
                ));
            }
            of.calls.push(id);
            of.lines.push(message.line);
        }
        Ok(of)
    }
}

/// The messages of a POST, and whether they came as a batch.
///
/// # Errors
/// When the body is not JSON-RPC.
pub fn read_post(body: &Bytes) -> Result<(Vec<Posted>, bool), Refusal> {
    let unreadable = || Refusal {
        code: code::UNREADABLE,
        ..Refusal::invalid("the body is not a JSON-RPC 2.0 message")
    };
    std::str::from_utf8(body).map_err(|_| unreadable())?;
    let body = &without_bom(body);
    let copy = OnceCell::new();
    let read = |part: Part<'_>| match part {
        Part::Message(message) => match (message.not_json(), &message.kind) {
            // Readers differ in which of two they take, and progress would go to another call.
            (None, Kind::Request { id, .. }) if !message.has_clear_token() => Ok(Posted {
                kind: PostedKind::NotJson(
                    (*id).into(),
                    "`_meta` or `progressToken` is there twice".into(),
                ),
                line: Bytes::new(),
            }),
            (None, _) => posted_one(&message).ok_or_else(unreadable),
            (Some(value), Kind::Request { id, .. }) => Ok(Posted {
                kind: PostedKind::NotJson((*id).into(), value.to_string()),
                line: Bytes::new(),
            }),
            (Some(value), _) => Err(Refusal {
                code: code::UNREADABLE,
                ..Refusal::invalid(value.to_string())
            }),
        },
        Part::Unreadable(_) | Part::Other => Err(unreadable()),
    };
    match Line::of(body, &copy) {
        Line::Blank => Err(unreadable()),
        Line::One(part) => Ok((vec![read(part)?], false)),
        Line::Batch(parts) => Ok((
            parts
                .into_iter()
                .map(|(_, part)| read(part))
                .collect::<Result<_, _>>()?,
            true,
        )),
    }
}

/// The text without a byte order mark, which JSON over a network does not have (RFC 8259, section
/// 8.1) and readers may ignore.
fn without_bom(text: &Bytes) -> Bytes {
    let mark = "\u{feff}".as_bytes();
    let length = if text.starts_with(mark) {
        mark.len()
    } else {
        0
    };
    text.slice(length..)
}

fn posted_one(message: &Message<'_>) -> Option<Posted> {
    let kind = match &message.kind {
        Kind::Request { id, method } if method == "initialize" => {
            let params = message.params().map_or(Some("{}"), Readable::sent)?;
            let params = RawValue::from_string(one_line(params)).ok()?;
            PostedKind::Initialize((*id).into(), params)
        }
        Kind::Request { id, .. } => PostedKind::Call((*id).into()),
        Kind::Notification { method } if method == "notifications/initialized" => {
            PostedKind::Initialized
        }
        Kind::Notification { method } if method == "notifications/cancelled" => message
            .cancelled()
            .map_or(PostedKind::Other, |id| PostedKind::Cancelled(id.into())),
        Kind::Notification { method } if method == "notifications/progress" => {
            message.progress().map_or(PostedKind::Other, |token| {
                PostedKind::Progress(token.into())
            })
        }
        Kind::Notification { .. } => PostedKind::Other,
        Kind::Answer { id, .. } => PostedKind::Answer((*id).into()),
    };
    Some(Posted {
        kind,
        line: one_line(message.whole().sent()?).into(),
    })
}

/// An id or a progress token of a client, as the server gets it.
pub fn addressed(stream: &StreamId, id: &str) -> Id {
    prefixed(stream.as_str(), id)
}

/// A request of a client, as the server gets it.
pub fn to_server(line: &Bytes, prefix: &str) -> Bytes {
    edited(line, |message, edits| {
        if let Kind::Request { id, .. } = &message.kind {
            edits.replace(message, id, prefixed(prefix, id));
        }
        if let Some(token) = message.asked_progress() {
            edits.replace(message, token, prefixed(prefix, token));
        }
    })
}

/// A cancellation by a client of a request that was opened on this stream, as the server gets it.
pub fn cancelling(line: &Bytes, stream: &StreamId) -> Bytes {
    edited(line, |message, edits| {
        if let Some(id) = message.cancelled() {
            edits.replace(message, id, addressed(stream, id));
        }
    })
}

/// Reads a line of the server, and tells of each message in it, as it is stored: with the client's
/// own ids. An answer that is not JSON is replaced by an error that says so; anything else that is
/// not a JSON-RPC message is skipped.
pub fn read_server_line(
    line: &Bytes,
    incarnation: &str,
    mut each: impl FnMut(ServerMessage, Json),
) {
    let line = &without_bom(line);
    let copy = OnceCell::new();
    let mut one = |part: &Part<'_>| {
        let message = match part {
            Part::Message(message) => message,
            Part::Unreadable(unreadable) if unreadable.is_answer() => {
                let answered = unreadable.asked().and_then(parts);
                if let Some((stream, id)) =
                    answered.and_then(|(stream, id)| Some((stream.parse().ok()?, id)))
                {
                    let error = unreadable_answer(&id);
                    each(ServerMessage::Answer(stream, id), error);
                }
                return;
            }
            Part::Unreadable(_) | Part::Other => return,
        };
        if let Some(value) = message.not_json() {
            return replaced(message, &value, &mut each);
        }
        let mut edits = Edits::default();
        let mut own = |text: &str| {
            let (stream, own) = parts(text)?;
            edits.replace(message, text, own.clone());
            Some((stream.parse().ok()?, own))
        };
        let kind = match &message.kind {
            Kind::Answer { id, .. } => match own(id) {
                Some((stream, id)) => ServerMessage::Answer(stream, id),
                // Nobody has asked for it.
                None => return,
            },
            Kind::Request { id, .. } => {
                tag(message, incarnation, &mut edits);
                ServerMessage::Request((*id).into())
            }
            Kind::Notification { method } if method == "notifications/progress" => message
                .progress()
                .and_then(own)
                .map_or(ServerMessage::Other, |(stream, _)| {
                    ServerMessage::Progress(stream)
                }),
            Kind::Notification { method } if method == "notifications/cancelled" => {
                tag(message, incarnation, &mut edits);
                message.cancelled().map_or(ServerMessage::Other, |id| {
                    ServerMessage::Cancelled(id.into())
                })
            }
            Kind::Notification { .. } => ServerMessage::Other,
        };
        each(kind, with_edits(message, &edits));
    };
    let read = Line::of(line, &copy);
    read.parts().for_each(|(_, part)| one(part));
}

/// Tells of what takes the place of a message that has a value which JSON does not have: clients
/// can't read it.
fn replaced(message: &Message<'_>, value: &NotJson, each: &mut impl FnMut(ServerMessage, Json)) {
    let NotJson { name, place } = value;
    match &message.kind {
        Kind::Answer { id, .. } => {
            let Some((stream, id)) =
                parts(id).and_then(|(stream, id)| Some((stream.parse().ok()?, id)))
            else {
                return;
            };
            let text = format!(
                "the call was carried out, but its answer has `{name}` at `{place}`, which is not JSON and can't be passed on: \
                 the server must send null or a string there"
            );
            let error = call_error(&id, &text, Outcome::NotKept);
            each(ServerMessage::Answer(stream, id), error);
        }
        Kind::Request { id, .. } => {
            let why = format!("the request has `{name}` at `{place}`, which is not JSON");
            let unsendable = ServerMessage::Unsendable((*id).into(), why);
            each(unsendable, Json::trusted("null".into()));
        }
        Kind::Notification { method } => crate::stderr::warn(format_args!(
            "a message {method:?} of the server is lost: it has `{name}` at `{place}`, which is not JSON"
        )),
    }
}

/// A message with these edits, as the data of an event, which has no line ends.
pub fn with_edits(message: &Message<'_>, edits: &Edits) -> Json {
    Json::trusted(one_line(&String::from_utf8_lossy(&edits.spliced(message))))
}

/// The ids that a line answers, as they stand there.
pub fn answered_ids(line: &[u8]) -> Vec<Id> {
    let copy = OnceCell::new();
    Line::of(line, &copy).answered().map(Id::from).collect()
}

/// Whether a message is an answer.
pub fn is_answer(message: &str) -> bool {
    !answered_ids(message.as_bytes()).is_empty()
}

/// The id that a message answers.
pub fn answered_id(message: &Json) -> Option<Id> {
    answered_ids(message.as_str().as_bytes()).pop()
}

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
        "the server ended before it had got this call, which was not started",
        Outcome::NotSent,
    )
}

/// A call that was refused before anything of it was sent to the server.
pub fn refused(id: &str, refusal: &Refusal) -> Json {
    let outcome = Some(Outcome::NotSent);
    Json::trusted(answers::error(id, refusal.code, &refusal.message, outcome))
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

/// The call was carried out, and its answer can't be read.
fn unreadable_answer(id: &str) -> Json {
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

/// So many messages of a stream were pruned before the client came for them.
pub fn gap_notice(count: u64) -> String {
    answers::log(
        "error",
        &format!("{count} earlier messages of this stream were pruned, and are lost"),
    )
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

/// What came back to our first request to a server.
#[derive(Debug)]
pub enum FirstAnswer {
    /// Its result.
    Result(Box<RawValue>),
    /// Its error, or ours where its answer can't be passed on.
    Error(Box<RawValue>),
}

impl FirstAnswer {
    /// Reads a line. None: it is something else than the answer to the request of this id.
    pub fn read(line: &[u8], to: &str) -> Option<Self> {
        let copy = OnceCell::new();
        let message = Line::of(line, &copy).message()?;
        if !matches!(message.kind, Kind::Answer { id, .. } if id == to) {
            return None;
        }
        let sent = |value: Option<Readable<'_>>| {
            let value = value?.sent().filter(|value| *value != "null")?;
            RawValue::from_string(value.to_owned()).ok()
        };
        let result = sent(message.result()).map(Self::Result);
        result
            .or_else(|| sent(message.error()).map(Self::Error))
            .or_else(|| Some(Self::Error(raw(&RpcError::unreadable("server")))))
    }
}

#[cfg(test)]
mod tests;
