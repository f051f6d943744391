//! The sessions that this process serves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mcp_sessiond_client::{Caller, SessionId};
use serde_json::value::RawValue;
use tokio::sync::OnceCell;
use tokio::time::sleep;

use crate::live::{Began, Live, Shared};
use crate::refusal::Refusal;

/// How often it is looked whether sessions are in use, as a part of how long they may be idle.
const LOOKS: u32 = 4;

type Slot = Arc<OnceCell<Arc<Live>>>;

/// The sessions that were begun here, or found on record since this process was started.
pub struct Table {
    shared: Arc<Shared>,
    slots: Mutex<HashMap<SessionId, Slot>>,
    /// Those that are about to begin.
    beginning: Arc<()>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Table({})", self.slots().len())
    }
}

impl Table {
    /// None yet.
    #[must_use]
    pub fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), slots: Mutex::default(), beginning: Arc::default() }
    }

    /// What they share.
    #[must_use]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<SessionId, Slot>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|_, slot| slot.get().is_none_or(|live| !live.has_ended()));
        slots
    }

    /// Begins a session.
    ///
    /// # Errors
    /// Where there are as many as there may be, no daemon, or no server.
    pub async fn begin(&self, caller: Caller, params: Box<RawValue>) -> Result<Began, Refusal> {
        let beginning = {
            let slots = self.slots();
            let beginning = self.beginning.clone();
            // This one holds it, too, and so does the table.
            self.room(served(&slots) + Arc::strong_count(&beginning) - 2)?;
            beginning
        };
        let began = Live::begin(&self.shared, caller, params).await;
        if let Ok(Began::Session(live)) = &began {
            let slot = Arc::new(OnceCell::new_with(Some(live.clone())));
            self.slots().insert(live.id().clone(), slot);
        }
        drop(beginning);
        began
    }

    fn room(&self, count: usize) -> Result<(), Refusal> {
        let most = self.shared.settings.sessions;
        if count < most {
            return Ok(());
        }
        let message =
            format!("there are {count} sessions, and no more than {most} at one time (http.sessions)");
        Err(Refusal::for_now(message))
    }

    /// The session of an id, on behalf of a caller. One that another process has served is taken up.
    ///
    /// # Errors
    /// Where there is none, it is somebody else's, or there is no daemon.
    pub async fn find(&self, id: &SessionId, caller: &Caller) -> Result<Arc<Live>, Refusal> {
        let slot = {
            let mut slots = self.slots();
            match slots.get(id) {
                Some(slot) => slot.clone(),
                None => {
                    self.room(served(&slots))?;
                    slots.entry(id.clone()).or_default().clone()
                }
            }
        };
        let found = slot.get_or_try_init(|| Live::restore(&self.shared, caller.clone(), id)).await;
        if found.is_err() {
            let mut slots = self.slots();
            if slots.get(id).is_some_and(|held| Arc::ptr_eq(held, &slot) && held.get().is_none()) {
                slots.remove(id);
            }
        }
        let live = found?;
        live.admit(caller)?;
        Ok(live.clone())
    }

    /// Ends sessions that are idle for too long, for as long as this is polled.
    pub async fn look_after(&self) {
        let idle = self.shared.settings.idle;
        if idle.is_zero() {
            return std::future::pending().await;
        }
        loop {
            sleep(idle / LOOKS).await;
            let lives: Vec<_> = self.slots().values().filter_map(|slot| slot.get().cloned()).collect();
            futures::future::join_all(lives.iter().map(|live| live.look())).await;
        }
    }

    /// Lets go of all sessions. They stay, with their servers.
    pub fn close(&self) {
        self.slots().drain().filter_map(|(_, slot)| slot.get().cloned()).for_each(|live| live.close());
    }

    /// Ends all sessions.
    pub async fn end(&self) {
        let lives: Vec<_> = self.slots().drain().filter_map(|(_, slot)| slot.get().cloned()).collect();
        futures::future::join_all(lives.iter().map(|live| async {
            drop(live.end().await);
        }))
        .await;
    }
}

/// Sessions that are there, and not only asked for.
fn served(slots: &HashMap<SessionId, Slot>) -> usize {
    slots.values().filter(|slot| slot.initialized()).count()
}
