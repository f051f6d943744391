//! A connected socket in a runtime, by halves, and what they share with other descriptors: no flag of
//! theirs is changed, and whether a call waits is said with each call.
//!
//! What comes is watched all the time. Room is watched only while there is none: who watches it all
//! the time is woken whenever the other end has read something.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bytes::BytesMut;
use mcp_sessiond_process::sys::{receive_at_once, when_readable, when_writable};
use nix::sys::socket::{MsgFlags, sendmsg};
use tokio::io::unix::AsyncFd;

/// Both halves of this socket. To be called in a runtime.
///
/// # Errors
/// When there can be no more descriptors.
pub fn halves(socket: impl Into<OwnedFd>) -> io::Result<(SocketReader, SocketWriter)> {
    let socket = socket.into();
    let writer = SocketWriter(socket.try_clone()?.into());
    Ok((SocketReader::new(socket)?, writer))
}

/// The half that reads.
#[derive(Debug)]
pub struct SocketReader(AsyncFd<OwnedFd>);

impl SocketReader {
    /// Of this socket. To be called in a runtime.
    ///
    /// # Errors
    /// When it can't be watched.
    pub fn new(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        when_readable(socket.into()).map(Self)
    }

    /// Reads what there is into this room, or waits for it: how many bytes, 0 at the end.
    /// Cancel-safe.
    ///
    /// # Errors
    /// Those of recv(2).
    pub async fn read(&mut self, room: &mut BytesMut) -> io::Result<usize> {
        read(&self.0, room, receive_at_once).await
    }

    /// The same without waiting, nor asking the runtime, which may have yet to learn what is there.
    ///
    /// # Errors
    /// Those of recv(2), and [`io::ErrorKind::WouldBlock`] where nothing is there.
    pub fn read_at_once(&mut self, room: &mut BytesMut) -> io::Result<usize> {
        receive_at_once(self.0.as_fd(), room)
    }
}

/// The half that writes. Once it is dropped, the other end reads the end.
#[derive(Debug)]
pub struct SocketWriter(UnixStream);

impl SocketWriter {
    /// Writes as much as there is room for, or waits for room. Cancel-safe.
    ///
    /// # Errors
    /// Those of sendmsg(2).
    pub async fn write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        write(self.0.as_fd(), || self.write_at_once(pieces)).await
    }

    /// The same without waiting.
    ///
    /// # Errors
    /// Those of sendmsg(2), and [`io::ErrorKind::WouldBlock`] where there is no room.
    pub fn write_at_once(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        send_at_once(self.0.as_fd(), pieces)
    }
}

impl Drop for SocketWriter {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// Calls `at_once`, which reads without waiting, until it has read something. Cancel-safe.
pub(crate) async fn read(
    from: &AsyncFd<OwnedFd>,
    room: &mut BytesMut,
    at_once: impl Fn(BorrowedFd<'_>, &mut BytesMut) -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        let mut ready = from.readable().await?;
        let left = room.capacity() - room.len();
        match at_once(from.as_fd(), room) {
            // That was all; the runtime tells of more.
            Ok(read @ 1..) if read < left => {
                ready.clear_ready();
                return Ok(read);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Calls `at_once`, which writes to this descriptor without waiting, until it has written something.
/// Nothing else watches the descriptor. Cancel-safe.
pub(crate) async fn write<T>(
    to: BorrowedFd<'_>,
    mut at_once: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match at_once() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                when_writable(to)?.writable().await?.retain_ready();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Sends what a socket has room for.
pub(crate) fn send_at_once(to: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let no_wait = MsgFlags::MSG_DONTWAIT;
    Ok(sendmsg::<()>(to.as_raw_fd(), pieces, &[], no_wait, None)?)
}
