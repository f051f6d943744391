//! A descriptor in reserve: a keeper that has no other says by it that it is busy. Whoever gets no
//! answer at all takes it for hung.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};

use futures::FutureExt as _;
use mcp_sessiond_proto::hello::{Answer, Hello};
use nix::sys::socket::{MsgFlags, send};
use tokio::net::{UnixListener, UnixStream};

/// The descriptor. None: there was none to be had.
#[derive(Debug)]
pub struct Spare(Option<OwnedFd>);

impl Spare {
    /// Takes the lowest number that is free. The limit of descriptors is one of numbers, so this is
    /// the first thing that a keeper opens.
    pub fn take() -> Self {
        Self(File::open("/dev/null").ok().map(Into::into))
    }

    /// Accepts the next client by it, and tells the client that there is no descriptor free.
    pub(super) fn refuse_next(&mut self, listener: &UnixListener) {
        drop(self.0.take());
        if let Some(Ok((stream, _))) = listener.accept().now_or_never() {
            refuse(&stream);
        }
        // The number is free again, and nothing else has run meanwhile.
        *self = Self::take();
    }
}

/// Tells a client that there is no descriptor free, without waiting for what it says first.
pub(super) fn refuse(stream: &UnixStream) {
    let busy = Hello::keeper(super::version()).reply(Answer::Busy);
    // 32 bytes on a new connection: they fit, or nobody is there. Not by the runtime, which has yet to
    // learn that it can be written to.
    let flags = MsgFlags::MSG_DONTWAIT;
    let _ = send(stream.as_raw_fd(), &busy.encode(), flags);
}
