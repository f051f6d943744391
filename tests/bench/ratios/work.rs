//! What is asked of whom.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use mcp_sessiond_client::{ClaimRequest, Directory, Start, Token, connect};
use mcp_sessiond_proto::service::SessiondRequest;
use mcp_sessiond_proto::sessions::{CreateRequest, SessionRef};
use mcp_sessiond_proto::state::{ReadStateRequest, StateWrite, WriteStateRequest};
use mcp_sessiond_proto::streams::{APPEND_MAX, AppendRequest, Cursor, ReplayRequest};
use mcp_sessiond_proto::types::StoreRequest;
use mcp_sessiond_proto::{Json, SessionId, StreamId};

use crate::caller::{Caller, Outcome, PATIENCE};
use crate::peers::Killed;
use crate::{CALLS, CALLS_OF_MANY};

/// Bytes of a token, a value, an event, and an echo.
pub(crate) const SIZE: usize = 100;

/// A JSON value of that size.
pub(crate) fn json() -> Json {
    Json::trusted(format!("{{\"text\":\"{}\"}}", "v".repeat(SIZE - 11)))
}

/// A kind of work, and where it is asked for.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    ask: Ask,
    at: PathBuf,
    /// Who answers.
    pub(crate) process: Rc<Killed>,
    /// Calls of one caller in a round, and of each of many.
    pub(crate) calls: usize,
    pub(crate) each: usize,
}

/// What is asked.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    /// Bytes there and back.
    Echo,
    /// An empty tarpc call.
    Ping,
    /// A claim that the caller's process has already.
    Claim,
    /// The same of a session with a token, which is read from its file.
    Load,
    /// A token, written with fsync, rename and fsync.
    Store,
    /// A claim, through the client library.
    Library,
    StateGet,
    StateSet,
    /// Events appended by one call.
    Append(usize),
    Replay(usize),
    RedisGet,
    RedisSet,
    /// Commands sent together. Streams are as long as ours are at most.
    RedisXadd(usize),
    RedisXrange(usize),
}

impl Work {
    pub(crate) fn new(name: &'static str, ask: Ask, at: &Path, process: &Rc<Killed>) -> Self {
        let (calls, each) = match ask {
            Ask::Append(64) | Ask::RedisXadd(64) => (CALLS / 10, CALLS_OF_MANY / 10),
            Ask::Replay(1_000) | Ask::RedisXrange(1_000) => (CALLS / 20, CALLS_OF_MANY / 20),
            Ask::Replay(_) | Ask::RedisXrange(_) => (CALLS / 4, CALLS_OF_MANY / 4),
            _ => (CALLS, CALLS_OF_MANY),
        };
        Self {
            name,
            ask,
            at: at.into(),
            process: process.clone(),
            calls,
            each,
        }
    }

    /// The same where each call waits for the disk, so that a hundred times fewer are enough.
    pub(crate) fn synced(self) -> Self {
        Self {
            calls: (self.calls / 10).min(100),
            each: (self.each / 10).clamp(5, 20),
            ..self
        }
    }

    /// The caller of this number, with a connection of its own. Where the work is with a session or
    /// a stream, that is its own too: changes of one session wait for each other.
    pub(crate) async fn caller(&self, index: usize) -> Outcome<Caller> {
        let at = &self.at;
        let value = "v".repeat(SIZE);
        let set = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${SIZE}\r\n{value}\r\n");
        let key = format!("{} {index}", self.name);
        Ok(match self.ask {
            Ask::Echo => Caller::bytes(at, vec![b'e'; SIZE], SIZE).await?,
            Ask::RedisSet => Caller::bytes(at, set.into(), b"+OK\r\n".len()).await?,
            Ask::RedisGet => {
                Caller::bytes(at, set.into(), b"+OK\r\n".len())
                    .await?
                    .call()
                    .await?;
                let answer = format!("${SIZE}\r\n{value}\r\n");
                Caller::bytes(at, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".into(), answer.len()).await?
            }
            Ask::RedisXadd(count) => {
                let command = command(&["XADD", &key, "MAXLEN", "~", "5000", "*", "m", &value]);
                // An id each, which is two lines.
                Caller::lines(at, command.repeat(count), 2 * count).await?
            }
            Ask::RedisXrange(count) => {
                let mut answer = format!("*{count}\r\n");
                for number in 1..=count {
                    let id = format!("1-{number}");
                    let add = command(&["XADD", &key, &id, "m", &value]);
                    Caller::lines(at, add, 2).await?.call().await?;
                    answer += &format!(
                        "*2\r\n${}\r\n{id}\r\n*2\r\n$1\r\nm\r\n${SIZE}\r\n{value}\r\n",
                        id.len()
                    );
                }
                Caller::bytes(at, command(&["XRANGE", &key, "-", "+"]), answer.len()).await?
            }
            Ask::Ping => Caller::raw(at, &SessiondRequest::Ping {}).await?,
            Ask::Claim => {
                Caller::raw(
                    at,
                    &SessiondRequest::Claim {
                        request: claim("claim")?,
                    },
                )
                .await?
            }
            Ask::Load => {
                store(at, "load").await?.call().await?;
                Caller::raw(
                    at,
                    &SessiondRequest::Claim {
                        request: claim("load")?,
                    },
                )
                .await?
            }
            Ask::Store => store(at, &format!("store-{index}")).await?,
            Ask::Library => {
                let connection = connect(&Directory::at(at)?, &Start::Never).await?;
                Caller::Library {
                    connection,
                    claim: claim("claim")?,
                }
            }
            Ask::StateSet => Caller::raw(at, &write(self.session(&key).await?)?).await?,
            Ask::StateGet => {
                let of = self.session(&key).await?;
                Caller::raw(at, &write(of.clone())?).await?.call().await?;
                let request = ReadStateRequest {
                    of,
                    keys: vec!["k".parse()?],
                };
                Caller::raw(at, &SessiondRequest::ReadState { request }).await?
            }
            Ask::Append(count) => {
                Caller::raw(at, &append(self.session(&key).await?, count)).await?
            }
            Ask::Replay(count) => {
                let of = self.session(&key).await?;
                for start in (0..count).step_by(APPEND_MAX) {
                    let some = (count - start).min(APPEND_MAX);
                    Caller::raw(at, &append(of.clone(), some))
                        .await?
                        .call()
                        .await?;
                }
                let after = Cursor::Stream(StreamId::standalone());
                let request = ReplayRequest {
                    of,
                    after,
                    most: None,
                };
                Caller::raw(at, &SessiondRequest::Replay { request }).await?
            }
        })
    }

    /// A new session of a service.
    async fn session(&self, key: &str) -> Outcome<SessionRef> {
        let session: SessionId = key.replace([' ', ','], "-").parse()?;
        // A service for each kind of work: what one owner may have in memory is bounded.
        let service = Some(self.name.replace([' ', ','], "-").parse()?);
        let connection = connect(&Directory::at(&self.at)?, &Start::Never).await?;
        let request = CreateRequest {
            session: Some(session.clone()),
            service: service.clone(),
            ..CreateRequest::default()
        };
        connection.create_session(PATIENCE, request).await??;
        Ok(SessionRef {
            session,
            service,
            epoch: None,
            caller: None,
        })
    }
}

/// A command as Redis reads it.
fn command(words: &[&str]) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command += &format!("${}\r\n{word}\r\n", word.len());
    }
    command.into_bytes()
}

fn write(of: SessionRef) -> Outcome<SessiondRequest> {
    let write = StateWrite::new("k".parse()?, json());
    Ok(SessiondRequest::WriteState {
        request: WriteStateRequest {
            of,
            writes: vec![write],
            request: None,
        },
    })
}

fn append(of: SessionRef, count: usize) -> SessiondRequest {
    let messages = vec![Some(json()); count];
    let request = AppendRequest {
        of,
        stream: StreamId::standalone(),
        request: None,
        messages,
        close: false,
    };
    SessiondRequest::Append { request }
}

fn claim(label: &str) -> Outcome<ClaimRequest> {
    Ok(ClaimRequest {
        label: Some(label.parse()?),
        ..ClaimRequest::default()
    })
}

/// A caller that stores a token into the session of this label.
async fn store(directory: &Path, label: &str) -> Outcome<Caller> {
    let connection = connect(&Directory::at(directory)?, &Start::Never).await?;
    let claimed = connection.claim(PATIENCE, claim(label)?).await??;
    let token = Token::new(vec![b't'; SIZE])?;
    let request = StoreRequest {
        session: claimed.session,
        epoch: claimed.epoch,
        token,
    };
    Caller::raw(directory, &SessiondRequest::StoreToken { request }).await
}
