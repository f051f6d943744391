//! The daemon's frames on a stream: four bytes of length, big-endian, then that many bytes. Bounded in
//! size and in time. Keepers have [others](crate::backends::frame).

use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use futures_core::Stream;
use futures_sink::Sink;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Bytes of the length that precedes each frame.
const HEADER_LEN: usize = 4;

/// Bytes that are read from the stream at once.
const READ_CHUNK: usize = 16 * 1024;

/// A frame up to this size is not charged to the [`Budget`], and a buffer beyond it is not kept for
/// later. The largest token fits, in JSON's base64 too.
const SMALL: usize = 96 * 1024;

/// Bytes of answers that may wait for a peer to read them before no more of its requests are taken.
const OUTBOUND_MAX: usize = 256 * 1024;

/// How long a peer may take to send the rest of a frame that it began, or to read what it was sent.
/// A peer that is merely idle between frames has no limit.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of large frames that all connections together, or those of one peer, may be in the middle
/// of receiving.
#[derive(Debug, Clone)]
pub struct Budget {
    used: Arc<AtomicUsize>,
    limit: usize,
    whole: Option<Box<Budget>>,
}

impl Budget {
    /// A budget of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            used: Arc::default(),
            limit,
            whole: None,
        }
    }

    /// A budget of `limit` bytes within this one.
    #[must_use]
    pub fn share(&self, limit: usize) -> Self {
        Self {
            used: Arc::default(),
            limit,
            whole: Some(Box::new(self.clone())),
        }
    }

    fn charge(&self, bytes: usize) -> Option<Charge> {
        let take = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        let whole = match &self.whole {
            Some(whole) => Some(Box::new(whole.charge(bytes)?)),
            None => None,
        };
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .ok()?;
        Some(Charge {
            used: self.used.clone(),
            bytes,
            _whole: whole,
        })
    }
}

/// Bytes taken from a [`Budget`], given back when dropped.
#[derive(Debug)]
struct Charge {
    used: Arc<AtomicUsize>,
    bytes: usize,
    _whole: Option<Box<Charge>>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What became of a frame.
#[cfg_attr(
    not(feature = "server"),
    expect(dead_code, reason = "a client only gets answers")
)]
pub(crate) enum Decoded<T> {
    /// Something for the service.
    Item(T),
    /// It was answered at once; the answer is in the outbound buffer.
    Answered,
    /// It needs no answer.
    Ignored,
}

/// Turns frames into items and items into frames.
pub(crate) trait FrameCodec {
    /// What comes in.
    type In;
    /// What goes out.
    type Out;
    /// Whether decoding may write to `outbound`. If so, nothing is read while much waits there to
    /// be written (backpressure). Else reading goes on: the peer may not read before it could
    /// write.
    const ANSWERS: bool = true;
    /// Decodes one whole frame. May answer it by writing frames to `outbound`.
    fn decode(&mut self, frame: &[u8], outbound: &mut BytesMut) -> io::Result<Decoded<Self::In>>;
    /// Appends one whole frame to `outbound`.
    fn encode(&mut self, item: Self::Out, outbound: &mut BytesMut) -> io::Result<()>;
}

/// Appends a frame whose body `write` writes.
pub(crate) fn put_frame<E: std::fmt::Display>(
    outbound: &mut BytesMut,
    max: usize,
    write: impl FnOnce(&mut bytes::buf::Writer<&mut BytesMut>) -> Result<(), E>,
) -> io::Result<()> {
    let start = outbound.len();
    outbound.put_u32(0);
    let written = write(&mut outbound.writer());
    let len = outbound.len() - start - HEADER_LEN;
    if let Err(error) = written {
        outbound.truncate(start);
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            error.to_string(),
        ));
    }
    match u32::try_from(len) {
        Ok(header) if len <= max => {
            outbound[start..start + HEADER_LEN].copy_from_slice(&header.to_be_bytes());
            Ok(())
        }
        _ => {
            outbound.truncate(start);
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a frame of {len} bytes; the peer takes {max}"),
            ))
        }
    }
}

/// A stream and sink of items over a byte stream: what tarpc calls a transport.
pub(crate) struct Frames<S, C> {
    stream: S,
    codec: C,
    max: usize,
    budget: Budget,
    charge: Option<Charge>,
    inbound: BytesMut,
    outbound: BytesMut,
    read_stall: Option<Pin<Box<Sleep>>>,
    write_stall: Option<Pin<Box<Sleep>>>,
}

impl<S, C> Frames<S, C> {
    pub(crate) fn new(stream: S, codec: C, max: usize, budget: Budget) -> Self {
        Self {
            stream,
            codec,
            max,
            budget,
            charge: None,
            inbound: BytesMut::new(),
            outbound: BytesMut::new(),
            read_stall: None,
            write_stall: None,
        }
    }

    /// The length of the frame at the front of the buffer, when its header is there.
    fn announced(&self) -> io::Result<Option<usize>> {
        let Some(header) = self.inbound.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*header) as usize;
        if len > self.max {
            let text = format!(
                "a frame of {len} bytes was announced; the limit is {}",
                self.max
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(Some(len))
    }
}

/// Fails once `stall` has lasted for [`STALL_TIMEOUT`].
fn poll_stall(
    stall: &mut Option<Pin<Box<Sleep>>>,
    context: &mut Context<'_>,
    what: &str,
) -> io::Result<()> {
    let sleep = stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL_TIMEOUT)));
    if sleep.as_mut().poll(context).is_ready() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, what));
    }
    Ok(())
}

impl<S: AsyncRead + AsyncWrite + Unpin, C: FrameCodec + Unpin> Frames<S, C> {
    fn poll_write_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbound.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, &self.outbound) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => {
                    self.write_stall = None;
                    self.outbound.advance(written);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    poll_stall(
                        &mut self.write_stall,
                        context,
                        "the peer does not read its answers",
                    )?;
                    return Poll::Pending;
                }
            }
        }
        if self.outbound.capacity() > SMALL {
            self.outbound = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_read_in(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // The rest of a large frame is read straight into the buffer; anything else takes no more
        // room than it needs.
        let rest = self.announced()?.map_or(0, |len| {
            (HEADER_LEN + len).saturating_sub(self.inbound.len())
        });
        if rest >= READ_CHUNK {
            // Reserve all of it if the budget was charged. The system provides the memory only as
            // it is filled.
            self.inbound.reserve(if self.charge.is_some() {
                rest
            } else {
                READ_CHUNK
            });
            return pin!(self.stream.read_buf(&mut self.inbound)).poll(context);
        }
        let mut chunk = [const { MaybeUninit::uninit() }; READ_CHUNK];
        let mut chunk = ReadBuf::uninit(&mut chunk);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut chunk))?;
        self.inbound.extend_from_slice(chunk.filled());
        Poll::Ready(Ok(chunk.filled().len()))
    }

    /// Frees empty buffers while the peer is idle.
    fn rest(&mut self) {
        for buffer in [&mut self.inbound, &mut self.outbound] {
            if buffer.is_empty() && buffer.capacity() > 0 {
                *buffer = BytesMut::new();
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, C: FrameCodec + Unpin> Stream for Frames<S, C> {
    type Item = io::Result<C::In>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if C::ANSWERS && this.outbound.len() > OUTBOUND_MAX {
                ready!(this.poll_write_out(context))?;
            }
            let announced = this.announced()?;
            if let Some(len) = announced.filter(|len| this.inbound.len() >= HEADER_LEN + len) {
                this.inbound.advance(HEADER_LEN);
                let frame = this.inbound.split_to(len);
                let decoded = this.codec.decode(&frame, &mut this.outbound);
                drop(frame);
                if this.inbound.is_empty() {
                    // Free the frame's memory before its call is carried out.
                    this.inbound = BytesMut::new();
                }
                this.charge = None;
                this.read_stall = None;
                match decoded? {
                    Decoded::Item(item) => return Poll::Ready(Some(Ok(item))),
                    Decoded::Answered => drop(this.poll_write_out(context)?),
                    Decoded::Ignored => {}
                }
                continue;
            }
            if let Some(len) = announced.filter(|len| *len > SMALL && this.charge.is_none()) {
                let charge = this.budget.charge(len);
                this.charge =
                    Some(charge.ok_or_else(|| {
                        io::Error::new(io::ErrorKind::QuotaExceeded, "large frames")
                    })?);
            }
            match this.poll_read_in(context) {
                Poll::Ready(Ok(0)) if this.inbound.is_empty() => return Poll::Ready(None),
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Pending => {
                    // The clock runs from the first byte of a frame to its last, however steadily
                    // they trickle.
                    if !this.inbound.is_empty() {
                        poll_stall(
                            &mut this.read_stall,
                            context,
                            "the peer does not finish its frame",
                        )?;
                    }
                    this.rest();
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, C: FrameCodec + Unpin> Sink<C::Out> for Frames<S, C> {
    type Error = io::Error;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.outbound.len() > OUTBOUND_MAX {
            this.poll_write_out(context)
        } else {
            Poll::Ready(Ok(()))
        }
    }

    fn start_send(self: Pin<&mut Self>, item: C::Out) -> io::Result<()> {
        let this = self.get_mut();
        this.codec.encode(item, &mut this.outbound)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_write_out(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_out(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
