//! Calls that are on their way to a server, where nobody keeps it. What a server has not taken is
//! in the memory of this process, so it is to be known how much that is.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use mcp_sessiond_bundle::Message;
use tokio::sync::oneshot;

use crate::which::Id;

/// What has become of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    /// A server has it, or nobody will get it.
    Taken,
    /// The client has cancelled it. Its line may still be on its way.
    Cancelled,
}

/// The calls of one session that no server has taken.
#[derive(Debug, Default)]
pub(super) struct Untaken(Mutex<HashMap<Id, oneshot::Sender<Came>>>);

/// Waits for one of them.
#[derive(Debug)]
pub(super) struct Waiting<'a> {
    untaken: &'a Untaken,
    id: Id,
    came: oneshot::Receiver<Came>,
}

impl Untaken {
    fn all(&self) -> MutexGuard<'_, HashMap<Id, oneshot::Sender<Came>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls of a line, which is about to be sent.
    pub(super) fn add(&self, line: &Bytes) -> Vec<Waiting<'_>> {
        let call = |id: Id| {
            let (come, came) = oneshot::channel();
            self.all().insert(id.clone(), come);
            Waiting {
                untaken: self,
                id,
                came,
            }
        };
        calls(line).into_iter().map(call).collect()
    }

    /// Those calls of a line that are waited for.
    pub(super) fn among(&self, line: &Bytes) -> Vec<Id> {
        if self.all().is_empty() {
            return Vec::new();
        }
        let all = calls(line);
        all.into_iter()
            .filter(|id| self.all().contains_key(id))
            .collect()
    }

    /// This has become of the call.
    pub(super) fn came(&self, id: &str, came: Came) {
        if let Some(waiting) = self.all().remove(id) {
            let _ = waiting.send(came);
        }
    }

    /// Whether nothing is waited for.
    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
}

impl Waiting<'_> {
    /// What has become of it.
    pub(super) async fn wait(&mut self) -> Came {
        (&mut self.came).await.unwrap_or(Came::Taken)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.untaken.all().remove(&self.id);
    }
}

/// The ids of the calls of a line.
fn calls(line: &Bytes) -> Vec<Id> {
    let id = |message: Message| match message {
        Message::Request { id, .. } => Some(Id::from(id.as_json())),
        Message::Notification { .. } | Message::Answer { .. } => None,
    };
    Message::read(line).into_iter().filter_map(id).collect()
}
