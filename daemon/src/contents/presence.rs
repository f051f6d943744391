//! Who is using which session through this daemon: attached clients, and calls that wait.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::storage::Place;
use mcp_sessiond_proto::Lock as _;

/// Uses by session. A session that nobody uses is not in here.
#[derive(Debug, Default)]
pub(super) struct Presence(Mutex<HashMap<Place, Uses>>);

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
    place: &'a Place,
}

impl Presence {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Uses>> {
        self.0.locked()
    }

    fn update<T>(&self, place: &Place, update: impl FnOnce(&mut Uses) -> T) -> T {
        let mut uses = self.lock();
        let entry = uses.entry(place.clone()).or_default();
        let updated = update(entry);
        if entry.attached == 0 && entry.calls == 0 {
            uses.remove(place);
        }
        updated
    }

    pub(super) fn is_in_use(&self, place: &Place) -> bool {
        self.lock().contains_key(place)
    }

    pub(super) fn attached(&self, place: &Place) -> u32 {
        self.lock().get(place).map_or(0, |uses| uses.attached)
    }

    /// Sessions with clients that other daemons were told of before this time. From now on they
    /// were told `now_ms`.
    pub(super) fn untold(&self, before_ms: u64, now_ms: u64) -> Vec<Place> {
        let mut uses = self.lock();
        let untold = uses
            .iter_mut()
            .filter(|(_, uses)| uses.attached > 0 && uses.told_ms <= before_ms);
        untold
            .map(|(place, uses)| (uses.told_ms = now_ms, place.clone()).1)
            .collect()
    }

    pub(super) fn attach(&self, place: &Place) {
        self.update(place, |uses| uses.attached += 1);
    }

    /// Tells whether it was the last.
    pub(super) fn detach(&self, place: &Place) -> bool {
        self.update(place, |uses| {
            uses.attached = uses.attached.saturating_sub(1);
            uses.attached == 0
        })
    }

    pub(super) fn call<'a>(&'a self, place: &'a Place) -> Call<'a> {
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
