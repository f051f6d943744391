//! Sessions of a web site, by tower-sessions 0.15 (feature `tower-sessions`).

use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use mcp_sessiond_proto::sessions::{Lifetimes, Status};
use mcp_sessiond_proto::state::StateWrite;
use mcp_sessiond_proto::{Error, Json, SessionId, StateKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tower_sessions_core::SessionStore;
use tower_sessions_core::session::{Id, Record};
use tower_sessions_core::session_store::{Error as StoreError, Result as Stored};

use crate::error::SessionError;
use crate::session::{Session, Update};
use crate::sessions::{CreateOptions, Sessions};

/// The key of a session's state that has what tower-sessions keeps.
const KEY: &str = "mcp.tower_sessions";
/// How often an id is drawn again that is somebody's already. They have 128 bits.
const TRIES: u32 = 4;

/// A store for tower-sessions. A session ends when its record expires. The daemon gets a hash of
/// each session's id, never the id.
///
/// ```no_run
/// use mcp_sessiond_client::{Options, Sessions};
/// use mcp_sessiond_client::tower_sessions::SessiondStore;
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // A service of its own: nothing else keeps sessions there.
/// let store = SessiondStore::new(Sessions::of_service("web".parse()?, Options::default()));
/// // let layer = tower_sessions::SessionManagerLayer::new(store);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SessiondStore {
    sessions: Sessions,
}

/// What is kept of a record.
#[derive(Serialize, Deserialize)]
struct StoredRecord<T> {
    data: T,
    /// Nanoseconds since 1970.
    expires: i128,
}

impl SessiondStore {
    /// A store for the sessions of a service.
    #[must_use]
    pub fn new(sessions: Sessions) -> Self {
        Self { sessions }
    }

    async fn open(&self, id: &Id) -> Result<Option<Session>, SessionError> {
        match self.sessions.open(&hashed(id)).await {
            Ok(session) => Ok(Some(session)),
            Err(error) if error.is_over() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn make(&self, record: &Record) -> Result<Session, SessionError> {
        let options = CreateOptions::default()
            .id(hashed(&record.id))
            .status(Status::ready())
            .lifetimes(lifetimes(record));
        self.sessions.create(options).await
    }
}

#[async_trait]
impl SessionStore for SessiondStore {
    async fn create(&self, record: &mut Record) -> Stored<()> {
        for _ in 0..TRIES {
            match self.make(record).await {
                Ok(session) => return write(&session, record).await.map_err(failed),
                Err(SessionError::Refused(Error::AlreadyExists | Error::SessionTerminated)) => {
                    record.id = Id::default();
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(StoreError::Backend("no unused id could be drawn".into()))
    }

    async fn save(&self, record: &Record) -> Stored<()> {
        if record.expiry_date.unix_timestamp_nanos() <= now() {
            return self.delete(&record.id).await;
        }
        let session = match self.sessions.open(&hashed(&record.id)).await {
            Ok(session) => {
                let update = Update::default().lifetimes(lifetimes(record));
                session.update(update).await.map(|_| session)
            }
            Err(SessionError::Refused(Error::UnknownSession)) => self.make(record).await,
            Err(error) => Err(error),
        };
        let saved = match session {
            Ok(session) => write(&session, record).await,
            Err(error) => Err(error),
        };
        match saved {
            // A session that was deleted is not there again by a late write.
            Err(error) if error.is_over() => Ok(()),
            saved => saved.map_err(failed),
        }
    }

    async fn load(&self, id: &Id) -> Stored<Option<Record>> {
        let Some(session) = self.open(id).await.map_err(failed)? else {
            return Ok(None);
        };
        let kept = match session.get(&key()).await {
            Err(error) if error.is_over() => None,
            kept => kept.map_err(failed)?,
        };
        let Some(kept) = kept else { return Ok(None) };
        let wrong = |error: serde_json::Error| {
            StoreError::Decode(format!("line {}, column {}", error.line(), error.column()))
        };
        let StoredRecord { data, expires } = serde_json::from_str(kept.as_str()).map_err(wrong)?;
        let expiry_date = time::OffsetDateTime::from_unix_timestamp_nanos(expires);
        let expiry_date = expiry_date.map_err(|error| StoreError::Decode(error.to_string()))?;
        let record = Record {
            id: *id,
            data,
            expiry_date,
        };
        Ok((expires > now()).then_some(record))
    }

    async fn delete(&self, id: &Id) -> Stored<()> {
        let Some(session) = self.open(id).await.map_err(failed)? else {
            return Ok(());
        };
        match session.terminate().await {
            Err(error) if error.is_over() => Ok(()),
            ended => ended.map_err(failed),
        }
    }
}

async fn write(session: &Session, record: &Record) -> Result<(), SessionError> {
    let kept = StoredRecord {
        data: &record.data,
        expires: record.expiry_date.unix_timestamp_nanos(),
    };
    let value = Some(Json::trusted(serde_json::to_string(&kept)?));
    let write = StateWrite {
        key: key(),
        value,
        expected: None,
        expires_ms: Some(left_ms(record)),
    };
    session.write(vec![write]).await.map(drop)
}

fn key() -> StateKey {
    KEY.parse().expect("a key")
}

/// The id that the daemon gets.
fn hashed(id: &Id) -> SessionId {
    let hash = Sha256::digest(id.0.to_le_bytes());
    let text: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    text.parse().expect("letters and digits")
}

/// For how long a record is good, in ms: 1 at least, since 0 is for ever.
fn left_ms(record: &Record) -> u64 {
    let left = record
        .expiry_date
        .unix_timestamp_nanos()
        .saturating_sub(now());
    u64::try_from(left / 1_000_000).unwrap_or(0).max(1)
}

fn lifetimes(record: &Record) -> Lifetimes {
    Lifetimes {
        idle_ms: Some(left_ms(record)),
        ..Lifetimes::default()
    }
}

fn now() -> i128 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` calls")]
fn failed(error: SessionError) -> StoreError {
    StoreError::Backend(error.to_string())
}
