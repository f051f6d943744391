//! What the relay reads of a line: what kind of message it is, and where its ids stand. Everything else stays unread.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A line, as far as it was read.
pub(crate) enum Line<'a> {
    /// Whitespace.
    Blank,
    /// No JSON-RPC. The other side is to say what it thinks of it.
    Other,
    /// One message.
    One(Message<'a>),
    /// A batch, as MCP 2025-03-26 has it: where each element stands, and what it is, unless it is no JSON-RPC.
    Batch(Vec<(Range<usize>, Option<Message<'a>>)>),
}

/// One message of JSON-RPC.
pub(crate) struct Message<'a> {
    /// Its text, from brace to brace.
    pub text: &'a str,
    /// What it is.
    pub kind: Kind<'a>,
    /// Its parameters' text.
    pub params: Option<&'a str>,
}

/// The kinds of messages. An id is its raw text.
pub(crate) enum Kind<'a> {
    /// It wants an answer.
    Request { id: &'a str, method: Cow<'a, str> },
    /// It wants none.
    Notification { method: Cow<'a, str> },
    /// It is an answer.
    Answer { id: &'a str, failed: bool },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Tells a value that is null from one that is absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Line<'a> {
    /// Reads a line.
    pub(crate) fn of(line: &'a Bytes) -> Self {
        let Ok(text) = std::str::from_utf8(line) else { return Self::Other };
        match text.trim_ascii_start().as_bytes().first() {
            None => Self::Blank,
            Some(b'{') => Message::of(text).map_or(Self::Other, Self::One),
            Some(b'[') => match serde_json::from_str::<Vec<&RawValue>>(text) {
                Ok(elements) if !elements.is_empty() => Self::Batch(
                    elements.iter().map(|raw| (span(text, raw.get()), Message::of(raw.get()))).collect(),
                ),
                _ => Self::Other,
            },
            Some(_) => Self::Other,
        }
    }
}

impl<'a> Message<'a> {
    /// Reads one message; none where the text is no JSON-RPC, or says something twice.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let read: Envelope<'a> = object(text)?;
        let kind = match (read.id, read.method) {
            (id, Some(method)) => {
                let method = string(method.get())?;
                match id.map(RawValue::get) {
                    Some(id) if is_id(id) => Kind::Request { id, method },
                    Some(_) => return None,
                    None => Kind::Notification { method },
                }
            }
            (Some(id), None) if read.result.is_some() || read.error.is_some() => {
                Kind::Answer { id: id.get(), failed: read.result.is_none() }
            }
            _ => return None,
        };
        Some(Self { text, kind, params: read.params.map(RawValue::get) })
    }

    /// Where a part of this message stands in its text.
    pub(crate) fn span(&self, part: &str) -> Range<usize> {
        span(self.text, part)
    }

    /// The raw text of `params._meta.progressToken`.
    pub(crate) fn asked_progress(&self) -> Option<&'a str> {
        self.meta()?.token.map(RawValue::get)
    }

    /// The raw text of the id of the `subscriptions/listen` that this notification belongs to (MCP 2026-07-28).
    pub(crate) fn subscription(&self) -> Option<&'a str> {
        self.meta()?.subscription.map(RawValue::get)
    }

    fn meta(&self) -> Option<Meta<'a>> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            _meta: Option<&'a RawValue>,
        }
        let params: Params<'a> = object(self.params?)?;
        object(params._meta?.get())
    }

    /// The raw text of `params.progressToken`, in `notifications/progress`.
    pub(crate) fn progress(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            progress_token: &'a RawValue,
        }
        object::<Params<'a>>(self.params?).map(|params| params.progress_token.get())
    }

    /// The raw text of `params.requestId`, in `notifications/cancelled`.
    pub(crate) fn cancelled(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        object::<Params<'a>>(self.params?).map(|params| params.request_id.get())
    }

    /// The resource that this request names.
    pub(crate) fn uri(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Params {
            uri: String,
        }
        object::<Params>(self.params?).map(|params| params.uri)
    }
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<&'a RawValue>,
}

/// Reads a JSON object; serde would take an array as well, and its elements for the values of the keys.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let is_object = text.trim_ascii_start().starts_with('{');
    if is_object { serde_json::from_str(text).ok() } else { None }
}

/// Where a part stands in the text that it was borrowed from.
fn span(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// The text of a JSON string, borrowed where nothing in it is escaped.
pub(crate) fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// MCP's ids are strings and numbers.
fn is_id(raw: &str) -> bool {
    raw.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

/// The number of ours that an answer names. Some servers give it back as a string or as `5.0`, which hosts put up with.
pub(crate) fn number(raw: &str) -> Option<u64> {
    let raw = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or(raw);
    let (digits, fraction) = raw.split_once('.').unwrap_or((raw, ""));
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && fraction.bytes().all(|byte| byte == b'0');
    if plain { digits.parse().ok() } else { None }
}
