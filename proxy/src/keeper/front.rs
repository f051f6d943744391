//! The front that is attached, as its keeper sees it.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use bytes::Bytes;
use mcp_sessiond_process::ProcessId;
use mcp_sessiond_proto::Epoch;
use mcp_sessiond_proto::backends::{ENDED_TOLD, LEFT_BY_SIGNAL};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::continuing::Continuing;
use crate::lines::{Lines, PendingLine};

/// After how many unconfirmed messages the keeper reads the front's confirmations, which must not
/// fill the connection.
const UNCONFIRMED: u64 = 64;

/// The front that has the backend.
#[derive(Debug)]
pub struct Front {
    /// Its process.
    pub process: ProcessId,
    /// The epoch of its lease.
    pub epoch: Epoch,
    /// Where it speaks.
    pub reader: Lines<OwnedReadHalf>,
    /// Where it listens.
    pub writer: OwnedWriteHalf,
    /// The line on its way to it.
    pub pending_line: PendingLine,
    /// Its second connection, if it opened one.
    control: Option<ControlChannel>,
    /// The control lines, where it continues another front.
    pub continuing: Option<Continuing>,
    handed_out: u64,
    confirmed: u64,
}

impl Front {
    /// A front that has attached.
    pub fn new(
        process: ProcessId,
        epoch: Epoch,
        reader: Lines<OwnedReadHalf>,
        writer: OwnedWriteHalf,
        control: Option<ControlChannel>,
    ) -> Self {
        let pending_line = PendingLine::default();
        Self {
            process,
            epoch,
            reader,
            writer,
            pending_line,
            control,
            continuing: None,
            handed_out: 0,
            confirmed: 0,
        }
    }

    /// Will write this line next. The outlet is empty.
    pub fn hand_out(&mut self, line: Bytes) {
        self.pending_line.put(line);
        self.handed_out += 1;
        if self.handed_out - self.confirmed >= UNCONFIRMED {
            self.take_confirmations();
        }
    }

    /// Whether it has said that it is about to leave. Call it after
    /// [`unconfirmed`](Self::unconfirmed).
    pub fn is_leaving(&self) -> bool {
        self.control
            .as_ref()
            .is_some_and(|control| control.is_leaving)
    }

    /// Messages that it was handed and has not passed on, as far as is known.
    pub fn unconfirmed(&mut self) -> u64 {
        self.take_confirmations();
        self.handed_out - self.confirmed
    }

    /// Whether a signal has ended it. Call it after [`unconfirmed`](Self::unconfirmed).
    pub fn is_signalled(&self) -> bool {
        self.control
            .as_ref()
            .is_some_and(|control| control.is_signalled)
    }

    /// How many ends of backends it has told its host. Call it after
    /// [`unconfirmed`](Self::unconfirmed).
    pub fn ends_told(&self) -> usize {
        self.control.as_ref().map_or(0, |control| control.ends_told)
    }

    fn take_confirmations(&mut self) {
        match &mut self.control {
            Some(control) => {
                self.confirmed = (self.confirmed + control.confirmations()).min(self.handed_out);
            }
            // It sends no confirmations: what was written counts as passed on.
            None => self.confirmed = self.handed_out - u64::from(!self.pending_line.is_empty()),
        }
    }

    /// Sends its host the backend's standard error and our own lines, as far as the front reads
    /// them.
    pub fn forward_stderr(&mut self, text: &[u8]) {
        if let Some(control) = &mut self.control {
            control.forward_stderr(text);
        }
    }
}

/// A front's second connection. The keeper reads it only on demand: a front's confirmations don't
/// wake it.
#[derive(Debug)]
pub struct ControlChannel {
    stream: UnixStream,
    /// How many bytes were dropped since the last line that could be written.
    skipped: u64,
    /// Whether the front has said that it is about to leave.
    is_leaving: bool,
    /// Whether a signal has ended it.
    is_signalled: bool,
    /// How many ends of backends it has told its host.
    ends_told: usize,
}

impl ControlChannel {
    /// Takes the connection over.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        // It stays non-blocking.
        Ok(Self {
            stream: stream.into_std()?,
            skipped: 0,
            is_leaving: false,
            is_signalled: false,
            ends_told: 0,
        })
    }

    /// How many messages the front has confirmed since the last call. Each byte is a count; a zero
    /// says that the front is about to leave, and [`ENDED_TOLD`] that it has told of an end.
    fn confirmations(&mut self) -> u64 {
        let mut bytes = [0; 1024];
        let mut confirmed = 0;
        while let Ok(read @ 1..) = self.stream.read(&mut bytes) {
            self.is_leaving |= bytes[..read].contains(&0);
            for byte in &bytes[..read] {
                match *byte {
                    LEFT_BY_SIGNAL => (self.is_leaving, self.is_signalled) = (true, true),
                    ENDED_TOLD => self.ends_told += 1,
                    count => confirmed += u64::from(count),
                }
            }
        }
        confirmed
    }

    fn forward_stderr(&mut self, text: &[u8]) {
        if self.skipped > 0 {
            let note = format!(
                "\n[{} bytes of standard error were not read in time]\n",
                self.skipped
            );
            if self.stream.write(note.as_bytes()).is_err() {
                self.skipped += text.len() as u64;
                return;
            }
            self.skipped = 0;
        }
        let written = self.stream.write(text).unwrap_or(0);
        self.skipped += (text.len() - written) as u64;
    }
}
