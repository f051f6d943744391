//! Lines that can't be read as they stand, though some peers write them: a copy is made that can.
//!
//! There are two kinds of copies. In one ([`readable`]) nothing moves, and what is passed on is the
//! line. In the other ([`escaped`]) nothing is lost, so that parts of it can be passed on in another
//! message: what it stands for is [`restored`] there.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What stands for a byte that is not UTF-8. It may stand in a JSON string, and nowhere else in
/// JSON.
const NO_UTF8: u8 = 0x7F;
/// The numbers that JSON does not have.
const NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
/// A byte order mark.
const MARK: &[u8] = "\u{feff}".as_bytes();
/// The first of 256 characters of the private use area. Each stands for a byte in an escaped text; this
/// one is not needed for that, and begins the string that stands for a number.
const STAND_INS: u32 = 0x10_FF00;
/// In UTF-8 each of these characters begins with this byte.
const STAND_IN_LEAD: u8 = 0xF4;

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
    if copy.starts_with(MARK) {
        copy[..MARK.len()].fill(b' ');
    }
    for (at, name) in numbers(&copy) {
        // Not a number: it must not be taken for an id.
        let place = &mut copy[at..at + name.len()];
        place.fill(b' ');
        place[0] = b'[';
        place[name.len() - 1] = b']';
    }
    if copy == line {
        None
    } else {
        String::from_utf8(copy).ok()
    }
}

/// Where numbers stand that JSON does not have, and which.
fn numbers(text: &[u8]) -> Vec<(usize, &'static str)> {
    let (mut found, mut at, mut quoted) = (Vec::new(), 0, false);
    while let Some(byte) = text.get(at) {
        let mut length = 1;
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => length = 2,
            b'N' | b'I' | b'-' if !quoted => {
                let named = |name: &&&str| text[at..].starts_with(name.as_bytes());
                if let Some(name) = NUMBERS.iter().find(named) {
                    length = name.len();
                    found.push((at, *name));
                }
            }
            _ => {}
        }
        at += length;
    }
    found
}

fn stand_in(byte: u8) -> char {
    char::from_u32(STAND_INS + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn is_stand_in(character: char) -> bool {
    u32::from(character) >= STAND_INS
}

/// The string that stands for a number.
fn number_stand_in(name: &str) -> String {
    format!("\"{}{name}\"", stand_in(0))
}

/// Whether a text has something that stands for what is not UTF-8.
pub(crate) fn has_stand_in(text: &str) -> bool {
    text.as_bytes().contains(&STAND_IN_LEAD) && text.contains(is_stand_in)
}

/// The text of a line, without a byte order mark. Characters stand for bytes that are not UTF-8, and
/// for the bytes of a character that would be taken for one of these.
pub(crate) fn escaped(line: &[u8]) -> Cow<'_, str> {
    let line = line.strip_prefix(MARK).unwrap_or(line);
    match core::str::from_utf8(line) {
        Ok(text) if !has_stand_in(text) => return Cow::Borrowed(text),
        _ => {}
    }
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_stand_in(character) {
                let bytes = character.encode_utf8(&mut [0; 4]).as_bytes().to_vec();
                text.extend(bytes.into_iter().map(stand_in));
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().copied().map(stand_in));
    }
    Cow::Owned(text)
}

/// The same text with a string for each number that JSON does not have. None where there is none.
pub(crate) fn with_numbers_escaped(text: &str) -> Option<String> {
    let numbers = numbers(text.as_bytes());
    let mut copy = String::with_capacity(text.len());
    let mut end = 0;
    for (at, name) in &numbers {
        copy.push_str(&text[end..*at]);
        copy.push_str(&number_stand_in(name));
        end = at + name.len();
    }
    copy.push_str(&text[end..]);
    (!numbers.is_empty()).then_some(copy)
}

/// An escaped text as it was sent.
pub(crate) fn restored(text: String) -> Vec<u8> {
    if !has_stand_in(&text) {
        return text.into_bytes();
    }
    let number = |text: String, name: &&str| text.replace(&number_stand_in(name), name);
    let text = NUMBERS.iter().fold(text, number);
    let mut sent = Vec::with_capacity(text.len());
    for character in text.chars() {
        match u32::from(character).wrapping_sub(STAND_INS) {
            // No other byte stands for itself: none of these ends a string.
            byte @ 0x80..=0xFF => sent.extend(u8::try_from(byte)),
            _ => sent.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    sent
}

/// An escaped text with null for each number that JSON does not have.
pub(crate) fn with_null_for_numbers(text: &str) -> Option<String> {
    has_stand_in(text).then(|| {
        let number = |text: String, name: &&str| text.replace(&number_stand_in(name), "null");
        NUMBERS.iter().fold(String::from(text), number)
    })
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
    // As in nearly every message, however long.
    if raw == text {
        return None;
    }
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
    fn what_is_escaped_is_restored_to_the_last_byte() {
        for line in [
            &b"{\"a\":[NaN,-Infinity,{\"NaN\":Infinity}],\"b\":\"\\\"NaN\"}"[..],
            b"{\"a\":\"\xE9\xFF\x80 \xC3\"}",
            "{\"a\":\"\u{10ff00}NaN\",\"b\":\"\u{10ffe9}\u{10fe00}\"}".as_bytes(),
            r#"{"a":"\udbff\udf22","b":"\udbff\udf00NaN"}"#.as_bytes(),
            b"\xF4\x8F\xBC NaN",
        ] {
            let text = escaped(line);
            let text = with_numbers_escaped(&text).unwrap_or_else(|| text.into_owned());
            assert_eq!(restored(text), line, "{}", String::from_utf8_lossy(line));
        }
        assert!(matches!(
            escaped("\u{feff}{}".as_bytes()),
            Cow::Borrowed("{}")
        ));
        let text = with_numbers_escaped(r#"{"a":[NaN,-Infinity,"NaN"]}"#).expect("it has some");
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read["a"].as_array().map(Vec::len), Some(3));
        assert_eq!(
            with_null_for_numbers(&text).as_deref(),
            Some(r#"{"a":[null,null,"NaN"]}"#)
        );
    }

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
