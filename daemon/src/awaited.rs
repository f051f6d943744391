//! Whether somebody still waits for what a call will bring.

use std::sync::{Arc, Weak};

/// Held by whoever waits, until there is an answer or nobody waits any more.
#[derive(Debug)]
pub struct Waiting(#[expect(dead_code, reason = "it is there, or it is not")] Arc<()>);

/// Who waits for work that goes on without anybody, too.
#[derive(Debug)]
pub struct Awaited(Weak<()>);

impl Awaited {
    /// By one who waits.
    #[must_use]
    pub fn new() -> (Waiting, Self) {
        let waiting = Arc::new(());
        let awaited = Self(Arc::downgrade(&waiting));
        (Waiting(waiting), awaited)
    }

    /// Who has asked has hung up, has cancelled the call, or its time is over.
    #[must_use]
    pub fn by_nobody(&self) -> bool {
        self.0.strong_count() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Awaited;

    #[test]
    fn work_is_awaited_as_long_as_who_waits_is_there() {
        let (waiting, awaited) = Awaited::new();
        assert!(!awaited.by_nobody());
        drop(waiting);
        assert!(awaited.by_nobody());
    }
}
