//! Splices: what is passed on is what was sent, but for ids and tokens.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::ops::Range;

use bytes::Bytes;

use crate::members::offset;
use crate::message::{Line, Message, Part};
use crate::readable::Readable;

/// The places of a message that get another text, in the order in which they stand.
#[derive(Debug, Default)]
pub struct Edits(Vec<(Range<usize>, Box<str>)>);

impl Edits {
    /// Puts `text` in the place of `part`, which was borrowed from the message. Parts don't overlap.
    pub fn replace(&mut self, message: &Message<'_>, part: &str, text: impl Into<Box<str>>) {
        let text = text.into();
        if *part != *text {
            let start = offset(message.text, part);
            self.0.push((start..start.saturating_add(part.len()), text));
            self.0.sort_by_key(|(span, _)| span.start);
        }
    }

    /// The same of a part that may not be what was sent.
    pub fn overwrite(
        &mut self,
        message: &Message<'_>,
        part: Readable<'_>,
        text: impl Into<Box<str>>,
    ) {
        self.replace(message, part.text(), text);
    }

    /// Whether nothing is replaced.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the message with its edits.
    pub fn write(&self, message: &Message<'_>, out: &mut Vec<u8>) {
        let mut from = 0;
        for (span, new) in &self.0 {
            out.extend_from_slice(message.raw.get(from..span.start).unwrap_or_default());
            out.extend_from_slice(new.as_bytes());
            from = span.end;
        }
        out.extend_from_slice(message.raw.get(from..).unwrap_or_default());
    }

    /// The message with its edits.
    pub fn spliced(&self, message: &Message<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(message.raw.len() + 24 * self.0.len());
        self.write(message, &mut out);
        out
    }
}

/// A line whose messages get these edits: one, or those of a batch. Everything else stays as it was
/// sent.
pub fn edited(line: &Bytes, mut edit: impl FnMut(&Message<'_>, &mut Edits)) -> Bytes {
    let copy = OnceCell::new();
    let read = Line::of(line, &copy);
    let (mut out, mut from) = (Vec::new(), 0);
    for (span, part) in read.parts() {
        let Part::Message(message) = part else {
            continue;
        };
        let mut edits = Edits::default();
        edit(message, &mut edits);
        if edits.is_empty() {
            continue;
        }
        let Range { start, end } = span.unwrap_or(0..line.len());
        out.extend_from_slice(line.get(from..start).unwrap_or_default());
        edits.write(message, &mut out);
        from = end;
    }
    if from == 0 {
        return line.clone();
    }
    out.extend_from_slice(line.get(from..).unwrap_or_default());
    out.into()
}

/// The same JSON without line ends, which it has between its tokens only.
pub fn one_line(text: &str) -> String {
    let text = text.trim();
    if is_one_line(text) {
        return String::from(text);
    }
    text.replace(['\n', '\r'], " ")
}

/// Whether a text has no line ends. Looking for one byte, twice, is much faster than for one of two.
pub fn is_one_line(text: &str) -> bool {
    !text.contains('\n') && !text.contains('\r')
}
