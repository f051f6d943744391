//! Who reads which stream in this process: one connection for each stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcp_sessiond_proto::{SessionId, StreamId};
use tokio::sync::Notify;

type Name = (SessionId, StreamId);

/// The readers of all streams.
#[derive(Debug, Default, Clone)]
pub(super) struct Readers(Arc<Mutex<HashMap<Name, Arc<Notify>>>>);

/// The slot of one reader, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ClientSlot {
    readers: Readers,
    name: Name,
    end: Arc<Notify>,
}

impl Readers {
    fn all(&self) -> MutexGuard<'_, HashMap<Name, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a reader. The former one's connection ends: each message goes to one.
    pub(super) fn register(&self, session: &SessionId, stream: &StreamId) -> ClientSlot {
        let (name, end) = ((session.clone(), stream.clone()), Arc::<Notify>::default());
        if let Some(former) = self.all().insert(name.clone(), end.clone()) {
            former.notify_one();
        }
        ClientSlot {
            readers: self.clone(),
            name,
            end,
        }
    }

    /// The session has ended, and with it the connections of its readers.
    pub(super) fn end(&self, session: &SessionId) {
        let is_of = |(of, _): &Name, _: &mut Arc<Notify>| of == session;
        self.all()
            .extract_if(is_of)
            .for_each(|(_, end)| end.notify_one());
    }
}

impl ClientSlot {
    /// Another reader has come, or the session has ended.
    pub(super) async fn ended(&self) {
        self.end.notified().await;
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let mut all = self.readers.all();
        if all
            .get(&self.name)
            .is_some_and(|end| Arc::ptr_eq(end, &self.end))
        {
            all.remove(&self.name);
        }
    }
}
