//! A message that outlives its line, for whoever answers it or passes parts of it on in another
//! message. What it carries is kept as it was written.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::answers::not_a_request;
use crate::error::RpcError;
pub use crate::id::Id;
use crate::id::is_id;
use crate::message::{self, Kind, Line, Part};
use crate::object::Object;
use crate::repair::{escaped, has_stand_in, is_odd, readable, restored, with_numbers_escaped};
use crate::unreadable;

/// What a request was answered with.
pub type Outcome = Result<Box<RawValue>, RpcError>;

/// What can be seen of a message that can't be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// Its id, where that can be read, and is one.
    pub id: Option<Id>,
    /// Whether it has what a request has.
    pub is_request: bool,
    /// Whether it has what an answer has.
    pub is_answer: bool,
    /// Whether it is JSON, but not a message.
    pub is_json: bool,
}

impl Unreadable {
    /// Looks at what was sent and is no message.
    pub fn of(sent: &[u8]) -> Self {
        let copy = readable(sent);
        let text = copy.as_deref().or(core::str::from_utf8(sent).ok());
        let text = text.unwrap_or_default();
        let seen = unreadable::Unreadable::seen(text);
        let is_clear = |id: &String| is_id(id) && !is_odd(id) && !seen.has_more_ids;
        Self {
            id: seen.id.filter(is_clear).and_then(|id| Id::of(&id)),
            is_request: seen.request,
            is_answer: seen.answer,
            is_json: copy.is_none() && !has_stand_in(text) && owned(text).is_some(),
        }
    }

    /// What its sender gets. None: it is an answer, and nobody waits for an answer to that.
    pub fn refusal(&self) -> Option<Bytes> {
        let id = self.id.as_ref().map_or("null", Id::as_json);
        let is_answer = self.is_answer && !self.is_request;
        (!is_answer).then(|| not_a_request(id, self.is_json))
    }

    /// Whether it is an answer, or may be one.
    pub fn may_answer(&self) -> bool {
        self.is_answer || !self.is_request
    }
}

/// A value of its own.
fn owned(text: &str) -> Option<Box<RawValue>> {
    serde_json::from_str(text).ok()
}

/// A message.
#[derive(Debug, Clone)]
pub enum Message {
    /// It wants an answer.
    Request {
        /// By which it is answered.
        id: Id,
        /// What is wanted.
        method: String,
        /// With what.
        params: Option<Box<RawValue>>,
    },
    /// It wants none.
    Notification {
        /// What has happened.
        method: String,
        /// With what.
        params: Option<Box<RawValue>>,
    },
    /// It is one.
    Answer {
        /// Of the request.
        id: Id,
        /// The result, or why there is none.
        outcome: Outcome,
    },
}

#[derive(Default, Serialize)]
struct Written<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

impl Message {
    /// Reads the messages of a line: one, or those of a batch (MCP 2025-03-26). What is none is
    /// left out.
    pub fn read(line: &[u8]) -> Vec<Self> {
        Self::read_all(line)
            .into_iter()
            .filter_map(Result::ok)
            .collect()
    }

    /// The same, with what can't be read in its place.
    pub fn read_all(line: &[u8]) -> Vec<Result<Self, Unreadable>> {
        let text = escaped(line);
        let read = Self::read_text(text.as_bytes());
        let is_odd = read.iter().any(Result::is_err);
        match is_odd.then(|| with_numbers_escaped(&text)).flatten() {
            Some(text) => Self::read_text(text.as_bytes()),
            None => read,
        }
    }

    fn read_text(line: &[u8]) -> Vec<Result<Self, Unreadable>> {
        let copy = OnceCell::new();
        let read = Line::of(line, &copy);
        let parts = read.parts().map(|(span, part)| {
            let message = match part {
                Part::Message(message) => Self::of(message),
                Part::Unreadable(_) | Part::Other => None,
            };
            let sent = || span.map_or(line, |span| &line[span]);
            message.ok_or_else(|| Unreadable::of(sent()))
        });
        parts.collect()
    }

    /// None where it had to be made readable, or is an answer to no request.
    fn of(message: &message::Message<'_>) -> Option<Self> {
        message.whole().sent()?;
        let params = || message.params.and_then(owned);
        Some(match &message.kind {
            Kind::Request { id, method } => Self::Request {
                id: Id::of(id)?,
                method: method.clone().into_owned(),
                params: params(),
            },
            Kind::Notification { method } => Self::Notification {
                method: method.clone().into_owned(),
                params: params(),
            },
            Kind::Answer { id, .. } => {
                let error = message.error.filter(|error| *error != "null");
                Self::Answer {
                    id: Id::of(id)?,
                    outcome: match error.and_then(owned) {
                        Some(error) => Err(RpcError::read(&error)),
                        None => Ok(message.result.and_then(owned)?),
                    },
                }
            }
        })
    }

    /// A notification without parameters.
    pub fn notification(method: &str) -> Self {
        Self::Notification {
            method: method.to_owned(),
            params: None,
        }
    }

    /// The line, without its newline.
    pub fn write(&self) -> Bytes {
        let empty = Written {
            jsonrpc: "2.0",
            ..Written::default()
        };
        let envelope = match self {
            Self::Request { id, method, params } => Written {
                id: Some(id.raw()),
                method: Some(method),
                params: params.as_deref(),
                ..empty
            },
            Self::Notification { method, params } => Written {
                method: Some(method),
                params: params.as_deref(),
                ..empty
            },
            Self::Answer {
                id,
                outcome: Ok(result),
            } => Written {
                id: Some(id.raw()),
                result: Some(result),
                ..empty
            },
            Self::Answer {
                id,
                outcome: Err(error),
            } => Written {
                id: Some(id.raw()),
                error: Some(error),
                ..empty
            },
        };
        restored(serde_json::to_string(&envelope).unwrap_or_default()).into()
    }

    /// Its parameters, where they are an object.
    pub fn params(&self) -> Option<Object> {
        match self {
            Self::Request { params, .. } | Self::Notification { params, .. } => {
                Object::read(params.as_deref()?)
            }
            Self::Answer { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Option<Message> {
        Message::read(line.as_bytes()).pop()
    }

    #[test]
    fn a_message_is_written_as_it_was_read() {
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":1e400, "b":[]}}"#,
            r#"{"jsonrpc":"2.0","id":"a\"b","method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"x","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":-1,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[1.0]}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":null}}"#,
        ] {
            assert_eq!(one(line).expect("a message").write(), line.as_bytes());
        }
    }

    #[test]
    fn what_is_no_message_is_left_out() {
        for line in [
            "",
            "{",
            "1",
            "{}",
            r#"{"id":null,"result":1}"#,
            r#"{"id":[],"method":"x"}"#,
            r#"{"id":1}"#,
        ] {
            assert!(one(line).is_none(), "{line}");
        }
        let batch = br#"[{"id":1,"method":"a"},{"x":1},{"method":"b"}]"#;
        assert_eq!(Message::read(batch).len(), 2);
    }

    #[test]
    fn of_what_can_not_be_read_it_is_told_who_waits_for_it() {
        let read = |line: &[u8]| {
            let read = Message::read_all(line).into_iter().map(|read| match read {
                Ok(message) => String::from_utf8_lossy(&message.write()).into_owned(),
                Err(Unreadable {
                    id,
                    is_request,
                    is_answer,
                    is_json,
                }) => {
                    let id = id.map_or_else(|| "none".to_owned(), |id| id.to_string());
                    let flags = [
                        (is_request, "request"),
                        (is_answer, "answer"),
                        (is_json, "JSON"),
                    ];
                    flags
                        .iter()
                        .filter(|(is, _)| *is)
                        .fold(id, |all, (_, flag)| format!("{all} {flag}"))
                }
            });
            read.collect::<Vec<_>>()
        };
        let fine = r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#;
        for (line, is) in [
            (
                &b"{\"jsonrpc\":\"2.0\",\"id\":\"\xE9\",\"result\":{}}"[..],
                "none answer",
            ),
            (
                br#"{"jsonrpc":"2.0","id":3,"result":{"cut":NaN,"#,
                "3 answer",
            ),
            (br#"{"id":NaN,"result":{}}"#, "none answer"),
            (br#"{"id":3,"method":"x","method":"y"}"#, "3 request JSON"),
            (br#"{"id":3,"result":{},"id":4}"#, "none answer JSON"),
            (br#"{"id":null,"method":"x"}"#, "none request JSON"),
            (b"[]", "none JSON"),
            (b"nonsense", "none"),
        ] {
            assert_eq!(read(line), [is], "{}", String::from_utf8_lossy(line));
        }
        assert_eq!(read(br#"{"jsonrpc":2.0,"id":1,"method":"a"}"#), [fine]);
        let batch = |odd: &str| read(format!("[{fine}, {odd}, {fine}]").as_bytes());
        assert_eq!(batch("7"), [fine, "none JSON", fine]);
        let odd = r#"{"jsonrpc":"2.0","id":3,"result":NaN}"#;
        assert_eq!(batch(odd), [fine, odd, fine]);
        assert_eq!(read(b" "), [""; 0]);
    }

    #[test]
    fn an_error_may_be_written_in_other_ways() {
        for (error, code, message, has_data) in [
            (r#""text""#, -32603, "text", true),
            (r#"{"code":"E1","message":"m"}"#, -32603, "m", true),
            (r#"{"code":-32000.0,"message":"m"}"#, -32000, "m", true),
            (r#"{"code":-5,"message":null}"#, -5, "", true),
            (r#"{"code":-5,"message":"m"}"#, -5, "m", false),
        ] {
            let read = one(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#));
            let Some(Message::Answer {
                outcome: Err(read), ..
            }) = read
            else {
                panic!("{error}: {read:?}")
            };
            assert_eq!(
                (read.code, &*read.message, read.data.is_some()),
                (code, message, has_data),
                "{error}"
            );
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_message() {
        let read = one("\u{feff}{\"id\":1,\"method\":\"x\",\"params\":{\"a\":\"\u{feff}\"}}");
        let written =
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{\"a\":\"\u{feff}\"}}";
        assert_eq!(read.expect("a message").write(), written);
    }

    #[test]
    fn what_json_does_not_have_and_what_is_deep_is_written_as_it_was_read() {
        let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        for value in [
            b"NaN",
            &b"[1,-Infinity,\"NaN\\\"Infinity\"]"[..],
            b"\"\xE9 \xF4\x8F\xBF\xA9\"",
            b"[NaN,\"\xE9\"]",
            b"null",
            deep.as_bytes(),
        ] {
            for head in [
                r#"{"jsonrpc":"2.0","id":3,"method":"x","params":"#,
                r#"{"jsonrpc":"2.0","method":"x","params":"#,
                r#"{"jsonrpc":"2.0","id":"NaN","result":"#,
            ] {
                let line = [head.as_bytes(), value, b"}"].concat();
                let read = Message::read(&line).pop().expect("a message");
                assert_eq!(
                    read.write(),
                    line,
                    "{}",
                    String::from_utf8_lossy(&line[..64.min(line.len())])
                );
            }
        }
    }
}
