//! Lines that can't be read as they stand, though some peers write them: a copy is made that can.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What stands for a byte that is not UTF-8. It may stand in a JSON string, and nowhere else in
/// JSON.
const NO_UTF8: u8 = 0x7F;
/// The numbers that JSON does not have.
const NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// Whether a part of a copy stands for something that is not text.
pub(crate) fn is_odd(part: &str) -> bool {
    part.bytes().any(|byte| byte == NO_UTF8)
}

/// A copy of a line in which nothing moves, with something readable for a byte order mark, for
/// every byte that is not UTF-8, and for the numbers that JSON does not have, though Python writes
/// them. None where there is no such thing.
pub(crate) fn readable(line: &[u8]) -> Option<String> {
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

/// Why a message with this value is not passed on, for whoever has sent it.
impl fmt::Display for NotJson {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, place } = self;
        write!(
            formatter,
            "`{name}` at `{place}` is not JSON: leave it out, or send null or a string"
        )
    }
}

/// The first such value of a message. `raw` is what was sent, `text` its readable copy.
pub(crate) fn not_json(raw: &[u8], text: &str) -> Option<NotJson> {
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
