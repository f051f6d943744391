//! What is known of a request while rmcp handles it. rmcp asks its session manager for sessions
//! and streams, and does not say for which request.

use std::sync::{Arc, Mutex, PoisonError};

use super::events::Events;
use crate::session::Session;
use crate::tower::Refusal;

tokio::task_local! {
    static SCOPE: Arc<RequestScope>;
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A client's.
    Client,
    /// It is this crate's own: rmcp is to make a server for the session, and to repeat the recorded
    /// handshake to it.
    Restore,
}

/// What the response is, in place of what rmcp makes of it.
pub(super) enum Outcome {
    Refused(Refusal),
    /// The stream was said to its end: 204. To any other status clients would come back for ever.
    Ended,
    Events(Events),
}

pub(super) struct RequestScope {
    /// On behalf of the request's caller.
    pub(super) session: Session,
    pub(super) purpose: Purpose,
    outcome: Mutex<Option<Outcome>>,
}

impl RequestScope {
    pub(super) fn new(session: Session, purpose: Purpose) -> Arc<Self> {
        Arc::new(Self {
            session,
            purpose,
            outcome: Mutex::default(),
        })
    }

    /// That of the request in whose task this is. None: in no request's.
    pub(super) fn here() -> Option<Arc<Self>> {
        SCOPE.try_with(Clone::clone).ok()
    }

    /// Runs the work of a request in this scope.
    pub(super) async fn scope<F: Future>(self: &Arc<Self>, work: F) -> F::Output {
        SCOPE.scope(self.clone(), work).await
    }

    pub(super) fn settle(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.outcome
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
