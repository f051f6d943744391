//! A connection, and one call after the other on it.

use mcp_sessiond_proto::hello::{Codec, greet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::Outcome;
use crate::order::Peer;

pub(crate) struct Line {
    stream: UnixStream,
    answer: Vec<u8>,
    ends: fn(&[u8]) -> Option<usize>,
    is_refused: fn(&[u8]) -> bool,
}

impl Line {
    pub(crate) async fn to(peer: &Peer) -> Outcome<Self> {
        let answer = vec![0; 64 * 1024];
        Ok(match peer {
            Peer::Daemon(directory) => {
                let mut stream = UnixStream::connect(directory.join("daemon.sock")).await?;
                greet(&mut stream, Codec::MessagePack).await?;
                Self {
                    stream,
                    answer,
                    ends: frame,
                    is_refused: is_error,
                }
            }
            Peer::Redis(socket) => Self {
                stream: UnixStream::connect(socket).await?,
                answer,
                ends: value,
                is_refused: |answer| answer[0] == b'-',
            },
        })
    }

    /// One call, to its answer.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Outcome<()> {
        self.stream.write_all(request).await?;
        let mut read = 0;
        // One read brings it, in all but the rarest case.
        loop {
            match self.stream.read(&mut self.answer[read..]).await? {
                0 => return Err("hung up".into()),
                more => read += more,
            }
            if (self.ends)(&self.answer[..read]).is_some_and(|end| end <= read) {
                break;
            }
            if read == self.answer.len() {
                self.answer.resize(2 * read, 0);
            }
        }
        let answer = &self.answer[..read];
        if (self.is_refused)(answer) {
            return Err(format!(
                "refused: {}",
                String::from_utf8_lossy(&answer[..read.min(300)])
            )
            .into());
        }
        Ok(())
    }
}

/// Where a frame ends, if that is known yet.
fn frame(of: &[u8]) -> Option<usize> {
    let length: [u8; 4] = of.get(..4)?.try_into().ok()?;
    Some(4 + u32::from_be_bytes(length) as usize)
}

/// What says so stands at the beginning.
fn is_error(frame: &[u8]) -> bool {
    let head = &frame[..frame.len().min(64)];
    let says = |word: &[u8]| head.windows(word.len()).any(|window| window == word);
    !says(b"reply") || says(b"\xa3Err")
}

/// Where a value of Redis ends, if that is known yet.
fn value(of: &[u8]) -> Option<usize> {
    let end = 2 + of.windows(2).position(|two| two == b"\r\n")?;
    let number = || {
        std::str::from_utf8(&of[1..end - 2])
            .ok()?
            .parse::<usize>()
            .ok()
    };
    match of[0] {
        b'$' => Some(end + number().map_or(0, |bytes| bytes + 2)),
        b'*' => (0..number()?).try_fold(end, |end, _| Some(end + value(of.get(end..)?)?)),
        _ => Some(end),
    }
}
