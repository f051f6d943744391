//! JSON-RPC messages of a server, and the ids by which each side knows them.
//!
//! A client may use an id again while a former call of that id is open: a page that was reloaded
//! counts from 0. So the server gets other ids and progress tokens, which name the stream of the
//! call as well: `"STREAM/ID"`. What it answers is given the client's own again before it is
//! stored. A server that was started again may use an id again, too, while its client still thinks
//! about the former request. So the client gets `"INCARNATION/ID"`, and an answer to a former
//! server is dropped.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::id_prefix::{parts, prefixed, tag};
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message, Part};
use mcp_sessiond_jsonrpc::{Edits, NotJson, edited, is_one_line, one_line};
use mcp_sessiond_proto::{Json, StreamId};

use crate::substitute::{answer_not_json, unreadable_answer};

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
    /// A line for the client's log.
    Log,
    /// Any other notification.
    Other,
    /// A request of the server's own that no client can be sent, for this reason.
    Unsendable(Id, String),
    /// A notification that no client can be sent, for this reason.
    Lost(String),
}

/// An id or a progress token of a client, as the server gets it.
pub(crate) fn addressed(stream: &StreamId, id: &str) -> Id {
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
pub(crate) fn cancelling(line: &Bytes, stream: &StreamId) -> Bytes {
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
            Kind::Notification { method } if method == "notifications/message" => {
                ServerMessage::Log
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
    let none = || Json::trusted("null".into());
    match &message.kind {
        Kind::Answer { id, .. } => {
            let parts = parts(id).and_then(|(stream, id)| Some((stream.parse().ok()?, id)));
            if let Some((stream, id)) = parts {
                let error = answer_not_json(&id, name, place);
                each(ServerMessage::Answer(stream, id), error);
            }
        }
        Kind::Request { id, .. } => {
            let why = format!("the request has `{name}` at `{place}`, which is not JSON");
            each(ServerMessage::Unsendable((*id).into(), why), none());
        }
        Kind::Notification { method } => {
            let why = format!(
                "a message {method:?} of the server is lost: it has `{name}` at `{place}`, which is not JSON"
            );
            each(ServerMessage::Lost(why), none());
        }
    }
}

/// The text without a byte order mark, which JSON over a network does not have (RFC 8259, section
/// 8.1) and readers may ignore.
pub(crate) fn without_bom(text: &Bytes) -> Bytes {
    let mark = "\u{feff}".as_bytes();
    let length = if text.starts_with(mark) {
        mark.len()
    } else {
        0
    };
    text.slice(length..)
}

/// A message with these edits, as the data of an event, which has no line ends.
pub fn with_edits(message: &Message<'_>, edits: &Edits) -> Json {
    let text = String::from_utf8(edits.spliced(message))
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    let is_ready = text.starts_with('{') && is_one_line(&text);
    Json::trusted(if is_ready { text } else { one_line(&text) })
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

#[cfg(test)]
mod tests;
