//! One lock for each thing, made when somebody wants it and gone when nobody does.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, Weak};

use mcp_sessiond_proto::Lock as _;
use tokio::sync;

/// Locks by what they are for.
#[derive(Debug)]
pub struct Locks<K>(Mutex<HashMap<K, Weak<sync::Mutex<()>>>>);

impl<K> Default for Locks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> Locks<K> {
    /// The lock of this one.
    pub fn of(&self, key: &K) -> Arc<sync::Mutex<()>> {
        let mut locks = self.0.locked();
        if let Some(lock) = locks.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        // Now and then, so that those that nobody uses don't pile up.
        if locks.len().is_power_of_two() {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::<sync::Mutex<()>>::default();
        locks.insert(key.clone(), Arc::downgrade(&lock));
        lock
    }
}
