//! A connection, and what is asked on it, a call at a time.

use std::path::Path;
use std::time::Duration;

use mcp_sessiond_client::{ClaimRequest, Connection};
use mcp_sessiond_proto::hello::{Codec, greet};
use mcp_sessiond_proto::service::SessiondRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// But for the library, the bytes of a request are made once, alike for all: what is measured is
/// who answers.
pub(crate) enum Caller {
    /// An answer of a known length.
    Fixed {
        stream: UnixStream,
        request: Vec<u8>,
        answer: Vec<u8>,
    },
    /// An answer of a known number of lines.
    Lines {
        stream: UnixStream,
        request: Vec<u8>,
        lines: usize,
        answer: Vec<u8>,
    },
    /// An answer that is one frame.
    Frame {
        stream: UnixStream,
        request: Vec<u8>,
        answer: Vec<u8>,
    },
    Library {
        connection: Connection,
        claim: ClaimRequest,
    },
}

/// A call as PROTOCOL.md has it.
#[derive(serde::Serialize)]
struct Call<'a> {
    id: u64,
    deadline_ms: u64,
    call: &'a SessiondRequest,
}

impl Caller {
    pub(crate) async fn bytes(path: &Path, request: Vec<u8>, answer: usize) -> Outcome<Self> {
        let stream = UnixStream::connect(path).await?;
        Ok(Self::Fixed {
            stream,
            request,
            answer: vec![0; answer],
        })
    }

    pub(crate) async fn lines(path: &Path, request: Vec<u8>, lines: usize) -> Outcome<Self> {
        let stream = UnixStream::connect(path).await?;
        Ok(Self::Lines {
            stream,
            request,
            lines,
            answer: vec![0; 4096],
        })
    }

    pub(crate) async fn raw(directory: &Path, call: &SessiondRequest) -> Outcome<Self> {
        let mut stream = UnixStream::connect(directory.join("daemon.sock")).await?;
        greet(&mut stream, Codec::MessagePack).await?;
        let body = rmp_serde::to_vec_named(&Call {
            id: 1,
            deadline_ms: 30_000,
            call,
        })?;
        let mut request = u32::try_from(body.len())?.to_be_bytes().to_vec();
        request.extend(body);
        Ok(Self::Frame {
            stream,
            request,
            answer: vec![0; 4096],
        })
    }

    /// One call, to its answer.
    pub(crate) async fn call(&mut self) -> Outcome<()> {
        match self {
            Self::Fixed {
                stream,
                request,
                answer,
            } => {
                stream.write_all(request).await?;
                stream.read_exact(answer).await?;
                if answer[0] == b'-' {
                    return Err("Redis refused".into());
                }
            }
            Self::Lines {
                stream,
                request,
                lines,
                answer,
            } => {
                stream.write_all(request).await?;
                let mut left = *lines;
                while left > 0 {
                    let read = stream.read(answer).await?;
                    if read == 0 || answer[0] == b'-' {
                        return Err("Redis refused".into());
                    }
                    left = left.saturating_sub(
                        answer[..read].iter().filter(|byte| **byte == b'\n').count(),
                    );
                }
            }
            Self::Frame {
                stream,
                request,
                answer,
            } => {
                stream.write_all(request).await?;
                let mut read = 0;
                // One read brings it, in all but the rarest case.
                while read < 4 || read < 4 + length(answer) {
                    if read >= 4 && answer.len() < 4 + length(answer) {
                        answer.resize(4 + length(answer), 0);
                    }
                    match stream.read(&mut answer[read..]).await? {
                        0 => return Err("the daemon hung up".into()),
                        more => read += more,
                    }
                }
                // Both stand at the beginning.
                let head = &answer[..read.min(64)];
                let says = |word: &[u8]| head.windows(word.len()).any(|window| window == word);
                if !says(b"reply") || says(b"\xa3Err") {
                    return Err(
                        format!("the daemon refused: {}", String::from_utf8_lossy(answer)).into(),
                    );
                }
            }
            Self::Library { connection, claim } => {
                drop(connection.claim(PATIENCE, claim.clone()).await??);
            }
        }
        Ok(())
    }
}

fn length(frame: &[u8]) -> usize {
    u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize
}
