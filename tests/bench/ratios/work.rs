//! What is asked of whom, a call at a time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_sessiond_client::{ClaimRequest, Connection, Directory, Start, Token, connect};
use mcp_sessiond_proto::hello::{Codec, greet};
use mcp_sessiond_proto::service::SessiondRequest;
use mcp_sessiond_proto::types::StoreRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of a token, a value, and an echo.
const SIZE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(30);

/// A kind of work.
pub(crate) enum Work {
    /// Bytes there and back.
    Echo(PathBuf),
    /// An empty tarpc call.
    Ping(PathBuf),
    /// A claim that the caller's process has already.
    Claim(PathBuf),
    /// The same of a session with a token, which is read from its file.
    Load(PathBuf),
    /// A token, written with fsync, rename and fsync.
    Store(PathBuf),
    /// A claim, through the client library.
    Library(PathBuf),
    RedisGet(PathBuf),
    RedisSet(PathBuf),
    /// Another name for it.
    Named(&'static str, Box<Work>),
}

impl Work {
    pub(crate) fn named(self, name: &'static str) -> Self {
        Self::Named(name, Box::new(self))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Echo(_) => "bare socket",
            Self::Ping(_) => "ping",
            Self::Claim(_) => "claim",
            Self::Load(_) => "load",
            Self::Store(_) => "store",
            Self::Library(_) => "claim, by the client library",
            Self::RedisGet(_) => "redis GET",
            Self::RedisSet(_) => "redis SET",
            Self::Named(name, _) => name,
        }
    }

    /// Whether each call waits for the disk.
    pub(crate) fn syncs(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Named(..))
    }

    /// The caller of this number, with a connection of its own.
    pub(crate) async fn caller(&self, index: usize) -> Outcome<Caller> {
        let value = "v".repeat(SIZE);
        let redis = |command: String| command.into_bytes();
        Ok(match self {
            Self::Echo(path) => Caller::bytes(path, vec![b'e'; SIZE], SIZE).await?,
            Self::RedisSet(path) => {
                let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${SIZE}\r\n{value}\r\n");
                Caller::bytes(path, redis(set), b"+OK\r\n".len()).await?
            }
            Self::RedisGet(path) => {
                let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${SIZE}\r\n{value}\r\n");
                Caller::bytes(path, redis(set), b"+OK\r\n".len()).await?.call().await?;
                let answer = format!("${SIZE}\r\n{value}\r\n");
                Caller::bytes(path, redis("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".into()), answer.len()).await?
            }
            Self::Ping(directory) => Caller::raw(directory, &SessiondRequest::Ping {}).await?,
            Self::Claim(directory) => {
                let request = claim("claim")?;
                Caller::raw(directory, &SessiondRequest::Claim { request }).await?
            }
            Self::Load(directory) => {
                store(directory, "load").await?.call().await?;
                Caller::raw(directory, &SessiondRequest::Claim { request: claim("load")? }).await?
            }
            // Each caller has a session of its own: stores of one session wait for each other.
            Self::Store(directory) => store(directory, &format!("store-{index}")).await?,
            Self::Library(directory) => {
                let connection = connect(&Directory::at(directory)?, &Start::Never).await?;
                Caller::Library { connection, claim: claim("claim")? }
            }
            Self::Named(_, work) => Box::pin(work.caller(index)).await?,
        })
    }
}

fn claim(label: &str) -> Outcome<ClaimRequest> {
    Ok(ClaimRequest { label: Some(label.parse()?), ..ClaimRequest::default() })
}

/// A caller that stores a token into the session of this label.
async fn store(directory: &Path, label: &str) -> Outcome<Caller> {
    let connection = connect(&Directory::at(directory)?, &Start::Never).await?;
    let claimed = connection.claim(Connection::context(PATIENCE), claim(label)?).await??;
    let token = Token::new(vec![b't'; SIZE])?;
    let request = StoreRequest { session: claimed.session, epoch: claimed.epoch, token };
    Caller::raw(directory, &SessiondRequest::StoreToken { request }).await
}

/// A connection, and what is asked on it. But for the library, the bytes of a request are made once, alike for all:
/// what is measured is who answers.
pub(crate) enum Caller {
    /// An answer of a known length.
    Fixed {
        stream: UnixStream,
        request: Vec<u8>,
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
    async fn bytes(path: &Path, request: Vec<u8>, answer: usize) -> Outcome<Self> {
        let stream = UnixStream::connect(path).await?;
        Ok(Self::Fixed { stream, request, answer: vec![0; answer] })
    }

    async fn raw(directory: &Path, call: &SessiondRequest) -> Outcome<Self> {
        let mut stream = UnixStream::connect(directory.join("daemon.sock")).await?;
        greet(&mut stream, Codec::MessagePack).await?;
        let body = rmp_serde::to_vec_named(&Call { id: 1, deadline_ms: 30_000, call })?;
        let mut request = u32::try_from(body.len())?.to_be_bytes().to_vec();
        request.extend(body);
        Ok(Self::Frame { stream, request, answer: vec![0; 4096] })
    }

    /// One call, to its answer.
    pub(crate) async fn call(&mut self) -> Outcome<()> {
        match self {
            Self::Fixed { stream, request, answer } => {
                stream.write_all(request).await?;
                stream.read_exact(answer).await?;
            }
            Self::Frame { stream, request, answer } => {
                stream.write_all(request).await?;
                let mut read = 0;
                // One read brings it, in all but the rarest case.
                while read < 4 || read < 4 + length(answer) {
                    read += stream.read(&mut answer[read..]).await?;
                }
                if !answer[..read].windows(5).any(|window| window == b"reply") {
                    return Err("the daemon refused".into());
                }
            }
            Self::Library { connection, claim } => {
                drop(connection.claim(Connection::context(PATIENCE), claim.clone()).await??);
            }
        }
        Ok(())
    }
}

fn length(frame: &[u8]) -> usize {
    u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize
}
