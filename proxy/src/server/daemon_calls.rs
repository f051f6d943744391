//! What a front asks the daemon, other than to find its backend.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcp_sessiond_client::{Control, Options, SessionError, Start};
use mcp_sessiond_process::runtime;
use mcp_sessiond_proto::backends::{StopReason, StopRequest};
use mcp_sessiond_proto::client::Client;
use mcp_sessiond_proto::services::FindRequest;
use mcp_sessiond_proto::types::{LeaseRef, LossToldRequest};
use mcp_sessiond_proto::{BackendName, LossId};

/// How long a stop may take: a server has `backends.stop_wait_ms` to end, a minute at most.
const STOP_WAIT: Duration = Duration::from_secs(75);

/// How long a release may take: nobody waits for it.
pub(super) const RELEASE_WAIT: Duration = Duration::from_secs(5);

/// The lease that a front has, if any.
pub(super) type Lease = Arc<Mutex<Option<LeaseRef>>>;

/// What is asked about a session, and one of its backends.
#[derive(Debug, Clone)]
pub struct SessionCalls {
    options: Options,
    lease: Lease,
    backend: Option<BackendName>,
}

impl SessionCalls {
    pub(super) fn new(options: Options, lease: Lease, backend: Option<BackendName>) -> Self {
        Self {
            options,
            lease,
            backend,
        }
    }

    /// Whether this front has the session, and so may end what is in it.
    pub fn has_lease(&self) -> bool {
        self.lease
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some()
    }

    /// Ends the backend, and waits until it is gone: it may hold a port or a lock. Without a keeper there is
    /// nothing to be ended.
    pub async fn stop(self) {
        let Some((control, LeaseRef { session, epoch })) = self.begin(StopReason::Asked).await
        else {
            return;
        };
        // The daemon is asked again and again while a backend is being ended.
        let request = FindRequest {
            session,
            epoch,
            service: None,
            backend: self.backend,
        };
        drop(control.ask(Client::find_backend, request).await);
    }

    /// Has the daemon end it, for this reason. It may not be gone yet when this returns.
    pub(super) async fn stop_for(self, why: StopReason) {
        drop(self.begin(why).await);
    }

    /// Gives the lease up, for the next front: this one only waits for answers. Where the daemon can't
    /// be told, it is told by our exit.
    pub async fn release(self) {
        let lease = self
            .lease
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(lease) = lease else { return };
        let options = self.options.start(Start::Never);
        let control = Control::new(options.timeout(RELEASE_WAIT));
        drop(control.ask(Client::release, lease).await);
    }

    /// None where there is no session, or the daemon was not told.
    async fn begin(&self, why: StopReason) -> Option<(Control, LeaseRef)> {
        let lease = self
            .lease
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        let request = StopRequest {
            session: lease.session.clone(),
            service: None,
            backend: self.backend.clone(),
            why,
        };
        let control = Control::new(self.options.clone().timeout(STOP_WAIT));
        match control.ask(Client::stop_backend, request).await {
            Ok(()) | Err(SessionError::Refused(_)) => Some((control, lease)),
            Err(_) => None,
        }
    }
}

/// Tells the daemon that a user was told of a loss. If it can't be told, the next claim carries the
/// loss once more.
pub(super) fn loss_told(options: Options, lease: LeaseRef, loss: LossId) {
    let runtime = runtime::current_thread();
    let Ok(runtime) = runtime else { return };
    let request = LossToldRequest {
        session: lease.session,
        epoch: lease.epoch,
        service: None,
        losses: vec![loss],
    };
    let control = Control::new(options.timeout(RELEASE_WAIT));
    drop(runtime.block_on(control.ask(Client::loss_told, request)));
}
