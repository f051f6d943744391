//! Who uses a session through this daemon: clients that are attached, and calls under way. While a
//! client is attached, the grace period of its session does not run.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use mcp_sessiond_proto::{Error, Lock as _};

use super::{Access, Admit, Contents, Writer};
use crate::storage::RecordId;

/// Uses by session. A session that nobody uses is not in here.
#[derive(Debug, Default)]
pub(super) struct Presence(Mutex<HashMap<RecordId, Uses>>);

#[derive(Debug, Default, Clone, Copy)]
struct Uses {
    attached: u32,
    calls: u32,
    /// When other daemons were last told of it, in ms since the Unix epoch.
    told_ms: u64,
}

/// A call that is under way, until this is dropped.
#[derive(Debug)]
pub(super) struct Call<'a> {
    presence: &'a Presence,
    place: &'a RecordId,
}

impl Presence {
    fn lock(&self) -> MutexGuard<'_, HashMap<RecordId, Uses>> {
        self.0.locked()
    }

    fn update<T>(&self, place: &RecordId, update: impl FnOnce(&mut Uses) -> T) -> T {
        let mut uses = self.lock();
        let entry = uses.entry(place.clone()).or_default();
        let updated = update(entry);
        if entry.attached == 0 && entry.calls == 0 {
            uses.remove(place);
        }
        updated
    }

    pub(super) fn is_in_use(&self, place: &RecordId) -> bool {
        self.lock().contains_key(place)
    }

    pub(super) fn attached(&self, place: &RecordId) -> u32 {
        self.lock().get(place).map_or(0, |uses| uses.attached)
    }

    /// Sessions with clients that other daemons were told of before this time. From now on they
    /// were told `now_ms`.
    pub(super) fn untold(&self, before_ms: u64, now_ms: u64) -> Vec<RecordId> {
        let mut uses = self.lock();
        let untold = uses
            .iter_mut()
            .filter(|(_, uses)| uses.attached > 0 && uses.told_ms <= before_ms);
        untold
            .map(|(place, uses)| (uses.told_ms = now_ms, place.clone()).1)
            .collect()
    }

    pub(super) fn attach(&self, place: &RecordId) {
        self.update(place, |uses| uses.attached += 1);
    }

    /// Tells whether it was the last.
    pub(super) fn detach(&self, place: &RecordId) -> bool {
        self.update(place, |uses| {
            uses.attached = uses.attached.saturating_sub(1);
            uses.attached == 0
        })
    }

    pub(super) fn call<'a>(&'a self, place: &'a RecordId) -> Call<'a> {
        self.update(place, |uses| uses.calls += 1);
        Call {
            presence: self,
            place,
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.presence
            .update(self.place, |uses| uses.calls = uses.calls.saturating_sub(1));
    }
}

impl Contents {
    /// A client has attached.
    ///
    /// # Errors
    /// Those of a session that is not there, not the caller's, or terminated.
    pub async fn attach(&self, access: &Access) -> Result<(), Error> {
        // A client that attaches must not revive a session that has ended.
        self.look_quietly(access, Admit::Living, &[], |_| Ok(()))
            .await?;
        // Before the change, so that a sweep that is under way leaves the session alone.
        self.presence.attach(&access.place);
        let attached = self.change(access, Admit::Living, |draft| {
            if !draft.head.attached || draft.head.detached_ms.is_some() {
                (draft.head.attached, draft.head.detached_ms) = (true, None);
                draft.touch();
            }
            Ok(())
        });
        let attached = attached.await;
        if attached.is_err() {
            self.presence.detach(&access.place);
        }
        attached
    }

    /// A client has detached.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; then the sweep finds out.
    pub async fn detach(&self, access: &Access) -> Result<(), Error> {
        if !self.presence.detach(&access.place) {
            return Ok(());
        }
        // No check of the caller: it passed one when it attached, and its credential or lease may
        // have been replaced since.
        let gone = Access {
            writer: Writer::Anyone,
            ..access.clone()
        };
        let detached = self.change(&gone, Admit::Unchecked, |draft| {
            if draft.head.attached && self.presence.attached(&access.place) == 0 {
                (draft.head.attached, draft.head.detached_ms) = (false, Some(draft.now_ms));
                draft.touch();
            }
            Ok(())
        });
        match detached.await {
            Err(Error::UnknownSession) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
