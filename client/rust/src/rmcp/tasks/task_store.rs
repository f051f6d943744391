//! Where the tasks are. MCP 2026-07-28 has no sessions, so each task has one of its own, which is
//! bound to the task's caller. Its id begins the task's, so that any process of the service finds
//! it, whatever it is written in.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mcp_sessiond_proto::sessions::{Binding, Caller, Lifetimes, OnMismatch, Status};
use mcp_sessiond_proto::tasks::Task as View;
use mcp_sessiond_proto::{Error, SessionId, TaskId};
use rmcp::ErrorData;

use super::wire::{not_found, refused};
use crate::error::SessionError;
use crate::session::{Task, TaskOptions};
use crate::sessions::{CreateOptions, Sessions};

/// Random bytes of a session's id. With the daemon's own, a task's id has 48.
const ID_BYTES: usize = 16;
/// Letters of such an id.
const ID_LETTERS: usize = 22;
/// How long a session lives beside its task, in ms: until the task is created.
const IDLE_MS: u64 = 60_000;

/// Creates a task of a caller's. It is kept, and its id may be told, when this returns.
pub(super) async fn create(
    sessions: &Sessions,
    caller: Option<Caller>,
    options: TaskOptions,
) -> Result<(String, Task, View), SessionError> {
    let lifetimes = Lifetimes {
        idle_ms: Some(IDLE_MS),
        ..Lifetimes::default()
    };
    let mut making = CreateOptions::default()
        .id(fresh_id()?)
        .status(Status::ready())
        .lifetimes(lifetimes);
    if let Some(caller) = caller {
        making = making.binding(Binding {
            caller,
            on_mismatch: OnMismatch::Refuse,
        });
    }
    let session = sessions.create(making).await?;
    let (task, view) = session.create_task(options).await?;
    Ok((format!("{}.{}", session.id(), task.id()), task, view))
}

fn fresh_id() -> Result<SessionId, SessionError> {
    let refused = |sentence: String| SessionError::Refused(Error::InvalidArgument { sentence });
    let mut bytes = [0; ID_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| refused(format!("there are no random bytes: {error}")))?;
    let id = URL_SAFE_NO_PAD.encode(bytes);
    id.parse()
        .map_err(|_| refused(format!("{id:?} is not the id of a session")))
}

/// The task that a caller means by an id. Another caller's is answered as one that is not there.
pub(super) async fn find(
    sessions: &Sessions,
    caller: Option<Caller>,
    id: &str,
) -> Result<Task, ErrorData> {
    let (session, task) = parted(id).ok_or_else(not_found)?;
    let Some(caller) = caller else {
        return Ok(sessions.at(session).ok_or_else(not_found)?.task(task));
    };
    let session = sessions
        .on_behalf_of(caller)
        .at(session)
        .ok_or_else(not_found)?;
    // What nobody in particular has begun is not for those that have a name: somebody could have
    // foisted it on them.
    if !session.view().await.map_err(|error| refused(&error))?.bound {
        return Err(not_found());
    }
    Ok(session.task(task))
}

fn parted(id: &str) -> Option<(SessionId, TaskId)> {
    let is_ours = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let (session, task) = id.split_once('.')?;
    if session.len() != ID_LETTERS || !is_ours(session) || !is_ours(task) {
        return None;
    }
    Some((session.parse().ok()?, task.parse().ok()?))
}
