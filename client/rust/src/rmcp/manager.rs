//! What rmcp asks for sessions and streams.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::empty;
use mcp_sessiond_http_session::handshake::Handshake;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_proto::SessionId;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionState, SessionStore, SessionStoreError,
};
use rmcp::transport::streamable_http_server::{RestoreOutcome, SessionId as Named, SessionManager};
use serde_json::value::{RawValue, to_raw_value};

use super::events::Events;
use super::handshake;
use super::live::{Live, NotBegun};
use super::request_scope::{Outcome, Purpose, RequestScope};
use super::table::Table;
use super::transport::DurableTransport;
use crate::tower::Refusal;

/// A request was refused. rmcp need not know more: the response is what [`RequestScope`] says. rmcp
/// logs an error of it, so it is told only where it must not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request was refused")]
pub(super) struct Refused;

/// The sessions, as rmcp sees them. The streams that it gets are empty: the response's events are
/// [`RequestScope`]'s.
pub(super) struct Manager(pub(super) Arc<Table>);

impl Manager {
    fn refuse(scope: &RequestScope, refusal: impl Into<Refusal>) -> Refused {
        scope.settle(Outcome::Refused(refusal.into()));
        Refused
    }

    /// The server of the request's session, which has used it now.
    fn used(&self, scope: &RequestScope) -> Result<Arc<Live>, Refusal> {
        let live = self.0.live(scope.session.id()).ok_or_else(ended)?;
        live.used_by(&scope.session);
        Ok(live)
    }

    async fn accept(
        &self,
        scope: &RequestScope,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Refusal> {
        self.used(scope)?.accept(message).await.map_err(|_| ended())
    }

    /// What a request is answered with.
    async fn stream(
        &self,
        scope: &RequestScope,
        message: ClientJsonRpcMessage,
    ) -> Result<Events, Refusal> {
        let JsonRpcMessage::Request(request) = message else {
            return Err(Refusal::failed());
        };
        if matches!(request.request, ClientRequest::InitializeRequest(_)) {
            return Self::repeat(scope, &request.id).await;
        }
        let (live, session) = (self.used(scope)?, scope.session.clone());
        // In a task of its own: a client that hangs up now has sent its request all the same.
        match tokio::spawn(async move { live.begin(session, request).await }).await {
            Ok(Ok(fresh)) => Ok(Events::New(fresh)),
            Ok(Err(NotBegun::Refused(error))) => Err(error.into()),
            Ok(Err(NotBegun::Closed)) => Err(ended()),
            Err(_) => Err(Refusal::failed()),
        }
    }

    /// The recorded answer, for a client that begins again with a session that it has.
    async fn repeat(scope: &RequestScope, id: &RequestId) -> Result<Events, Refusal> {
        let recorded = handshake::recorded(&scope.session).await?;
        let Handshake { result, .. } = recorded.ok_or_else(Refusal::unknown_session)?;
        let id = serde_json::to_string(id).unwrap_or_default();
        Ok(Events::One(answers::result(&id, result.get())))
    }
}

/// The server has ended a moment ago: the next request gets another one.
fn ended() -> Refusal {
    Refusal::for_now("the server of this session has just ended: send the request again")
}

impl SessionManager for Manager {
    type Error = Refused;
    type Transport = DurableTransport;

    async fn create_session(&self) -> Result<(Named, DurableTransport), Refused> {
        let scope = RequestScope::here().ok_or(Refused)?;
        Ok((
            scope.session.id().as_str().into(),
            self.0.insert(&scope.session),
        ))
    }

    async fn initialize_session(
        &self,
        _: &Named,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Refused> {
        let scope = RequestScope::here().ok_or(Refused)?;
        let live = self
            .used(&scope)
            .map_err(|refusal| Self::refuse(&scope, refusal))?;
        let asked = params(&message).ok_or(Refused)?;
        let answer = live
            .initialize(message)
            .await
            .map_err(|_| Self::refuse(&scope, Refusal::failed()))?;
        let JsonRpcMessage::Response(response) = &answer else {
            self.0.release(live.id());
            if scope.purpose == Purpose::Restore {
                return Err(Self::refuse(&scope, Refusal::failed()));
            }
            let _ = scope.session.terminate().await;
            return Ok(answer);
        };
        let result = to_raw_value(&response.result).map_err(|_| Refused)?;
        live.declares(&serde_json::from_str(result.get()).unwrap_or_default());
        let handshake = Handshake::new(asked, result);
        if scope.purpose == Purpose::Client {
            // Before the client knows its session.
            let stored = handshake::store(&handshake, &scope.session).await;
            stored.map_err(|error| {
                self.0.release(live.id());
                Self::refuse(&scope, error)
            })?;
        }
        live.ready(handshake.version);
        Ok(answer)
    }

    /// For a request of a client's it has been made sure of already.
    async fn has_session(&self, _: &Named) -> Result<bool, Refused> {
        Ok(RequestScope::here().is_some_and(|scope| scope.purpose == Purpose::Client))
    }

    async fn close_session(&self, id: &Named) -> Result<(), Refused> {
        let Some(scope) = RequestScope::here() else {
            if let Ok(id) = id.parse::<SessionId>() {
                self.0.is_gone(&id);
            }
            return Ok(());
        };
        match scope.session.terminate().await {
            Ok(()) => self.0.end(scope.session.id()),
            Err(error) => scope.settle(Outcome::Refused(error.into())),
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        _: &Named,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Refused> {
        let scope = RequestScope::here().ok_or(Refused)?;
        scope.settle(match self.stream(&scope, message).await {
            Ok(events) => Outcome::Events(events),
            Err(refusal) => Outcome::Refused(refusal),
        });
        Ok(empty())
    }

    async fn accept_message(
        &self,
        _: &Named,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Refused> {
        let scope = RequestScope::here().ok_or(Refused)?;
        if let Err(refusal) = self.accept(&scope, message).await {
            scope.settle(Outcome::Refused(refusal));
        }
        Ok(())
    }

    async fn create_standalone_stream(
        &self,
        _: &Named,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Refused> {
        Ok(empty())
    }

    async fn resume(
        &self,
        _: &Named,
        _: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Refused> {
        Ok(empty())
    }

    async fn restore_session(&self, _: Named) -> Result<RestoreOutcome<DurableTransport>, Refused> {
        let scope = RequestScope::here().ok_or(Refused)?;
        Ok(RestoreOutcome::Restored(self.0.insert(&scope.session)))
    }
}

/// The parameters of an `initialize`, as the server has understood them.
fn params(message: &ClientJsonRpcMessage) -> Option<Box<RawValue>> {
    let JsonRpcMessage::Request(request) = message else {
        return None;
    };
    let ClientRequest::InitializeRequest(initialize) = &request.request else {
        return None;
    };
    to_raw_value(&initialize.params).ok()
}

/// What rmcp restores a session from.
pub(super) struct Store;

type Stored<'a, T> = Pin<Box<dyn Future<Output = Result<T, SessionStoreError>> + Send + 'a>>;

impl Store {
    async fn recorded() -> Option<SessionState> {
        let scope = RequestScope::here()?;
        match handshake::recorded(&scope.session).await {
            Ok(handshake) => serde_json::from_str(handshake?.initialize.get())
                .ok()
                .map(SessionState::new),
            Err(error) => {
                scope.settle(Outcome::Refused(error.into()));
                None
            }
        }
    }
}

// What `async_trait` makes of the trait's methods.
impl SessionStore for Store {
    fn load<'a, 'b, 'c>(&'a self, _: &'b str) -> Stored<'c, Option<SessionState>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(async { Ok(Self::recorded().await) })
    }

    /// The manager has stored more of it before.
    fn store<'a, 'b, 'c, 'd>(&'a self, _: &'b str, _: &'c SessionState) -> Stored<'d, ()>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The manager has ended the session before.
    fn delete<'a, 'b, 'c>(&'a self, _: &'b str) -> Stored<'c, ()>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(std::future::ready(Ok(())))
    }
}
