//! The eras that have ended, of sessions that may go on: what is kept of such an era is no longer
//! so.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mcp_sessiond_client::SessionId;

/// One for each session at most.
#[derive(Debug, Default)]
pub(super) struct Eras(Mutex<HashMap<SessionId, String>>);

impl Eras {
    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This era of the session has ended.
    pub(super) fn end(&self, session: &SessionId, era: &str) {
        self.all().insert(session.clone(), era.to_owned());
    }

    /// Whether this era of the session has ended.
    pub(super) fn has_ended(&self, session: &SessionId, era: &str) -> bool {
        self.all().get(session).is_some_and(|ended| ended == era)
    }

    /// The session has begun another era, or has ended.
    pub(super) fn forget(&self, session: &SessionId) {
        self.all().remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_many_sessions() {
        let eras = Eras::default();
        for number in 0..1000 {
            let session = SessionId::mint();
            for era in ["a", "b"] {
                eras.end(&session, era);
            }
            assert!(!eras.has_ended(&session, "a") && eras.has_ended(&session, "b"));
            assert!(!eras.has_ended(&SessionId::mint(), "b"));
            if number % 2 == 0 {
                eras.forget(&session);
            }
        }
        assert_eq!(eras.all().len(), 500, "one for each that goes on");
    }
}
