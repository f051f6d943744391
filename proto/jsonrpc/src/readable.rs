//! Text of a message as it was read. Where the message could not be read as it stands, it is the
//! copy's, and what was sent differs: so it can be read, and has no way into a line.

use serde::de::DeserializeOwned;

use crate::members::{self, offset};

/// A part of a message, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Readable<'a> {
    text: &'a str,
    sent: &'a [u8],
}

impl<'a> Readable<'a> {
    /// Text that was sent as it is.
    pub fn of_sent(text: &'a str) -> Self {
        Self::new(text, text.as_bytes())
    }

    /// Text that stands for these bytes, of the same length.
    pub(crate) fn new(text: &'a str, sent: &'a [u8]) -> Self {
        Self { text, sent }
    }

    /// A part of this one, which was borrowed from it.
    pub(crate) fn part(self, text: &'a str) -> Self {
        let start = offset(self.text, text);
        let sent = self.sent.get(start..start.saturating_add(text.len()));
        Self {
            text,
            sent: sent.unwrap_or_default(),
        }
    }

    pub(crate) fn text(self) -> &'a str {
        self.text
    }

    /// The raw text, if it is what was sent.
    pub fn sent(self) -> Option<&'a str> {
        (self.sent == self.text.as_bytes()).then_some(self.text)
    }

    /// Its length in bytes, which is that of what was sent.
    #[expect(clippy::len_without_is_empty, reason = "JSON is never empty")]
    pub fn len(self) -> usize {
        self.text.len()
    }

    /// The value. None where it is of another shape, or deeper than 128 levels.
    pub fn read<T: DeserializeOwned>(self) -> Option<T> {
        serde_json::from_str(self.text).ok()
    }

    /// The same of an object; serde would take an array as well, and its elements for the values of
    /// the keys.
    pub fn object<T: DeserializeOwned>(self) -> Option<T> {
        self.text
            .trim_ascii_start()
            .starts_with('{')
            .then(|| self.read())?
    }

    /// A member, if this is an object. Of members with the same name the last one counts, as for
    /// most readers.
    pub fn member(self, name: &str) -> Option<Self> {
        let mut found = None;
        members::each(self.text, |each, value| {
            if each == name {
                found = Some(value);
            }
        })?;
        found.map(|value| self.part(value))
    }
}
