//! Values as text: bytes in hexadecimal, and 64-bit numbers where the format is JSON, whose numbers
//! lose precision beyond 2^53.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes as lower-case hexadecimal digits, two each.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The words with which a sentence about an unknown name may end: `; did you mean x?`. Empty where
/// no known name is like it.
#[must_use]
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let closest = closest(name, known).map(printable);
    closest.map_or_else(String::new, |known| format!("; did you mean {known}?"))
}

/// The known name of which the fewest letters differ, and no more than a third.
#[must_use]
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known
        .into_iter()
        .map(|known| (distance(name, known), known));
    let (letters, known) = distances.min()?;
    (letters <= name.chars().count() / 3).then_some(known)
}

/// How many letters have to be put in, taken away or replaced to make one text of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// Serialises as a decimal string in JSON, and as a number in MessagePack.
///
/// # Errors
/// Those of the serialiser.
pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        serializer.collect_str(value)
    } else {
        value.serialize(serializer)
    }
}

/// Deserialises what [`serialize`] wrote. In JSON a plain number is taken as well.
///
/// # Errors
/// When the text is no unsigned decimal number of 64 bits.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct Visitor;
    impl de::Visitor<'_> for Visitor {
        type Value = u64;
        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an unsigned 64-bit number, as decimal text")
        }
        fn visit_u64<E>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }
        fn visit_str<E: de::Error>(self, value: &str) -> Result<u64, E> {
            value
                .parse()
                .map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
        }
    }
    if deserializer.is_human_readable() {
        deserializer.deserialize_any(Visitor)
    } else {
        u64::deserialize(deserializer)
    }
}

/// The same for what may be absent, with `#[serde(default, with = "crate::text::optional")]`.
pub mod optional {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Text(#[serde(with = "crate::text")] u64);

    /// As [`super::serialize`].
    ///
    /// # Errors
    /// Those of the serialiser.
    pub fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Text).serialize(serializer)
    }

    /// As [`super::deserialize`].
    ///
    /// # Errors
    /// As [`super::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Text>::deserialize(deserializer)?.map(|Text(value)| value))
    }
}

/// What somebody else wrote, so that it can do nothing to a terminal or a log: no escape sequence,
/// no other line, and no text that is read in another order than it stands. Each such character is
/// U+FFFD instead.
pub fn printable(text: &str) -> String {
    let harmless = |letter: char| {
        if letter != '\t' && is_harmful(letter) {
            '\u{fffd}'
        } else {
            letter
        }
    };
    text.chars().map(harmless).collect()
}

/// Whether a character controls a terminal, ends a line, or changes the direction of what follows.
pub fn is_harmful(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}
