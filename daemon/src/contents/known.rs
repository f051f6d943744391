//! Which sessions of this daemon's hosts a shared storage was seen to hold. A session that is not
//! stored yet reads as empty; one that was stored and is gone does not.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use crate::storage::Place;
use mcp_sessiond_proto::Lock as _;

/// The sessions that existed at the last look.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashSet<Place>>);

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashSet<Place>> {
        self.0.locked()
    }

    /// Notes that the session exists.
    pub(super) fn note(&self, place: &Place) {
        let mut known = self.lock();
        if !known.contains(place) {
            known.insert(place.clone());
        }
    }

    /// Whether this daemon has seen the session.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.lock().contains(place)
    }

    /// Forgets a session that has ended.
    pub(super) fn forget(&self, place: &Place) {
        self.lock().remove(place);
    }

    /// Forgets all sessions of an owner that has ended.
    pub(super) fn forget_owner(&self, owner: &str) {
        self.lock().retain(|place| place.owner != owner);
    }
}
