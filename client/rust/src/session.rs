//! One session: its life. What it contains is in the files below.

mod attachment;
mod of_instance;
mod replay;
mod state;
mod stream;
mod task;

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcp_sessiond_proto::client::CallError;
use mcp_sessiond_proto::sessions::{
    Caller, Lifetimes, MintRequest, Minted, ResetRequest, RotateRequest, Session as View,
    SessionRef, Status, UpdateRequest,
};
use mcp_sessiond_proto::{Epoch, Error, Json, RequestId, ServiceName, SessionId};

pub use attachment::Attachment;
pub use stream::Stream;
pub use task::{Task, TaskOptions, TaskUpdate};

use crate::connection::Connection;
use crate::connections::Connections;
use crate::credential;
use crate::deadline::Deadline;
use crate::error::SessionError;
use crate::retrying_client::{NumberedConnection, RetryingClient};
use crate::runtime::driven;
use crate::sessiond::Sessiond;

/// A session of a host's or of a service's. Clones are the same session.
///
/// Calls may be made from several tasks at once. One whose answer is lost is made again, and that
/// comes to the same: an append is not appended twice. Where it can't be told, it says so
/// ([`SessionError::Uncertain`], and `outcome_unknown` where the daemon could not tell until
/// [`Options::timeout`](crate::Options::timeout)).
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    connections: Arc<Connections>,
    id: SessionId,
    hold: Hold,
    /// Who asks; it changes when a credential is rotated.
    caller: Mutex<Option<Caller>>,
}

/// By what right a session is changed.
#[derive(Debug, Clone)]
pub(crate) enum Hold {
    /// A service's, that of its name.
    Service(ServiceName),
    /// A host's, that of a lease of this process. It outlives connections and daemons.
    Leased(Epoch),
    /// A host's, that of the lease that this claims.
    Claimed(Sessiond),
}

/// What is to be different about a session. What is absent stays.
#[derive(Debug, Clone, Default)]
pub struct Update {
    status: Option<Status>,
    metadata: Option<Json>,
    lifetimes: Lifetimes,
}

impl Update {
    /// How far it has come. `Terminated` is refused: [`Session::terminate`] ends a session.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// What the handshake said, in place of what it said before.
    #[must_use]
    pub fn metadata(mut self, metadata: Json) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// How long it lives. What is absent stays.
    #[must_use]
    pub fn lifetimes(mut self, lifetimes: Lifetimes) -> Self {
        self.lifetimes = lifetimes;
        self
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Session({}, {:?})", self.0.id, self.0.hold)
    }
}

impl Session {
    pub(crate) fn new(
        connections: Arc<Connections>,
        id: SessionId,
        hold: Hold,
        caller: Option<Caller>,
    ) -> Self {
        Self(Arc::new(Inner {
            connections,
            id,
            hold,
            caller: Mutex::new(caller),
        }))
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.0.id
    }

    /// By what a call of [`Control`](crate::Control) names it: not one of a lease that
    /// [`Sessiond`](crate::Sessiond) holds, since that may change.
    #[must_use]
    pub fn reference(&self) -> SessionRef {
        self.named(None)
    }

    /// The same session, asked for by this caller of the server. Where it is bound to another,
    /// calls are refused.
    #[must_use]
    pub fn on_behalf_of(&self, caller: Caller) -> Self {
        Self::new(
            self.0.connections.clone(),
            self.0.id.clone(),
            self.0.hold.clone(),
            Some(caller),
        )
    }

    /// The session as it is now, also when it was terminated.
    ///
    /// # Errors
    /// `unknown_session`, `binding_mismatch`.
    pub async fn view(&self) -> Result<View, SessionError> {
        self.call(
            |connection, context, of| async move { connection.get_session(context, of).await },
        )
        .await
    }

    /// Changes status, metadata or lifetimes.
    ///
    /// # Errors
    /// `invalid_argument`; those of every change: `unknown_session`, `session_terminated`,
    /// `binding_mismatch`, `quota_exceeded`, and where a host owns it `stale_epoch` and
    /// `lease_ended`.
    pub async fn update(&self, update: Update) -> Result<View, SessionError> {
        self.call(|connection, context, of| {
            let Update {
                status,
                metadata,
                lifetimes,
            } = update.clone();
            let request = UpdateRequest {
                of,
                status,
                metadata,
                lifetimes,
            };
            async move { connection.update_session(context, request).await }
        })
        .await
    }

    /// Says that the session is in use, which every other call does, too.
    ///
    /// # Errors
    /// `unknown_session`, `session_terminated`, `binding_mismatch`.
    pub async fn touch(&self) -> Result<(), SessionError> {
        self.call(
            |connection, context, of| async move { connection.touch_session(context, of).await },
        )
        .await
    }

    /// Empties the session: state, streams and events go, and former event ids are nothing any
    /// more.
    ///
    /// # Errors
    /// Those of every change ([`Session::update`]).
    pub async fn reset(&self) -> Result<View, SessionError> {
        // By this a repetition is known.
        let request = RequestId::mint();
        self.call(|connection, context, of| {
            let request = ResetRequest::new(of, Some(request.clone()));
            async move { connection.reset_session(context, request).await }
        })
        .await
    }

    /// Ends the session, once and for all. What is left says so, for a while.
    ///
    /// # Errors
    /// Those of every change ([`Session::update`]).
    pub async fn terminate(&self) -> Result<(), SessionError> {
        let tries = AtomicU32::new(0);
        let terminated = self.call(|connection, context, of| {
            tries.fetch_add(1, Ordering::Relaxed);
            async move { connection.terminate_session(context, of).await }
        });
        match terminated.await {
            // A host's session that has ended is none of its sessions, to whoever would change it.
            Err(SessionError::Refused(Error::UnknownSession))
                if tries.load(Ordering::Relaxed) > 1 =>
            {
                Ok(())
            }
            terminated => terminated,
        }
    }

    /// Binds the session to a new credential, of which only the hash is sent. The former one stays
    /// good for a minute at least. This session and its clones ask by the new one from now on; what
    /// [`Session::on_behalf_of`] has made goes on as it was.
    ///
    /// # Errors
    /// `invalid_argument` where it is bound to no credential; those of every change
    /// ([`Session::update`]).
    pub async fn rotate_credential(&self, credential: &[u8]) -> Result<(), SessionError> {
        let hash = credential::hash(credential);
        // The call may be repeated as the former caller, which must not have become a stranger by
        // then.
        let patience_ms =
            u64::try_from(self.0.connections.options.timeout.as_millis()).unwrap_or(u64::MAX);
        let grace_ms = Some(GRACE_MS.max(patience_ms.saturating_mul(2)));
        self.call(|connection, context, of| {
            let request = RotateRequest { of, hash, grace_ms };
            async move { connection.rotate_credential(context, request).await }
        })
        .await?;
        *self.0.caller.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Caller::Credential { hash });
        Ok(())
    }

    /// Makes a handle, by which [`Sessions::open_handle`](crate::Sessions::open_handle) finds the
    /// session again. `life` is at most what is configured, which it is where absent. Where an
    /// answer is lost there is one more, which nobody knows.
    ///
    /// # Errors
    /// `quota_exceeded`, `invalid_argument`; those of every change ([`Session::update`]).
    pub async fn mint_handle(&self, life: Option<Duration>) -> Result<Minted, SessionError> {
        let life_ms = life.map(|life| u64::try_from(life.as_millis()).unwrap_or(u64::MAX));
        self.call(|connection, context, of| {
            let request = MintRequest { of, life_ms };
            async move { connection.mint_handle(context, request).await }
        })
        .await
    }
}

/// How long a credential stays good that was rotated out, in ms: longer than a request to the
/// server is under way.
const GRACE_MS: u64 = 60_000;

impl Session {
    /// A call of this session's, on the connection for those that are answered at once.
    async fn call<T, F>(
        &self,
        call: impl Fn(Connection, Duration, SessionRef) -> F,
    ) -> Result<T, SessionError>
    where
        F: Future<Output = Result<Result<T, Error>, CallError>>,
    {
        Ok(self.call_with_connection(call).await?.0)
    }

    /// The same. Tells the connection, too.
    async fn call_with_connection<T, F>(
        &self,
        call: impl Fn(Connection, Duration, SessionRef) -> F,
    ) -> Result<(T, NumberedConnection), SessionError>
    where
        F: Future<Output = Result<Result<T, Error>, CallError>>,
    {
        let Connections { client, .. } = &*self.0.connections;
        let deadline = self.0.connections.deadline();
        driven(async {
            let _permit = client.permit(deadline).await?;
            client
                .repeat(deadline, async || self.ready(deadline).await, call)
                .await
        })
        .await
    }

    /// A connection on which this process speaks for the session, and what a call says of it.
    async fn ready(
        &self,
        deadline: Deadline,
    ) -> Result<(NumberedConnection, SessionRef), SessionError> {
        if let Hold::Claimed(sessiond) = &self.0.hold {
            let (epoch, link) = sessiond.leased(&self.0.id, deadline).await?;
            return Ok((link, self.named(Some(epoch))));
        }
        let Connections {
            client, options, ..
        } = &*self.0.connections;
        Ok((client.connect(options, deadline).await?, self.named(None)))
    }

    /// The same on another connection, for a call that changes nothing.
    async fn ready_on(
        &self,
        client: &RetryingClient,
        deadline: Deadline,
    ) -> Result<(NumberedConnection, SessionRef), SessionError> {
        let Connections { options, .. } = &*self.0.connections;
        let link = client.connect(options, deadline).await?;
        if let (Hold::Claimed(sessiond), Some(_)) = (&self.0.hold, options.claim.instance) {
            // On behalf of an ancestor: that has to be said on each connection.
            sessiond.leased(&self.0.id, deadline).await?;
            sessiond.claim_on(client, &link, deadline).await?;
        }
        Ok((link, self.named(None)))
    }

    fn named(&self, epoch: Option<Epoch>) -> SessionRef {
        let (service, epoch) = match &self.0.hold {
            Hold::Service(service) => (Some(service.clone()), None),
            Hold::Leased(epoch) => (None, Some(*epoch)),
            Hold::Claimed(_) => (None, epoch),
        };
        let caller = self
            .0
            .caller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        SessionRef {
            session: self.0.id.clone(),
            service,
            epoch,
            caller,
        }
    }
}
