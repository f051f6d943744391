//! A challenge: who writes on a connection, where the kernel can't say who opened it.
//!
//! Before Linux 6.5 the kernel knows the other end by a pid alone (`SO_PEERCRED`), and that pid may
//! be another process's by now. So the process that has it is held, and must write back 16 random
//! bytes. With each byte that it receives the kernel says who wrote it (`SCM_CREDENTIALS`). If all
//! are from the pid that is held, and the held process lives afterwards, then it has written on
//! this connection after it was held.
//!
//! A later owner of the pid that does not have the connection can't write there. A child that has
//! inherited it, or a process that was handed it, writes under its own pid. Nobody can answer ahead.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::unistd::geteuid;
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::os;
use super::peer_error::PeerError;
use super::pinned::PinnedProcess;

/// Random bytes of a challenge: too many to be guessed.
pub const CHALLENGE_BYTES: usize = 16;

/// A process that is at the other end of a connection if it writes these bytes back.
#[derive(Debug)]
pub struct Challenge {
    process: PinnedProcess,
    bytes: [u8; CHALLENGE_BYTES],
}

impl Challenge {
    /// Challenges a process that is held already. From now on the kernel says who writes.
    pub(super) fn new(socket: BorrowedFd<'_>, process: PinnedProcess) -> io::Result<Self> {
        os::have_writers_named(socket, true)?;
        let mut bytes = [0; CHALLENGE_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self { process, bytes })
    }

    /// The process that is challenged. It may be a later owner of the pid.
    pub fn process(&self) -> &PinnedProcess {
        &self.process
    }

    /// What it has to write back.
    pub fn bytes(&self) -> &[u8; CHALLENGE_BYTES] {
        &self.bytes
    }

    /// Waits for the answer. The bytes have been sent.
    ///
    /// # Errors
    /// [`PeerError`], among them [`PeerError::AnotherWriter`]. Nothing limits the time.
    pub async fn answered(self, stream: &UnixStream) -> Result<PinnedProcess, PeerError> {
        let mut answer = Answer::to(&self);
        while answer.is_awaited() {
            let receive = || answer.receive(stream.as_fd());
            stream.async_io(Interest::READABLE, receive).await??;
        }
        self.accept(stream.as_fd())
    }

    /// The last look: until now nobody else could have its pid.
    fn accept(self, socket: BorrowedFd<'_>) -> Result<PinnedProcess, PeerError> {
        if !self.process.is_alive() {
            return Err(PeerError::Gone);
        }
        // What follows is read as from any other connection.
        os::have_writers_named(socket, false)?;
        Ok(self.process)
    }
}

/// An answer, as far as it has arrived.
struct Answer<'a> {
    challenge: &'a Challenge,
    received: usize,
}

impl<'a> Answer<'a> {
    fn to(challenge: &'a Challenge) -> Self {
        Self {
            challenge,
            received: 0,
        }
    }

    fn is_awaited(&self) -> bool {
        self.received < CHALLENGE_BYTES
    }

    /// Receives once. The outer error is the socket's, and may pass.
    fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<Result<(), PeerError>> {
        let mut bytes = [0; CHALLENGE_BYTES];
        let expected = &self.challenge.bytes[self.received..];
        // No more than the answer: what follows belongs to whoever reads next. The kernel gives out
        // bytes of one writer at a time.
        let (read, writer) = os::receive_named(socket, &mut bytes[..expected.len()])?;
        if read == 0 {
            return Ok(Err(PeerError::Gone));
        }
        let connected = self.challenge.process.pid();
        Ok(match writer {
            Some((pid, _)) if pid != connected => Err(PeerError::AnotherWriter {
                connected,
                writer: pid,
            }),
            Some((_, uid)) if uid != geteuid().as_raw() => Err(PeerError::OtherUid(uid)),
            Some(_) if bytes[..read] == expected[..read] => {
                self.received += read;
                Ok(())
            }
            _ => Err(PeerError::WrongAnswer),
        })
    }
}
