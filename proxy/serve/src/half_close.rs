//! The end of a client's input that is not the end of the client.
//!
//! A client may shut down its side of a connection when it has sent a request, and wait for the
//! answer (RFC 9112, Tear-down). To us that looks as if it had hung up. Over loopback and Unix
//! sockets the kernel knows which it is: as long as a process holds the other end, an answer is
//! sent. A stream that a GET reads ends, as what is sent there counts as delivered.

use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use mcp_sessiond_process::tcp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep, sleep};

use crate::connections::{Client, UnderWay};

/// How often the kernel is asked at once, and the pause in between: a process that closes its socket
/// ends its output some microseconds before it lets go of it.
const LOOKS: usize = 3;
const MOMENT: Duration = Duration::from_millis(1);
/// After what time the kernel is asked a second time: a process that closes its socket ends its
/// output a moment before it lets go of it.
const SECOND_LOOK: Duration = Duration::from_millis(100);
/// After what time it is asked again and again, as long as a client waits whose input has ended.
const NEXT_LOOK: Duration = Duration::from_secs(1);

/// One end of a connection.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Whether a process holds the other end, and can read there.
    fn is_held(&self) -> bool;
}

impl Socket for TcpStream {
    fn is_held(&self) -> bool {
        let (Ok(peer), Ok(own)) = (self.peer_addr(), self.local_addr()) else {
            return false;
        };
        peer.ip().to_canonical().is_loopback() && tcp::is_held(peer, own).unwrap_or(false)
    }
}

impl Socket for UnixStream {
    fn is_held(&self) -> bool {
        let mut asked = [PollFd::new(self.as_fd(), PollFlags::empty())];
        let hung_up = PollFlags::POLLHUP | PollFlags::POLLERR;
        poll(&mut asked, PollTimeout::ZERO).is_ok_and(|_| {
            asked[0]
                .revents()
                .is_some_and(|events| !events.intersects(hung_up))
        })
    }
}

/// A connection, whose reader learns of the end of the client's input when the client waits for
/// nothing.
#[derive(Debug)]
pub(crate) struct HalfClose<S> {
    stream: S,
    client: Arc<Client>,
    /// When the kernel is asked next who holds the other end. None: the input has not ended.
    look: Option<Pin<Box<Sleep>>>,
    /// Whether all that was written was sent.
    is_flushed: bool,
}

impl<S: Socket> HalfClose<S> {
    pub(crate) fn new(stream: S, client: Arc<Client>) -> Self {
        Self {
            stream,
            client,
            look: None,
            is_flushed: true,
        }
    }

    fn waits(&self) -> bool {
        self.client.waits() || !self.is_flushed
    }

    /// Whether a process holds the other end, also a moment later: what is sent to a client that is just
    /// closing would be lost. It blocks this thread, for 3 ms at most: if it gave way to other tasks,
    /// these would send something meanwhile.
    fn is_still_held(&self) -> bool {
        (0..LOOKS).all(|_| {
            let is_held = self.stream.is_held();
            if is_held {
                std::thread::sleep(MOMENT);
            }
            is_held
        })
    }
}

impl<S: Socket> AsyncRead for HalfClose<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.look.is_none() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            if buffer.filled().len() > before {
                this.client.sent();
                return Poll::Ready(Ok(()));
            }
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if !this.waits() || !this.is_still_held() {
                return Poll::Ready(Ok(()));
            }
            this.look = Some(Box::pin(sleep(SECOND_LOOK)));
        }
        this.client.wake_when_answered(context.waker());
        let Some(look) = &mut this.look else {
            return Poll::Pending;
        };
        while look.as_mut().poll(context).is_ready() {
            // A body that is cut off will never be whole.
            if !this.client.is_read() || !this.stream.is_held() {
                return Poll::Ready(Ok(()));
            }
            look.as_mut().reset(Instant::now() + NEXT_LOOK);
        }
        if this.waits() {
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> AsyncWrite for HalfClose<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        if !std::mem::replace(&mut self.is_flushed, true) {
            self.client.answered();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The body of a request, which says when it was read.
#[derive(Debug)]
pub(crate) struct RequestBody<B> {
    body: B,
    /// None: it was read in full.
    client: Option<Arc<Client>>,
}

impl<B: Body> RequestBody<B> {
    pub(crate) fn new(body: B, client: &Arc<Client>) -> Self {
        let client = (!body.is_end_stream()).then(|| client.clone());
        Self { body, client }
    }
}

impl<B> RequestBody<B> {
    fn read(&mut self) {
        if let Some(client) = self.client.take() {
            client.body_read();
        }
    }
}

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        self.read();
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if self.body.is_end_stream() || !matches!(frame, Some(Ok(_))) {
            self.read();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response: its request is under way until it is dropped.
#[derive(Debug)]
pub(crate) struct ResponseBody<B> {
    pub(crate) body: B,
    pub(crate) _under_way: UnderWay,
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
