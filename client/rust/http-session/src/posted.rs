//! What a client posts.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message, Part};
use mcp_sessiond_jsonrpc::one_line;
use mcp_sessiond_jsonrpc::readable::Readable;
use serde_json::value::RawValue;

use crate::messages::{Id, without_bom};

/// Why the body of a POST is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// JSON-RPC's code.
    pub code: i64,
    /// The sentence for people.
    pub message: String,
}

impl Malformed {
    fn invalid(message: &str) -> Self {
        Self {
            code: code::INVALID_REQUEST,
            message: message.into(),
        }
    }

    fn unreadable(message: impl Into<String>) -> Self {
        Self {
            code: code::UNREADABLE,
            message: message.into(),
        }
    }
}

/// A message of a client.
#[derive(Debug)]
pub struct Posted {
    /// What it is.
    pub kind: PostedKind,
    /// The message, as one line.
    pub line: Bytes,
    /// Whether it calls a tool, so that a model reads the answer.
    pub calls_tool: bool,
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
    pub fn of(messages: Vec<Posted>) -> Result<Self, Malformed> {
        let mut of = Self::default();
        for message in messages {
            let PostedKind::Call(id) = message.kind else {
                of.rest.push(message);
                continue;
            };
            if of.calls.contains(&id) {
                return Err(Malformed::invalid(
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
pub fn read_post(body: &Bytes) -> Result<(Vec<Posted>, bool), Malformed> {
    let unreadable = || Malformed::unreadable("the body is not a JSON-RPC 2.0 message");
    core::str::from_utf8(body).map_err(|_| unreadable())?;
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
                calls_tool: false,
            }),
            (None, _) => posted_one(&message).ok_or_else(unreadable),
            (Some(value), Kind::Request { id, .. }) => Ok(Posted {
                kind: PostedKind::NotJson((*id).into(), value.to_string()),
                line: Bytes::new(),
                calls_tool: false,
            }),
            (Some(value), _) => Err(Malformed::unreadable(value.to_string())),
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
        calls_tool: matches!(&message.kind, Kind::Request { method, .. } if method == "tools/call"),
    })
}
