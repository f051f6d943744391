//! Lines between the host and the keeper, each way in a thread of its own: there is nothing to wait for but the next line.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write as _};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use mcp_sessiond_proto::Json;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

use super::attach::{Attachment, Releaser};
use super::open::Open;
use crate::keeper::lines::{CHUNK, Line, LineBuffer};
use crate::keeper::relay::too_large;

/// Carries lines.
#[derive(Debug)]
pub struct Carrier {
    state: Mutex<State>,
    /// Told when there is a keeper.
    attached: Condvar,
    output: Mutex<File>,
}

#[derive(Debug, Default)]
struct State {
    /// The connection to the keeper, while there is one.
    keeper: Option<Arc<UnixStream>>,
    open: Open,
    /// The host has closed its end.
    closed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Carrier {
    /// Will write to the host by `output`.
    #[must_use]
    pub fn new(output: File) -> Self {
        Self { state: Mutex::default(), attached: Condvar::new(), output: Mutex::new(output) }
    }

    /// There is a keeper: the host's lines are let through. Its `initialize`, if a former keeper did not answer it, goes
    /// first.
    ///
    /// # Errors
    /// When the keeper is lost again.
    pub fn attached(&self, keeper: UnixStream) -> io::Result<()> {
        let mut state = lock(&self.state);
        if let Some(initialize) = state.open.unanswered() {
            write_line(&keeper, initialize)?;
        }
        state.keeper = Some(Arc::new(keeper));
        self.attached.notify_all();
        Ok(())
    }

    /// Carries what the host says to whichever keeper there is, until the host closes its end. Then ends this process, or,
    /// where the host waits for answers, gives the lease up.
    pub fn from_host(&self, mut input: File, releaser: Releaser) {
        let mut lines = LineBuffer::default();
        let mut chunk = vec![0; CHUNK];
        while take_in(&mut input, &mut chunk, &mut lines) {
            while let Some(line) = lines.next_line() {
                match line {
                    // Where the keeper is lost, the call is among those that are answered in its place.
                    Line::Whole(line) => drop(write_line(&self.keeper_for(&line), &line)),
                    Line::Oversized { head, tail } => {
                        self.tell_host(&[&too_large(&head, &tail)[..], b"\n"].concat());
                    }
                }
            }
        }
        let mut state = lock(&self.state);
        state.closed = true;
        if state.open.is_settled() {
            std::process::exit(0);
        }
        drop(state);
        releaser.release();
    }

    /// The keeper, when there is one. What the line asks for is taken down in the same step, so that it is known to whoever
    /// finds the keeper lost.
    fn keeper_for(&self, line: &Bytes) -> Arc<UnixStream> {
        let mut state = lock(&self.state);
        loop {
            if let Some(keeper) = state.keeper.clone() {
                state.open.from_host(line);
                return keeper;
            }
            state = self.attached.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Carries what the keeper says to the host, until the keeper is lost. Ends this process when the host has closed its
    /// end and waits for nothing more.
    pub fn from_keeper(&self, attachment: Attachment) {
        let Attachment { mut reader, mut lines, beside, .. } = attachment;
        let mut chunk = vec![0; CHUNK];
        let mut passing = Vec::new();
        let mut unconfirmed = 0;
        loop {
            {
                let mut state = lock(&self.state);
                // It relays nothing that is larger than we take.
                while let Some(Line::Whole(line)) = lines.next_line() {
                    state.open.from_keeper(&line);
                    passing.extend_from_slice(&line);
                    passing.push(b'\n');
                    unconfirmed += 1;
                }
            }
            if !passing.is_empty() {
                self.tell_host(&passing);
                passing.clear();
                passing.shrink_to(CHUNK);
                unconfirmed = confirm(beside.as_ref(), unconfirmed);
                let state = lock(&self.state);
                if state.closed && state.open.is_settled() {
                    std::process::exit(0);
                }
            }
            if !take_in(&mut reader, &mut chunk, &mut lines) {
                return;
            }
        }
    }

    /// The keeper is lost: the host is told of every call that it waits for. Returns what a fresh keeper needs to know.
    pub fn lost(&self) -> Option<Json> {
        let mut state = lock(&self.state);
        state.keeper = None;
        let answers = state.open.lose();
        self.tell_host(&answers);
        if state.closed {
            std::process::exit(0);
        }
        let line = state.open.initialized()?;
        Json::new(String::from_utf8(line.to_vec()).ok()?).ok()
    }

    /// Writes to the host. Where nobody listens, the host has gone, or is about to end us.
    fn tell_host(&self, mut text: &[u8]) {
        let mut output = lock(&self.output);
        while !text.is_empty() {
            match output.write(text) {
                Ok(written @ 1..) => text = &text[written..],
                Err(error) if is_passing(&error, &*output, PollFlags::POLLOUT) => {}
                Ok(0) | Err(_) => std::process::exit(0),
            }
        }
    }
}

/// Tells the keeper how many messages were passed on. Returns how many it could not be told of yet.
fn confirm(beside: Option<&UnixStream>, mut count: u64) -> u64 {
    let Some(beside) = beside else { return 0 };
    while count > 0 {
        let said = u8::try_from(count).unwrap_or(u8::MAX);
        // It must never keep the host waiting.
        if send(beside.as_raw_fd(), &[said], MsgFlags::MSG_DONTWAIT) != Ok(1) {
            break;
        }
        count -= u64::from(said);
    }
    count
}

/// Whether the same can be tried again. Whoever shares a descriptor with us may have made it non-blocking: then it is waited
/// for.
fn is_passing(error: &io::Error, descriptor: &impl AsFd, events: PollFlags) -> bool {
    match error.kind() {
        io::ErrorKind::Interrupted => true,
        io::ErrorKind::WouldBlock => {
            let waited = poll(&mut [PollFd::new(descriptor.as_fd(), events)], PollTimeout::NONE);
            matches!(waited, Ok(_) | Err(Errno::EINTR))
        }
        _ => false,
    }
}

/// Reads what there is, or waits for it. False at the end.
fn take_in(from: &mut (impl Read + AsFd), chunk: &mut [u8], lines: &mut LineBuffer) -> bool {
    loop {
        match from.read(chunk) {
            Ok(0) => return false,
            Ok(read) => {
                lines.room().extend_from_slice(&chunk[..read]);
                return true;
            }
            Err(error) if is_passing(&error, from, PollFlags::POLLIN) => {}
            Err(_) => return false,
        }
    }
}

fn write_line(mut keeper: &UnixStream, line: &[u8]) -> io::Result<()> {
    let mut slices = [IoSlice::new(line), IoSlice::new(b"\n")];
    let mut slices = &mut slices[..];
    while !slices.is_empty() {
        match keeper.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
