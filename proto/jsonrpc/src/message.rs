//! What is read of a line: what kind of message it is, and where its ids stand. Everything else
//! stays unread.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::id::is_id;
use crate::members::{self, Envelope, Member, offset, string};
use crate::readable::Readable;
use crate::repair::{self, NotJson};
use crate::unreadable::{self, Unreadable};

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
    pub(crate) text: &'a str,
    /// The bytes that were sent, with every place where it is in the text.
    pub raw: &'a [u8],
    /// What it is.
    pub kind: Kind<'a>,
    pub(crate) params: Option<&'a str>,
    pub(crate) result: Option<&'a str>,
    pub(crate) error: Option<&'a str>,
    /// `params.progressToken` and `params.requestId`, where they are there once.
    progress: Option<&'a str>,
    cancelled: Option<&'a str>,
    meta: Meta<'a>,
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

impl<'a> Line<'a> {
    /// Reads a line. Peers accept bytes that are not UTF-8, and numbers that are not JSON:
    /// where a line can't be read as it stands, that is done with a `copy` in which nothing
    /// moves.
    pub fn of(line: &'a [u8], copy: &'a OnceCell<String>) -> Self {
        let plain = core::str::from_utf8(line).ok();
        if let Some(read) = plain.and_then(|text| Self::read(line, text)) {
            return read;
        }
        let Some(text) = repair::readable(line).map(|text| &**copy.get_or_init(|| text)) else {
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

    /// The line itself, or each element of a batch, and where it stands.
    pub fn parts(&self) -> impl Iterator<Item = (Option<Range<usize>>, &Part<'a>)> {
        let (one, batch) = match self {
            Self::Blank => (None, None),
            Self::One(part) => (Some((None, part)), None),
            Self::Batch(parts) => (None, Some(parts)),
        };
        let batch = batch.into_iter().flatten();
        one.into_iter()
            .chain(batch.map(|(span, part)| (Some(span.clone()), part)))
    }

    /// The messages in it.
    pub fn messages(&self) -> impl Iterator<Item = &Message<'a>> {
        self.parts().filter_map(|(_, part)| match part {
            Part::Message(message) => Some(message),
            Part::Unreadable(_) | Part::Other => None,
        })
    }

    /// The requests in it: the raw text of the id of each, and its method.
    pub fn requests(&self) -> impl Iterator<Item = (&'a str, &str)> {
        self.messages().filter_map(|message| match &message.kind {
            Kind::Request { id, method } => Some((*id, &**method)),
            Kind::Notification { .. } | Kind::Answer { .. } => None,
        })
    }

    /// The raw texts of the ids that it answers.
    pub fn answered(&self) -> impl Iterator<Item = &'a str> {
        self.messages().filter_map(|message| match message.kind {
            Kind::Answer { id, .. } => Some(id),
            Kind::Request { .. } | Kind::Notification { .. } => None,
        })
    }

    /// What shows an id and can't be read.
    pub fn unreadable(&self) -> impl Iterator<Item = &Unreadable> {
        self.parts().filter_map(|(_, part)| match part {
            Part::Unreadable(unreadable) => Some(unreadable),
            Part::Message(_) | Part::Other => None,
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
    pub(crate) fn of(raw: &'a [u8], text: &'a str) -> Option<Self> {
        let read = Envelope::of(text)?;
        let id = read.id.once();
        let whole = Readable::new(text, raw);
        if let Some(id) = id {
            whole.part(id).sent()?;
        }
        let (result, error) = (read.result.once(), read.error.once());
        let kind = match (id, read.method.once()) {
            (id, Some(method)) => {
                let method = string(method)?;
                match id {
                    Some(id) if is_id(id) => Kind::Request { id, method },
                    Some(_) => return None,
                    None => Kind::Notification { method },
                }
            }
            (Some(id), None) if result.is_some() || error.is_some() => Kind::Answer {
                id,
                failed: result.is_none(),
            },
            _ => return None,
        };
        Some(Self {
            text,
            raw,
            kind,
            params: read.params.once(),
            result,
            error,
            progress: read.within.progress_token.once(),
            cancelled: read.within.request_id.once(),
            meta: Meta::of(read.within.meta),
        })
    }

    /// The whole message.
    pub fn whole(&self) -> Readable<'a> {
        Readable::new(self.text, self.raw)
    }

    /// Its parameters.
    pub fn params(&self) -> Option<Readable<'a>> {
        self.params.map(|params| self.whole().part(params))
    }

    /// The result, if it is an answer that has one.
    pub fn result(&self) -> Option<Readable<'a>> {
        self.result.map(|result| self.whole().part(result))
    }

    /// The error, if it is an answer that has one.
    pub fn error(&self) -> Option<Readable<'a>> {
        self.error.map(|error| self.whole().part(error))
    }

    /// The code of the error. None where it is a result, or an error without a code.
    pub fn error_code(&self) -> Option<i64> {
        #[derive(Deserialize)]
        struct Error {
            code: i64,
        }
        self.error()?.object().map(|Error { code }| code)
    }

    /// The first value of what was sent that JSON does not have. None: it is JSON, but for bytes
    /// that are not UTF-8.
    pub fn not_json(&self) -> Option<NotJson> {
        repair::not_json(self.raw, self.text)
    }

    /// Whether it is a request for this.
    pub fn asks_for(&self, wanted: &str) -> bool {
        matches!(&self.kind, Kind::Request { method, .. } if method == wanted)
    }

    /// A part of this message, if it is what was sent.
    fn sent(&self, part: &'a str) -> Option<&'a str> {
        self.whole().part(part).sent()
    }

    /// The raw text of `params._meta.progressToken`.
    pub fn asked_progress(&self) -> Option<&'a str> {
        self.sent(self.meta.token?)
    }

    /// Whether it is clear which progress token is meant, if any is. Where `_meta` or the token is
    /// said twice, readers differ: what is passed on as it stands might name the token of another
    /// request.
    pub fn has_clear_token(&self) -> bool {
        self.meta.is_clear
    }

    /// The raw text of the id of the `subscriptions/listen` that this notification belongs to (MCP
    /// 2026-07-28).
    pub fn subscription(&self) -> Option<&'a str> {
        self.sent(self.meta.subscription?)
    }

    /// The raw text of the id of the `subscriptions/listen` that this answers, as its result
    /// repeats it (MCP 2026-07-28).
    pub fn answered_subscription(&self) -> Option<&'a str> {
        let mut meta = Member::Absent;
        members::each(self.result?, |name, value| {
            if name == "_meta" {
                meta.put(value);
            }
        })?;
        self.sent(Meta::of(meta).subscription?)
    }

    /// The raw text of `params.progressToken`, in `notifications/progress`.
    pub fn progress(&self) -> Option<&'a str> {
        self.sent(self.progress?)
    }

    /// The raw text of `params.requestId`, in `notifications/cancelled`.
    pub fn cancelled(&self) -> Option<&'a str> {
        self.sent(self.cancelled?)
    }

    /// The resource that this request names.
    pub fn uri(&self) -> Option<String> {
        self.params()?.member("uri")?.read()
    }
}

/// The method that opens a subscription (MCP 2026-07-28, Subscriptions).
pub const LISTEN: &str = "subscriptions/listen";

/// What is read of `_meta`: nothing, unless it is clear.
#[derive(Clone, Copy)]
struct Meta<'a> {
    token: Option<&'a str>,
    subscription: Option<&'a str>,
    /// Whether neither it nor one of these is there twice.
    is_clear: bool,
}

impl<'a> Meta<'a> {
    fn of(meta: Member<'a>) -> Self {
        let (mut token, mut subscription) = (Member::Absent, Member::Absent);
        // What is no object has no members.
        let _ = members::each(meta.once().unwrap_or_default(), |name, value| match name {
            "progressToken" => token.put(value),
            "io.modelcontextprotocol/subscriptionId" => subscription.put(value),
            _ => {}
        });
        let is_clear = ![meta, token, subscription]
            .into_iter()
            .any(Member::is_twice);
        let clear = |member: Member<'a>| {
            let value = member.once().filter(|_| is_clear);
            value.filter(|value| *value != "null")
        };
        Self {
            token: clear(token),
            subscription: clear(subscription),
            is_clear,
        }
    }
}

/// Where a part stands in the text that it was borrowed from.
fn span(whole: &str, part: &str) -> Range<usize> {
    let start = offset(whole, part);
    start..start + part.len()
}
