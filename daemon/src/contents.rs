//! What sessions contain: status, state, streams, events. One set of rules over whichever storage is below.
//!
//! A session's owner is part of where it is ([`Place`]), so nobody comes across another owner's. Every change is
//! conditional on the version that was read: within this daemon one change of a session comes after the other, and
//! where other daemons write to the same storage, they meet at the version.
//!
//! **Architecture Invariant:** the rules do no I/O. They work on a `Draft`, and say what they need to read.

mod binding;
mod clock;
mod draft;
mod event_id;
mod events;
mod handles;
mod head;
mod limits;
mod lives;
mod locks;
#[cfg(test)]
mod model;
mod presence;
mod prune;
mod replay;
mod state;
mod streams;
mod sweep;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use mcp_sessiond_proto::sessions::Caller;
use mcp_sessiond_proto::{Error, SessionId};
use tokio::sync::Notify;

pub use clock::Clock;
pub use head::Why;
pub use limits::Limits;
pub use locks::Locks;
pub use sweep::{Standing, SweptSession};

use crate::counters::{Meters, count};
use crate::storage::{Place, Storage, StorageError, Version};
use draft::{Draft, Halt, Read};
use head::Head;
use presence::Presence;

/// How often a change is tried again that met another daemon's. Each attempt that fails is somebody else's success, so
/// this many mean that a session is written to by very many at once.
const CONFLICTS_MAX: u32 = 64;

/// The pause before the second attempt; each is longer than the one before, up to 32 times.
const CONFLICT_PAUSE: Duration = Duration::from_millis(2);

/// Reads that one rule may ask for: far more than any does.
const READS_MAX: u32 = 40;

/// When a client is told to come back after the storage failed, in ms: about as long as a failover takes to be noticed.
const RETRY_AFTER_MS: u32 = 500;

/// The sessions that a storage holds.
pub struct Contents {
    storage: Arc<dyn Storage>,
    clock: Arc<Clock>,
    limits: RwLock<Arc<Limits>>,
    meters: Arc<Meters>,
    locks: Locks<Place>,
    presence: Presence,
    /// Who waits for events of a session.
    news: Mutex<HashMap<Place, Weak<Notify>>>,
    /// Who is told of sessions that have ended in here.
    on_end: OnceLock<OnEnd>,
    closing: AtomicBool,
}

type OnEnd = Box<dyn Fn(&Place) + Send + Sync>;

/// Who asks for which session, as the daemon has verified it.
#[derive(Clone)]
pub struct Access {
    /// The session.
    pub place: Place,
    /// On whose behalf the caller says that it asks.
    pub caller: Option<Caller>,
    /// What the caller must be, to change anything; asked again in the step that applies the change.
    pub writer: Writer,
    /// Whether there is such a session although the storage has nothing of it yet: a claim has made it.
    pub claimed: bool,
}

/// Who may change a session.
#[derive(Clone)]
pub enum Writer {
    /// Whoever may see it.
    Anyone,
    /// Whoever has the lease.
    Holder(Arc<dyn Lease>),
    /// Nobody: of its host's sessions it is none any more, but it may have left a tombstone.
    Nobody,
}

/// What is known of a lease, at any moment.
pub trait Lease: Send + Sync {
    /// Whether the caller may change the session.
    ///
    /// # Errors
    /// Those of a lease that is not the newest.
    fn check(&self) -> Result<(), Error>;

    /// Whether a live process holds the session.
    fn is_held(&self) -> bool;

    /// Whether there is such a session at all, held or not.
    fn is_there(&self) -> bool;
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Access({:?}, claimed {})", self.place, self.claimed)
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Contents({:?})", self.storage)
    }
}

impl Access {
    /// A service's session.
    #[must_use]
    pub fn service(
        service: &mcp_sessiond_proto::ServiceName,
        session: &SessionId,
        caller: Option<Caller>,
    ) -> Self {
        Self {
            place: Place { owner: format!("service {service}"), name: session.to_string() },
            caller,
            writer: Writer::Anyone,
            claimed: false,
        }
    }

    /// Whether there is such a session although the storage has nothing of it: it may have ended since.
    fn is_claimed(&self) -> bool {
        self.claimed && matches!(&self.writer, Writer::Holder(lease) if lease.is_there())
    }

    fn may_write(&self) -> Result<(), Error> {
        match &self.writer {
            Writer::Anyone => Ok(()),
            Writer::Holder(lease) => lease.check(),
            Writer::Nobody => Err(Error::UnknownSession),
        }
    }
}

/// What a rule is allowed to meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admit {
    /// A session that lives, for a caller that it is bound to.
    Living,
    /// The same, for a call that goes on: its caller was the right one when it began, and may have been rotated out since.
    Known,
    /// The same as the first, or one that was terminated.
    Any,
    /// Whatever is there: the daemon itself looks after it.
    Unchecked,
}

impl Contents {
    /// Keeps sessions in `storage`.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, clock: Arc<Clock>, limits: Limits, meters: Arc<Meters>) -> Self {
        Self {
            storage,
            clock,
            limits: RwLock::new(Arc::new(limits)),
            meters,
            locks: Locks::default(),
            presence: Presence::default(),
            news: Mutex::default(),
            on_end: OnceLock::new(),
            closing: AtomicBool::new(false),
        }
    }

    /// The daemon is about to exit: nothing waits any longer.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.values().filter_map(Weak::upgrade).for_each(|waiting| waiting.notify_waiters());
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Has `told` called for every session that is terminated or ends by itself. Once.
    pub fn on_end(&self, told: impl Fn(&Place) + Send + Sync + 'static) {
        let _ = self.on_end.set(Box::new(told));
    }

    fn tell_end(&self, place: &Place) {
        self.tell_news(place);
        if let Some(told) = self.on_end.get() {
            told(place);
        }
    }

    /// Puts new limits in force, for what comes from now on.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(limits);
    }

    /// The storage.
    #[must_use]
    pub fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    /// Whether there are sessions that end with this daemon.
    #[must_use]
    pub fn would_be_lost(&self) -> bool {
        self.storage.name() == "memory" && self.storage.usage("").is_some_and(|usage| usage.total_bytes > 0)
    }

    fn limits(&self) -> Arc<Limits> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until whoever was changing a session is done. Whoever has the lease taken away before this can do no more.
    pub async fn fence(&self, place: &Place) {
        drop(self.locks.of(place).lock_owned().await);
    }

    /// Carries out a rule that may change a session: reads what it needs, and commits what it has changed. Returns once
    /// that is kept.
    async fn change<T>(
        &self,
        access: &Access,
        admit: Admit,
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<T, Error> {
        self.change_of(access, admit, &[], rule).await
    }

    /// The same where it is known what the rule needs to read: it need not be run to find that out.
    async fn change_of<T>(
        &self,
        access: &Access,
        admit: Admit,
        keys: &[crate::storage::Key],
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<T, Error> {
        self.accepts()?;
        let lock = self.locks.of(&access.place).lock_owned().await;
        // What is nobody's any more may have left a tombstone, which says more.
        if !matches!(access.writer, Writer::Nobody) {
            access.may_write()?;
        }
        let mut conflicts = 0;
        loop {
            let limits = self.limits();
            let mut read = Read::default();
            let planned = self.plan(access, admit, &limits, keys, &mut read, &rule).await;
            let (value, finished) = self.told(&access.place, planned).await?;
            let Some((change, added)) = finished else {
                drop(lock);
                self.settled(&access.place).await?;
                return Ok(value);
            };
            self.afford(&access.place, added, &limits)?;
            // Since the last look there may have been a wait for the storage.
            access.may_write()?;
            let committed = self.storage.commit(&access.place, read.version, draw_version(), change).await;
            match committed {
                Ok(durable) => {
                    drop(lock);
                    durable.kept().await.map_err(|error| self.failed(&error))?;
                    return Ok(value);
                }
                Err(StorageError::Conflict) if conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                    count(&self.meters.counters.storage_conflicts_total);
                    pause(conflicts).await;
                }
                Err(StorageError::Conflict) => {
                    let sentence = "too many daemons write to this session at once".into();
                    return Err(Error::Unavailable { sentence, retry_after_ms: RETRY_AFTER_MS });
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// Carries out a rule that changes nothing.
    async fn look<T>(
        &self,
        access: &Access,
        admit: Admit,
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<T, Error> {
        self.look_at(access, admit, &[], rule).await
    }

    /// The same where it is known what the rule needs to read.
    async fn look_at<T>(
        &self,
        access: &Access,
        admit: Admit,
        keys: &[crate::storage::Key],
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<T, Error> {
        let (value, active) = self.look_quietly(access, admit, keys, rule).await?;
        if !active {
            self.note_active(access).await;
        }
        Ok(value)
    }

    /// The same, without a note that the session is in use. Tells whether there is a recent one.
    async fn look_on<T>(
        &self,
        access: &Access,
        admit: Admit,
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<(T, bool), Error> {
        self.look_quietly(access, admit, &[], rule).await
    }

    async fn look_quietly<T>(
        &self,
        access: &Access,
        admit: Admit,
        keys: &[crate::storage::Key],
        rule: impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<(T, bool), Error> {
        let limits = self.limits();
        let mut read = Read::default();
        let rule = |draft: &mut Draft<'_>| Ok((rule(draft)?, draft.head.is_recently_active(draft.now_ms)));
        let planned = self.plan(access, admit, &limits, keys, &mut read, &rule).await;
        let (value, _) = self.told(&access.place, planned).await?;
        self.settled(&access.place).await?;
        Ok(value)
    }

    /// A refusal tells something of what was read, too: not before that is kept.
    async fn told<T>(&self, place: &Place, planned: Result<T, Error>) -> Result<T, Error> {
        match planned {
            Err(Error::Unavailable { .. }) | Ok(_) => {}
            Err(_) => self.settled(place).await?,
        }
        planned
    }

    /// Runs a rule until it has read all that it needs.
    async fn plan<T>(
        &self,
        access: &Access,
        admit: Admit,
        limits: &Limits,
        keys: &[crate::storage::Key],
        read: &mut Read,
        rule: &impl Fn(&mut Draft<'_>) -> Result<T, Halt>,
    ) -> Result<(T, Option<(crate::storage::Change, usize)>), Error> {
        let Access { place, .. } = access;
        let failed = |error: &StorageError| self.failed(error);
        self.read(place, read, keys).await.map_err(|error| failed(&error))?;
        for attempt in 0..READS_MAX {
            if read.head.is_none() && !access.is_claimed() {
                return Err(Error::UnknownSession);
            }
            let now_ms = self.clock.now_ms();
            // Randomness is a call of the kernel: only where it is needed.
            let fresh = if read.head.is_none() { Head::claimed(now_ms) } else { Head::default() };
            let mut draft = Draft::new(read, fresh, now_ms, limits).map_err(|error| failed(&error))?;
            if let Err(refusal) = self.admits(access, admit, &draft) {
                if refusal == Error::BindingMismatch
                    && draft.head.bound.as_ref().is_some_and(|bound| bound.terminates(access.caller.as_ref()))
                {
                    drop(draft);
                    match self.terminate_for_mismatch(place, read).await {
                        Ok(()) => return Err(refusal),
                        // Others write to it. It is looked at again, and ends all the same.
                        Err(StorageError::Conflict) => {
                            pause(attempt).await;
                            self.read(place, read, &[]).await.map_err(|error| failed(&error))?;
                            continue;
                        }
                        Err(error) => return Err(failed(&error)),
                    }
                }
                return Err(refusal);
            }
            match rule(&mut draft) {
                Ok(value) => return Ok((value, draft.finish())),
                Err(Halt::Refuse(error)) => return Err(error),
                Err(Halt::Storage(error)) => return Err(failed(&error)),
                Err(Halt::Read(keys)) => {
                    self.read(place, read, &keys).await.map_err(|error| failed(&error))?;
                }
                Err(Halt::Scan(scan)) => {
                    let range = scan.range.clone();
                    let items = self.storage.scan(place, range, &scan.tags, scan.most, scan.bytes).await;
                    read.scans.insert(scan, items.map_err(|error| failed(&error))?);
                }
            }
        }
        // Others change it faster than it can be read.
        Err(failed(&StorageError::Conflict))
    }

    /// Reads a record and some of its items. When it has changed since the last time, what was read then is worth
    /// nothing.
    async fn read(
        &self,
        place: &Place,
        read: &mut Read,
        keys: &[crate::storage::Key],
    ) -> Result<(), StorageError> {
        let mut keys = keys.to_vec();
        let mut record = self.storage.read(place, &keys).await?;
        if record.as_ref().map(|record| record.version) != read.version && !read.items.is_empty() {
            // All of it again, and at once: it is of one version then, however busy others are.
            keys.extend(read.items.drain().map(|(key, _)| key));
            record = self.storage.read(place, &keys).await?;
        }
        let version = record.as_ref().map(|record| record.version);
        if version != read.version {
            *read = Read { version, ..Read::default() };
        }
        match record {
            None => {
                read.head = None;
                read.items.extend(keys.into_iter().map(|key| (key, None)));
            }
            Some(record) => {
                read.head = Some(record.head);
                read.items.extend(keys.into_iter().zip(record.items));
            }
        }
        Ok(())
    }

    /// Whether the caller may have what it asks for.
    fn admits(&self, access: &Access, admit: Admit, draft: &Draft<'_>) -> Result<(), Error> {
        let Draft { head, now_ms, limits, .. } = draft;
        self.clock.observe(head.active_ms);
        if admit == Admit::Unchecked {
            return Ok(());
        }
        let is_gone = matches!(access.writer, Writer::Nobody) && !head.is_terminated();
        if is_gone || head.ended(*now_ms, limits, self.in_use(access, head, *now_ms)).is_some() {
            return Err(Error::UnknownSession);
        }
        if let Some(bound) = head.bound.as_ref().filter(|_| admit != Admit::Known) {
            bound.admits(access.caller.as_ref(), *now_ms)?;
        }
        match admit {
            Admit::Living | Admit::Known if head.is_terminated() => Err(Error::SessionTerminated),
            _ => Ok(()),
        }
    }

    fn in_use(&self, access: &Access, head: &Head, now_ms: u64) -> bool {
        let held = matches!(&access.writer, Writer::Holder(lease) if lease.is_held());
        held || self.presence.is_in_use(&access.place) || self.is_attached_elsewhere(head, now_ms)
    }

    /// Whether the owner, and all owners together, may have so many bytes more in this process's memory.
    fn afford(&self, place: &Place, added: usize, limits: &Limits) -> Result<(), Error> {
        let Some(usage) = self.storage.usage(&place.owner) else { return Ok(()) };
        let bounds = [
            ("the memory that one owner's sessions may take, in bytes,", usage.bytes, limits.owner_bytes),
            ("the memory that all sessions may take, in bytes,", usage.total_bytes, limits.total_bytes),
        ];
        match bounds.into_iter().find(|(_, used, limit)| added > 0 && used.saturating_add(added) > *limit) {
            Some((what, _, limit)) => Err(Error::QuotaExceeded { what: what.into(), limit: limit as u64 }),
            None => Ok(()),
        }
    }

    /// Whether a change has a chance to be kept. What can't be kept here would only pile up; a database elsewhere has to
    /// be asked, or nobody would ever learn that it answers again.
    fn accepts(&self) -> Result<(), Error> {
        if self.storage.is_shared() {
            return Ok(());
        }
        self.storage.check().map_err(|error| self.failed(&error))
    }

    /// Waits until everything that was read of this session is kept: it must not be told what a crash could undo.
    async fn settled(&self, place: &Place) -> Result<(), Error> {
        self.storage.settled(place).kept().await.map_err(|error| self.failed(&error))
    }

    /// What the storage could not do, as a peer may see it. It is never said that there is no such session.
    fn failed(&self, error: &StorageError) -> Error {
        count(&self.meters.counters.storage_errors_total);
        let sentence = match error {
            StorageError::Unavailable(why) => {
                tracing::debug!(storage = self.storage.name(), why, "the storage does not answer");
                format!("the storage ({}) does not answer at the moment", self.storage.name())
            }
            StorageError::Damaged(why) => {
                tracing::error!(storage = self.storage.name(), why, "the storage is damaged");
                format!("the storage ({}) holds something that can't be read", self.storage.name())
            }
            StorageError::Conflict => "the session is being changed by others".into(),
        };
        Error::Unavailable { sentence, retry_after_ms: RETRY_AFTER_MS }
    }

    /// Who waits for news of a session is told of them through this.
    fn news(&self, place: &Place) -> Arc<Notify> {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn tell_news(&self, place: &Place) {
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waiting) = news.get(place).and_then(Weak::upgrade) {
            waiting.notify_waiters();
        }
    }
}

/// A version that nobody has drawn before.
fn draw_version() -> Version {
    Version(u64::from_ne_bytes(draw()))
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

/// Waits a random while, longer with every conflict.
async fn pause(conflicts: u32) {
    let longest = CONFLICT_PAUSE * conflicts.min(32);
    let part = f64::from(u32::from_ne_bytes(draw())) / f64::from(u32::MAX);
    tokio::time::sleep(longest.mul_f64(part)).await;
}
