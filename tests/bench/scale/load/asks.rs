//! What is said to whom, as bytes.

use std::path::Path;

use mcp_sessiond_client::{Directory, Start, connect};
use mcp_sessiond_proto::service::SessiondRequest;
use mcp_sessiond_proto::sessions::{CreateRequest, SessionRef};
use mcp_sessiond_proto::state::{ReadStateRequest, StateWrite, WriteStateRequest};
use mcp_sessiond_proto::streams::{APPEND_MAX, AppendRequest, Cursor, ReplayRequest};
use mcp_sessiond_proto::{Json, ServiceName, StreamId};

use crate::Outcome;
use crate::order::{Ask, Order, Peer};

/// Events that are replayed.
const REPLAYED: usize = 100;
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// What is asked of one peer.
pub(crate) struct Asks {
    of: Peer,
    ask: Ask,
    name: String,
    value: String,
    events: usize,
}

/// A call as PROTOCOL.md has it.
#[derive(serde::Serialize)]
struct Call<'a> {
    id: u64,
    deadline_ms: u64,
    call: &'a SessiondRequest,
}

impl Asks {
    pub(crate) fn new(of: &Peer, order: &Order) -> Self {
        // A JSON string of that size.
        let value = format!("\"{}\"", "v".repeat(order.bytes.saturating_sub(2)));
        Self {
            of: of.clone(),
            ask: order.ask,
            name: order.name.clone(),
            value,
            events: order.events,
        }
    }

    /// What makes a session: it has a value, or, where there are to be any, events.
    pub(crate) fn filling(&self, number: u64) -> Outcome<Vec<Vec<u8>>> {
        let Peer::Daemon(_) = self.of else {
            return Ok(self.redis_filling(number));
        };
        let of = self.session(number)?;
        let request = CreateRequest {
            session: Some(of.session.clone()),
            service: of.service.clone(),
            ..CreateRequest::default()
        };
        let mut all = vec![frame(&SessiondRequest::CreateSession { request })?];
        if self.events == 0 {
            all.push(frame(&self.write(of.clone())?)?);
        }
        for start in (0..self.events).step_by(APPEND_MAX) {
            let some = (self.events - start).min(APPEND_MAX);
            all.push(frame(&self.append(of.clone(), some))?);
        }
        Ok(all)
    }

    /// One call to the session of this number.
    pub(crate) async fn one(&self, number: u64) -> Outcome<Vec<u8>> {
        let Peer::Daemon(directory) = &self.of else {
            return Ok(self.redis_one(number));
        };
        let of = self.session(number)?;
        frame(&match self.ask {
            Ask::Get => SessiondRequest::ReadState {
                request: ReadStateRequest {
                    of,
                    keys: vec!["k".parse()?],
                },
            },
            Ask::Set => self.write(of)?,
            Ask::Append => self.append(of, 1),
            Ask::Begin => replay(of, Cursor::Stream(StreamId::standalone()), REPLAYED),
            Ask::End => {
                let after = self.before_the_last(directory, of.clone()).await?;
                replay(of, after, REPLAYED)
            }
        })
    }

    fn session(&self, number: u64) -> Outcome<SessionRef> {
        let service: ServiceName = "bench".parse()?;
        let session = format!("{}-{number}", self.name).parse()?;
        Ok(SessionRef {
            session,
            service: Some(service),
            epoch: None,
            caller: None,
        })
    }

    fn write(&self, of: SessionRef) -> Outcome<SessiondRequest> {
        let write = StateWrite::new("k".parse()?, Json::trusted(self.value.clone()));
        Ok(SessiondRequest::WriteState {
            request: WriteStateRequest {
                of,
                writes: vec![write],
                request: None,
            },
        })
    }

    fn append(&self, of: SessionRef, count: usize) -> SessiondRequest {
        let messages = vec![Some(Json::trusted(self.value.clone())); count];
        let stream = StreamId::standalone();
        SessiondRequest::Append {
            request: AppendRequest {
                of,
                stream,
                request: None,
                messages,
                close: false,
            },
        }
    }

    /// What a client brings as `Last-Event-ID` that lacks the last hundred events.
    async fn before_the_last(&self, directory: &Path, of: SessionRef) -> Outcome<Cursor> {
        let Some(number) = self.events.checked_sub(REPLAYED + 1) else {
            return Ok(Cursor::Stream(StreamId::standalone()));
        };
        let connection = connect(&Directory::at(directory)?, &Start::Never).await?;
        let request = ReplayRequest {
            of,
            after: Cursor::Number(number as u64),
            most: Some(1),
        };
        let replayed = connection.replay(PATIENCE, request).await??;
        Ok(Cursor::Event(
            replayed
                .events
                .into_iter()
                .next()
                .ok_or("no such event")?
                .id,
        ))
    }

    fn redis_filling(&self, number: u64) -> Vec<Vec<u8>> {
        let key = format!("{}-{number}", self.name);
        if self.events == 0 {
            return vec![command(&["SET", &key, &self.value])];
        }
        let add = |event| command(&["XADD", &key, &format!("1-{event}"), "m", &self.value]);
        (1..=self.events).map(add).collect()
    }

    fn redis_one(&self, number: u64) -> Vec<u8> {
        let key = format!("{}-{number}", self.name);
        let most = REPLAYED.to_string();
        let after = format!("(1-{}", self.events.saturating_sub(REPLAYED));
        match self.ask {
            Ask::Get => command(&["GET", &key]),
            Ask::Set => command(&["SET", &key, &self.value]),
            Ask::Append => command(&["XADD", &key, "*", "m", &self.value]),
            Ask::Begin => command(&["XRANGE", &key, "-", "+", "COUNT", &most]),
            Ask::End => command(&["XRANGE", &key, &after, "+", "COUNT", &most]),
        }
    }
}

fn replay(of: SessionRef, after: Cursor, most: usize) -> SessiondRequest {
    SessiondRequest::Replay {
        request: ReplayRequest {
            of,
            after,
            most: u32::try_from(most).ok(),
        },
    }
}

fn frame(call: &SessiondRequest) -> Outcome<Vec<u8>> {
    let body = rmp_serde::to_vec_named(&Call {
        id: 1,
        deadline_ms: 30_000,
        call,
    })?;
    let mut frame = u32::try_from(body.len())?.to_be_bytes().to_vec();
    frame.extend(body);
    Ok(frame)
}

/// As Redis reads it.
fn command(words: &[&str]) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command += &format!("${}\r\n{word}\r\n", word.len());
    }
    command.into_bytes()
}
