//! The sessions of one owner: made, opened, listed.

use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_proto::client::CallError;
use mcp_sessiond_proto::services::{SecretRequest, ServiceSecret};
use mcp_sessiond_proto::sessions::{
    Binding, Caller, CreateRequest, Handle, Lifetimes, OpenHandleRequest, OwnSessions,
    Session as View, SessionRef, Status,
};
use mcp_sessiond_proto::{Error, Json, RequestId, ServiceName, SessionId};

use crate::connection::Connection;
use crate::connections::Connections;
use crate::error::SessionError;
use crate::options::Options;
use crate::runtime::driven;
use crate::session::{Hold, Session};

/// The sessions of a host or of a service, and the connections to the daemon that they share.
/// Clones are the same.
///
/// Every call says what went wrong. What passes is waited for, within [`Options::timeout`]: a
/// daemon that is restarting or busy, an answer that was lost.
#[derive(Debug, Clone)]
pub struct Sessions {
    connections: Arc<Connections>,
    service: Option<ServiceName>,
    caller: Option<Caller>,
}

/// What a new session is made with. Without anything: it is `initializing`, bound to nobody, and
/// lives as configured.
#[derive(Debug, Clone, Default)]
pub struct CreateOptions {
    id: Option<SessionId>,
    binding: Option<Binding>,
    lifetimes: Lifetimes,
    status: Status,
    metadata: Option<Json>,
}

impl CreateOptions {
    /// Its id, which another owner may have chosen as well. By default a new one.
    #[must_use]
    pub fn id(mut self, id: SessionId) -> Self {
        self.id = Some(id);
        self
    }

    /// To whom it is bound. Every later call must come from the same caller; the session that is
    /// returned does.
    #[must_use]
    pub fn binding(mut self, binding: Binding) -> Self {
        self.binding = Some(binding);
        self
    }

    /// How long it lives.
    #[must_use]
    pub fn lifetimes(mut self, lifetimes: Lifetimes) -> Self {
        self.lifetimes = lifetimes;
        self
    }

    /// How far it has come.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    /// What the handshake said, up to 64 KiB.
    #[must_use]
    pub fn metadata(mut self, metadata: Json) -> Self {
        self.metadata = Some(metadata);
        self
    }
}

impl Sessions {
    /// The sessions of the host that started this process, as far as they are this server's: those
    /// that were claimed with its own key, and those that servers of its key have made. Nothing is
    /// sent before the first call. What the options say of a claim is not used: that is for
    /// [`Sessiond`](crate::Sessiond).
    #[must_use]
    pub fn of_host(options: Options) -> Self {
        Self {
            connections: Connections::new(options),
            service: None,
            caller: None,
        }
    }

    /// The sessions of a service, which every process of this user that says the name is. Nothing
    /// is sent before the first call.
    #[must_use]
    pub fn of_service(service: ServiceName, options: Options) -> Self {
        Self {
            connections: Connections::new(options),
            service: Some(service),
            caller: None,
        }
    }

    /// The same, asked for by this caller of the server: sessions that are bound to it can be
    /// opened.
    #[must_use]
    pub fn on_behalf_of(&self, caller: Caller) -> Self {
        Self {
            caller: Some(caller),
            ..self.clone()
        }
    }

    /// Makes a session. A host's is leased to this process.
    ///
    /// # Errors
    /// `already_exists`, `session_terminated`, `quota_exceeded`, `invalid_argument`; for a host's
    /// `no_verified_host`.
    ///
    /// ```no_run
    /// # async fn example(sessions: mcp_sessiond_client::Sessions) -> Result<(), Box<dyn std::error::Error>> {
    /// use mcp_sessiond_client::{Binding, CreateOptions, OnMismatch, SessionStatus, credential};
    ///
    /// let binding = Binding { caller: credential(b"the client's key"), on_mismatch: OnMismatch::Refuse };
    /// let options = CreateOptions::default().status(SessionStatus::ready()).binding(binding);
    /// let session = sessions.create(options).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create(&self, options: CreateOptions) -> Result<Session, SessionError> {
        let CreateOptions {
            id,
            binding,
            lifetimes,
            status,
            metadata,
        } = options;
        let caller = binding.as_ref().map(|binding| binding.caller.clone());
        let request = CreateRequest {
            // Of our own, so that the call may be repeated. Where a host owns it, the request alone
            // tells.
            session: id.or_else(|| self.service.as_ref().map(|_| SessionId::mint())),
            service: self.service.clone(),
            request: Some(RequestId::mint()),
            binding,
            lifetimes,
            status,
            metadata,
        };
        let made = self.call(|connection, context| {
            let request = request.clone();
            async move { connection.create_session(context, request).await }
        });
        self.opened_session(made.await?, caller)
    }

    /// Takes a session up by its id: one that lives. A host's is leased to this process.
    ///
    /// # Errors
    /// `unknown_session`, `session_terminated`, `binding_mismatch`; for a host's `session_held`,
    /// `no_verified_host`.
    pub async fn open(&self, id: &SessionId) -> Result<Session, SessionError> {
        Ok(self.opened(id).await?.0)
    }

    /// The same, and whether the session is bound to a caller.
    pub(crate) async fn opened(&self, id: &SessionId) -> Result<(Session, bool), SessionError> {
        let (service, caller) = (self.service.clone(), self.caller.clone());
        let of = SessionRef {
            session: id.clone(),
            service,
            epoch: None,
            caller,
        };
        let opened = self.call(|connection, context| {
            let of = of.clone();
            async move { connection.open_session(context, of).await }
        });
        let view = opened.await?;
        let is_bound = view.bound;
        Ok((self.opened_session(view, self.caller.clone())?, is_bound))
    }

    /// The session of this id, where they are a service's. Nothing is asked.
    #[cfg(feature = "rmcp")]
    pub(crate) fn at(&self, id: SessionId) -> Option<Session> {
        let hold = Hold::Service(self.service.clone()?);
        Some(Session::new(
            self.connections.clone(),
            id,
            hold,
            self.caller.clone(),
        ))
    }

    /// Takes up the session that a handle belongs to.
    ///
    /// # Errors
    /// `unknown_handle`, `handle_expired`; those of [`Sessions::open`].
    pub async fn open_handle(&self, handle: &Handle) -> Result<Session, SessionError> {
        let (service, caller) = (self.service.clone(), self.caller.clone());
        let request = OpenHandleRequest {
            handle: handle.clone(),
            service,
            caller,
        };
        let found = self.call(|connection, context| {
            let request = request.clone();
            async move { connection.open_handle(context, request).await }
        });
        let found = found.await?;
        // A handle leads to a host's session, and gives no lease.
        if self.service.is_none() {
            self.open(&found.session).await
        } else {
            self.opened_session(found, self.caller.clone())
        }
    }

    /// All of them, in order of their ids, without metadata. Those that were terminated are among
    /// them for a while.
    ///
    /// # Errors
    /// For a host's `no_verified_host`.
    pub async fn list(&self) -> Result<Vec<View>, SessionError> {
        let mut all: Vec<View> = Vec::new();
        loop {
            let after = all.last().map(|last| last.session.clone());
            let request = OwnSessions {
                service: self.service.clone(),
                after,
            };
            let page = self.call(|connection, context| {
                let request = request.clone();
                async move { connection.list_own_sessions(context, request).await }
            });
            let page = page.await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// The secret of the service, for what it hands to clients and wants back unchanged. All
    /// processes of the service share it, those of other machines too where the storage is shared.
    ///
    /// # Errors
    /// `invalid_argument` for the sessions of a host, and by a daemon that does not know secrets.
    pub async fn secret(&self) -> Result<ServiceSecret, SessionError> {
        self.ask_secret(false).await
    }

    /// Puts a new key in place of the current one, which counts for a day more.
    ///
    /// # Errors
    /// Those of [`Sessions::secret`]; `quota_exceeded` if that was done too often.
    pub async fn rotate_secret(&self) -> Result<ServiceSecret, SessionError> {
        self.ask_secret(true).await
    }

    async fn ask_secret(&self, rotate: bool) -> Result<ServiceSecret, SessionError> {
        let service = self.service.clone().ok_or_else(|| Error::InvalidArgument {
            sentence: "a service has a secret, and a host has none".into(),
        })?;
        // By this a repetition is known.
        let request = SecretRequest {
            service,
            rotate,
            request: rotate.then(RequestId::mint),
        };
        self.call(|connection, context| {
            let request = request.clone();
            async move { connection.service_secret(context, request).await }
        })
        .await
    }

    fn opened_session(&self, view: View, caller: Option<Caller>) -> Result<Session, SessionError> {
        let hold = match &self.service {
            Some(service) => Hold::Service(service.clone()),
            // A daemon that gives no lease is not of this protocol.
            None => Hold::Leased(view.epoch.ok_or(Error::Unknown)?),
        };
        Ok(Session::new(
            self.connections.clone(),
            view.session,
            hold,
            caller,
        ))
    }

    async fn call<T, F>(&self, call: impl Fn(Connection, Duration) -> F) -> Result<T, SessionError>
    where
        F: Future<Output = Result<Result<T, Error>, CallError>>,
    {
        let Connections {
            client, options, ..
        } = &*self.connections;
        let deadline = self.connections.deadline();
        driven(async {
            let _permit = client.permit(deadline).await?;
            let ready = async || Ok((client.connect(options, deadline).await?, ()));
            let repeated = client.repeat(deadline, ready, |connection, context, ()| {
                call(connection, context)
            });
            Ok(repeated.await?.0)
        })
        .await
    }
}
