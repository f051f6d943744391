//! Frames between a front and its keeper (`mcp_sessiond_proto::backends::frame`), read from a stream
//! and on their way out.
//!
//! A keeper, and whoever carries lines in one task, writes a [`PendingFrame`] at a time. A front's
//! threads share a [`FrameSender`]: one of them passes the host's lines on and may have to wait;
//! the others say something short meanwhile, and must never wait.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mcp_sessiond_proto::backends::frame::{
    Frame, FrameBuffer, FrameError, HEADER_LEN, Header, Kind,
};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, sendmsg, setsockopt, sockopt};

use crate::socket::{self, SocketReader, SocketWriter};

/// Lines that are sent at once: of each there are two pieces, and systems take 1,024.
const LINES_AT_ONCE: usize = 256;

/// Bytes of several lines that are sent at once. Linux takes so many in one piece or not at all, so
/// that no line is cut and something else can be said before it.
const BYTES_AT_ONCE: usize = 32 * 1024;

/// Bytes for which there is room in the connection of a front that leaves, if there is no other:
/// the limit of Linux for programs without privileges.
const SEND_ROOM: usize = 212_992;

/// What breaks the protocol, as an error of the stream.
fn broken(error: FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads frames.
#[derive(Debug)]
pub struct Frames {
    reader: SocketReader,
    buffer: FrameBuffer,
}

impl Frames {
    /// Will read from `reader`, after what was read already.
    pub fn new(reader: SocketReader, buffer: FrameBuffer) -> Self {
        Self { reader, buffer }
    }

    /// What was read, and was not asked for.
    pub(crate) fn into_buffer(self) -> FrameBuffer {
        self.buffer
    }

    /// The next frame of those that were read already.
    pub fn next_buffered(&mut self) -> Option<io::Result<Option<Frame>>> {
        self.buffer
            .next_frame()
            .map_err(broken)
            .map(|frame| frame.map(Some))
            .transpose()
    }

    /// Whether a frame was begun that has not come to its end.
    pub fn is_mid_frame(&self) -> bool {
        self.buffer.is_mid_frame()
    }

    /// The next frame; none at the end. A future that is dropped has taken nothing away.
    ///
    /// # Errors
    /// Those of the reader, and [`io::ErrorKind::InvalidData`] if the protocol is broken.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffer.next_frame().map_err(broken)? {
                return Ok(Some(frame));
            }
            if self.reader.read(self.buffer.room()).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next frame that is there already. Does not wait, nor ask the runtime, which may have yet
    /// to learn what is there.
    pub fn next_at_once(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.buffer.next_frame().ok()? {
                return Some(frame);
            }
            match self.reader.read_at_once(self.buffer.room()) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return None,
            }
        }
    }
}

/// A frame on its way out.
#[derive(Debug)]
struct Outgoing {
    header: [u8; HEADER_LEN],
    body: Bytes,
    /// Bytes of both that were written.
    written: usize,
}

impl Outgoing {
    fn new(kind: Kind, number: u64, body: Bytes) -> Self {
        Self {
            header: Header::of(kind, number, body.len()).encode(),
            body,
            written: 0,
        }
    }

    fn len(&self) -> usize {
        HEADER_LEN + self.body.len() - self.written
    }

    /// What is left of header and body.
    fn pieces(&self) -> [IoSlice<'_>; 2] {
        let of_body = self.written.saturating_sub(HEADER_LEN);
        [
            IoSlice::new(&self.header[self.written.min(HEADER_LEN)..]),
            IoSlice::new(&self.body[of_body..]),
        ]
    }
}

/// A frame on its way out, or none.
#[derive(Debug, Default)]
pub struct PendingFrame(Option<Outgoing>);

impl PendingFrame {
    /// Whether the next frame can be put in.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Will write this frame.
    pub fn put(&mut self, kind: Kind, number: u64, body: Bytes) {
        self.0 = Some(Outgoing::new(kind, number, body));
    }

    fn advance(&mut self, written: usize) {
        if let Some(frame) = &mut self.0 {
            frame.written += written;
            if frame.len() == 0 {
                self.0 = None;
            }
        }
    }

    /// Writes what the writer takes at once. What it does not take stays, and so does an error, for
    /// [`write`](Self::write).
    pub fn write_at_once(&mut self, writer: &SocketWriter) {
        while let Some(frame) = &self.0 {
            let Ok(written @ 1..) = writer.write_at_once(&frame.pieces()) else {
                return;
            };
            self.advance(written);
        }
    }

    /// Writes the frame to its end. Cancel-safe.
    ///
    /// # Errors
    /// Those of the writer.
    pub async fn write(&mut self, writer: &SocketWriter) -> io::Result<()> {
        while let Some(frame) = &self.0 {
            match writer.write(&frame.pieces()).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.advance(written),
            }
        }
        Ok(())
    }
}

/// Lines on their way to the keeper, which a [`FrameSender`] sends.
#[derive(Debug, Default)]
pub(crate) struct PendingLines(VecDeque<Outgoing>);

impl PendingLines {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn put(&mut self, line: Bytes) {
        self.0.push_back(Outgoing::new(Kind::Line, 0, line));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the first one was begun.
    fn is_mid_line(&self) -> bool {
        self.0.front().is_some_and(|line| line.written > 0)
    }

    /// What is sent at once: the first line, and as many more as fit.
    fn at_once(&self) -> Vec<IoSlice<'_>> {
        let mut bytes = 0;
        let fits = |line: &&Outgoing| {
            let is_first = bytes == 0;
            bytes += line.len();
            is_first || bytes <= BYTES_AT_ONCE
        };
        let lines = self.0.iter().take(LINES_AT_ONCE).take_while(fits);
        lines.flat_map(Outgoing::pieces).collect()
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(line) = self.0.front_mut() {
            let part = written.min(line.len());
            line.written += part;
            written -= part;
            if line.len() > 0 {
                return;
            }
            self.0.pop_front();
        }
    }
}

/// The way from a front to its keeper. Whoever passes lines on is alone with that and may wait;
/// whatever else is said goes between the lines, as soon as there is room.
#[derive(Debug)]
pub struct FrameSender {
    stream: UnixStream,
    state: Mutex<State>,
    /// Notified when a line is there to its end, for whoever leaves.
    line_ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// A line was begun, and nothing else can be said until it is there to its end.
    is_mid_line: bool,
    /// What is left of short frames for which there was no room.
    unsent: Vec<u8>,
    /// How many of the keeper's messages were passed on.
    passed_on: Count,
    /// How many ends of backends the host was told of.
    heard: Count,
    /// How this front leaves, until that is said.
    leave: Option<u64>,
}

/// A number, and what of it the keeper was told.
#[derive(Debug, Default)]
struct Count {
    all: u64,
    told: u64,
}

impl FrameSender {
    /// The way by this connection. The descriptor may block or not.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            state: Mutex::default(),
            line_ended: Condvar::new(),
        }
    }

    /// So many more of the keeper's messages were passed on. Never waits.
    pub(crate) fn pass_on(&self, count: u64) {
        let mut state = self.state();
        state.passed_on.all += count;
        self.say(&mut state);
    }

    /// The host was told of so many more ends of backends. Never waits.
    pub(crate) fn heard(&self, count: u64) {
        let mut state = self.state();
        state.heard.all += count;
        self.say(&mut state);
    }

    /// This front is about to leave, by a signal of this number, or because its host has closed its
    /// end (0). Never waits: a line that was begun ends first. If it does not, since the keeper has
    /// no room for it, the keeper takes that for the same.
    pub(crate) fn leave(&self, signal: u64) {
        self.leave_within(signal, Duration::ZERO);
    }

    /// The same for a process that ends at once: waits so long for the end of a line.
    pub(crate) fn leave_within(&self, signal: u64, within: Duration) {
        let mut state = self.state();
        state.leave = Some(signal);
        let is_mid_line = |state: &mut State| state.is_mid_line;
        (state, _) = self
            .line_ended
            .wait_timeout_while(state, within, is_mid_line)
            .unwrap_or_else(PoisonError::into_inner);
        self.say(&mut state);
        let is_said = state.unsent.is_empty() && state.leave.is_none();
        if !is_said && !state.is_mid_line {
            // Whole lines have taken all the room. The keeper reads them once the front is gone.
            let _ = setsockopt(&self.stream, sockopt::SndBuf, &SEND_ROOM);
            self.say(&mut state);
        }
    }

    /// Sends lines. Only one task may send lines. Cancel-safe.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) async fn send(&self, lines: &mut PendingLines) -> io::Result<()> {
        socket::write(self.stream.as_fd(), || self.try_send(lines)).await
    }

    /// Sends as much of these lines as there is room for.
    fn try_send(&self, lines: &mut PendingLines) -> io::Result<()> {
        let mut state = self.state();
        while !lines.is_empty() {
            self.say(&mut state);
            if !state.is_mid_line && !state.unsent.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            match self.send_now(&lines.at_once()) {
                Ok(sent) => lines.advance(sent),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => return Err(error.into()),
            }
            state.is_mid_line = lines.is_mid_line();
            if !state.is_mid_line && state.leave.is_some() {
                self.say(&mut state);
                self.line_ended.notify_all();
            }
        }
        self.say(&mut state);
        Ok(())
    }

    /// Nothing more is sent: the keeper reads the end.
    pub(crate) fn hang_up(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what there is to be said beside lines, as far as there is room and none is in the way.
    fn say(&self, state: &mut State) {
        if state.is_mid_line || !self.flush(&mut state.unsent) {
            return;
        }
        let State {
            unsent,
            passed_on,
            heard,
            leave,
            ..
        } = state;
        let mut put = |kind, number| {
            unsent.extend_from_slice(&Header::of(kind, number, 0).encode());
        };
        for (kind, count) in [(Kind::Confirm, passed_on), (Kind::Heard, heard)] {
            if count.told < count.all {
                put(kind, count.all);
                count.told = count.all;
            }
        }
        if let Some(signal) = leave.take() {
            put(Kind::Leave, signal);
        }
        self.flush(unsent);
    }

    /// False: there is no room.
    fn flush(&self, bytes: &mut Vec<u8>) -> bool {
        while !bytes.is_empty() {
            match self.send_now(&[IoSlice::new(bytes)]) {
                Ok(sent) => drop(bytes.drain(..sent)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS) => return false,
                // Nobody is there any more.
                Err(_) => bytes.clear(),
            }
        }
        true
    }

    fn send_now(&self, pieces: &[IoSlice<'_>]) -> nix::Result<usize> {
        let flags = MsgFlags::MSG_DONTWAIT;
        sendmsg::<()>(self.stream.as_raw_fd(), pieces, &[], flags, None)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn pair() -> (FrameSender, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        (FrameSender::new(ours), theirs)
    }

    /// The frames that are there until the other end is closed.
    fn frames(mut from: UnixStream) -> Vec<(Kind, u64, usize)> {
        let (mut buffer, mut bytes) = (FrameBuffer::default(), Vec::new());
        from.read_to_end(&mut bytes).expect("read");
        buffer.room().extend_from_slice(&bytes);
        std::iter::from_fn(|| buffer.next_frame().expect("frames"))
            .map(|frame| (frame.kind, frame.number, frame.bytes().len()))
            .collect()
    }

    /// Sends lines, and waits for room for them.
    fn send(sender: &FrameSender, lines: &mut PendingLines) {
        while let Err(error) = sender.try_send(lines) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            let room = PollFd::new(sender.stream.as_fd(), PollFlags::POLLOUT);
            poll(&mut [room], PollTimeout::NONE).expect("room");
        }
    }

    #[test]
    fn what_is_said_goes_between_the_lines() {
        let (sender, keeper) = pair();
        let mut lines = PendingLines::default();
        lines.put(Bytes::from_static(b"{}"));
        lines.put(Bytes::from_static(b"[1]"));
        send(&sender, &mut lines);
        sender.pass_on(2);
        sender.heard(1);
        sender.pass_on(3);
        sender.leave(15);
        drop(sender);
        let wanted = [
            (Kind::Line, 0, 2),
            (Kind::Line, 0, 3),
            (Kind::Confirm, 2, 0),
            (Kind::Heard, 1, 0),
            (Kind::Confirm, 5, 0),
            (Kind::Leave, 15, 0),
        ];
        assert_eq!(frames(keeper), wanted);
    }

    #[test]
    fn what_is_said_in_the_middle_of_a_line_follows_its_end_and_waits_for_nothing() {
        let (sender, keeper) = pair();
        let mut lines = PendingLines::default();
        lines.put(Bytes::from(vec![b'x'; 4 * SEND_ROOM]));
        let would_block = sender.try_send(&mut lines).expect_err("too much");
        assert_eq!(would_block.kind(), io::ErrorKind::WouldBlock);
        sender.pass_on(1);
        sender.pass_on(1);
        sender.leave(0);
        let read = std::thread::spawn(move || frames(keeper));
        send(&sender, &mut lines);
        drop(sender);
        let wanted = [
            (Kind::Line, 0, 4 * SEND_ROOM),
            (Kind::Confirm, 2, 0),
            (Kind::Leave, 0, 0),
        ];
        assert_eq!(read.join().expect("read"), wanted);
    }

    /// A server that does not read is often why its host leaves.
    #[test]
    #[cfg(target_os = "linux")]
    fn there_is_room_for_the_leave_behind_whole_lines() {
        for bytes in [10, 1_000, 20_000, BYTES_AT_ONCE - HEADER_LEN] {
            let (sender, keeper) = pair();
            let mut lines = PendingLines::default();
            let would_block = loop {
                // As many as a host's pipe holds.
                (0..=65_536 / bytes).for_each(|_| lines.put(Bytes::from(vec![b'x'; bytes])));
                if let Err(error) = sender.try_send(&mut lines) {
                    break error;
                }
            };
            assert_eq!(would_block.kind(), io::ErrorKind::WouldBlock);
            sender.leave(0);
            drop(sender);
            assert_eq!(frames(keeper).last(), Some(&(Kind::Leave, 0, 0)), "{bytes}");
        }
    }

    #[tokio::test]
    async fn a_frame_is_written_wherever_the_writer_stops() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (_, ours) = socket::halves(ours).expect("descriptors");
        let (theirs, _writer) = socket::halves(theirs).expect("descriptors");
        let mut pending = PendingFrame::default();
        let body = Bytes::from(vec![b'x'; 4 * SEND_ROOM]);
        pending.put(Kind::Line, 9, body.clone());
        let mut read = Frames::new(theirs, FrameBuffer::default());
        let write = async {
            pending.write(&ours).await.expect("written");
            drop(ours);
        };
        let (first, ()) = tokio::join!(read.next(), write);
        let first = first.expect("read").expect("a frame");
        assert_eq!((first.kind, first.number), (Kind::Line, 9));
        assert_eq!(first.bytes(), body);
        assert!(read.next().await.expect("read").is_none());
    }
}
