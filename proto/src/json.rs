//! JSON that travels as it is: MCP messages, state values, metadata.

use std::fmt;

use serde::de::{self, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};

/// One JSON value (RFC 8259) as text, exactly as it was given. It is never shown.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Json(Box<str>);

/// A text that is no [`Json`]. What stood in it is not told: it may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not one JSON value: line {line}, column {column}")]
pub struct JsonError {
    /// The line, from 1.
    pub line: usize,
    /// The column, in bytes from 1; 0 where the line had not begun.
    pub column: usize,
}

impl Json {
    /// Takes the text as it is.
    ///
    /// # Errors
    /// [`JsonError`], unless it is one JSON value.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, JsonError> {
        let text = text.into();
        match serde_json::from_str::<IgnoredAny>(&text) {
            Ok(_) => Ok(Self(text)),
            Err(error) => Err(JsonError {
                line: error.line(),
                column: error.column(),
            }),
        }
    }

    /// Takes what has been checked before: it comes from a store of ours.
    #[must_use]
    pub fn trusted(text: String) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no JSON value is empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Json({} bytes)", self.0.len())
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_kept_as_it_was_given_and_never_shown() {
        let text = "{ \"b\": 1.0,\n \"a\": 18446744073709551616 }";
        let json = Json::new(text).expect("JSON");
        assert_eq!(json.as_str(), text);
        assert_eq!(format!("{json:?}"), "Json(40 bytes)");
        for bad in ["", "{", "1 2", "hunter2", "\"\u{0}\""] {
            let error = Json::new(bad).expect_err(bad).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
