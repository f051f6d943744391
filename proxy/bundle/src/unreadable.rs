//! What can be seen of a message that can't be read, so that its request can be failed.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::id::Id;

/// Stands for what is not JSON: a byte that is not UTF-8, or a number that JSON does not have.
const ODD: char = '\u{FFFD}';

/// What can be seen of a message that can't be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// Its id, where that can be read.
    pub id: Option<Id>,
    /// Whether it has what a request has.
    pub is_request: bool,
    /// Whether it has what an answer has.
    pub is_answer: bool,
    /// Whether it is JSON, but not a message.
    pub is_json: bool,
}

impl Unreadable {
    /// Looks at it as far as it is JSON.
    pub(crate) fn of(text: &str) -> Self {
        let mut seen = Self {
            is_json: serde_json::from_str::<&RawValue>(text).is_ok(),
            ..Self::default()
        };
        // Fails where the JSON ends, and has seen everything before that.
        let _ = serde_json::Deserializer::from_str(text).deserialize_map(&mut seen);
        seen
    }

    /// The same for what is an element of a line, or all of it, of which this is the readable copy.
    pub(crate) fn of_copy(text: &str) -> Self {
        Self {
            is_json: false,
            ..Self::of(text)
        }
    }

    /// Whether it is an answer, or may be one.
    pub fn may_answer(&self) -> bool {
        self.is_answer || !self.is_request
    }
}

impl<'de> Visitor<'de> for &mut Unreadable {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_id = false;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            self.is_request |= matches!(&*key, "method" | "params");
            self.is_answer |= matches!(&*key, "result" | "error");
            let value = map.next_value::<&RawValue>()?;
            if key == "id" {
                // Of two ids, neither counts.
                let is_one = !std::mem::replace(&mut has_id, true);
                self.id = Id::read(value).filter(|_| is_one && !is_odd(value.get()));
            }
        }
        Ok(())
    }
}

/// Whether a part of a copy stands for something that is not JSON.
pub(crate) fn is_odd(part: &str) -> bool {
    part.contains(ODD)
}

/// A copy with something readable for every byte that is not UTF-8, and for the numbers that
/// JSON does not have, though Python writes them.
pub(crate) fn readable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut copy = String::with_capacity(text.len());
    let (mut rest, mut is_quoted) = (&*text, false);
    while let Some(first) = rest.chars().next() {
        let mut length = first.len_utf8();
        let odd = ["NaN", "Infinity", "-Infinity"]
            .into_iter()
            .find(|name| !is_quoted && rest.starts_with(name));
        match first {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => length += rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => {}
        }
        if let Some(name) = odd {
            copy.extend(['"', ODD, '"']);
            length = name.len();
        } else {
            copy.push_str(&rest[..length]);
        }
        rest = &rest[length..];
    }
    copy
}
