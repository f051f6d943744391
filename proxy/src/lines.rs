//! Lines out of bytes, as MCP's stdio transport frames its messages: no newline within, one behind
//! each.

use std::io::{self, IoSlice, Read};
use std::os::fd::AsFd;

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes, BytesMut};
use mcp_sessiond_proto::backends::frame::CAPACITY_MAX;
pub use mcp_sessiond_proto::backends::frame::{CHUNK, EDGE, Line};
use mcp_sessiond_proto::backends::relayed_max;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt as _};

/// Takes bytes in as they come, and gives lines out.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: BytesMut,
    /// Bytes that a line may have.
    limit: usize,
    /// So many of them have no newline.
    scanned: usize,
    /// The first bytes of a line of which most was thrown away.
    head: Option<Bytes>,
}

impl Default for LineBuffer {
    fn default() -> Self {
        Self::with_limit(relayed_max())
    }
}

impl LineBuffer {
    /// Takes lines of so many bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            bytes: BytesMut::new(),
            limit,
            scanned: 0,
            head: None,
        }
    }

    /// Where more bytes go, with room for a [`CHUNK`] of them.
    pub fn room(&mut self) -> &mut BytesMut {
        if self.bytes.is_empty() && self.bytes.capacity() > CAPACITY_MAX {
            self.bytes = BytesMut::new();
        }
        self.bytes.reserve(CHUNK);
        &mut self.bytes
    }

    /// The next line, if it is there to its end. It stays.
    pub fn whole_line(&self) -> Option<&[u8]> {
        let end = memchr::memchr(b'\n', &self.bytes)?;
        Some(&self.bytes[..end])
    }

    /// Everything that was taken in and not given out.
    pub fn buffered(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether nothing was taken in that was not given out.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.head.is_none()
    }

    /// Whether the line that is not there to its end has too many bytes already.
    pub fn is_too_long(&self) -> bool {
        self.bytes.len() > self.limit
    }

    /// What is left at the end, as if a newline were behind it; none where that is nothing.
    pub fn last_line(&mut self) -> Option<Line> {
        if self.bytes.is_empty() && self.head.is_none() {
            return None;
        }
        self.bytes.extend_from_slice(b"\n");
        self.next_line()
    }

    /// The next line, if it is there to its end.
    pub fn next_line(&mut self) -> Option<Line> {
        let found = memchr::memchr(b'\n', &self.bytes[self.scanned..]);
        let Some(end) = found.map(|at| self.scanned + at) else {
            self.scanned = self.bytes.len();
            if self.bytes.len() > self.limit {
                self.throw_away();
            }
            return None;
        };
        self.scanned = 0;
        let mut line = self.bytes.split_to(end + 1);
        line.truncate(end);
        Some(match self.head.take() {
            Some(head) => Line::Oversized {
                head,
                tail: tail_of(&line),
            },
            None if line.len() > self.limit => Line::Oversized {
                head: Bytes::copy_from_slice(&line[..EDGE]),
                tail: tail_of(&line),
            },
            None => Line::Whole(line.freeze()),
        })
    }

    fn throw_away(&mut self) {
        let head = || Bytes::copy_from_slice(&self.bytes[..EDGE]);
        self.head = Some(self.head.take().unwrap_or_else(head));
        // Copied, so that what was thrown away is free.
        self.bytes = BytesMut::from(&*tail_of(&self.bytes));
        self.scanned = self.bytes.len();
    }
}

fn tail_of(line: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&line[line.len().saturating_sub(EDGE)..])
}

/// Reads lines.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    buffer: LineBuffer,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Will read from `reader`.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: LineBuffer::default(),
            ended: false,
        }
    }

    /// The next line; none at the end. What stands behind the last newline is a line, too. A future
    /// that is dropped has taken nothing away.
    ///
    /// # Errors
    /// Those of the reader.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.buffer.next_line() {
                return Ok(Some(line));
            }
            if self.reader.read_buf(self.buffer.room()).await? == 0 {
                self.ended = true;
                return Ok(self.buffer.last_line());
            }
        }
    }

    /// The next line, if it was read already to its end.
    pub fn next_buffered(&mut self) -> Option<Line> {
        self.buffer.next_line()
    }

    /// What is read from.
    pub fn reader(&self) -> &R {
        &self.reader
    }

    /// What is read from, and what was read from it already.
    pub fn into_parts(self) -> (R, LineBuffer) {
        (self.reader, self.buffer)
    }

    /// What [`into_parts`](Self::into_parts) took apart.
    pub fn from_parts(reader: R, buffer: LineBuffer) -> Self {
        Self {
            reader,
            buffer,
            ended: false,
        }
    }

    /// Whether the end was met: then the last line had no newline behind it.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

/// Reads what there is, or waits for it. False at the end.
pub(crate) fn read_into(
    from: &mut (impl Read + AsFd),
    chunk: &mut [u8],
    lines: &mut LineBuffer,
) -> bool {
    let read = read_chunk(from, chunk);
    if let Some(read) = read {
        lines.room().extend_from_slice(&chunk[..read]);
    }
    read.is_some()
}

/// The same into a chunk: how many bytes. None at the end.
pub(crate) fn read_chunk(from: &mut (impl Read + AsFd), chunk: &mut [u8]) -> Option<usize> {
    loop {
        match from.read(chunk) {
            Ok(0) => return None,
            Ok(read) => return Some(read),
            Err(error) if is_transient(&error, from, PollFlags::POLLIN) => {}
            Err(_) => return None,
        }
    }
}

/// Whether to try again. Another process that shares the descriptor may have made it non-blocking:
/// then this waits until it is ready.
pub(crate) fn is_transient(error: &io::Error, descriptor: &impl AsFd, events: PollFlags) -> bool {
    match error.kind() {
        io::ErrorKind::Interrupted => true,
        io::ErrorKind::WouldBlock => {
            let waited = poll(
                &mut [PollFd::new(descriptor.as_fd(), events)],
                PollTimeout::NONE,
            );
            matches!(waited, Ok(_) | Err(Errno::EINTR))
        }
        _ => false,
    }
}

/// A line on its way out.
#[derive(Debug, Default)]
pub struct PendingLine(Option<Chain<Bytes, &'static [u8]>>);

impl PendingLine {
    /// Whether the next line can be put in.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Will write this line and a newline.
    pub fn put(&mut self, line: Bytes) {
        self.0 = Some(line.chain(b"\n".as_slice()));
    }

    /// Writes what the writer takes at once. What it does not take stays, and so does an error, for
    /// [`write`](Self::write).
    pub fn write_at_once(&mut self, try_write: impl Fn(&[IoSlice<'_>]) -> io::Result<usize>) {
        while let Some(line) = &mut self.0 {
            let mut pieces = [IoSlice::new(&[]); 2];
            let count = line.chunks_vectored(&mut pieces);
            let Ok(written @ 1..) = try_write(&pieces[..count]) else {
                return;
            };
            line.advance(written);
            if !line.has_remaining() {
                self.0 = None;
            }
        }
    }

    /// Writes the line to its end. Cancel-safe.
    ///
    /// # Errors
    /// Those of the writer.
    pub async fn write(&mut self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if let Some(line) = &mut self.0 {
            writer.write_all_buf(line).await?;
            self.0 = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use mcp_sessiond_proto::backends::RELAYED_MAX;

    use super::*;

    fn taken(chunks: &[&[u8]]) -> Vec<Line> {
        let mut buffer = LineBuffer::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            buffer.room().extend_from_slice(chunk);
            lines.extend(std::iter::from_fn(|| buffer.next_line()));
        }
        lines
    }

    fn whole(line: &[u8]) -> Line {
        Line::Whole(Bytes::copy_from_slice(line))
    }

    #[test]
    fn lines_come_out_as_they_went_in_wherever_they_were_cut() {
        let text = b"{\"a\":1}\r\n\n{}\nhalf";
        for cut in 0..text.len() {
            let lines = taken(&[&text[..cut], &text[cut..]]);
            assert_eq!(
                lines,
                [whole(b"{\"a\":1}\r"), whole(b""), whole(b"{}")],
                "{cut}"
            );
        }
        let mut buffer = LineBuffer::default();
        assert_eq!(buffer.last_line(), None);
        buffer.room().extend_from_slice(b"{}\nhalf");
        assert_eq!(buffer.next_line(), Some(whole(b"{}")));
        assert_eq!(
            (buffer.next_line(), buffer.last_line()),
            (None, Some(whole(b"half")))
        );
    }

    #[test]
    fn a_line_of_16_mib_is_whole_and_one_of_a_byte_more_leaves_its_ends() {
        let mut line = vec![b'x'; RELAYED_MAX];
        line.push(b'\n');
        assert_eq!(
            taken(&[&line, b"y\n"]),
            [whole(&line[..RELAYED_MAX]), whole(b"y")]
        );
        for chunk in [line.len(), CHUNK] {
            let mut long = vec![b'x'; RELAYED_MAX];
            long.splice(..4, *b"head");
            long.extend_from_slice(b"tail\n");
            let chunks: Vec<&[u8]> = long.chunks(chunk).chain([&b"y\n"[..]]).collect();
            let lines = taken(&chunks);
            let [Line::Oversized { head, tail }, next] = &lines[..] else {
                panic!("{}", lines.len())
            };
            assert!(head.starts_with(b"head") && head.len() == EDGE);
            assert!(tail.ends_with(b"tail") && tail.len() == EDGE);
            assert_eq!(next, &whole(b"y"));
        }
    }
}
