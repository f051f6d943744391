//! What a shared storage was seen to hold of the sessions of this daemon's hosts. A session of which there is nothing yet
//! reads as empty; one of which there was something, and is nothing any more, does not.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::storage::Place;

/// The sessions that were there when they were looked at last.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashSet<Place>>);

impl Known {
    fn lock(&self) -> MutexGuard<'_, HashSet<Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is there.
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

    /// Nothing of this owner is there any more.
    pub(super) fn forget_owner(&self, owner: &str) {
        self.lock().retain(|place| place.owner != owner);
    }
}
