//! The session that a caller's server belongs to. Clients see nothing of it: it is where the next
//! process finds the server.

use std::time::Duration;

use mcp_sessiond_client::{self as client, SessionError, SessionId, SessionStatus, Update};

use crate::live::{held, terminated};
use crate::refusal::Refusal;

/// A session of the daemon's, or only an id where nothing is kept.
#[derive(Debug, Clone)]
pub(super) struct Session {
    id: SessionId,
    kept: Option<client::Session>,
}

impl Session {
    /// The session of this id. `kept`: none where the daemon does not keep it.
    #[must_use]
    pub(super) fn new(id: SessionId, kept: Option<client::Session>) -> Self {
        Self { id, kept }
    }

    /// Its id.
    #[must_use]
    pub(super) fn id(&self) -> &SessionId {
        &self.id
    }

    /// As the daemon keeps it.
    #[must_use]
    pub(super) fn kept(&self) -> Option<&client::Session> {
        self.kept.as_ref()
    }

    /// Notes that its server speaks this era.
    ///
    /// # Errors
    /// Those of the daemon.
    pub(super) async fn ready(&self, hold: Duration) -> Result<(), Refusal> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        held(
            hold,
            kept.update(Update::default().status(SessionStatus::Ready)),
        )
        .await
        .map(drop)
    }

    /// Tells the daemon that it is in use.
    ///
    /// # Errors
    /// Those of the daemon.
    pub(super) async fn touch(&self) -> Result<(), SessionError> {
        match &self.kept {
            Some(kept) => kept.touch().await.map(drop),
            None => Ok(()),
        }
    }

    /// Ends it, unless it has ended already.
    ///
    /// # Errors
    /// When the daemon could not be told.
    pub(super) async fn terminate(&self) -> Result<(), Refusal> {
        match &self.kept {
            Some(kept) => terminated(kept).await,
            None => Ok(()),
        }
    }
}
