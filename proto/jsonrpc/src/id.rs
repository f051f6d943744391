//! Ids of requests, as others have written them: raw text, of which no more is read than is needed.
//! So 1e400 and 2^64 stay what they are.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

use serde_json::value::RawValue;

use crate::object::raw;
use crate::repair::has_stand_in;

/// Whether a value is an id: MCP's are strings and numbers.
pub fn is_id(raw: &str) -> bool {
    raw.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

/// The number of ours that an answer names. Some servers give it back as a string or as `5.0`,
/// which hosts put up with.
pub fn number(raw: &str) -> Option<u64> {
    let raw = raw
        .strip_prefix('"')
        .and_then(|raw| raw.strip_suffix('"'))
        .unwrap_or(raw);
    let (digits, fraction) = raw.split_once('.').unwrap_or((raw, ""));
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit())
        && fraction.bytes().all(|byte| byte == b'0');
    if plain { digits.parse().ok() } else { None }
}

/// An id in the one way in which we write it, where its text is escaped in another way. One that is
/// no value of ours, such as 1e400, stays as it is.
pub fn normal(raw: &str) -> Box<str> {
    let read = serde_json::from_str::<serde_json::Value>(raw);
    read.map_or_else(|_| raw.into(), |id| id.to_string().into())
}

/// The id of a request: the text of a JSON number or string. `1` and `1.0` are two ids, as for most
/// readers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(Box<str>);

impl Id {
    /// An id whose raw text this is. None where that is neither a number nor a string, or not UTF-8.
    pub(crate) fn of(raw: &str) -> Option<Self> {
        (is_id(raw) && !has_stand_in(raw)).then(|| Self(raw.into()))
    }

    /// Reads an id. None where the value is neither a number nor a string.
    pub fn read(text: &RawValue) -> Option<Self> {
        Self::of(text.get())
    }

    /// An id that is a string.
    pub fn text(text: &str) -> Self {
        Self(raw(text).get().into())
    }

    /// An id that is a number.
    pub fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The JSON text as a value.
    pub fn raw(&self) -> Box<RawValue> {
        RawValue::from_string(self.0.to_string()).unwrap_or_default()
    }

    /// Whether it is a string that is written so at its beginning.
    pub fn begins_with(&self, beginning: &str) -> bool {
        let text = self.0.strip_prefix('"');
        text.is_some_and(|text| text.starts_with(beginning))
    }

    /// This id of a backend's request, as the host gets it: `backend:id`. It is derived and
    /// not counted, so another process knows its backend.
    pub fn with_prefix(&self, backend: &str) -> Self {
        Self::text(&format!("{backend}:{}", self.0))
    }

    /// What [`with_prefix`](Self::with_prefix) made it of, if it is one of this backend.
    pub fn without_prefix(&self, backend: &str) -> Option<Self> {
        let text: String = serde_json::from_str(&self.0).ok()?;
        let own = text.strip_prefix(backend)?.strip_prefix(':')?;
        let own: Box<RawValue> = serde_json::from_str(own).ok()?;
        Self::read(&own)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_backend_says_whose_it_is() {
        let backends = ["a", "a:1", "my \"x\": é", ":"];
        for backend in backends {
            for id in [Id::number(7), Id::text("7"), Id::text(":\"x"), Id::text("")] {
                let shown = id.with_prefix(backend);
                let owners: Vec<_> = backends
                    .iter()
                    .filter_map(|one| shown.without_prefix(one))
                    .collect();
                assert_eq!(owners, [id]);
            }
        }
        assert_eq!(Id::text("a:").without_prefix("a"), None);
        assert_eq!(Id::text("a:null").without_prefix("a"), None);
        assert_eq!(Id::number(1).without_prefix("a"), None);
    }
}
