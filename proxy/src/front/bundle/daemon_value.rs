//! Something that the daemon remembers for whoever asks: a value in a session of a service.

use std::time::Duration;

use mcp_sessiond_client::{
    CreateOptions, Lifetimes, Options, Session, SessionError, Sessions, StateKey,
};
use mcp_sessiond_proto::{Error, ServiceName, SessionId};
use sha2::{Digest as _, Sha256};

/// How long it is waited for the daemon. What can't be remembered is done without.
pub(super) const DAEMON_WAIT: Duration = Duration::from_secs(2);

/// Where a value is.
#[derive(Debug)]
pub(super) struct DaemonValue {
    sessions: Sessions,
    id: SessionId,
    pub(super) key: StateKey,
    idle: Duration,
}

impl DaemonValue {
    /// The place of `what`, of which only a digest is kept. After `idle` without a use the value is
    /// gone. None where that can't be a session of this service.
    pub(super) fn new(
        service: &str,
        what: &str,
        key: &str,
        idle: Duration,
        options: Options,
    ) -> Option<Self> {
        let service: ServiceName = service.parse().ok()?;
        let digest: String = Sha256::digest(what)
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let (id, key) = (digest.parse().ok()?, key.parse().ok()?);
        Some(Self {
            sessions: Sessions::of_service(service, options.timeout(DAEMON_WAIT)),
            id,
            key,
            idle,
        })
    }

    /// The session, if there is one.
    pub(super) async fn existing_session(&self) -> Result<Option<Session>, SessionError> {
        match self.sessions.open(&self.id).await {
            Err(SessionError::Refused(Error::UnknownSession)) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// The session, which is made if there is none.
    pub(super) async fn session(&self) -> Result<Session, SessionError> {
        if let Some(found) = self.existing_session().await? {
            return Ok(found);
        }
        let lifetimes = Lifetimes {
            idle_ms: u64::try_from(self.idle.as_millis()).ok(),
            ..Lifetimes::default()
        };
        let options = CreateOptions::default()
            .id(self.id.clone())
            .lifetimes(lifetimes);
        match self.sessions.create(options).await {
            // Another process was quicker.
            Err(SessionError::Refused(Error::AlreadyExists)) => self.sessions.open(&self.id).await,
            created => created,
        }
    }
}
