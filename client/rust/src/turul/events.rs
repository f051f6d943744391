//! What is said in a session: events of turul's as messages of the standalone stream, with the
//! numbers of the session as their ids.

use mcp_sessiond_proto::state::StateEntry;
use mcp_sessiond_proto::streams::{Cursor, Event};
use mcp_sessiond_proto::{Error, Json, StateKey, StreamId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use turul_mcp_session_storage::{SessionStorageError as StorageError, SseEvent};

use super::failure::{failed, wrong};
use crate::error::SessionError;
use crate::session::Session;

/// The key of the state that says from which number on events count.
const FLOOR: &str = "mcp.turul.events_from";

/// What is kept of an event.
#[derive(Serialize, Deserialize)]
struct StoredEvent {
    timestamp: u64,
    event_type: String,
    data: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<u32>,
}

pub(super) async fn store(
    session: &Session,
    id: &str,
    event: SseEvent,
) -> Result<SseEvent, StorageError> {
    let SseEvent {
        timestamp,
        event_type,
        data,
        retry,
        ..
    } = event;
    let kept = StoredEvent {
        timestamp,
        event_type,
        data,
        retry,
    };
    let message = Json::trusted(serde_json::to_string(&kept).map_err(|error| wrong(&error))?);
    let appended = session
        .standalone()
        .append(message)
        .await
        .map_err(|error| failed(error, id))?;
    let StoredEvent {
        timestamp,
        event_type,
        data,
        retry,
    } = kept;
    Ok(SseEvent {
        id: appended.number,
        timestamp,
        event_type,
        data,
        retry,
    })
}

/// The events after a number. None: the session is gone.
pub(super) async fn after(
    session: &Session,
    id: &str,
    number: u64,
) -> Result<Option<Vec<SseEvent>>, StorageError> {
    match read(session, number).await {
        Ok(events) => Ok(Some(
            events.iter().map(sse_event).collect::<Result<_, _>>()?,
        )),
        Err(error) if error.is_over() => Ok(None),
        Err(error) => Err(failed(error, id)),
    }
}

/// Events before this number count no more. Returns how many that are. The daemon deletes them when
/// they are too old or too many: to delete them by their count here could hit newer ones, since
/// another process may store events meanwhile.
pub(super) async fn drop_before(session: &Session, number: u64) -> Result<u64, SessionError> {
    loop {
        let entry = session.entry(&floor_key()).await?;
        if number <= from(&entry)? {
            return Ok(0);
        }
        let mut events = read(session, 0).await?;
        events.retain(|event| event.number < number);
        // Not `number` itself: it may be one that the session has not come to, and what comes later
        // counts.
        let Some(last) = events.last() else {
            return Ok(0);
        };
        let next = Json::trusted((last.number + 1).to_string());
        match session
            .compare_and_set(&floor_key(), entry.version, Some(&next))
            .await
        {
            Ok(_) => return Ok(events.len() as u64),
            // Another process has raised the number. It never falls.
            Err(SessionError::Refused(Error::VersionConflict { .. })) => {}
            Err(error) => return Err(error),
        }
    }
}

fn floor_key() -> StateKey {
    FLOOR.parse().expect("a key")
}

fn from(floor: &StateEntry) -> Result<u64, SessionError> {
    Ok(floor
        .value
        .as_ref()
        .map_or(Ok(0), |value| serde_json::from_str(value.as_str()))?)
}

async fn read(session: &Session, number: u64) -> Result<Vec<Event>, SessionError> {
    let from = from(&session.entry(&floor_key()).await?)?.max(number.saturating_add(1));
    let replayed = match session.replay_all(&Cursor::Number(from - 1)).await {
        // There is nothing after a number that the session has not come to.
        Err(SessionError::Refused(Error::UnknownCursor)) => return Ok(Vec::new()),
        replayed => replayed?,
    };
    let standalone = StreamId::standalone();
    Ok(replayed
        .events
        .into_iter()
        .filter(|event| event.stream == standalone)
        .collect())
}

fn sse_event(event: &Event) -> Result<SseEvent, StorageError> {
    let kept = serde_json::from_str(event.message.as_str()).map_err(|error| wrong(&error))?;
    let StoredEvent {
        timestamp,
        event_type,
        data,
        retry,
    } = kept;
    Ok(SseEvent {
        id: event.number,
        timestamp,
        event_type,
        data,
        retry,
    })
}
