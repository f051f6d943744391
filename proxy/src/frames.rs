//! Frames between a front and its keeper (`mcp_sessiond_proto::backends::frame`), read from a stream
//! and on their way out.
//!
//! A keeper, and whoever carries lines in one task, writes [`PendingFrames`]. A front's
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

/// Frames that are sent at once: of each there are two pieces, and systems take 1,024.
const FRAMES_AT_ONCE: usize = 256;

/// Bytes of several frames that are sent at once. Linux takes so many in one piece or not at all, so
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
    is_reset: bool,
}

impl Frames {
    /// Will read from `reader`, after what was read already.
    pub fn new(reader: SocketReader, buffer: FrameBuffer) -> Self {
        Self {
            reader,
            buffer,
            is_reset: false,
        }
    }

    /// Whether the other end is gone and had not read all that was sent to it. Linux says so once all
    /// that it has sent was read (unix(7)).
    pub fn is_reset(&self) -> bool {
        self.is_reset
    }

    fn note_error(&mut self, error: io::Error) -> io::Error {
        self.is_reset |= error.kind() == io::ErrorKind::ConnectionReset;
        error
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
            match self.reader.read(self.buffer.room()).await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(self.note_error(error)),
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
                Ok(0) => return None,
                Err(error) => {
                    self.note_error(error);
                    return None;
                }
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

/// Frames on their way out.
#[derive(Debug, Default)]
pub struct PendingFrames(VecDeque<Outgoing>);

impl PendingFrames {
    /// Whether all of them were written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether they have as many bytes as are written at once, or more.
    pub fn is_full(&self) -> bool {
        self.0.iter().map(Outgoing::len).sum::<usize>() >= BYTES_AT_ONCE
    }

    /// Will write this frame behind the others.
    pub fn put(&mut self, kind: Kind, number: u64, body: Bytes) {
        self.0.push_back(Outgoing::new(kind, number, body));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the first one was begun.
    fn is_mid_frame(&self) -> bool {
        self.0.front().is_some_and(|frame| frame.written > 0)
    }

    /// What is written at once: the first frame, and as many more as fit.
    fn at_once(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let mut bytes = 0;
        let fits = move |frame: &&Outgoing| {
            let is_first = bytes == 0;
            bytes += frame.len();
            is_first || bytes <= BYTES_AT_ONCE
        };
        let frames = self.0.iter().take(FRAMES_AT_ONCE).take_while(fits);
        frames.flat_map(Outgoing::pieces)
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(frame) = self.0.front_mut() {
            let part = written.min(frame.len());
            frame.written += part;
            written -= part;
            if frame.len() > 0 {
                return;
            }
            self.0.pop_front();
        }
    }

    /// Writes what the writer takes at once. What it does not take stays, and so does an error, for
    /// [`write`](Self::write).
    pub fn write_at_once(&mut self, writer: &SocketWriter) {
        while !self.is_empty() {
            let pieces: Vec<_> = self.at_once().collect();
            let Ok(written @ 1..) = writer.write_at_once(&pieces) else {
                return;
            };
            self.advance(written);
        }
    }

    /// Writes all of them to the end. Cancel-safe.
    ///
    /// # Errors
    /// Those of the writer.
    pub async fn write(&mut self, writer: &SocketWriter) -> io::Result<()> {
        while !self.is_empty() {
            let pieces: Vec<_> = self.at_once().collect();
            match writer.write(&pieces).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => self.advance(written),
            }
        }
        Ok(())
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
    /// How many that were a moment ago, if more were read; and that the keeper is to hear that there
    /// are no more yet.
    stalls_at: Option<u64>,
    is_stalled: bool,
    /// How many ends of backends the host was told of.
    heard: Count,
    /// How this front leaves, and since when, until that is said; and how it has said so last.
    leave: Option<(u64, u64)>,
    last_leave: Option<u64>,
    /// What else there is to be said, in this order.
    more: Vec<(Kind, u64)>,
}

/// A number, and what of it the keeper was told.
#[derive(Debug, Default)]
struct Count {
    all: u64,
    told: u64,
}

impl State {
    /// Puts what there is to be said beside lines into what is unsent, unless a line or former frames
    /// are in the way: then the counts are those of a later time.
    fn gather(&mut self) {
        if self.is_mid_line || !self.unsent.is_empty() {
            return;
        }
        let mut put = |kind, number, body: &[u8]| {
            let frame = Header::of(kind, number, body.len()).encode();
            self.unsent.extend_from_slice(&frame);
            self.unsent.extend_from_slice(body);
        };
        let again = std::mem::take(&mut self.is_stalled);
        for (kind, count, again) in [
            (Kind::Confirm, &mut self.passed_on, again),
            (Kind::Heard, &mut self.heard, false),
        ] {
            if count.told < count.all || again {
                put(kind, count.all, &[]);
                count.told = count.all;
            }
        }
        if let Some((signal, since)) = self.leave.take() {
            put(Kind::Leave, signal, &since.to_be_bytes());
        }
        for (kind, number) in self.more.drain(..) {
            put(kind, number, &[]);
        }
    }
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
        self.note_passed_on(count);
        self.confirm();
    }

    /// The same, and the keeper hears of it with what is said next.
    pub(crate) fn note_passed_on(&self, count: u64) {
        self.state().passed_on.all += count;
    }

    /// Says how many messages were passed on, if the keeper was not told. Never waits.
    pub(crate) fn confirm(&self) {
        self.say(&mut self.state());
    }

    /// The same, at its time. Where no more of those that were `read` were passed on since then, the
    /// keeper hears the number again: its host takes none. True: this is to be said once more, later.
    /// Never waits.
    pub(crate) fn confirm_of(&self, read: u64) -> bool {
        let mut state = self.state();
        let passed = state.passed_on.all;
        let is_behind = passed < read;
        state.is_stalled = is_behind && state.stalls_at == Some(passed);
        let once_more = is_behind && !state.is_stalled;
        state.stalls_at = once_more.then_some(passed);
        self.say(&mut state);
        once_more
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
    pub(crate) fn leave(&self, how: (u64, u64)) {
        self.leave_within(how, Duration::ZERO);
    }

    /// The same for a process that ends at once: waits so long for the end of a line.
    pub(crate) fn leave_within(&self, how: (u64, u64), within: Duration) {
        let mut state = self.state();
        let (signal, _) = how;
        // Several threads say it.
        if state
            .last_leave
            .is_some_and(|last| last == signal || signal == 0)
        {
            return;
        }
        (state.leave, state.last_leave) = (Some(how), Some(signal));
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

    /// A signal of this number is for the backend. Never waits.
    pub(crate) fn signal(&self, signal: u64) {
        self.say_more(Kind::Signal, signal);
    }

    /// This front waits for nothing any more, and its backend may end with it; one that has not left
    /// does not want the backend any more. Never waits.
    pub(crate) fn end(&self) {
        self.say_more(Kind::End, 0);
    }

    fn say_more(&self, kind: Kind, number: u64) {
        let mut state = self.state();
        state.more.push((kind, number));
        self.say(&mut state);
    }

    /// Sends lines. Only one task may send lines. Cancel-safe.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) async fn send(&self, lines: &mut PendingFrames) -> io::Result<()> {
        socket::write(self.stream.as_fd(), || self.try_send(lines)).await
    }

    /// Sends as much of these lines as there is room for, and before them, with the same call, what
    /// there is to be said beside lines.
    fn try_send(&self, lines: &mut PendingFrames) -> io::Result<()> {
        let mut state = self.state();
        while !lines.is_empty() {
            state.gather();
            let before = IoSlice::new(&state.unsent);
            let pieces: Vec<_> = std::iter::once(before).chain(lines.at_once()).collect();
            match self.send_now(&pieces) {
                Ok(sent) => {
                    let before = sent.min(state.unsent.len());
                    state.unsent.drain(..before);
                    lines.advance(sent - before);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => return Err(error.into()),
            }
            state.is_mid_line = lines.is_mid_frame();
            if !state.is_mid_line && (state.leave.is_some() || !state.more.is_empty()) {
                self.say(&mut state);
                self.line_ended.notify_all();
            }
        }
        self.say(&mut state);
        Ok(())
    }

    /// Nothing more is sent: the keeper reads the end.
    pub(crate) fn hang_up(&self) {
        self.confirm();
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what there is to be said beside lines, as far as there is room and none is in the way.
    fn say(&self, state: &mut State) {
        if state.is_mid_line {
            return;
        }
        self.flush(&mut state.unsent);
        state.gather();
        self.flush(&mut state.unsent);
    }

    fn flush(&self, bytes: &mut Vec<u8>) {
        while !bytes.is_empty() {
            match self.send_now(&[IoSlice::new(bytes)]) {
                Ok(sent) => drop(bytes.drain(..sent)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS) => return,
                // Nobody is there any more.
                Err(_) => bytes.clear(),
            }
        }
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
    fn send(sender: &FrameSender, lines: &mut PendingFrames) {
        while let Err(error) = sender.try_send(lines) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            let room = PollFd::new(sender.stream.as_fd(), PollFlags::POLLOUT);
            poll(&mut [room], PollTimeout::NONE).expect("room");
        }
    }

    #[test]
    fn what_is_said_goes_between_the_lines() {
        let (sender, keeper) = pair();
        let mut lines = PendingFrames::default();
        lines.put(Kind::Line, 0, Bytes::from_static(b"{}"));
        lines.put(Kind::Line, 0, Bytes::from_static(b"[1]"));
        send(&sender, &mut lines);
        sender.pass_on(2);
        sender.heard(1);
        sender.pass_on(3);
        sender.leave((15, 7));
        drop(sender);
        let wanted = [
            (Kind::Line, 0, 2),
            (Kind::Line, 0, 3),
            (Kind::Confirm, 2, 0),
            (Kind::Heard, 1, 0),
            (Kind::Confirm, 5, 0),
            (Kind::Leave, 15, 8),
        ];
        assert_eq!(frames(keeper), wanted);
    }

    #[test]
    fn what_may_be_said_later_goes_with_the_next_line_or_before_the_end() {
        let (sender, keeper) = pair();
        let mut lines = PendingFrames::default();
        sender.note_passed_on(2);
        sender.note_passed_on(1);
        lines.put(Kind::Line, 0, Bytes::from_static(b"{}"));
        send(&sender, &mut lines);
        sender.confirm();
        sender.note_passed_on(1);
        sender.hang_up();
        let wanted = [
            (Kind::Confirm, 3, 0),
            (Kind::Line, 0, 2),
            (Kind::Confirm, 4, 0),
        ];
        assert_eq!(frames(keeper), wanted);
    }

    #[test]
    fn what_can_not_be_passed_on_is_said_by_the_same_number() {
        let (sender, keeper) = pair();
        assert!(sender.confirm_of(2), "it is passing them on");
        assert!(!sender.confirm_of(2));
        sender.note_passed_on(1);
        assert!(sender.confirm_of(2));
        sender.note_passed_on(1);
        assert!(!sender.confirm_of(2));
        assert!(!sender.confirm_of(2), "all of them");
        drop(sender);
        let wanted = [0, 1, 2].map(|number| (Kind::Confirm, number, 0));
        assert_eq!(frames(keeper), wanted);
    }

    #[test]
    fn what_is_said_in_the_middle_of_a_line_follows_its_end_and_waits_for_nothing() {
        let (sender, keeper) = pair();
        let mut lines = PendingFrames::default();
        lines.put(Kind::Line, 0, Bytes::from(vec![b'x'; 4 * SEND_ROOM]));
        let would_block = sender.try_send(&mut lines).expect_err("too much");
        assert_eq!(would_block.kind(), io::ErrorKind::WouldBlock);
        sender.pass_on(1);
        sender.pass_on(1);
        sender.leave((0, 7));
        let read = std::thread::spawn(move || frames(keeper));
        send(&sender, &mut lines);
        drop(sender);
        let wanted = [
            (Kind::Line, 0, 4 * SEND_ROOM),
            (Kind::Confirm, 2, 0),
            (Kind::Leave, 0, 8),
        ];
        assert_eq!(read.join().expect("read"), wanted);
    }

    /// A server that does not read is often why its host leaves.
    #[test]
    #[cfg(target_os = "linux")]
    fn there_is_room_for_the_leave_behind_whole_lines() {
        for bytes in [10, 1_000, 20_000, BYTES_AT_ONCE - HEADER_LEN] {
            let (sender, keeper) = pair();
            let mut lines = PendingFrames::default();
            let would_block = loop {
                // As many as a host's pipe holds.
                (0..=65_536 / bytes)
                    .for_each(|_| lines.put(Kind::Line, 0, Bytes::from(vec![b'x'; bytes])));
                if let Err(error) = sender.try_send(&mut lines) {
                    break error;
                }
            };
            assert_eq!(would_block.kind(), io::ErrorKind::WouldBlock);
            sender.leave((0, 7));
            drop(sender);
            assert_eq!(frames(keeper).last(), Some(&(Kind::Leave, 0, 8)), "{bytes}");
        }
    }

    #[tokio::test]
    async fn frames_are_written_wherever_the_writer_stops() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (_, ours) = socket::halves(ours).expect("descriptors");
        let (theirs, _writer) = socket::halves(theirs).expect("descriptors");
        let mut pending = PendingFrames::default();
        let sizes = [3, 4 * SEND_ROOM, 0, BYTES_AT_ONCE, 7];
        for (number, size) in (1..).zip(sizes) {
            pending.put(Kind::Line, number, Bytes::from(vec![b'x'; size]));
        }
        pending.write_at_once(&ours);
        assert!(!pending.is_empty() && pending.is_full());
        let mut read = Frames::new(theirs, FrameBuffer::default());
        let write = async {
            pending.write(&ours).await.expect("written");
            drop(ours);
        };
        let reading = async {
            let mut sizes = Vec::new();
            while let Some(frame) = read.next().await.expect("read") {
                sizes.push(frame.bytes().len());
                assert_eq!(frame.number, sizes.len() as u64);
            }
            sizes
        };
        let (read, ()) = tokio::join!(reading, write);
        assert_eq!(read, sizes);
    }
}
