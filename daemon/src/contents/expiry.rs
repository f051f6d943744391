//! Sessions that have outlived their time, or that a service has not used for as long as its
//! operator says: they end. And what else is due is looked at.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Mutex;

use mcp_sessiond_proto::debug::{ContentInfo, Inspected, StreamInfo, TaskInfo};
use mcp_sessiond_proto::{Error, Lock as _, ServiceName, SessionId};

use super::head::{self, HandleHead, Head, Why};
use super::transaction::{Draft, Halt};
use super::{
    Access, Admit, Bounds, CONFLICTS_MAX, Contents, draw_version, handles, is_session, prune,
    state, streams, tasks,
};
use crate::counters::count;
use crate::storage::{Change, Listed, RecordId, StorageError};

/// Records that are asked for at once.
const BATCH: usize = 100;

/// How long a session of a host of another machine, or of before a reboot, is left to its own
/// daemon after its end, in ms. That daemon knows whether it is in use; this one does not.
const ELSEWHERE_MS: u64 = 24 * 3_600_000;

/// An attachment through another daemon is believed for so long after its last heartbeat, in ms.
const ATTACHED_ELSEWHERE_MS: u64 = 180_000;

/// How often a daemon renews such an attachment, in ms.
const ATTACHED_RENEW_MS: u64 = 60_000;

/// When a session that has outlived its time, but is in use or another daemon's matter, is looked
/// at again, in ms.
const SPARED_LOOK_MS: u64 = 60_000;

/// What the daemon knows of a session's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerStatus {
    /// A service: it is always there.
    Service,
    /// A host that lives, whose session a live process holds.
    Held,
    /// A host that lives, whose session nobody holds.
    Free,
    /// A host that lives, and of whose sessions this is none any more.
    Left,
    /// A host that is gone.
    Gone,
    /// A host of another machine, or of before a reboot.
    Elsewhere,
}

/// A session that was ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweptSession {
    /// Where it was.
    pub place: RecordId,
    /// Why.
    pub why: Why,
}

impl Contents {
    /// Ends every session that has outlived its time, and tells which.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. What was ended until then stays ended.
    pub async fn sweep(
        &self,
        owner_status: impl Fn(&RecordId) -> OwnerStatus,
    ) -> Result<Vec<SweptSession>, Error> {
        self.renew_attachments().await;
        let mut ended = Vec::new();
        let mut last: Option<RecordId> = None;
        loop {
            let due = self.store.due(self.clock.now_ms(), BATCH).await;
            let due = due.map_err(|error| self.failed(&error))?;
            let Some(first) = due.first().map(|listed| listed.place.clone()) else {
                return Ok(ended);
            };
            // Whatever is looked at is due later, or gone. Where that could not be had, there is
            // the next sweep.
            if last.replace(first.clone()) == Some(first) {
                return Ok(ended);
            }
            for listed in due {
                let swept = match owner_status(&listed.place) {
                    _ if handles::is_handle(&listed.place) => {
                        self.sweep_handle(&listed).await.map(|()| None)
                    }
                    OwnerStatus::Gone => {
                        let ended = self.end(&listed.place, OwnerStatus::Gone).await;
                        ended.map(|ended| ended.then_some(Why::HostGone))
                    }
                    owner_status => self.sweep_one(&listed.place, owner_status).await,
                };
                let why = match swept {
                    Ok(why) => why,
                    Err(error) if self.store.check().is_err() => return Err(error),
                    Err(error) => {
                        // One that can't be read must not keep the others alive.
                        let session = if handles::is_handle(&listed.place) {
                            "a handle"
                        } else {
                            &listed.place.name
                        };
                        tracing::error!(owner = listed.place.owner, session, %error, "could not sweep");
                        None
                    }
                };
                if let Some(why) = why {
                    self.count_end(&listed.place, why);
                    ended.push(SweptSession {
                        place: listed.place,
                        why,
                    });
                }
            }
        }
    }

    /// A session has ended by itself.
    pub(super) fn count_end(&self, place: &RecordId, why: Why) {
        tracing::debug!(
            owner = place.owner,
            session = place.name,
            why = why.as_str(),
            "a session has ended"
        );
        // The end of what has left a tombstone was told, and counted, when it was terminated.
        if why != Why::Tombstone {
            count(&self.meters.counters.sessions_expired_total);
            self.tell_end(place);
        }
    }

    /// Tells the other daemons of a fleet, by the record, which sessions clients are attached to
    /// through this one.
    async fn renew_attachments(&self) {
        if !self.store.is_shared() {
            return;
        }
        let now_ms = self.clock.now_ms();
        for place in self
            .presence
            .untold(now_ms.saturating_sub(ATTACHED_RENEW_MS), now_ms)
        {
            let access = Access::daemon(place.clone());
            let told = self.change(&access, Admit::Unchecked, |draft| {
                if !draft.head.is_terminated() && self.presence.attached(&place) > 0 {
                    (draft.head.attached, draft.head.detached_ms) = (true, None);
                    draft.touch();
                }
                Ok(())
            });
            if let Err(error) = told.await {
                tracing::debug!(%error, "could not tell other daemons of a client");
            }
        }
    }

    /// Whether a client may be attached through another daemon.
    pub(super) fn is_attached_elsewhere(&self, head: &Head, now_ms: u64) -> bool {
        let believed_ms = head.active_ms.saturating_add(ATTACHED_ELSEWHERE_MS);
        self.store.is_shared() && head.attached && now_ms < believed_ms
    }

    async fn sweep_handle(&self, listed: &Listed) -> Result<(), Error> {
        let head: HandleHead = head::decode(&listed.head).map_err(|error| self.failed(&error))?;
        if head.forgotten_ms > self.clock.now_ms() {
            return Ok(());
        }
        match self
            .store
            .commit(
                &listed.place,
                Some(listed.version),
                draw_version(),
                Change::default(),
            )
            .await
        {
            Ok(_) | Err(StorageError::Conflict) => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn sweep_one(
        &self,
        place: &RecordId,
        owner_status: OwnerStatus,
    ) -> Result<Option<Why>, Error> {
        let access = Access::daemon(place.clone());
        loop {
            let swept = self.change(&access, Admit::Unchecked, |draft| {
                self.look_after(draft, place, owner_status)
            });
            match swept.await {
                // Somebody else has ended it.
                Err(Error::UnknownSession) => return Ok(None),
                Ok((None, true)) => {}
                swept => return swept.map(|(why, _)| why),
            }
        }
    }

    /// The rule of the sweep. Tells why the session has ended, and whether there is more to prune.
    fn look_after(
        &self,
        draft: &mut Draft<'_>,
        place: &RecordId,
        owner_status: OwnerStatus,
    ) -> Result<(Option<Why>, bool), Halt> {
        draft.quietly();
        let now_ms = draft.now_ms;
        let in_use = owner_status == OwnerStatus::Held || self.presence.is_in_use(place);
        let late_ms = if owner_status == OwnerStatus::Elsewhere {
            now_ms.saturating_sub(ELSEWHERE_MS)
        } else {
            now_ms
        };
        let elsewhere = self.is_attached_elsewhere(&draft.head, now_ms);
        if let Some(why) = draft.head.ended(late_ms, draft.bounds, in_use || elsewhere) {
            draft.end();
            self.known.forget(place);
            return Ok((Some(why), false));
        }
        if in_use {
            draft.head.active_ms = draft.head.active_ms.max(now_ms);
        }
        if draft.head.attached && self.presence.attached(place) == 0 && !elsewhere {
            // Its daemon was killed before it could say so.
            (draft.head.attached, draft.head.detached_ms) = (false, Some(now_ms));
        }
        // A change removes only so many items: one kind after the other.
        let more = if state::is_due(draft) {
            state::expire(draft)?;
            true
        } else {
            tasks::expire(draft)? | prune::prune(draft, [])?
        };
        // It is due later now. Only its own daemon's look tells that its host is still there.
        if owner_status != OwnerStatus::Elsewhere {
            draft.head.looked_ms = now_ms;
        } else if draft.head.hosted {
            let looked_ms = draft.head.looked_ms.max(draft.head.active_ms);
            if looked_ms.saturating_add(head::HOSTED_LOOK_MS + ELSEWHERE_MS) <= now_ms {
                draft.end();
                return Ok((Some(Why::HostGone), false));
            }
            draft.spare(now_ms.saturating_add(SPARED_LOOK_MS));
        }
        if draft.head.end(draft.bounds).0 <= now_ms {
            draft.spare(now_ms.saturating_add(SPARED_LOOK_MS));
        }
        draft.touch();
        Ok((None, more))
    }

    /// Deletes what is left of a session whose host is gone, or that is none of its host's any
    /// more; but for a tombstone, while the host lives. Tells whether there was anything.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn end(&self, place: &RecordId, owner_status: OwnerStatus) -> Result<bool, Error> {
        self.known.forget(place);
        // By its version alone, whether it can be read or not.
        for _ in 0..CONFLICTS_MAX {
            let record = self
                .store
                .read(place, &[])
                .await
                .map_err(|error| self.failed(&error))?;
            let Some(record) = record else {
                return Ok(false);
            };
            let is_tombstone =
                head::decode::<Head>(&record.head).is_ok_and(|head| head.is_terminated());
            if is_tombstone && owner_status != OwnerStatus::Gone {
                return Ok(false);
            }
            let ending = self.store.commit(
                place,
                Some(record.version),
                draw_version(),
                Change::default(),
            );
            match ending.await {
                Ok(durable) => {
                    self.tell_news(place);
                    durable.kept().await.map_err(|error| self.failed(&error))?;
                    return Ok(true);
                }
                Err(StorageError::Conflict) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Err(self.failed(&StorageError::Conflict))
    }

    /// Deletes everything of an owner that is gone: sessions, tombstones, handles.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn end_owner(&self, owner: &str) -> Result<(), Error> {
        self.known.forget_owner(owner);
        loop {
            let listed = self
                .store
                .list(owner, "", BATCH)
                .await
                .map_err(|error| self.failed(&error))?;
            if listed.is_empty() {
                return Ok(());
            }
            let mut ended = false;
            for Listed { place, version, .. } in listed {
                let ending = self
                    .store
                    .commit(&place, Some(version), draw_version(), Change::default())
                    .await;
                match ending {
                    Ok(_) => {
                        ended = true;
                        self.tell_news(&place);
                    }
                    // Somebody was still at it; the next look finds what is left of that.
                    Err(StorageError::Conflict) => {}
                    Err(error) => return Err(self.failed(&error)),
                }
            }
            // A list may be behind what was changed: then there is nothing more to do.
            if !ended {
                return Ok(());
            }
        }
    }

    /// Every session that the storage holds, for `debug`: those after `after`, a page at a time.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn inventory(
        &self,
        after: Option<&RecordId>,
        most: usize,
    ) -> Result<Vec<(RecordId, ContentInfo)>, Error> {
        let bounds = self.bounds();
        let mut after = after.cloned();
        let mut found = Vec::new();
        while found.len() < most {
            let listed = self
                .store
                .list_all(after.as_ref(), BATCH)
                .await
                .map_err(|error| self.failed(&error))?;
            let Some(last) = listed.last() else { break };
            after = Some(last.place.clone());
            for Listed { place, head, .. } in listed {
                if found.len() < most && is_session(&place) {
                    match head::decode::<Head>(&head) {
                        Ok(head) => {
                            let info = self.info(&place, &head, &bounds);
                            found.push((place, info));
                        }
                        // The log has it; the others can be shown.
                        Err(error) => drop(self.failed(&error)),
                    }
                }
            }
        }
        Ok(found)
    }

    /// A session, its streams and its tasks, for `debug`. None: the storage has nothing of it.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn inspect(&self, place: &RecordId) -> Result<Option<Inspected>, Error> {
        if !is_session(place) {
            return Ok(None);
        }
        let access = Access::daemon(place.clone());
        let seen = self.look_quietly(&access, Admit::Unchecked, &[], |draft| {
            let streams = streams::rows(draft, None, usize::MAX)?;
            let stream =
                |(stream, row): (mcp_sessiond_proto::StreamId, head::StreamRow)| StreamInfo {
                    stream,
                    closed: row.closed,
                    orphaned: row.orphaned,
                    last_position: row.last_position,
                    events: u32::try_from(row.events()).unwrap_or(u32::MAX),
                    bytes: row.bytes,
                };
            let living = tasks::all(draft)?
                .into_iter()
                .filter(|(_, row)| row.until_ms() > draft.now_ms);
            let task = |(task, row): (mcp_sessiond_proto::TaskId, head::TaskRow)| TaskInfo {
                task,
                status: row.status,
                created_ms: row.created_ms,
                updated_ms: row.updated_ms,
                until_ms: row.until_ms(),
            };
            Ok(Inspected {
                session: None,
                content: Some(self.info(place, &draft.head, draft.bounds)),
                streams: streams.into_iter().map(stream).collect(),
                tasks: living.map(task).collect(),
            })
        });
        match seen.await {
            Err(Error::UnknownSession) => Ok(None),
            seen => seen.map(|(seen, _)| Some(seen)),
        }
    }

    fn info(&self, place: &RecordId, head: &Head, bounds: &Bounds) -> ContentInfo {
        let session = self.session(place, head, None, bounds);
        let now_ms = self.clock.now_ms();
        let good = head
            .handles
            .iter()
            .filter(|expires_ms| **expires_ms > now_ms)
            .count();
        ContentInfo {
            owner: place.owner.clone(),
            session: place.name.parse().unwrap_or_else(|_| SessionId::mint()),
            status: session.status,
            bound: session.bound,
            created_ms: session.created_ms,
            active_ms: session.active_ms,
            expires_ms: session.expires_ms,
            attached: session.attached,
            state_keys: session.state_keys,
            state_bytes: session.state_bytes,
            state_expires_ms: Some(head.state_due_ms).filter(|at_ms| *at_ms != 0),
            streams: session.streams,
            events: session.events,
            event_bytes: session.event_bytes,
            last_number: session.last_number,
            handles: u32::try_from(good).unwrap_or(u32::MAX),
            tasks: head.tasks.count,
        }
    }
}

/// From how many sessions on it is looked for those that need not be remembered.
const MANY: usize = 4_096;

/// How long it is remembered when a session was used last, in ms. After that what is on record of
/// it is good enough.
const MEMORY_MS: u64 = 7 * 24 * 3_600_000;

/// When sessions were used last without a note of that on record: by a digest of where they are,
/// for there may be many. Of two with the same digest both were used when one was.
#[derive(Debug, Default)]
pub(super) struct LastUses {
    hasher: RandomState,
    at_ms: Mutex<HashMap<u64, u64>>,
}

impl LastUses {
    pub(super) fn note(&self, place: &RecordId, now_ms: u64) {
        let mut at_ms = self.at_ms.locked();
        let is_new = at_ms.insert(self.hasher.hash_one(place), now_ms).is_none();
        // Now and then, so that those that are gone don't pile up.
        if is_new && at_ms.len() >= MANY && at_ms.len().is_power_of_two() {
            at_ms.retain(|_, at_ms| at_ms.saturating_add(MEMORY_MS) > now_ms);
        }
    }

    fn of(&self, place: &RecordId) -> u64 {
        let at_ms = self.at_ms.locked();
        at_ms
            .get(&self.hasher.hash_one(place))
            .copied()
            .unwrap_or_default()
    }
}

impl Contents {
    /// Ends the sessions of a service that nobody has used for so long, and nobody uses now; and
    /// tells which.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. What was ended until then stays ended.
    pub async fn end_unused(
        &self,
        service: &ServiceName,
        older_than_ms: u64,
    ) -> Result<Vec<SweptSession>, Error> {
        let owner = Access::service(service, &SessionId::mint(), None)
            .place
            .owner;
        let mut ended = Vec::new();
        let mut after = String::new();
        loop {
            let listed = self.store.list(&owner, &after, BATCH).await;
            let listed = listed.map_err(|error| self.failed(&error))?;
            let Some(last) = listed.last() else {
                return Ok(ended);
            };
            after.clone_from(&last.place.name);
            for listed in listed {
                // What is used meanwhile is looked at again in the change.
                let is_due = is_session(&listed.place)
                    && head::decode::<Head>(&listed.head)
                        .is_ok_and(|head| self.is_unused(&listed.place, &head, older_than_ms));
                if is_due && self.end_if_unused(&listed.place, older_than_ms).await? {
                    self.count_end(&listed.place, Why::Unused);
                    ended.push(SweptSession {
                        place: listed.place,
                        why: Why::Unused,
                    });
                }
            }
        }
    }

    async fn end_if_unused(&self, place: &RecordId, older_than_ms: u64) -> Result<bool, Error> {
        let access = Access::daemon(place.clone());
        let ended = self.change(&access, Admit::Unchecked, |draft| {
            let is_unused = self.is_unused(place, &draft.head, older_than_ms);
            if is_unused {
                draft.end();
            }
            Ok(is_unused)
        });
        match ended.await {
            // Somebody else has ended it.
            Err(Error::UnknownSession) => Ok(false),
            ended => ended,
        }
    }

    fn is_unused(&self, place: &RecordId, head: &Head, older_than_ms: u64) -> bool {
        let now_ms = self.clock.now_ms();
        if head.is_terminated()
            || self.presence.is_in_use(place)
            || self.is_attached_elsewhere(head, now_ms)
        {
            return false;
        }
        // Reads are not put on record one by one. What this daemon has not seen may have been used
        // after its last note.
        let is_unseen = self.store.is_shared() || head.active_ms < self.began_ms;
        let last_ms = match self.uses.of(place).max(head.active_ms) {
            last_ms if is_unseen => last_ms.max(head.active_ms.saturating_add(head.note_ms())),
            last_ms => last_ms,
        };
        last_ms.saturating_add(older_than_ms) <= now_ms
    }
}
