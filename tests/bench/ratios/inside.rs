//! The same work without a socket: our sessions' contents as a library, over memory and SQLite.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use mcp_sessiond_daemon::contents::{Access, Bounds, Clock, Contents};
use mcp_sessiond_daemon::storage::{Durability, Memory, Sqlite, Storage};
use mcp_sessiond_proto::sessions::{CreateRequest, SessionRef};
use mcp_sessiond_proto::state::{ReadStateRequest, StateWrite, WriteStateRequest};
use mcp_sessiond_proto::streams::{AppendRequest, Cursor, ReplayRequest};
use mcp_sessiond_proto::{SessionId, StreamId};

use crate::caller::Outcome;
use crate::work::json;
use crate::{MANY, median, micros};

/// What is done, and how often in a round by one caller.
const PARTS: [(&str, usize); 4] = [
    ("state set", 500),
    ("state get", 500),
    ("event stored", 500),
    ("100 events replayed", 100),
];

/// Where the sessions are.
pub(crate) struct Inside {
    name: &'static str,
    contents: Arc<Contents>,
}

/// The backends, each with the sessions of its callers.
pub(crate) async fn all(scratch: &Path) -> Outcome<Vec<Inside>> {
    let sqlite = |name: &str, durability| -> Outcome<Arc<dyn Storage>> {
        Ok(Arc::new(Sqlite::open(&scratch.join(name), durability)?))
    };
    let storages: [(&str, Arc<dyn Storage>); 3] = [
        ("memory", Arc::new(Memory::default())),
        ("SQLite, process", sqlite("inside.db", Durability::Process)?),
        (
            "SQLite, power",
            sqlite("inside-power.db", Durability::Power)?,
        ),
    ];
    let mut all = Vec::new();
    for (name, storage) in storages {
        let clock = Arc::new(Clock::system());
        let contents = Arc::new(Contents::new(
            storage,
            clock,
            Bounds::default(),
            Arc::default(),
        ));
        for (part, _) in PARTS {
            for index in 0..MANY {
                let access = access(part, index)?;
                contents.create(&access, &CreateRequest::default()).await?;
                contents.write_state(&access, &write(&access)?).await?;
                if part == "100 events replayed" {
                    contents.append(&access, &append(&access, 100)?).await?;
                }
            }
        }
        all.push(Inside { name, contents });
    }
    Ok(all)
}

impl Inside {
    /// One round: for each part its name, what a call took in µs, and how many a second fifty
    /// callers came to.
    pub(crate) async fn round(&self) -> Outcome<Vec<(String, f64, f64)>> {
        let mut round = Vec::new();
        for (part, calls) in PARTS {
            let caller = Caller::new(&self.contents, part, 0)?;
            let mut took = Vec::with_capacity(calls);
            for _ in 0..calls {
                let began = Instant::now();
                caller.call().await?;
                took.push(micros(began.elapsed()));
            }
            let each = calls / 10;
            let began = Instant::now();
            let mut tasks = tokio::task::JoinSet::new();
            for index in 0..MANY {
                let caller = Caller::new(&self.contents, part, index)?;
                tasks.spawn(async move {
                    for _ in 0..each {
                        caller.call().await?;
                    }
                    Outcome::Ok(())
                });
            }
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            let rate = (MANY * each) as f64 / began.elapsed().as_secs_f64();
            round.push((format!("{part}, {}", self.name), median(&took), rate));
        }
        Ok(round)
    }
}

/// Somebody who asks the same again and again.
struct Caller {
    contents: Arc<Contents>,
    access: Access,
    ask: Ask,
}

enum Ask {
    Set(WriteStateRequest),
    Get(ReadStateRequest),
    Store(AppendRequest),
    Replay(ReplayRequest),
}

impl Caller {
    fn new(contents: &Arc<Contents>, part: &str, index: usize) -> Outcome<Self> {
        let access = access(part, index)?;
        let of = of(&access)?;
        let ask = match part {
            "state set" => Ask::Set(write(&access)?),
            "state get" => Ask::Get(ReadStateRequest {
                of,
                keys: vec!["k".parse()?],
            }),
            "event stored" => Ask::Store(append(&access, 1)?),
            _ => {
                let after = Cursor::Stream(StreamId::standalone());
                Ask::Replay(ReplayRequest {
                    of,
                    after,
                    most: None,
                })
            }
        };
        Ok(Self {
            contents: contents.clone(),
            access,
            ask,
        })
    }

    async fn call(&self) -> Outcome<()> {
        let Self {
            contents,
            access,
            ask,
        } = self;
        match ask {
            Ask::Set(request) => drop(contents.write_state(access, request).await?),
            Ask::Get(request) => drop(contents.read_state(access, request).await?),
            Ask::Store(request) => drop(contents.append(access, request).await?),
            Ask::Replay(request) => drop(contents.replay(access, request).await?),
        }
        Ok(())
    }
}

fn access(part: &str, index: usize) -> Outcome<Access> {
    let session: SessionId = format!("{}-{index}", part.replace(' ', "-")).parse()?;
    Ok(Access::service(&"bench".parse()?, &session, None))
}

fn of(access: &Access) -> Outcome<SessionRef> {
    let session = access.place.name.parse()?;
    Ok(SessionRef {
        session,
        service: Some("bench".parse()?),
        epoch: None,
        caller: None,
    })
}

fn write(access: &Access) -> Outcome<WriteStateRequest> {
    let write = StateWrite::new("k".parse()?, json());
    Ok(WriteStateRequest {
        of: of(access)?,
        writes: vec![write],
        request: None,
    })
}

fn append(access: &Access, count: usize) -> Outcome<AppendRequest> {
    let messages = vec![Some(json()); count];
    Ok(AppendRequest {
        of: of(access)?,
        stream: StreamId::standalone(),
        request: None,
        messages,
        close: false,
    })
}
