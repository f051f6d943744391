//! Sessions of a server on turul-mcp-server 0.4 (feature `turul`).

mod events;
mod failure;
mod info;

use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use mcp_sessiond_proto::sessions::{Lifetimes, Session as View, Status};
use mcp_sessiond_proto::state::{STATE_KEYS_MAX, StateWrite};
use mcp_sessiond_proto::{Error, Json, SessionId, StateKey};
use serde_json::Value;
use turul_mcp_protocol::ServerCapabilities;
use turul_mcp_session_storage::{
    SessionInfo, SessionStorage, SessionStorageError as StorageError, SseEvent,
};

use self::failure::{failed, wrong};
use self::info::{Changes, Head};
use crate::error::SessionError;
use crate::session::{Session, Update};
use crate::sessions::{CreateOptions, Sessions};

/// Bytes of values that are asked for, or written, at once: the daemon takes and answers more.
const BYTES: usize = 1024 * 1024;
/// How often a removal is tried again, since somebody else wrote in between.
const TRIES: u32 = 16;
/// A session may have been used for so long after what the daemon has on record of that, in ms.
const NOTED_MS: u64 = 60_000;

/// A session storage for turul. A session ends when turul deletes it, or after its [`Lifetimes`]: by
/// default 30 minutes after its last use.
///
/// - Each value is written by itself, so concurrent writers of different keys lose nothing. Keys
///   have 1 to 240 bytes of text, and do not begin with `mcp.`.
/// - `update_session` writes what its caller has changed since `get_session`; what others have
///   written meanwhile stays. An entry `mcp.turul.got` in the metadata says what has changed: leave
///   it there. More than 50 changed values, or more than 1 MiB, are several writes.
/// - Ids of events are numbers from 1, without gaps, for each session. Where the oldest were pruned,
///   replay begins after them. `event_count` counts those that `delete_events_before` names until
///   the daemon has deleted them.
/// - No late write brings a deleted session back, and its id is not given again. `expire_sessions`
///   may leave a session for a minute longer.
/// - Without a daemon each call is `ConnectionError`, after the timeout of the options.
///
/// ```no_run
/// use mcp_sessiond_client::{Options, Sessions};
/// use mcp_sessiond_client::turul::SessiondStorage;
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // A service of its own: nothing else keeps sessions there.
/// let storage = SessiondStorage::new(Sessions::of_service("shop".parse()?, Options::default()));
/// // McpServer::builder().with_session_storage(std::sync::Arc::new(storage))
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SessiondStorage {
    sessions: Sessions,
    lifetimes: Lifetimes,
}

impl SessiondStorage {
    /// A storage for the sessions of a service.
    #[must_use]
    pub fn new(sessions: Sessions) -> Self {
        Self {
            sessions,
            lifetimes: Lifetimes::default(),
        }
    }

    /// How long new sessions live. By default as the daemon's settings say.
    #[must_use]
    pub fn lifetimes(self, lifetimes: Lifetimes) -> Self {
        Self { lifetimes, ..self }
    }

    async fn make(&self, info: SessionInfo) -> Result<SessionInfo, StorageError> {
        let id = info.session_id.parse::<SessionId>();
        let id = id.map_err(|error| StorageError::InvalidData(error.to_string()))?;
        let options = CreateOptions::default()
            .id(id)
            .lifetimes(self.lifetimes)
            .metadata(Head::of(&info).json()?);
        match self.sessions.create(options).await {
            Ok(_) => Ok(info),
            Err(error @ SessionError::Refused(Error::AlreadyExists | Error::SessionTerminated)) => {
                Err(StorageError::InvalidData(format!(
                    "no session can be created by this id: {error}"
                )))
            }
            Err(error) => Err(failed(error, &info.session_id)),
        }
    }

    /// The session of this id, if there is one.
    async fn find(&self, id: &str) -> Result<Option<Session>, StorageError> {
        // No session has an id that is none.
        let Ok(session) = id.parse() else {
            return Ok(None);
        };
        match self.sessions.open(&session).await {
            Ok(session) => Ok(Some(session)),
            Err(error) if error.is_over() => Ok(None),
            Err(error) => Err(failed(error, id)),
        }
    }

    async fn require(&self, id: &str) -> Result<Session, StorageError> {
        self.find(id)
            .await?
            .ok_or_else(|| StorageError::SessionNotFound(id.to_owned()))
    }

    /// Those that live.
    async fn living(&self) -> Result<Vec<View>, StorageError> {
        let mut all = self
            .sessions
            .list()
            .await
            .map_err(|error| failed(error, ""))?;
        all.retain(|view| view.status != Status::Terminated);
        Ok(all)
    }
}

/// The author's values, and turul's metadata.
async fn values(session: &Session) -> Result<Vec<(StateKey, Json)>, SessionError> {
    let mut keys = session.keys().await?;
    keys.retain(|found| info::is_of_info(&found.key));
    let mut values = Vec::new();
    let mut rest = keys.as_slice();
    while !rest.is_empty() {
        let (part, next) = rest.split_at(first(rest.iter().map(|found| found.bytes as usize)));
        let entries = session
            .read(part.iter().map(|found| found.key.clone()).collect())
            .await?;
        values.extend(
            entries
                .into_iter()
                .filter_map(|entry| entry.value.map(|value| (entry.key, value))),
        );
        rest = next;
    }
    Ok(values)
}

async fn write(session: &Session, mut writes: Vec<StateWrite>) -> Result<(), SessionError> {
    while !writes.is_empty() {
        let sizes = writes
            .iter()
            .map(|write| write.value.as_ref().map_or(0, Json::len));
        let next = writes.split_off(first(sizes));
        session.write(writes).await?;
        writes = next;
    }
    Ok(())
}

/// How many values fit into one call: one at least.
fn first(sizes: impl Iterator<Item = usize>) -> usize {
    let mut sum = 0;
    let fit = sizes.take(STATE_KEYS_MAX).take_while(|size| {
        sum += size;
        sum <= BYTES
    });
    fit.count().max(1)
}

async fn change(session: &Session, changes: Changes) -> Result<(), SessionError> {
    let Changes {
        head,
        mut writes,
        is_whole,
    } = changes;
    if is_whole {
        let there = values(session).await?.into_iter().map(|(key, _)| key);
        let gone: Vec<_> = there
            .filter(|key| writes.iter().all(|write| write.key != *key))
            .collect();
        writes.extend(gone.into_iter().map(StateWrite::remove));
    }
    if head.is_none() && writes.is_empty() {
        return session.touch().await;
    }
    write(session, writes).await?;
    let Some(head) = head else { return Ok(()) };
    let status = if head.is_initialized {
        Status::ready()
    } else {
        Status::Initializing
    };
    let json = head.json().map_err(|_| Error::InvalidArgument {
        sentence: "capabilities are JSON".into(),
    })?;
    session
        .update(Update::default().metadata(json).status(status))
        .await
        .map(drop)
}

/// Removes a value. Returns the one that was removed, and no other.
async fn remove(session: &Session, key: &StateKey) -> Result<Option<Json>, SessionError> {
    let mut tries = 0;
    loop {
        let entry = session.entry(key).await?;
        if entry.value.is_none() {
            return Ok(None);
        }
        match session.compare_and_set(key, entry.version, None).await {
            Ok(_) => return Ok(entry.value),
            Err(SessionError::Refused(Error::VersionConflict { .. })) if tries < TRIES => {
                tries += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn parsed(json: &Json) -> Result<Value, StorageError> {
    serde_json::from_str(json.as_str()).map_err(|error| wrong(&error))
}

#[async_trait]
impl SessionStorage for SessiondStorage {
    type Error = StorageError;

    fn backend_name(&self) -> &'static str {
        "mcp-sessiond"
    }

    async fn create_session(
        &self,
        capabilities: ServerCapabilities,
    ) -> Result<SessionInfo, StorageError> {
        let info = SessionInfo {
            server_capabilities: Some(capabilities),
            ..SessionInfo::new()
        };
        self.make(info).await
    }

    async fn create_session_with_id(
        &self,
        session_id: String,
        capabilities: ServerCapabilities,
    ) -> Result<SessionInfo, StorageError> {
        let info = SessionInfo {
            server_capabilities: Some(capabilities),
            ..SessionInfo::with_id(session_id)
        };
        self.make(info).await
    }

    async fn get_session(&self, session_id: &str) -> Result<Option<SessionInfo>, StorageError> {
        let Some(session) = self.find(session_id).await? else {
            return Ok(None);
        };
        let read = async { Ok((session.view().await?, values(&session).await?)) };
        match read.await {
            Ok((view, _)) if view.status == Status::Terminated => Ok(None),
            Ok((view, values)) => info::read(session_id, &view, values),
            Err(error) if SessionError::is_over(&error) => Ok(None),
            Err(error) => Err(failed(error, session_id)),
        }
    }

    /// Writes what its caller has changed since it got the info, so that what others have written
    /// meanwhile stays. An info that was not got from here takes the place of all that the session
    /// has.
    async fn update_session(&self, session_info: SessionInfo) -> Result<(), StorageError> {
        let id = session_info.session_id.clone();
        let session = self.require(&id).await?;
        let changes = info::changes(session_info)?;
        change(&session, changes)
            .await
            .map_err(|error| failed(error, &id))
    }

    async fn set_session_state(
        &self,
        session_id: &str,
        key: &str,
        value: Value,
    ) -> Result<(), StorageError> {
        let key = info::state_key(key)?;
        let session = self.require(session_id).await?;
        session
            .set(&key, &Json::from(&value))
            .await
            .map(drop)
            .map_err(|error| failed(error, session_id))
    }

    async fn get_session_state(
        &self,
        session_id: &str,
        key: &str,
    ) -> Result<Option<Value>, StorageError> {
        let key = info::state_key(key)?;
        // No error for a session that has ended: turul would answer it from its own memory.
        let Some(session) = self.find(session_id).await? else {
            return Ok(None);
        };
        match session.get(&key).await {
            Ok(value) => value.as_ref().map(parsed).transpose(),
            Err(error) if error.is_over() => Ok(None),
            Err(error) => Err(failed(error, session_id)),
        }
    }

    async fn remove_session_state(
        &self,
        session_id: &str,
        key: &str,
    ) -> Result<Option<Value>, StorageError> {
        let key = info::state_key(key)?;
        let session = self.require(session_id).await?;
        let removed = remove(&session, &key)
            .await
            .map_err(|error| failed(error, session_id))?;
        removed.as_ref().map(parsed).transpose()
    }

    async fn delete_session(&self, session_id: &str) -> Result<bool, StorageError> {
        let Some(session) = self.find(session_id).await? else {
            return Ok(false);
        };
        match session.terminate().await {
            Ok(()) => Ok(true),
            Err(error) if error.is_over() => Ok(false),
            Err(error) => Err(failed(error, session_id)),
        }
    }

    async fn list_sessions(&self) -> Result<Vec<String>, StorageError> {
        Ok(self
            .living()
            .await?
            .into_iter()
            .map(|view| view.session.to_string())
            .collect())
    }

    async fn store_event(
        &self,
        session_id: &str,
        event: SseEvent,
    ) -> Result<SseEvent, StorageError> {
        events::store(&self.require(session_id).await?, session_id, event).await
    }

    async fn get_events_after(
        &self,
        session_id: &str,
        after_event_id: u64,
    ) -> Result<Vec<SseEvent>, StorageError> {
        let Some(session) = self.find(session_id).await? else {
            return Ok(Vec::new());
        };
        Ok(events::after(&session, session_id, after_event_id)
            .await?
            .unwrap_or_default())
    }

    async fn get_recent_events(
        &self,
        session_id: &str,
        limit: usize,
    ) -> Result<Vec<SseEvent>, StorageError> {
        let mut events = self.get_events_after(session_id, 0).await?;
        Ok(events.split_off(events.len().saturating_sub(limit)))
    }

    async fn delete_events_before(
        &self,
        session_id: &str,
        before_event_id: u64,
    ) -> Result<u64, StorageError> {
        let Some(session) = self.find(session_id).await? else {
            return Ok(0);
        };
        match events::drop_before(&session, before_event_id).await {
            Err(error) if error.is_over() => Ok(0),
            dropped => dropped.map_err(|error| failed(error, session_id)),
        }
    }

    /// Ends those that nobody has used since. The daemon notes uses of a session once a minute, so
    /// one may stay for a minute longer.
    async fn expire_sessions(&self, older_than: SystemTime) -> Result<Vec<String>, StorageError> {
        let until = older_than
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let mut expired = Vec::new();
        for view in self.living().await? {
            let used_ms = view.active_ms.saturating_add(NOTED_MS);
            let id = view.session.to_string();
            if view.attached == 0 && u128::from(used_ms) < until && self.delete_session(&id).await?
            {
                expired.push(id);
            }
        }
        Ok(expired)
    }

    async fn session_count(&self) -> Result<usize, StorageError> {
        Ok(self.living().await?.len())
    }

    async fn event_count(&self) -> Result<usize, StorageError> {
        Ok(self
            .living()
            .await?
            .iter()
            .map(|view| view.events as usize)
            .sum())
    }

    /// The daemon does that by itself.
    async fn maintenance(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
