//! What the relay reads of a line: what kind of message it is, and where its ids stand. Everything
//! else stays unread.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::raw::{is_id, string};
use crate::unreadable;
pub use crate::unreadable::{NotJson, Unreadable};

/// A line, as far as it was read.
pub enum Line<'a> {
    /// Whitespace.
    Blank,
    /// One message, or what should be one.
    One(Part<'a>),
    /// A batch, as MCP 2025-03-26 has it: where each element stands, and what it is.
    Batch(Vec<(Range<usize>, Part<'a>)>),
}

/// A line, or an element of a batch.
pub enum Part<'a> {
    /// A message.
    Message(Message<'a>),
    /// Not JSON-RPC, but it shows an id: a request may wait for it, and it must go nowhere
    /// else.
    Unreadable(Unreadable),
    /// Not JSON-RPC. It is passed on, and the other side answers it.
    Other,
}

/// One message of JSON-RPC.
pub struct Message<'a> {
    /// Its text. Where the line had to be made readable, that is the copy's.
    pub text: &'a str,
    /// The bytes that were sent, with every place where it is in the text.
    pub raw: &'a [u8],
    /// What it is.
    pub kind: Kind<'a>,
    /// Its parameters' text.
    pub params: Option<&'a str>,
    /// Their `_meta`, once it was read: the rest of a large message is read for it, too.
    meta: OnceCell<Result<Option<Meta<'a>>, Unclear>>,
}

/// The kinds of messages. An id is its raw text.
pub enum Kind<'a> {
    /// It wants an answer.
    Request {
        /// By which the answer is known.
        id: &'a str,
        /// What is asked.
        method: Cow<'a, str>,
    },
    /// It wants none.
    Notification {
        /// What it is about.
        method: Cow<'a, str>,
    },
    /// It is an answer.
    Answer {
        /// The request's.
        id: &'a str,
        /// Whether it is an error.
        failed: bool,
    },
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
    /// Reads a line. Peers accept bytes that are not UTF-8, and numbers that are not JSON:
    /// where a line can't be read as it stands, that is done with a `copy` in which nothing
    /// moves.
    pub fn of(line: &'a Bytes, copy: &'a OnceCell<String>) -> Self {
        let plain = core::str::from_utf8(line).ok();
        if let Some(read) = plain.and_then(|text| Self::read(line, text)) {
            return read;
        }
        let Some(text) = unreadable::readable(line).map(|text| &**copy.get_or_init(|| text)) else {
            return Self::unread(line, plain.unwrap_or_default());
        };
        Self::read(line, text).unwrap_or_else(|| Self::unread(line, text))
    }

    fn read(line: &'a [u8], text: &'a str) -> Option<Self> {
        match text.trim_ascii_start().as_bytes().first() {
            None => Some(Self::Blank),
            Some(b'{') => Message::of(line, text).map(Part::Message).map(Self::One),
            Some(b'[') => {
                let elements = serde_json::from_str::<Vec<&RawValue>>(text).ok()?;
                let spans = elements.iter().map(|element| span(text, element.get()));
                (!elements.is_empty()).then(|| Self::batch(line, text, spans, Part::unread))
            }
            Some(_) => None,
        }
    }

    fn unread(line: &'a [u8], text: &'a str) -> Self {
        match unreadable::elements(text) {
            // What else is in such a line must not be unreadable because of this.
            Some(spans) => Self::batch(line, text, spans.into_iter(), |text| {
                match Part::unread(text) {
                    Part::Other => Part::Unreadable(Unreadable::default()),
                    part => part,
                }
            }),
            None => Self::One(Part::unread(text)),
        }
    }

    fn batch(
        line: &'a [u8],
        text: &'a str,
        spans: impl Iterator<Item = Range<usize>>,
        unread: impl Fn(&str) -> Part<'a>,
    ) -> Self {
        let part = |span: &Range<usize>| {
            let text = &text[span.clone()];
            Message::of(&line[span.clone()], text).map_or_else(|| unread(text), Part::Message)
        };
        Self::Batch(spans.map(|span| (span.clone(), part(&span))).collect())
    }

    /// The message, if it is one.
    pub fn message(self) -> Option<Message<'a>> {
        if let Self::One(Part::Message(message)) = self {
            Some(message)
        } else {
            None
        }
    }

    /// What shows an id and can't be read.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = &Unreadable> {
        let (one, batch) = match self {
            Self::Blank => (None, None),
            Self::One(part) => (Some(part), None),
            Self::Batch(parts) => (None, Some(parts)),
        };
        let parts = one
            .into_iter()
            .chain(batch.into_iter().flatten().map(|(_, part)| part));
        parts.filter_map(|part| {
            if let Part::Unreadable(unreadable) = part {
                Some(unreadable)
            } else {
                None
            }
        })
    }
}

impl Part<'_> {
    fn unread(text: &str) -> Self {
        Unreadable::of(text).map_or(Self::Other, Self::Unreadable)
    }
}

impl<'a> Message<'a> {
    /// Reads one message, of which `text` is what can be read of `raw`; none where that is
    /// not JSON-RPC, or has a member twice.
    pub(super) fn of(raw: &'a [u8], text: &'a str) -> Option<Self> {
        let read: Envelope<'a> = object(text)?;
        let id = read.id.map(RawValue::get);
        if id.is_some_and(|id| raw[span(text, id)] != *id.as_bytes()) {
            return None;
        }
        let kind = match (id, read.method) {
            (id, Some(method)) => {
                let method = string(method.get())?;
                match id {
                    Some(id) if is_id(id) => Kind::Request { id, method },
                    Some(_) => return None,
                    None => Kind::Notification { method },
                }
            }
            (Some(id), None) if read.result.is_some() || read.error.is_some() => Kind::Answer {
                id,
                failed: read.result.is_none(),
            },
            _ => return None,
        };
        Some(Self {
            text,
            raw,
            kind,
            params: read.params.map(RawValue::get),
            meta: OnceCell::new(),
        })
    }

    /// The first value of what was sent that JSON does not have. None: it is JSON, but for bytes
    /// that are not UTF-8.
    pub fn not_json(&self) -> Option<NotJson> {
        unreadable::not_json(self.raw, self.text)
    }

    /// A part of this message, if it is what was sent.
    fn sent(&self, part: &'a RawValue) -> Option<&'a str> {
        let part = part.get();
        (self.raw[self.span(part)] == *part.as_bytes()).then_some(part)
    }

    /// Where a part of this message stands in its text.
    pub fn span(&self, part: &str) -> Range<usize> {
        span(self.text, part)
    }

    /// The raw text of `params._meta.progressToken`.
    pub fn asked_progress(&self) -> Option<&'a str> {
        self.sent(self.meta()?.token?)
    }

    /// Whether it is clear which progress token is meant, if any is. Where `_meta` or the token is
    /// said twice, readers differ: what is passed on as it stands might name the token of another
    /// request.
    pub fn has_clear_token(&self) -> bool {
        self.read_meta().is_ok()
    }

    /// The raw text of the id of the `subscriptions/listen` that this notification belongs to (MCP
    /// 2026-07-28).
    pub fn subscription(&self) -> Option<&'a str> {
        self.sent(self.meta()?.subscription?)
    }

    /// The raw text of the id of the `subscriptions/listen` that this answers, as its result
    /// repeats it (MCP 2026-07-28).
    pub fn answered_subscription(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            result: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Result<'a> {
            #[serde(borrow)]
            _meta: &'a RawValue,
        }
        let answer: Answer<'a> = object(self.text)?;
        let meta: Meta<'a> = object(object::<Result<'a>>(answer.result.get())?._meta.get())?;
        self.sent(meta.subscription?)
    }

    fn meta(&self) -> Option<Meta<'a>> {
        self.read_meta().ok()?
    }

    fn read_meta(&self) -> Result<Option<Meta<'a>>, Unclear> {
        *self.meta.get_or_init(|| Self::meta_of(self.params))
    }

    fn meta_of(params: Option<&'a str>) -> Result<Option<Meta<'a>>, Unclear> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow, default)]
            _meta: Option<&'a RawValue>,
        }
        let is_object = |text: &&str| text.trim_ascii_start().starts_with('{');
        let Some(params) = params.filter(is_object) else {
            return Ok(None);
        };
        let params = object::<Params<'a>>(params).ok_or(Unclear)?;
        let Some(meta) = params._meta.map(RawValue::get).filter(is_object) else {
            return Ok(None);
        };
        object(meta).map(Some).ok_or(Unclear)
    }

    /// The raw text of `params.progressToken`, in `notifications/progress`.
    pub fn progress(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            progress_token: &'a RawValue,
        }
        self.sent(object::<Params<'a>>(self.params?)?.progress_token)
    }

    /// The raw text of `params.requestId`, in `notifications/cancelled`.
    pub fn cancelled(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Params<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        self.sent(object::<Params<'a>>(self.params?)?.request_id)
    }

    /// The code of the error that this answer is, and the text of the error object. None where it is
    /// a result, or an error without a code.
    pub fn error(&self) -> Option<(i64, &'a str)> {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            error: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Error {
            code: i64,
        }
        let error = object::<Answer<'a>>(self.text)?.error.get();
        Some((object::<Error>(error)?.code, error))
    }

    /// The resource that this request names.
    pub fn uri(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Params {
            uri: String,
        }
        object::<Params>(self.params?).map(|params| params.uri)
    }
}

/// The method that opens a subscription (MCP 2026-07-28, Subscriptions).
pub const LISTEN: &str = "subscriptions/listen";

/// A member is there twice.
#[derive(Clone, Copy)]
struct Unclear;

#[derive(Clone, Copy, Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    token: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/subscriptionId")]
    subscription: Option<&'a RawValue>,
}

/// Reads a JSON object; serde would take an array as well, and its elements for the values of the
/// keys.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    let is_object = text.trim_ascii_start().starts_with('{');
    if is_object {
        serde_json::from_str(text).ok()
    } else {
        None
    }
}

/// Where a part stands in the text that it was borrowed from.
fn span(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}
