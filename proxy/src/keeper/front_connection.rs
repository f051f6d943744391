//! The connection to the front that is attached.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use mcp_sessiond_process::ProcessId;
use mcp_sessiond_proto::Epoch;
use mcp_sessiond_proto::backends::frame::{Frame, Kind};
use nix::sys::signal::Signal;

use crate::frames::{Frames, PendingFrames};
use crate::lines::Line;
use crate::socket::SocketWriter;
use crate::stderr::not_read;

/// Bytes of the backend's standard error that may wait for a front. What comes while more wait is
/// dropped.
const STDERR_MAX: usize = 256 * 1024;

/// The front that has the backend, at the other end of its keeper's socket.
#[derive(Debug)]
pub struct FrontConnection {
    /// Its process.
    pub process: ProcessId,
    /// The epoch of its lease.
    pub epoch: Epoch,
    /// Where it speaks.
    pub reader: Frames,
    /// Where it listens.
    pub writer: SocketWriter,
    /// The frames on their way to it.
    pub pending: PendingFrames,
    /// If it continues another one: its message that waits until the relay has room for it.
    pub held: Option<(u64, Line)>,
    /// Frames that go before messages.
    lane: VecDeque<(Kind, u64, Bytes)>,
    /// Bytes of the backend's standard error among them.
    stderr_waiting: usize,
    /// How many bytes of that were dropped since the last that could be put there.
    stderr_skipped: u64,
    handed_out: u64,
    confirmed: u64,
    /// Whether it has said that its host takes nothing just now.
    is_stalled: bool,
    /// How it is about to leave: 0, or the number of the signal that ends it; and since when, in ms
    /// of the clock that start times are read from, or 0.
    leaves: Option<(u64, u64)>,
    /// Whether its host has closed its input, and all that the host has said came before.
    pub has_closed: bool,
    /// How many ends of backends it has told its host.
    heard: u64,
}

impl FrontConnection {
    /// A front that has attached.
    pub fn new(process: ProcessId, epoch: Epoch, reader: Frames, writer: SocketWriter) -> Self {
        Self {
            process,
            epoch,
            reader,
            writer,
            pending: PendingFrames::default(),
            held: None,
            lane: VecDeque::new(),
            stderr_waiting: 0,
            stderr_skipped: 0,
            handed_out: 0,
            confirmed: 0,
            is_stalled: false,
            leaves: None,
            has_closed: false,
            heard: 0,
        }
    }

    /// Will write this message next, under the next number.
    pub fn hand_out(&mut self, line: Bytes) {
        self.handed_out += 1;
        self.pending.put(Kind::Line, self.handed_out, line);
    }

    /// Will write a frame that goes before messages next, if one waits.
    pub fn hand_out_lane(&mut self) -> bool {
        let Some((kind, number, body)) = self.lane.pop_front() else {
            return false;
        };
        if kind == Kind::Stderr {
            self.stderr_waiting -= body.len();
        }
        self.pending.put(kind, number, body);
        true
    }

    /// Will write this frame before the messages that wait.
    pub fn put(&mut self, kind: Kind, number: u64, body: impl Into<Bytes>) {
        self.lane.push_back((kind, number, body.into()));
    }

    /// Writes all that waits, messages aside.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn write_lane(&mut self) -> io::Result<()> {
        self.pending.write(&self.writer).await?;
        while self.hand_out_lane() {
            self.pending.write(&self.writer).await?;
        }
        Ok(())
    }

    /// Takes in what it says beside messages. False: that breaks the protocol.
    pub fn note(&mut self, said: &Frame) -> bool {
        let number = said.number;
        match said.kind {
            Kind::Confirm => {
                let confirmed = number.clamp(self.confirmed, self.handed_out);
                // The same number again.
                self.is_stalled = confirmed == self.confirmed;
                self.confirmed = confirmed;
            }
            Kind::Heard => self.heard = self.heard.max(number),
            Kind::Leave => {
                let since = said.bytes().try_into().map_or(0, u64::from_be_bytes);
                // Its first sign counts, and the signal that came behind the end of the input.
                let (former, since) = self.leaves.unwrap_or((0, since));
                self.leaves = Some((if number == 0 { former } else { number }, since));
            }
            Kind::Closed => self.has_closed = true,
            _ => return false,
        }
        true
    }

    /// Takes in what it has said beside messages, as far as that is there. Its messages are lost.
    pub fn note_rest(&mut self) {
        while let Some(said) = self.reader.next_at_once() {
            let _ = self.note(&said);
        }
        // In the middle of a message it can't say how it leaves. Its host may have closed it, and then
        // nobody else may have the server.
        if self.reader.is_mid_frame() {
            self.leaves.get_or_insert((0, 0));
        }
    }

    /// Since when it is about to leave, as it has said; 0 where that is not known.
    pub fn leaves_since(&self) -> Option<u64> {
        self.leaves.map(|(_, since)| since)
    }

    /// The signal by which its host has ended it, if it was one.
    pub fn ending_signal(&self) -> Option<Signal> {
        self.leaves.and_then(|(signal, _)| signal_of(signal))
    }

    /// Messages that it was handed and may not have passed on, now that it is gone. It passes on at once
    /// what it has read, and says so a little later. So it has failed to pass something on only where
    /// it had not read everything, or has said that its host takes nothing.
    pub fn unpassed(&self) -> u64 {
        match self.reader.is_reset() || self.is_stalled {
            true => self.handed_out - self.confirmed,
            false => 0,
        }
    }

    /// How many ends of backends it has told its host.
    pub fn ends_told(&self) -> usize {
        usize::try_from(self.heard).unwrap_or(usize::MAX)
    }

    /// Sends its host what the backend and we write to standard error, as far as the front reads it.
    pub fn forward_stderr(&mut self, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        if self.stderr_waiting > 0 && self.stderr_waiting + text.len() > STDERR_MAX {
            self.stderr_skipped += text.len() as u64;
            return;
        }
        let note = not_read(std::mem::take(&mut self.stderr_skipped));
        let text = Bytes::from([note.as_bytes(), text].concat());
        self.stderr_waiting += text.len();
        self.put(Kind::Stderr, 0, text);
    }
}

/// The signal of this number.
pub fn signal_of(number: u64) -> Option<Signal> {
    let number = i32::try_from(number).ok()?;
    Signal::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use mcp_sessiond_process::PinnedProcess;
    use mcp_sessiond_proto::backends::frame::FrameBuffer;
    use tokio::net::UnixStream;

    use super::*;

    fn front() -> (FrontConnection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let ours = ours.into_std().expect("a socket");
        let (reader, writer) = crate::socket::halves(ours).expect("descriptors");
        let process = PinnedProcess::own().expect("this one").id();
        let reader = Frames::new(reader, FrameBuffer::default());
        (
            FrontConnection::new(process, Epoch(1), reader, writer),
            theirs,
        )
    }

    /// A front that does not read costs a bounded amount of memory, and what was dropped is said.
    #[tokio::test]
    async fn standard_error_that_nobody_reads_is_dropped_and_that_is_said() {
        let (mut front, _theirs) = front();
        let text = vec![b'x'; STDERR_MAX / 4];
        (0..6).for_each(|_| front.forward_stderr(&text));
        assert_eq!(front.stderr_waiting, STDERR_MAX);
        while front.hand_out_lane() {
            front.pending = PendingFrames::default();
        }
        front.forward_stderr(b"on");
        let (kind, _, said) = front.lane.pop_front().expect("it waits");
        let skipped = 2 * text.len();
        let wanted = format!("\n[{skipped} bytes of standard error were not read in time]\non");
        assert_eq!((kind, said), (Kind::Stderr, Bytes::from(wanted)));
    }

    #[tokio::test]
    async fn a_front_that_leaves_in_the_middle_of_a_message_may_have_been_closed() {
        for (sent, is_leaving) in [(0, false), (7, true), (20, true), (25, false)] {
            let (mut front, theirs) = front();
            let line = mcp_sessiond_proto::backends::frame::frame(Kind::Line, 0, b"{\"id\":1}\n");
            theirs.try_write(&line[..sent]).expect("there is room");
            drop(theirs);
            front.note_rest();
            assert_eq!(front.leaves_since().is_some(), is_leaving, "{sent}");
        }
    }

    /// It passes on what it has read, and is killed before it can say so.
    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn what_a_front_has_read_has_arrived_and_what_it_has_not_may_be_lost() {
        for (has_read, stalls, lost) in [(true, false, 0), (true, true, 2), (false, false, 2)] {
            let (mut front, theirs) = front();
            front.hand_out(Bytes::from_static(b"{}"));
            front.hand_out(Bytes::from_static(b"[]"));
            front.pending.write_at_once(&front.writer);
            if has_read {
                let mut read = [0; 64];
                theirs.readable().await.expect("it is there");
                theirs.try_read(&mut read).expect("it is there");
            }
            if stalls {
                let again = mcp_sessiond_proto::backends::frame::frame(Kind::Confirm, 0, b"");
                theirs.try_write(&again).expect("there is room");
            }
            drop(theirs);
            front.note_rest();
            assert_eq!(front.unpassed(), lost, "{has_read} {stalls}");
        }
    }

    #[tokio::test]
    async fn a_front_confirms_no_more_than_it_was_handed() {
        let (mut front, theirs) = front();
        front.hand_out(Bytes::from_static(b"{}"));
        let said = [(Kind::Confirm, 9), (Kind::Heard, 2), (Kind::Leave, 15)];
        for (kind, number) in said {
            let body = if kind == Kind::Leave {
                7_u64.to_be_bytes()
            } else {
                [0; 8]
            };
            let frame = mcp_sessiond_proto::backends::frame::frame(kind, number, &body);
            theirs.try_write(&frame).expect("there is room");
        }
        drop(theirs);
        front.note_rest();
        assert_eq!((front.unpassed(), front.ends_told()), (0, 2));
        assert_eq!(front.leaves_since(), Some(7));
        assert_eq!(front.ending_signal(), Some(Signal::SIGTERM));
    }
}
