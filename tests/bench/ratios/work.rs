//! What is asked of whom, a call at a time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_sessiond_client::{ClaimRequest, Connection, Directory, Start, Token, connect};
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
            Self::Ping(directory) => Caller::daemon(directory, "ping", What::Ping).await?,
            Self::Claim(directory) => Caller::daemon(directory, "claim", What::Claim).await?,
            Self::Load(directory) => {
                Caller::daemon(directory, "load", What::Store).await?.call().await?;
                Caller::daemon(directory, "load", What::Claim).await?
            }
            Self::Store(directory) => {
                // Each caller has a session of its own: stores of one session wait for each other.
                let label = format!("store-{index}");
                Caller::daemon(directory, &label, What::Store).await?
            }
            Self::Named(_, work) => Box::pin(work.caller(index)).await?,
        })
    }
}

/// What a caller asks the daemon for.
enum What {
    Ping,
    Claim,
    Store,
}

/// A connection, and what is asked on it.
pub(crate) struct Caller(Kind);

enum Kind {
    Bytes { stream: UnixStream, request: Vec<u8>, answer: Vec<u8> },
    Daemon { connection: Connection, what: What, claim: ClaimRequest, store: Box<StoreRequest> },
}

impl Caller {
    async fn bytes(path: &Path, request: Vec<u8>, answer: usize) -> Outcome<Self> {
        let stream = UnixStream::connect(path).await?;
        Ok(Self(Kind::Bytes { stream, request, answer: vec![0; answer] }))
    }

    async fn daemon(directory: &Path, label: &str, what: What) -> Outcome<Self> {
        let connection = connect(&Directory::at(directory)?, &Start::Never).await?;
        let claim = ClaimRequest { label: Some(label.parse()?), ..ClaimRequest::default() };
        let claimed = connection.claim(Connection::context(PATIENCE), claim.clone()).await??;
        let token = Token::new(vec![b't'; SIZE])?;
        let store = Box::new(StoreRequest { session: claimed.session, epoch: claimed.epoch, token });
        Ok(Self(Kind::Daemon { connection, what, claim, store }))
    }

    /// One call, to its answer.
    pub(crate) async fn call(&mut self) -> Outcome<()> {
        match &mut self.0 {
            Kind::Bytes { stream, request, answer } => {
                stream.write_all(request).await?;
                stream.read_exact(answer).await?;
            }
            Kind::Daemon { connection, what, claim, store } => {
                let context = Connection::context(PATIENCE);
                match what {
                    What::Ping => connection.ping(context).await?,
                    What::Claim => drop(connection.claim(context, claim.clone()).await??),
                    What::Store => drop(connection.store_token(context, (**store).clone()).await??),
                }
            }
        }
        Ok(())
    }
}
