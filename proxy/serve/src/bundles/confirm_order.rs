//! The lines of a keeper are confirmed up to a number, but they are not stored in their order: an
//! answer goes another way through the bundle than a notification. So a line is confirmed once all
//! that came before it were stored, too.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use mcp_sessiond_proxy::service::Backend;

/// Which lines of a server were stored.
#[derive(Debug)]
pub(super) struct ConfirmOrder {
    backend: Weak<Backend>,
    /// This process ends: what was dropped and not stored is for the next one.
    is_leaving: Arc<AtomicBool>,
    stored: Mutex<Stored>,
}

/// Lines that were stored, by number.
#[derive(Debug, Default)]
struct Stored {
    /// All up to this one.
    up_to: u64,
    /// Later ones.
    later: BTreeSet<u64>,
}

impl Stored {
    /// Notes that this one was stored. Returns up to which all were, where that has changed.
    fn note(&mut self, number: u64) -> Option<u64> {
        self.later.insert(number);
        let former = self.up_to;
        while self.later.remove(&(self.up_to + 1)) {
            self.up_to += 1;
        }
        (self.up_to > former).then_some(self.up_to)
    }
}

impl ConfirmOrder {
    /// With lines from this number on.
    pub(super) fn new(
        backend: &Arc<Backend>,
        first: u64,
        is_leaving: Arc<AtomicBool>,
    ) -> Arc<Self> {
        let stored = Mutex::new(Stored {
            up_to: first - 1,
            later: BTreeSet::new(),
        });
        Arc::new(Self {
            backend: Arc::downgrade(backend),
            is_leaving,
            stored,
        })
    }

    fn note(&self, number: u64) {
        let up_to = self
            .stored
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .note(number);
        if let (Some(up_to), Some(backend)) = (up_to, self.backend.upgrade()) {
            backend.confirm(up_to);
        }
    }
}

/// A line that was not stored yet. One that is dropped is nobody's any more, such as the answer to
/// a call that was cancelled, unless this process ends.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    pub(super) order: Arc<ConfirmOrder>,
    pub(super) number: u64,
}

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        if !self.order.is_leaving.load(Ordering::SeqCst) {
            self.order.note(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_waits_for_those_before_it() {
        let mut stored = Stored {
            up_to: 4,
            later: BTreeSet::new(),
        };
        assert_eq!(stored.note(7), None);
        assert_eq!(stored.note(6), None);
        assert_eq!(stored.note(5), Some(7));
        assert_eq!(stored.note(8), Some(8));
    }
}
