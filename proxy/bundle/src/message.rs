//! Messages of JSON-RPC 2.0. What they carry is kept as it was written.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

pub use crate::id::Id;
use crate::object::Object;
use crate::unreadable::{Unreadable, is_odd, readable};

/// JSON-RPC's codes, and those of MCP.
pub mod code {
    /// What is not JSON.
    pub const UNREADABLE: i64 = -32700;
    /// An invalid request.
    pub const INVALID_REQUEST: i64 = -32600;
    /// A failure that tells no more.
    pub const INTERNAL: i64 = -32603;
    /// A method that does not exist.
    pub const NO_METHOD: i64 = -32601;
    /// Parameters that don't fit.
    pub const INVALID_PARAMS: i64 = -32602;
    /// A resource that does not exist (MCP 2025-11-25, Resources, Error Handling).
    pub const NO_RESOURCE: i64 = -32002;
    /// A connection that was closed, as the SDKs have it.
    pub const CONNECTION: i64 = -32000;
    /// A request that took too long, as the SDKs have it.
    pub const TIMED_OUT: i64 = -32001;
}

/// An error of JSON-RPC.
#[derive(Debug, Clone, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// Its code.
    pub code: i64,
    /// One sentence.
    #[serde(default)]
    pub message: String,
    /// What else there is to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    /// Whether it is an error of whoever carries messages to the server: it says what has become of
    /// the request.
    pub(crate) fn is_not_the_servers(&self) -> bool {
        let data = self.data.as_deref().and_then(Object::read);
        data.is_some_and(|data| data.text("outcome").is_some())
    }

    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Reads the error of an answer. One that is not as JSON-RPC has it is in `data` as a
    /// whole.
    fn read(text: &RawValue) -> Self {
        let own = || {
            let read = Object::read(text);
            let member = |name: &str| read.as_ref().and_then(|read| read.get(name));
            let code = member("code")
                .and_then(|code| serde_json::from_str::<serde_json::Number>(code.get()).ok());
            let message = read.as_ref().map_or_else(
                || serde_json::from_str(text.get()).unwrap_or_default(),
                |read| read.text("message").unwrap_or_default(),
            );
            Self {
                code: code.as_ref().and_then(whole).unwrap_or(code::INTERNAL),
                message,
                data: Some(text.to_owned()),
            }
        };
        serde_json::from_str(text.get()).unwrap_or_else(|_| own())
    }
}

/// The integer that a number is, however it is written.
fn whole(number: &serde_json::Number) -> Option<i64> {
    let text = number.to_string();
    text.strip_suffix(".0").unwrap_or(&text).parse().ok()
}

impl RpcError {
    /// A call whose answer can't be read. It was made.
    pub(crate) fn unreadable(whose: &str) -> Self {
        Self::new(
            code::CONNECTION,
            format!("the {whose}'s answer can't be read as JSON-RPC"),
        )
    }
}

/// What a request was answered with.
pub type Outcome = Result<Box<RawValue>, RpcError>;

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

#[derive(Deserialize)]
struct Envelope {
    #[serde(default, deserialize_with = "present")]
    id: Option<Box<RawValue>>,
    method: Option<String>,
    params: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Box<RawValue>>,
    error: Option<Box<RawValue>>,
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

/// Tells a value that is null from one that is absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
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
        if line.trim_ascii().is_empty() {
            return Vec::new();
        }
        let text = std::str::from_utf8(line).unwrap_or_default();
        let one = |text: &str| {
            serde_json::from_str(text)
                .ok()
                .and_then(Self::of)
                .ok_or_else(|| Unreadable::of(text))
        };
        let batch = |text: &str, one: &dyn Fn(&str) -> Result<Self, Unreadable>| {
            let all: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            (!all.is_empty()).then(|| all.into_iter().map(|element| one(element.get())).collect())
        };
        let is_batch = line.trim_ascii_start().starts_with(b"[");
        if let Some(read) = is_batch.then(|| batch(text, &one)).flatten() {
            return read;
        }
        match one(text) {
            Ok(message) if !is_batch => return vec![Ok(message)],
            Err(unread) if unread.is_json => return vec![Err(unread)],
            _ => {}
        }
        let copy = readable(line);
        // What else is in such a batch must not be unreadable because of this.
        let odd = |text: &str| {
            if is_odd(text) {
                Err(Unreadable::of_copy(text))
            } else {
                one(text)
            }
        };
        let read = is_batch.then(|| batch(&copy, &odd)).flatten();
        read.unwrap_or_else(|| vec![Err(Unreadable::of_copy(&copy))])
    }

    fn of(envelope: Envelope) -> Option<Self> {
        let Envelope {
            id,
            method,
            params,
            result,
            error,
        } = envelope;
        match (id, method) {
            (Some(id), Some(method)) => Some(Self::Request {
                id: Id::read(&id)?,
                method,
                params,
            }),
            (None, Some(method)) => Some(Self::Notification { method, params }),
            (Some(id), None) => {
                let outcome = match (result, error) {
                    (_, Some(error)) => Err(RpcError::read(&error)),
                    (Some(result), None) => Ok(result),
                    (None, None) => return None,
                };
                Some(Self::Answer {
                    id: Id::read(&id)?,
                    outcome,
                })
            }
            (None, None) => None,
        }
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
        serde_json::to_vec(&envelope).unwrap_or_default().into()
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
                &br#"{"jsonrpc":"2.0","id":3,"result":{"n":NaN}}"#[..],
                "3 answer",
            ),
            (
                br#"{"jsonrpc":"2.0","result":{"n":[1,-Infinity,"NaN\"Infinity"]},"id":"NaN"}"#,
                "\"NaN\" answer",
            ),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{\"s\":\"\xE9\"}}",
                "3 answer",
            ),
            (
                b"{\"jsonrpc\":\"2.0\",\"id\":\"\xE9\",\"result\":{}}",
                "none answer",
            ),
            (
                br#"{"jsonrpc":"2.0","id":3,"method":"x","params":{"n":NaN}}"#,
                "3 request",
            ),
            (br#"{"jsonrpc":"2.0","id":3,"result":{"cut":"#, "3 answer"),
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
        assert_eq!(batch(r#"{"id":3,"result":NaN}"#), [fine, "3 answer", fine]);
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
}
