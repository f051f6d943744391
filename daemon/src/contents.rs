//! What sessions contain: status, state, streams, events. One set of rules over whichever storage
//! is below.
//!
//! A session's owner is part of where it is ([`RecordId`]), so nobody comes across another owner's.
//! Every change is conditional on the version that was read: within this daemon one change of a
//! session comes after the other, and where other daemons write to the same storage, they meet at
//! the version.
//!
//! **Architecture Invariant:** the rules do no I/O. They work on a `Draft`, and say what they need
//! to read.

mod access;
mod binding;
mod bounds;
mod clock;
mod event_id;
mod events;
mod expiry;
mod handles;
mod head;
mod heartbeats;
mod keys;
mod locks;
#[cfg(test)]
mod model;
mod presence;
mod prune;
mod replay;
mod secrets;
mod sessions;
mod state;
mod streams;
mod tasks;
mod transaction;
mod usage;
mod wills;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use mcp_sessiond_proto::Lock as _;
use mcp_sessiond_proto::{Error, MEMORY};
use tokio::sync::Notify;

pub use access::{Access, Lease, Writer};
pub use bounds::Bounds;
pub use clock::Clock;
pub use expiry::{OwnerStatus, SweptSession};
pub use head::Why;
pub use heartbeats::{Heartbeat, Keeping};
pub use locks::Locks;
pub use usage::Usage;
pub use wills::{Of, Recorded};

use crate::counters::{Meters, count};
use crate::storage::{RecordId, StorageError, Store, Version};
use expiry::LastUses;
use presence::Presence;
use sessions::Known;
use transaction::{Admit, CONFLICTS_MAX};

/// When a client is told to come back after the storage failed, in ms: about as long as a failover
/// takes to be noticed.
const RETRY_AFTER_MS: u32 = 500;

/// The same where somebody has to do something about it first, in ms: longer than clients wait.
const FIX_RETRY_MS: u32 = 10_000;

/// Bytes of versions that are drawn at once: 64 of them, which take as long as one.
const VERSIONS_BYTES: usize = 512;

/// The sessions that a storage holds.
pub struct Contents {
    store: Arc<Store>,
    clock: Arc<Clock>,
    bounds: RwLock<Arc<Bounds>>,
    meters: Arc<Meters>,
    locks: Locks<RecordId>,
    presence: Presence,
    uses: LastUses,
    /// When this daemon began to look, in ms since the Unix epoch.
    began_ms: u64,
    known: Known,
    /// Sessions whose former holder was still changing something when the next one claimed.
    fences: Mutex<HashSet<RecordId>>,
    /// Who waits for events of a session.
    news: Mutex<HashMap<RecordId, Weak<Notify>>>,
    /// Who is told of sessions that have ended in here.
    on_end: OnceLock<OnEnd>,
    closing: AtomicBool,
    /// What the storage held when it was counted last.
    usage: tokio::sync::Mutex<Option<(std::time::Instant, Usage)>>,
}

type OnEnd = Box<dyn Fn(&RecordId) + Send + Sync>;

impl fmt::Debug for Contents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Contents({:?})", self.store)
    }
}

impl Contents {
    /// Keeps sessions in `store`.
    pub fn new(store: Arc<Store>, clock: Arc<Clock>, bounds: Bounds, meters: Arc<Meters>) -> Self {
        let began_ms = clock.now_ms();
        Self {
            store,
            clock,
            bounds: RwLock::new(Arc::new(bounds)),
            meters,
            locks: Locks::default(),
            presence: Presence::default(),
            uses: LastUses::default(),
            began_ms,
            known: Known::default(),
            fences: Mutex::default(),
            news: Mutex::default(),
            on_end: OnceLock::new(),
            closing: AtomicBool::new(false),
            usage: tokio::sync::Mutex::default(),
        }
    }

    /// The daemon is about to exit: nothing waits any longer.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let news = self.news.locked();
        news.values()
            .filter_map(Weak::upgrade)
            .for_each(|waiting| waiting.notify_waiters());
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Has `told` called for every session that is terminated or ends by itself. Once.
    pub fn on_end(&self, told: impl Fn(&RecordId) + Send + Sync + 'static) {
        let _ = self.on_end.set(Box::new(told));
    }

    fn tell_end(&self, place: &RecordId) {
        self.tell_news(place);
        if let Some(told) = self.on_end.get() {
            told(place);
        }
    }

    /// Puts new bounds in force, for what comes from now on.
    pub fn set_bounds(&self, bounds: Bounds) {
        *self.bounds.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(bounds);
    }

    /// The storage.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether there are sessions that end with this daemon.
    pub fn would_be_lost(&self) -> bool {
        self.store.name() == "memory"
            && self
                .store
                .usage("")
                .is_some_and(|usage| usage.total_bytes > 0)
    }

    fn bounds(&self) -> Arc<Bounds> {
        self.bounds
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A session has a new holder. What the former one was allowed to change is changed when the
    /// new one looks ([`Contents::fenced`]). The claim itself does not wait for that: the storage
    /// may be slow, or not there at all.
    pub fn fence(self: &Arc<Self>, place: &RecordId) {
        let lock = self.locks.of(place);
        if lock.try_lock().is_ok() {
            return;
        }
        self.fences().insert(place.clone());
        let (contents, place) = (self.clone(), place.clone());
        tokio::spawn(async move {
            let _changing = lock.lock_owned().await;
            contents.fences().remove(&place);
        });
    }

    /// Waits until what a session's former holder was changing is changed.
    pub async fn fenced(&self, place: &RecordId) {
        if self.fences().contains(place) {
            drop(self.locks.of(place).lock_owned().await);
        }
    }

    fn fences(&self) -> MutexGuard<'_, HashSet<RecordId>> {
        self.fences.locked()
    }

    /// Whether the owner, and all owners together, may have so many bytes more in this process's
    /// memory.
    fn afford(&self, place: &RecordId, added: usize, bounds: &Bounds) -> Result<(), Error> {
        let Some(usage) = self.store.usage(&place.owner) else {
            return Ok(());
        };
        let bounds = [
            (
                "that one owner's sessions may take, in bytes,",
                usage.bytes,
                bounds.limits.owner_bytes,
            ),
            (
                "that all sessions may take, in bytes,",
                usage.total_bytes,
                bounds.limits.total_bytes,
            ),
        ];
        match bounds
            .into_iter()
            .find(|(_, used, limit)| added > 0 && used.saturating_add(added) > *limit)
        {
            Some((what, _, limit)) => Err(Error::QuotaExceeded {
                what: format!("{MEMORY} {what}"),
                limit: limit as u64,
            }),
            None => Ok(()),
        }
    }

    /// Whether a change has a chance to be kept. What can't be kept here would only pile up; a
    /// database elsewhere has to be asked, or nobody would ever learn that it answers again.
    fn accepts(&self) -> Result<(), Error> {
        if self.store.is_shared() {
            return Ok(());
        }
        self.store.check().map_err(|error| self.failed(&error))
    }

    /// Waits until everything that was read of this session is kept: it must not be told what a
    /// crash could undo.
    async fn settled(&self, place: &RecordId) -> Result<(), Error> {
        self.store
            .settled(place)
            .kept()
            .await
            .map_err(|error| self.failed(&error))
    }

    /// What the storage could not do, as a peer may see it. It is never said that there is no such
    /// session.
    fn failed(&self, error: &StorageError) -> Error {
        count(&self.meters.counters.storage_errors_total);
        let mut retry_after_ms = RETRY_AFTER_MS;
        let sentence = match error {
            StorageError::Unusable { why, passes } => {
                if !passes {
                    retry_after_ms = FIX_RETRY_MS;
                }
                format!("what sessions contain can't be read or written now: {why}")
            }
            StorageError::Unknown { why, passes } => {
                let retry_after_ms = if *passes {
                    RETRY_AFTER_MS
                } else {
                    FIX_RETRY_MS
                };
                tracing::debug!(
                    storage = self.store.name(),
                    why,
                    "what became of a change is not known"
                );
                let sentence = match self.store.is_shared() {
                    // What it says of itself is for the log.
                    true => format!(
                        "the storage ({}) does not answer at the moment",
                        self.store.name()
                    ),
                    false => why.clone(),
                };
                return Error::OutcomeUnknown {
                    sentence,
                    retry_after_ms,
                };
            }
            StorageError::Unavailable(why) => {
                tracing::debug!(
                    storage = self.store.name(),
                    why,
                    "the storage does not answer"
                );
                format!(
                    "the storage ({}) does not answer at the moment",
                    self.store.name()
                )
            }
            StorageError::Damaged(why) => {
                tracing::error!(storage = self.store.name(), why, "the storage is damaged");
                format!(
                    "the storage ({}) holds something that can't be read",
                    self.store.name()
                )
            }
            StorageError::Conflict => "the session is being changed by others".into(),
        };
        Error::Unavailable {
            sentence,
            retry_after_ms,
        }
    }

    /// Who waits for news of a session is told of them through this.
    fn news(&self, place: &RecordId) -> Arc<Notify> {
        let mut news = self.news.locked();
        if let Some(known) = news.get(place).and_then(Weak::upgrade) {
            return known;
        }
        if news.len().is_power_of_two() {
            news.retain(|_, waiting| waiting.strong_count() > 0);
        }
        let fresh = Arc::<Notify>::default();
        news.insert(place.clone(), Arc::downgrade(&fresh));
        fresh
    }

    /// Something was said, or the session has ended: whoever waits looks again.
    fn tell_news(&self, place: &RecordId) {
        let news = self.news.locked();
        if let Some(waiting) = news.get(place).and_then(Weak::upgrade) {
            waiting.notify_waiters();
        }
    }
}

/// Whether this is the record of a session.
fn is_session(place: &RecordId) -> bool {
    !handles::is_handle(place) && !heartbeats::is_heartbeat(place) && !secrets::is_secret(place)
}

/// A version that nobody has drawn before. It is no secret, so the kernel is asked for many at
/// once.
fn draw_version() -> Version {
    thread_local! {
        static DRAWN: RefCell<Vec<[u8; 8]>> = const { RefCell::new(Vec::new()) };
    }
    let drawn = DRAWN.with_borrow_mut(|drawn| {
        if drawn.is_empty() {
            drawn.extend_from_slice(draw::<VERSIONS_BYTES>().as_chunks().0);
        }
        drawn.pop()
    });
    Version(u64::from_ne_bytes(drawn.unwrap_or_else(draw)))
}

/// Random bytes from the kernel.
fn draw<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Fails only where the kernel has no randomness to give, before which nothing of ours can run.
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::error!(%error, "the kernel gives no randomness");
        std::process::abort();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::config::Config;
    use crate::storage::Memory;

    /// A claim is answered at once; what its holder does next waits for what the former one is
    /// still changing.
    #[tokio::test]
    async fn who_has_claimed_waits_only_before_it_looks() {
        let (meters, clock) = (Arc::<Meters>::default(), Arc::new(Clock::system()));
        let store = Store::over(Arc::new(Memory::default()), meters.clone());
        let contents = Contents::new(store, clock, Bounds::of(&Config::default()), meters);
        let contents = Arc::new(contents);
        let place = |name: &str| RecordId {
            owner: "host".into(),
            name: name.into(),
        };
        let (changed, other) = (place("a"), place("b"));
        let changing = contents.locks.of(&changed).lock_owned().await;
        contents.fence(&changed);
        contents.fence(&other);
        let mut looks = Box::pin(contents.fenced(&changed));
        assert_eq!(looks.as_mut().now_or_never(), None);
        assert_eq!(contents.fenced(&other).now_or_never(), Some(()));
        drop(changing);
        looks.await;
        while !contents.fences().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(contents.fenced(&changed).now_or_never(), Some(()));
    }
}
