//! The lines between a keeper and a continuing front. Each begins with a letter;
//! `proto/PROTOCOL.md` lists them.

use std::collections::VecDeque;
use std::fmt::Write as _;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::lines::Line;

/// The longest prefix of a message, in bytes.
pub const PREFIX_MAX: usize = 24;

/// A line from a front or a keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContinuingLine {
    /// A message, and its number.
    Message(u64, Line),
    /// From a front: the messages up to this number are confirmed.
    Confirmed(u64),
    /// From a keeper: it acknowledges the messages up to this number.
    Taken(u64),
    /// From a front: it asks which calls the keeper knows. From a keeper: their ids, as a JSON
    /// array.
    Calls(Bytes),
    /// From a front: end the backend. From a keeper: it ends.
    End,
}

impl ContinuingLine {
    /// What a line says. None: the line breaks the protocol.
    pub fn read(line: Line) -> Option<Self> {
        let line = match line {
            Line::Whole(line) => line,
            Line::Oversized { head, tail } => {
                let (number, head) = numbered(&head)?;
                return Some(Self::Message(number, Line::Oversized { head, tail }));
            }
        };
        let number = || str::from_utf8(line.get(1..)?).ok()?.parse().ok();
        match line.first()? {
            b'm' => numbered(&line).map(|(number, line)| Self::Message(number, Line::Whole(line))),
            b'c' => number().map(Self::Confirmed),
            b't' => number().map(Self::Taken),
            b'o' => Some(Self::Calls(line.slice(1..))),
            b'e' if line.len() == 1 => Some(Self::End),
            _ => None,
        }
    }

    /// The line of a message, without its newline.
    pub fn message(number: u64, message: &[u8]) -> Bytes {
        let mut line = BytesMut::with_capacity(PREFIX_MAX + message.len());
        // Writing to a buffer can't fail.
        let _ = write!(line, "m{number} ");
        line.put_slice(message);
        line.freeze()
    }
}

/// A message of the form `m7 {…}`.
fn numbered(line: &Bytes) -> Option<(u64, Bytes)> {
    let end = memchr::memchr(b' ', &line[..line.len().min(PREFIX_MAX)])?;
    let number = str::from_utf8(line[..end].strip_prefix(b"m")?).ok()?;
    Some((number.parse().ok()?, line.slice(end + 1..)))
}

/// The control lines that wait for the front, and the front's message that the keeper has not taken
/// yet.
#[derive(Debug, Default)]
pub struct Continuing {
    /// Control lines for the front, which go before messages.
    pub lane: VecDeque<Bytes>,
    /// A message of the front that waits until the relay has room for it.
    pub held: Option<(u64, Line)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &'static [u8]) -> Option<ContinuingLine> {
        ContinuingLine::read(Line::Whole(Bytes::from_static(line)))
    }

    #[test]
    fn a_line_that_breaks_the_protocol_is_none() {
        let message = ContinuingLine::message(7, b"{\"a b\":1}");
        assert_eq!(message, "m7 {\"a b\":1}");
        let whole = Line::Whole(Bytes::from_static(b"{\"a b\":1}"));
        assert_eq!(
            ContinuingLine::read(Line::Whole(message)),
            Some(ContinuingLine::Message(7, whole))
        );
        assert_eq!(
            read(b"c18446744073709551615"),
            Some(ContinuingLine::Confirmed(u64::MAX))
        );
        assert_eq!(read(b"t0"), Some(ContinuingLine::Taken(0)));
        assert_eq!(read(b"o"), Some(ContinuingLine::Calls(Bytes::new())));
        assert_eq!(read(b"e"), Some(ContinuingLine::End));
        for bad in [
            &b""[..],
            b"m",
            b"m7",
            b"m7{}",
            b"mx {}",
            b"c",
            b"c-1",
            b"ex",
            b"{}",
            b"m99999999999999999999 {}",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
