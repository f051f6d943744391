//! Frames on the sockets of keepers: a header of 16 bytes, then the body. The daemon's frames ([`crate::frame`]) have a length alone, for they carry nothing but
//! calls and answers; here a message is passed on as its bytes, beside its number.
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 1 | the [`Kind`] |
//! | 1 | 3 | 0 |
//! | 4 | 4 | the length of the body, in bytes |
//! | 8 | 8 | a number, whose meaning depends on the kind; otherwise 0 |
//!
//! Numbers are big-endian, as in the [hello](crate::hello), which has settled the version before. So
//! a kind that is not known, and a byte that is not 0, break the protocol and end the connection.

use bytes::{Buf as _, Bytes, BytesMut};

use super::{RELAYED_MAX, relayed_max};

/// Bytes of a header.
pub const HEADER_LEN: usize = 16;

/// Bytes that are read at once: what a pipe holds on Linux.
pub const CHUNK: usize = 64 * 1024;

/// A buffer that grew beyond this is not kept when it is empty.
pub const CAPACITY_MAX: usize = 4 * CHUNK;

/// Bytes of either end of a line that is too long to be kept: its id stands there, if anywhere.
pub const EDGE: usize = 4 * 1024;

/// A line, without its newline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// As it came.
    Whole(Bytes),
    /// It had too many bytes. These are its first and its last ones.
    Oversized {
        /// At most [`EDGE`] bytes.
        head: Bytes,
        /// At most [`EDGE`] bytes.
        tail: Bytes,
    },
}

/// What a frame is. A *client* has connected; the *keeper* listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// From the client, as its first frame: what it asks for, in JSON.
    Request = 1,
    /// From the keeper, as its first frame: the answer, in JSON. After `joining` another one follows.
    Reply = 2,
    /// A message, without a newline. Its number: that of the sender's messages, from 1; 0 where the
    /// keeper does not acknowledge messages.
    Line = 3,
    /// From the client. The number: how many of the keeper's messages it has passed on or, where it
    /// continues another client, up to which number it need not get them again. The same number again:
    /// it can pass on no more just now.
    Confirm = 4,
    /// From the keeper, to a client that continues another one. The number: up to which it has taken
    /// the client's messages.
    Taken = 5,
    /// From such a client: which calls are known? From the keeper: their ids, as a JSON array.
    Calls = 6,
    /// From the keeper: what the backend writes to its standard error.
    Stderr = 7,
    /// From the keeper: the backend has ended; the body says why, for people.
    Loss = 8,
    /// From the client. The number: how many ends of backends it has told its host.
    Heard = 9,
    /// From the client: it is about to leave. The number: 0, its host has closed its end; otherwise
    /// that of the signal that ends the client. The body, 8 bytes in network order, says since when, in
    /// ms of the clock that start times of processes are read from.
    Leave = 10,
    /// From the client: end the backend, if the client continues another one, or has left and its
    /// backend ends with it.
    End = 11,
    /// From the keeper: it ends the backend on purpose.
    Ending = 12,
    /// From the client: its host has closed its input, and this is behind all that the host has said.
    Closed = 13,
    /// From the client: a signal of this number for the backend. It ends nothing by itself.
    Signal = 14,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Request,
        Self::Reply,
        Self::Line,
        Self::Confirm,
        Self::Taken,
        Self::Calls,
        Self::Stderr,
        Self::Loss,
        Self::Heard,
        Self::Leave,
        Self::End,
        Self::Ending,
        Self::Closed,
        Self::Signal,
    ];
}

/// What precedes a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Bytes of the body.
    pub length: u32,
    /// See the kind.
    pub number: u64,
}

/// A frame that breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The kind is none, or a byte is not 0 that has to be.
    #[error("a frame begins with {0:02x?}, which is not a kind of frame")]
    Kind([u8; 4]),
    /// The body has too many bytes for a frame of this kind.
    #[error("a frame of {0} bytes was announced, which is too long for its kind")]
    Length(u32),
}

impl Header {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.length.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// [`FrameError::Kind`].
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, FrameError> {
        let [
            kind,
            rest @ ..,
            l0,
            l1,
            l2,
            l3,
            n0,
            n1,
            n2,
            n3,
            n4,
            n5,
            n6,
            n7,
        ] = *bytes;
        let known = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
        let Some(kind) = known.filter(|_| rest == [0; 3]) else {
            let [z0, z1, z2] = rest;
            return Err(FrameError::Kind([kind, z0, z1, z2]));
        };
        Ok(Self {
            kind,
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            number: u64::from_be_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
        })
    }

    /// The header of a body of so many bytes. More than a frame can have are cut off by nobody: see
    /// [`relayed_max`].
    #[must_use]
    pub fn of(kind: Kind, number: u64, length: usize) -> Self {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        Self {
            kind,
            length,
            number,
        }
    }
}

/// A whole frame in one piece, with this number and body.
#[must_use]
pub fn frame(kind: Kind, number: u64, body: &[u8]) -> Vec<u8> {
    [&Header::of(kind, number, body.len()).encode(), body].concat()
}

/// A frame that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// See the kind.
    pub number: u64,
    /// What it holds. Only a [`Kind::Line`] can be oversized.
    pub body: Line,
}

impl Frame {
    /// The body of a frame that is no line.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Line::Whole(body) => body,
            Line::Oversized { head, .. } => head,
        }
    }
}

/// Takes bytes in as they come, and gives frames out.
#[derive(Debug)]
pub struct FrameBuffer {
    bytes: BytesMut,
    /// Bytes that a line may have.
    line_max: usize,
    /// A line of which the middle is thrown away.
    cut: Option<Cut>,
}

/// A line that is too long.
#[derive(Debug)]
struct Cut {
    number: u64,
    head: Bytes,
    /// Bytes that are to come, and those in the buffer.
    left: usize,
}

impl Default for FrameBuffer {
    fn default() -> Self {
        Self::with_line_max(relayed_max())
    }
}

impl FrameBuffer {
    /// Takes lines of so many bytes. Of a longer one both ends are kept.
    #[must_use]
    pub fn with_line_max(line_max: usize) -> Self {
        Self {
            bytes: BytesMut::new(),
            line_max,
            cut: None,
        }
    }

    /// Where more bytes go, with room for the rest of the frame that has begun, or for a [`CHUNK`].
    pub fn room(&mut self) -> &mut BytesMut {
        if self.bytes.is_empty() && self.bytes.capacity() > CAPACITY_MAX {
            self.bytes = BytesMut::new();
        }
        let rest = match self.header() {
            Ok(Some(header)) if self.cut.is_none() && self.takes(&header) => {
                (HEADER_LEN + header.length as usize).saturating_sub(self.bytes.len())
            }
            _ => 0,
        };
        self.bytes.reserve(rest.max(CHUNK));
        &mut self.bytes
    }

    /// The next frame, if it is there to its end.
    ///
    /// # Errors
    /// [`FrameError`]: what follows can't be read any more.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.cut.is_some() {
            return Ok(self.rest_of_cut());
        }
        let Some(header) = self.header()? else {
            return Ok(None);
        };
        let length = header.length as usize;
        if !self.takes(&header) {
            return self.begin_cut(header);
        }
        if self.bytes.len() < HEADER_LEN + length {
            return Ok(None);
        }
        self.bytes.advance(HEADER_LEN);
        Ok(Some(Frame {
            kind: header.kind,
            number: header.number,
            body: Line::Whole(self.bytes.split_to(length).freeze()),
        }))
    }

    /// Whether a frame was begun that is not there to its end.
    #[must_use]
    pub fn is_mid_frame(&self) -> bool {
        self.cut.is_some() || !self.bytes.is_empty()
    }

    /// The header at the front of the buffer, when it is there.
    fn header(&self) -> Result<Option<Header>, FrameError> {
        self.bytes.first_chunk().map(Header::decode).transpose()
    }

    fn takes(&self, header: &Header) -> bool {
        let max = match header.kind {
            Kind::Line => self.line_max,
            _ => RELAYED_MAX,
        };
        header.length as usize <= max
    }

    fn begin_cut(&mut self, header: Header) -> Result<Option<Frame>, FrameError> {
        if header.kind != Kind::Line {
            return Err(FrameError::Length(header.length));
        }
        let Some(head) = self.bytes.get(HEADER_LEN..HEADER_LEN + EDGE) else {
            return Ok(None);
        };
        let head = Bytes::copy_from_slice(head);
        self.bytes.advance(HEADER_LEN);
        self.cut = Some(Cut {
            number: header.number,
            head,
            left: header.length as usize,
        });
        Ok(self.rest_of_cut())
    }

    /// Throws away what stands between the ends of a line that is too long.
    fn rest_of_cut(&mut self) -> Option<Frame> {
        let cut = self.cut.as_mut()?;
        let here = self.bytes.len().min(cut.left);
        let thrown = here.saturating_sub(EDGE);
        cut.left -= thrown;
        self.bytes.advance(thrown);
        if self.bytes.len() < cut.left {
            // Copied, so that what was thrown away is free.
            self.bytes = BytesMut::from(&self.bytes[..]);
            return None;
        }
        let Cut { number, head, left } = self.cut.take()?;
        let tail = Bytes::copy_from_slice(&self.bytes[..left]);
        self.bytes.advance(left);
        Some(Frame {
            kind: Kind::Line,
            number,
            body: Line::Oversized { head, tail },
        })
    }
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../PROTOCOL.md");

    /// A request, a message and its confirmation.
    const GOLDEN: [&str; 3] = [
        "01000000000000270000000000000000\
         7b22617474616368223a7b2273657373696f6e223a227331222c2265706f6368223a2237227d7d",
        "030000000000000800000000000000077b226964223a317d",
        "04000000000000000000000000000007",
    ];

    #[test]
    fn the_golden_bytes_are_written_and_read_and_the_page_has_them() {
        let attach = br#"{"attach":{"session":"s1","epoch":"7"}}"#;
        let written = [
            whole(Kind::Request, 0, attach),
            whole(Kind::Line, 7, br#"{"id":1}"#),
            whole(Kind::Confirm, 7, b""),
        ];
        let page: String = PAGE.split_whitespace().collect();
        for (wanted, golden) in written.into_iter().zip(GOLDEN) {
            let bytes = frame(wanted.kind, wanted.number, wanted.bytes());
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, golden);
            let read = taken(&mut FrameBuffer::default(), &[&bytes]).expect("frames");
            assert_eq!(read, [wanted]);
            assert!(page.contains(golden), "PROTOCOL.md does not quote {golden}");
        }
        let request = serde_json::from_slice(attach).expect("a request");
        assert!(matches!(request, crate::backends::KeeperRequest::Attach(_)));
        for kind in Kind::ALL {
            let word = format!("{kind:?}").to_lowercase();
            let row = format!("| {} {word} |", kind as u8);
            assert!(PAGE.contains(&row), "PROTOCOL.md has no row {row}");
        }
    }

    /// The frames of these pieces.
    fn taken(buffer: &mut FrameBuffer, pieces: &[&[u8]]) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Vec::new();
        for piece in pieces {
            buffer.room().extend_from_slice(piece);
            while let Some(frame) = buffer.next_frame()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    fn whole(kind: Kind, number: u64, body: &'static [u8]) -> Frame {
        let body = Line::Whole(Bytes::from_static(body));
        Frame { kind, number, body }
    }

    #[test]
    fn frames_come_out_as_they_went_in_wherever_they_were_cut() {
        let wanted = [
            whole(Kind::Line, 7, b"{\"id\":1}\n"),
            whole(Kind::Confirm, u64::MAX, b""),
            whole(Kind::Stderr, 0, b"ready\n"),
        ];
        let bytes: Vec<u8> = wanted
            .iter()
            .flat_map(|one| frame(one.kind, one.number, one.bytes()))
            .collect();
        for cut in 0..bytes.len() {
            let pieces = [&bytes[..cut], &bytes[cut..]];
            let mut buffer = FrameBuffer::default();
            assert_eq!(taken(&mut buffer, &pieces).as_deref(), Ok(&wanted[..]));
        }
    }

    #[test]
    fn every_kind_is_read_as_it_was_written_and_no_other_one_is() {
        for number in 0..=u8::MAX {
            let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == number);
            let mut bytes = Header::of(Kind::Line, 1, 0).encode();
            bytes[0] = number;
            match kind {
                Some(kind) => assert_eq!(Header::decode(&bytes).map(|read| read.kind), Ok(kind)),
                None => assert_eq!(
                    Header::decode(&bytes),
                    Err(FrameError::Kind([number, 0, 0, 0]))
                ),
            }
        }
        let mut bytes = Header::of(Kind::Line, 1, 0).encode();
        bytes[2] = 1;
        assert_eq!(Header::decode(&bytes), Err(FrameError::Kind([3, 0, 1, 0])));
        let long = Header::of(Kind::Stderr, 0, RELAYED_MAX + 1);
        let mut buffer = FrameBuffer::default();
        let refused = taken(&mut buffer, &[&long.encode()]);
        assert_eq!(refused, Err(FrameError::Length(long.length)));
    }

    #[test]
    fn a_line_of_16_mib_is_whole_and_one_of_a_byte_more_leaves_its_ends() {
        let mut line = vec![b'x'; RELAYED_MAX];
        let next = frame(Kind::Line, 2, b"y");
        let mut bytes = frame(Kind::Line, 1, &line);
        bytes.extend_from_slice(&next);
        let frames = taken(&mut FrameBuffer::default(), &[&bytes]).expect("frames");
        assert_eq!(
            frames[0].body,
            Line::Whole(Bytes::copy_from_slice(&line)),
            "whole"
        );
        assert_eq!(frames[1], whole(Kind::Line, 2, b"y"));
        line.splice(..4, *b"head");
        line.splice(line.len() - 3.., *b"tail");
        let mut bytes = frame(Kind::Line, 1, &line);
        bytes.extend_from_slice(&next);
        for chunk in [bytes.len(), CHUNK, EDGE + 1, 1_000] {
            let chunks: Vec<&[u8]> = bytes.chunks(chunk).collect();
            let frames = taken(&mut FrameBuffer::default(), &chunks).expect("frames");
            let [cut, after] = &frames[..] else {
                panic!("{}", frames.len())
            };
            let Line::Oversized { head, tail } = &cut.body else {
                panic!("{chunk}")
            };
            assert_eq!((cut.kind, cut.number), (Kind::Line, 1));
            assert!(head.starts_with(b"head") && head.len() == EDGE);
            assert!(tail.ends_with(b"tail") && tail.len() == EDGE);
            assert_eq!(*after, whole(Kind::Line, 2, b"y"));
        }
    }
}
