//! The sessions that this process serves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::Bytes;
use mcp_sessiond_client::{Caller, SessionId};
use serde_json::value::RawValue;
use tokio::sync::OnceCell;
use tokio::time::{Duration, sleep};

use crate::admission::only_caller;
use crate::live::{Beginning, Disuse, Live, Shared, terminate};
use crate::modern::{self, Callers};
use crate::refusal::Refusal;
use crate::stderr::warn;

/// So many times within `http.idle_ms` each session is checked for whether it is in use.
const CHECKS: u32 = 4;

/// A session whose client holds a stream and calls nothing makes room after this part of `http.idle_ms`, five minutes by default.
const READ_PART: u32 = 6;

/// A client that finds no room need not stay away for longer: other sessions may end by themselves.
const RETRY_MOST: Duration = Duration::from_secs(60);

type Slot = Arc<OnceCell<Arc<Live>>>;

/// The sessions that this process has begun, or has taken up from a former one.
pub struct Table {
    shared: Arc<Shared>,
    slots: Mutex<HashMap<SessionId, Slot>>,
    /// One reference for each session that is about to begin, and one for the table.
    beginning: Arc<()>,
    modern: Arc<Callers>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Table({})", self.slots().len())
    }
}

impl Table {
    /// A table with no sessions.
    pub fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            slots: Mutex::default(),
            beginning: Arc::default(),
            modern: Arc::default(),
        }
    }

    /// What all sessions share.
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
    /// When there are as many sessions as there may be and all are in use, no daemon, or no server
    /// can be started.
    pub async fn begin(&self, caller: Caller, params: Box<RawValue>) -> Result<Beginning, Refusal> {
        let beginning = loop {
            match self.reserve() {
                Ok(beginning) => break beginning,
                Err(refusal) => self.make_room(&caller, refusal).await?,
            }
        };
        let began = Live::begin(&self.shared, caller, params).await?;
        if let Beginning::Session(live) = &began {
            let slot = Arc::new(OnceCell::new_with(Some(live.clone())));
            self.slots().insert(live.id().clone(), slot);
        }
        drop(beginning);
        Ok(began)
    }

    /// Counts one more session, which is about to begin, for as long as what this returns is there.
    fn reserve(&self) -> Result<Arc<()>, Refusal> {
        let slots = self.slots();
        let beginning = self.beginning.clone();
        // Without the references of the table and of this call.
        self.check_count(count(&slots) + Arc::strong_count(&beginning) - 2)?;
        Ok(beginning)
    }

    /// Ends the session of this caller that was unused for longest: many clients never end theirs.
    /// If all are read, the one among them that was called least recently: all official clients hold
    /// a standalone stream for as long as they run.
    ///
    /// # Errors
    /// The refusal, which says when the first of them will give way: all are in use, or were a moment ago.
    async fn make_room(&self, caller: &Caller, mut refusal: Refusal) -> Result<(), Refusal> {
        let settings = &self.shared.settings;
        let all: Vec<_> = self
            .slots()
            .values()
            .filter_map(|slot| slot.get().cloned())
            .collect();
        let (mut unused, mut uncalled, mut soonest) = (None, None, None);
        for live in &all {
            let (time, least, longest) = match live.disuse(caller) {
                Some(Disuse::Unused(time)) => (time, settings.unused, &mut unused),
                Some(Disuse::Read(time)) => (time, settings.idle / READ_PART, &mut uncalled),
                None => continue,
            };
            if least.is_zero() {
                continue;
            }
            match least.checked_sub(time).filter(|left| !left.is_zero()) {
                Some(left) => soonest = Some(left.min(soonest.unwrap_or(left))),
                None if longest.is_none_or(|(most, _)| time > most) => {
                    *longest = Some((time, live));
                }
                None => {}
            }
        }
        if let Some((time, live)) = unused {
            let seconds = time.as_secs();
            warn(format_args!(
                "session {} ends, to make room for a new one: nobody has used it for {seconds} s",
                live.id()
            ));
            return live.end().await.map_err(|_| refusal);
        }
        if let Some((time, live)) = uncalled {
            let seconds = time.as_secs();
            warn(format_args!(
                "session {} ends, to make room for a new one: its client holds a stream, but has called nothing for {seconds} s",
                live.id()
            ));
            return live.make_room(time).await.map_err(|_| refusal);
        }
        if let Some(left) = soonest {
            refusal.retry_after = Some(left.min(RETRY_MOST).as_secs() + 1);
        }
        Err(refusal)
    }

    /// Carries out a POST of MCP 2026-07-28. None: it is none.
    pub async fn modern(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Option<Response<Body>> {
        let room = || self.check_count(count(&self.slots()));
        modern::post(&self.modern, &self.shared, room, caller, headers, body).await
    }

    /// How many sessions are served.
    pub fn count(&self) -> usize {
        count(&self.slots()) + self.modern.count()
    }

    fn check_count(&self, sessions: usize) -> Result<(), Refusal> {
        let count = sessions + self.modern.count();
        let most = self.shared.settings.sessions;
        if count < most {
            return Ok(());
        }
        let message = format!(
            "there are {count} sessions, and no more than {most} at one time (http.sessions)"
        );
        Err(Refusal::for_now(message))
    }

    /// The session of an id, on behalf of a caller. A session of a former process is taken up.
    ///
    /// # Errors
    /// When there is no such session, it was made for another caller, or there is no daemon.
    pub async fn find(&self, id: &SessionId, caller: &Caller) -> Result<Arc<Live>, Refusal> {
        let slot = loop {
            match self.slot(id) {
                Ok(slot) => break slot,
                Err(refusal) => {
                    // One that does not exist needs no room.
                    Live::exists(&self.shared, caller, id).await?;
                    self.make_room(caller, refusal).await?;
                }
            }
        };
        let restored = || Live::restore(&self.shared, caller.clone(), id);
        let found = slot.get_or_try_init(restored).await;
        if found.is_err() {
            let mut slots = self.slots();
            if slots
                .get(id)
                .is_some_and(|held| Arc::ptr_eq(held, &slot) && held.get().is_none())
            {
                slots.remove(id);
            }
        }
        let live = found?;
        live.admit(caller)?;
        Ok(live.clone())
    }

    /// Where the session of an id is, or will be.
    fn slot(&self, id: &SessionId) -> Result<Slot, Refusal> {
        let mut slots = self.slots();
        if let Some(slot) = slots.get(id) {
            return Ok(slot.clone());
        }
        self.check_count(count(&slots))?;
        Ok(slots.entry(id.clone()).or_default().clone())
    }

    /// The session of an id, if this process serves it already. That does not count as use.
    pub fn served(&self, id: &SessionId) -> Option<Arc<Live>> {
        self.slots().get(id)?.get().cloned()
    }

    /// How many requests of MCP 2026-07-28 are open at the server of this session. None: this
    /// process has no such server.
    pub fn modern_requests(&self, id: &SessionId) -> Option<usize> {
        self.modern.requests(id)
    }

    /// Ends sessions that are idle for too long, until it is dropped.
    pub async fn end_idle(&self) {
        let idle = self.shared.settings.idle;
        if idle.is_zero() {
            return std::future::pending().await;
        }
        loop {
            sleep(idle / CHECKS).await;
            let all: Vec<_> = self
                .slots()
                .values()
                .filter_map(|slot| slot.get().cloned())
                .collect();
            let checks = futures::future::join_all(all.iter().map(|live| live.check_idle()));
            futures::future::join(checks, self.modern.check_idle()).await;
        }
    }

    /// Lets go of all sessions. They go on, with their servers, for the process that serves the
    /// name next.
    pub fn close(&self) {
        self.shared.backends.leave();
        self.modern.close();
        for (_, slot) in self.slots().drain() {
            if let Some(live) = slot.get() {
                live.close();
            }
        }
    }

    /// Ends all sessions, also those of a former process that no client has come back to, if their
    /// servers run on this machine.
    pub async fn end(&self) {
        self.modern.end().await;
        let all: Vec<_> = self
            .slots()
            .drain()
            .filter_map(|(_, slot)| slot.get().cloned())
            .collect();
        futures::future::join_all(all.iter().map(|live| async {
            drop(live.end().await);
        }))
        .await;
        let former = self.shared.backends.stop_all().await;
        let caller = only_caller(&self.shared.settings);
        let sessions = caller.map_or_else(
            || self.shared.sessions.clone(),
            |caller| self.shared.sessions.on_behalf_of(caller),
        );
        let sessions = &sessions;
        futures::future::join_all(former.iter().map(|id| async move {
            // One of a caller who is not known here has no server any more, and expires.
            if let Ok(session) = sessions.open(id).await {
                drop(terminate(&session).await);
            }
        }))
        .await;
    }
}

/// How many sessions are served. An id that is being looked up does not count.
fn count(slots: &HashMap<SessionId, Slot>) -> usize {
    slots.values().filter(|slot| slot.initialized()).count()
}
