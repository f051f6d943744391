//! Lines that can't be read as they stand. Some can be made readable; others show which request
//! may wait for them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::oversized::PartialMessage;
use crate::own_messages;
use crate::raw::is_id;

/// What stands for a byte that is not UTF-8. It may stand in a JSON string, and nowhere else in
/// JSON.
const NO_UTF8: u8 = 0x7F;
/// The error that a server gets in place of the host's answer.
pub(super) const UNREADABLE_ANSWER: &str = "the host's answer can't be read as JSON";
/// The numbers that JSON does not have.
const NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
/// How much of the end of a line is looked at for an id.
const TAIL: usize = 4 * 1024;

/// What can be seen of a message that can't be read.
#[derive(Default)]
pub struct Unreadable {
    /// The raw text of its id, where that is one.
    pub(super) id: Option<String>,
    pub(super) request: bool,
    pub(super) answer: bool,
}

impl Unreadable {
    /// Looks at what can't be read as JSON-RPC; none if there is no id in it.
    pub(super) fn of(text: &str) -> Option<Self> {
        let tail = text.len().saturating_sub(TAIL);
        let PartialMessage {
            id,
            request,
            answer,
        } = PartialMessage::of(text.as_bytes(), &text.as_bytes()[tail..]);
        let id = match id {
            // This is how notifications were written before JSON-RPC 2.0.
            Some(id) if id == "null" => return None,
            Some(id) => Some(id).filter(|id| is_id(id) && !id.bytes().any(|byte| byte == NO_UTF8)),
            None if shows_id(text) && serde_json::from_str::<&RawValue>(text).is_err() => None,
            None if text.trim_ascii_start().starts_with('[') && shows_id(text) => None,
            None => return None,
        };
        Some(Self {
            id,
            request,
            answer,
        })
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

/// What the server gets in the place of an answer of the host that can't be read, under the id of
/// its request.
pub fn unreadable_answer(id: &str) -> Bytes {
    own_messages::failed(id, UNREADABLE_ANSWER)
}

/// Whether there is a key `id` anywhere.
fn shows_id(text: &str) -> bool {
    let mut keys = text
        .match_indices(r#""id""#)
        .map(|(at, key)| &text[at + key.len()..]);
    keys.any(|rest| rest.trim_ascii_start().starts_with(':'))
}

/// A copy of a line in which nothing moves, with something readable for a byte order mark, for
/// every byte that is not UTF-8, and for the numbers that JSON does not have, though Python writes
/// them. None where there is no such thing.
pub(super) fn readable(line: &[u8]) -> Option<String> {
    let mut copy = Vec::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        copy.extend_from_slice(chunk.valid().as_bytes());
        copy.resize(copy.len() + chunk.invalid().len(), NO_UTF8);
    }
    if copy.starts_with(b"\xEF\xBB\xBF") {
        copy[..3].fill(b' ');
    }
    let mut at = 0;
    let mut quoted = false;
    while let Some(byte) = copy.get(at) {
        let mut length = 1;
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => length = 2,
            b'N' | b'I' | b'-' if !quoted => {
                let named = |name: &&&str| copy[at..].starts_with(name.as_bytes());
                if let Some(name) = NUMBERS.iter().find(named) {
                    length = name.len();
                    // Not a number: it must not be taken for an id.
                    copy[at..at + length].fill(b' ');
                    copy[at] = b'[';
                    copy[at + length - 1] = b']';
                }
            }
            _ => {}
        }
        at += length;
    }
    if copy == line {
        None
    } else {
        String::from_utf8(copy).ok()
    }
}

/// A value that JSON does not have, though Python writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotJson {
    /// `NaN`, `Infinity` or `-Infinity`.
    pub name: &'static str,
    /// Where it stands in the message, such as `result.content[0].value`.
    pub place: String,
}

/// The first such value of a message. `raw` is what was sent, `text` its readable copy.
pub(super) fn not_json(raw: &[u8], text: &str) -> Option<NotJson> {
    let text = text.as_bytes();
    let changed = raw.iter().zip(text).enumerate();
    let mut changed = changed.filter(|(_, (sent, read))| sent != read);
    // Bytes that are not UTF-8, and the byte order mark, differ as well.
    let (at, name) = changed.find_map(|(at, _)| {
        let name = NUMBERS
            .iter()
            .find(|name| raw[at..].starts_with(name.as_bytes()));
        name.filter(|_| text[at] == b'[').map(|name| (at, *name))
    })?;
    let place = place(&text[..at]);
    Some(NotJson { name, place })
}

/// A container that is open at some place of a text.
enum Open<'a> {
    /// An object, and the raw text of the last string in it that may be a key.
    Object(&'a [u8]),
    /// An array, and how many elements are complete.
    Array(usize),
}

/// Where a message is after this beginning of it, by keys and indices.
fn place(before: &[u8]) -> String {
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(byte) = before.get(at) {
        match byte {
            b'{' => open.push(Open::Object(&[])),
            b'[' => open.push(Open::Array(0)),
            b'}' | b']' => drop(open.pop()),
            b',' => match open.last_mut() {
                Some(Open::Array(count)) => *count += 1,
                Some(Open::Object(key)) => *key = &[],
                None => {}
            },
            b'"' => {
                let start = at + 1;
                at = start;
                while before.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if before[at] == b'\\' { 2 } else { 1 };
                }
                // The first string of a member is its key.
                if let Some(Open::Object(key @ [])) = open.last_mut() {
                    *key = &before[start..at.min(before.len())];
                }
            }
            _ => {}
        }
        at += 1;
    }
    let mut place = String::new();
    for one in open {
        match one {
            Open::Object(key) => {
                if !place.is_empty() {
                    place.push('.');
                }
                place.push_str(&String::from_utf8_lossy(key));
            }
            Open::Array(index) => place.push_str(&format!("[{index}]")),
        }
    }
    place
}

/// Where the elements of a batch stand, going by brackets and quotation marks alone; none where it
/// is no batch.
pub(super) fn elements(text: &str) -> Option<Vec<Range<usize>>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_not_json_is_named_with_its_place() {
        let found = |sent: &str| {
            let text = readable(sent.as_bytes()).unwrap_or_else(|| sent.into());
            not_json(sent.as_bytes(), &text).map(|found| (found.name, found.place))
        };
        assert_eq!(found(r#"{"a":[1,"NaN"]}"#), None);
        assert_eq!(
            found(r#"{"result":{"content":[{"a":1},{"b":"x","c":NaN}]}}"#),
            Some(("NaN", "result.content[1].c".into()))
        );
        assert_eq!(
            found("\u{feff}{\"a\\\"b\":[[],-Infinity]}"),
            Some(("-Infinity", "a\\\"b[1]".into()))
        );
        assert_eq!(found("[Infinity]"), Some(("Infinity", "[0]".into())));
        assert_eq!(found("\u{feff}{}"), None);
    }
}
