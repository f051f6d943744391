//! What can be seen of what can't be read: which request may wait for it.

use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::id::is_id;
use crate::repair::is_odd;

/// How much of the end of a line is looked at for an id.
const TAIL: usize = 4 * 1024;

/// What can be seen of a message that can't be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// The raw text of its id: of several, the last one that is not null.
    pub id: Option<String>,
    /// Whether it has what a request has.
    pub request: bool,
    /// Whether it has what an answer has.
    pub answer: bool,
    /// Whether it has several ids, so that it is not clear who waits for it.
    pub has_more_ids: bool,
}

impl Unreadable {
    /// Looks at the first and the last bytes of a message whose middle is gone.
    pub fn of_ends(head: &[u8], tail: &[u8]) -> Self {
        let mut partial = Self::default();
        let head = match core::str::from_utf8(head) {
            Ok(text) => text,
            Err(error) => core::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
        };
        // This fails where the head ends, and has seen everything before.
        let _ = serde_json::Deserializer::from_str(head).deserialize_map(&mut partial);
        if !head.trim_ascii_start().starts_with('{') {
            return partial;
        }
        let cut = tail.iter().take_while(|byte| **byte & 0xC0 == 0x80).count();
        let tail = core::str::from_utf8(&tail[cut..]).unwrap_or_default();
        // What is a whole object from a key on is the end of the outermost one.
        for (at, _) in tail.rmatch_indices(r#""id""#) {
            let starts = tail[..at].trim_ascii_end().ends_with([',', '{']);
            if starts && partial.id.is_none() {
                let mut end = Self::default();
                let text = format!("{{{}", &tail[at..]);
                let mut reader = serde_json::Deserializer::from_str(&text);
                if reader.deserialize_map(&mut end).is_ok() && reader.end().is_ok() {
                    partial.id = end.id;
                    partial.request |= end.request;
                    partial.answer |= end.answer;
                }
            }
        }
        partial
    }

    /// Looks at a text whose end is there.
    pub(crate) fn seen(text: &str) -> Self {
        let tail = text.len().saturating_sub(TAIL);
        Self::of_ends(text.as_bytes(), &text.as_bytes()[tail..])
    }

    /// Looks at what can't be read as JSON-RPC; none if there is no id in it.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let mut seen = Self::seen(text);
        match seen.id.as_deref() {
            // This is how notifications were written before JSON-RPC 2.0.
            Some("null") => return None,
            Some(id) if is_id(id) && !is_odd(id) => {}
            Some(_) => seen.id = None,
            None if shows_id(text) && serde_json::from_str::<&RawValue>(text).is_err() => {}
            None if text.trim_ascii_start().starts_with('[') && shows_id(text) => {}
            None => return None,
        }
        Some(seen)
    }

    /// The raw text of the id, unless this has what a request has: then it is about a request that
    /// was made under this id.
    pub fn asked(&self) -> Option<&str> {
        self.id.as_deref().filter(|_| !self.request)
    }

    /// Whether it has what an answer has, and nothing of a request.
    pub fn is_answer(&self) -> bool {
        self.answer && !self.request
    }
}

impl<'de> Visitor<'de> for &mut Unreadable {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            self.request |= matches!(&*key, "method" | "params");
            self.answer |= matches!(&*key, "result" | "error");
            let value = map.next_value::<&RawValue>()?;
            if key != "id" {
                continue;
            }
            self.has_more_ids |= self.id.is_some();
            if self.id.is_none() || value.get() != "null" {
                self.id = Some(value.get().to_owned());
            }
        }
        Ok(())
    }
}

/// Whether there is a key `id` anywhere.
fn shows_id(text: &str) -> bool {
    let mut keys = text
        .match_indices(r#""id""#)
        .map(|(at, key)| &text[at + key.len()..]);
    keys.any(|rest| rest.trim_ascii_start().starts_with(':'))
}

/// Where the elements of a batch stand, going by brackets and quotation marks alone; none where it
/// is no batch.
pub(crate) fn elements(text: &str) -> Option<Vec<Range<usize>>> {
    let end = text.trim_ascii_end().len();
    let mut found = Vec::new();
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate().take(end) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' if depth > 0 => quoted = !quoted,
            _ if quoted => {}
            b'[' if depth == 0 => (depth, start) = (1, at + 1),
            _ if depth == 0 && !byte.is_ascii_whitespace() => return None,
            b'[' | b'{' => depth += 1,
            b',' if depth == 1 => {
                found.push(start..at);
                start = at + 1;
            }
            b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    if found.is_empty() && text[start..at].trim_ascii().is_empty() {
                        return None;
                    }
                    found.push(start..at);
                    return (at + 1 == end)
                        .then(|| found.iter().map(|span| trimmed(text, span)).collect());
                }
            }
            _ => {}
        }
    }
    None
}

fn trimmed(text: &str, span: &Range<usize>) -> Range<usize> {
    let part = &text[span.clone()];
    let start = span.end - part.trim_ascii_start().len();
    start..start + part.trim_ascii().len()
}
