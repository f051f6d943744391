//! The service that answers requests.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use mcp_sessiond_proto::Json;
use mcp_sessiond_proto::sessions::METADATA_MAX;
use mcp_sessiond_proto::streams::EventId;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use tower_layer::Layer as _;
use tower_service::Service;

use super::body::{DurableBody, RequestBody};
use super::events::Events;
use super::handshake;
use super::manager::{Manager, Store};
use super::options::DurableOptions;
use super::posted::PostedMessage;
use super::request_scope::{Outcome, Purpose, RequestScope};
use super::table::Table;
use super::tail::{Replayed, Tail};
use crate::error::SessionError;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::tower::{
    BeginsSession, Refusal, SESSION_HEADER, SessionLayer, SessionService, SessiondSession,
    name_session,
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// How long the request that restores a session waits for the server's lists. Later ones hear of the
/// changes then.
const LISTS_TIMEOUT: Duration = Duration::from_secs(2);
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Sessions that survive the process that serves them: one line for a server on rmcp 3.9. `server`
/// makes a new server; it is called once for each session, and again in each process that restores
/// it. The result is a tower service, for `axum::Router::route_service` or anything else that takes
/// one. It must be called within a tokio runtime.
///
/// | when | then |
/// | --- | --- |
/// | the server is killed and started again | the client goes on with the same session, without `initialize`: the recorded handshake is repeated to the new server |
/// | it is killed in the middle of a call | the client gets what was sent before, once, and then an error, -32000, "the outcome of this call is unknown" |
/// | a client loses its connection | the call goes on; the client comes back with `Last-Event-ID` and gets the rest, once and in order |
/// | the daemon is away | requests get 503 with `Retry-After`; a call that runs goes on, and one line is logged |
///
/// `docs/authors.md` has all of it.
pub fn durable<S>(
    server: impl Fn() -> Result<S, io::Error> + Send + Sync + 'static,
    options: DurableOptions,
) -> DurableService<S>
where
    S: ServerHandler + Send + 'static,
{
    let table = Table::new(options.idle);
    let mut config = options.rmcp.clone();
    config.legacy_session_mode = true;
    config.session_store = Some(Arc::new(Store));
    config.sse_retry = None;
    let rmcp = StreamableHttpService::new(server, Arc::new(Manager(table.clone())), config);
    let sessions = Sessions::of_service(options.service.clone(), options.client.clone());
    let caller = options.caller.clone();
    let mut layer =
        SessionLayer::new(sessions, move |parts| caller(parts)).lifetimes(options.lifetimes);
    if let Some(cookie) = &options.cookie {
        layer = layer.cookie(cookie.clone());
    }
    let layer = layer.begins_another(Arc::new(|extensions: &Extensions, session: Session| {
        let posted = extensions.get::<PostedMessage>().cloned();
        Box::pin(async move { Ok(begins_another(posted, &session).await?) })
    }));
    DurableService(layer.layer(Inner(Arc::new(Shared {
        table,
        rmcp,
        options,
    }))))
}

/// Whether a request in a session begins another one: `initialize` by another client, or for another
/// version of MCP than the recorded one. Returns the new one's metadata.
async fn begins_another(
    posted: Option<PostedMessage>,
    session: &Session,
) -> Result<Option<Option<Json>>, SessionError> {
    let Some(PostedMessage::Initialize(params)) = posted else {
        return Ok(None);
    };
    let recorded = handshake::recorded(session).await?;
    let is_another = recorded.is_some_and(|recorded| !recorded.is_of(params.as_str()));
    Ok(is_another.then(|| Some(params).filter(|params| params.as_str().len() <= METADATA_MAX)))
}

/// Answers requests of MCP. [`durable`] makes it. Clones are the same service.
pub struct DurableService<S>(SessionService<Inner<S>>);

impl<S> Clone for DurableService<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> fmt::Debug for DurableService<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DurableService")
            .finish_non_exhaustive()
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<DurableBody>, Infallible>> + Send>>;

impl<S, B> Service<Request<B>> for DurableService<S>
where
    S: ServerHandler + Send + 'static,
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<DurableBody>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answering {
        let mut layer = self.0.clone();
        let request = request.map(RequestBody::of);
        if request.method() != Method::POST {
            return layer.call(request);
        }
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let (posted, body) = PostedMessage::read(body).await;
            if let Some(posted) = posted {
                parts.extensions.insert(posted);
            }
            layer.call(Request::from_parts(parts, body)).await
        })
    }
}

/// The service behind the layer: its requests have a session.
struct Inner<S>(Arc<Shared<S>>);

struct Shared<S> {
    table: Arc<Table>,
    rmcp: StreamableHttpService<S, Manager>,
    options: DurableOptions,
}

impl<S> Clone for Inner<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> Service<Request<RequestBody>> for Inner<S>
where
    S: ServerHandler + Send + 'static,
{
    type Response = Response<DurableBody>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Answering {
        let service = self.0.clone();
        Box::pin(async move {
            let answered = service.answer(request).await;
            Ok(answered.unwrap_or_else(|refusal| refusal.to_response()))
        })
    }
}

impl<S> Shared<S>
where
    S: ServerHandler + Send + 'static,
{
    async fn answer(
        self: Arc<Self>,
        request: Request<RequestBody>,
    ) -> Result<Response<DurableBody>, Refusal> {
        let Some(SessiondSession(session)) = SessiondSession::of(request.extensions()) else {
            return Err(Refusal::no_session());
        };
        let (mut parts, body) = request.into_parts();
        if let Some(PostedMessage::NotJson(answer)) = parts.extensions.get() {
            let mut response = Response::new(DurableBody::from(answer.clone()));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            return Ok(response);
        }
        let mut beginning = None;
        if parts.extensions.get::<BeginsSession>().is_some() {
            beginning = Some(Beginning {
                table: self.table.clone(),
                session: Some(session.clone()),
            });
        } else {
            // It may have been named by a cookie, of which rmcp knows nothing.
            name_session(&mut parts.headers, session.id());
            if parts.method == Method::POST && self.table.ready(session.id()).is_none() {
                let restoring = self.clone().restore(session.clone(), parts.clone());
                self.table.restore(session.id(), restoring).await?;
            }
        }
        let is_get = parts.method == Method::GET;
        let headers = is_get.then(|| parts.headers.clone());
        let scope = RequestScope::new(session, Purpose::Client);
        // Also a GET: rmcp looks at `Host`, `Origin` and `Accept`.
        let response = scope
            .scope(self.rmcp.handle(Request::from_parts(parts, body)))
            .await;
        if let Some(beginning) = beginning.filter(|_| response.status().is_success()) {
            beginning.has_begun();
        }
        if let Some(headers) = headers.filter(|_| response.status() == StatusCode::OK) {
            let (table, id) = (self.table.clone(), scope.session.id().clone());
            let replayed = move |event: &EventId| {
                if let Some(live) = table.live(&id) {
                    live.replayed(event);
                }
            };
            get(&scope, Box::new(replayed), &headers).await;
        }
        let (mut head, body) = response.into_parts();
        // The layer above names it.
        head.headers.remove(SESSION_HEADER);
        match scope.outcome() {
            None => Ok(Response::from_parts(head, DurableBody::of(body))),
            Some(Outcome::Refused(refusal)) => Err(refusal),
            Some(Outcome::Ended) => {
                let mut response = Response::new(DurableBody::from(String::new()));
                *response.status_mut() = StatusCode::NO_CONTENT;
                Ok(response)
            }
            Some(Outcome::Events(events)) => {
                head.headers.remove(CONTENT_LENGTH);
                head.headers.insert(CONTENT_TYPE, EVENT_STREAM);
                head.headers.insert(
                    CACHE_CONTROL,
                    HeaderValue::from_static("no-cache, no-transform"),
                );
                Ok(Response::from_parts(
                    head,
                    events.body(&self.options, &self.table.readers),
                ))
            }
        }
    }

    /// Makes a server for a session that another process has served, and repeats the recorded
    /// handshake to it. `parts`: of the request that needs it, which the server sees as that of the
    /// handshake.
    async fn restore(self: Arc<Self>, session: Session, mut parts: Parts) -> Result<(), Refusal> {
        // rmcp restores a session when a client reads its standalone stream, too, and nobody need
        // say anything for that.
        let needed_by = parts.clone();
        parts.method = Method::GET;
        parts.headers.insert(ACCEPT, EVENT_STREAM);
        for name in [LAST_EVENT_ID, VERSION, CONTENT_LENGTH] {
            parts.headers.remove(name);
        }
        let scope = RequestScope::new(session.clone(), Purpose::Restore);
        let request = Request::from_parts(parts, Full::<Bytes>::default());
        let response = scope.scope(self.rmcp.handle(request)).await;
        match (scope.outcome(), response.status()) {
            (Some(Outcome::Refused(refusal)), _) => Err(refusal),
            (_, StatusCode::OK) => {
                self.compare_lists(session, needed_by).await;
                Ok(())
            }
            // Its `initialize` was never answered.
            (_, StatusCode::NOT_FOUND) => Err(Refusal::unknown_session()),
            (_, status @ StatusCode::FORBIDDEN) => Err(Refusal::new(
                status,
                "requests from this `Host` or `Origin` are not allowed",
            )),
            _ => Err(Refusal::failed()),
        }
    }
}

impl<S> Shared<S> {
    /// Compares the lists of a server that was just made with those that the client knows. One that
    /// can't list, or a daemon that is away, is no reason not to serve.
    async fn compare_lists(&self, session: Session, parts: Parts) {
        let Some(live) = self.table.live(session.id()) else {
            return;
        };
        // In a task of its own, which goes on where this does not wait any longer.
        let compared = tokio::spawn(async move {
            let _ = live.compare_lists(&session, &parts).await;
        });
        let _ = tokio::time::timeout(LISTS_TIMEOUT, compared).await;
    }
}

/// A session that begins. Its server is let go when this is dropped before the client is told of
/// the session, as when the client hangs up.
struct Beginning {
    table: Arc<Table>,
    session: Option<Session>,
}

impl Beginning {
    fn has_begun(mut self) {
        self.session = None;
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.table.release(session.id());
        }
    }
}

/// What a GET reads. No server is needed for it.
async fn get(scope: &RequestScope, replayed: Replayed, headers: &HeaderMap) {
    let header = |name: HeaderName| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    let reading = Tail::begin(
        scope.session.clone(),
        Some(replayed),
        header(LAST_EVENT_ID),
        header(VERSION),
    )
    .await;
    scope.settle(match reading {
        Ok(Some(tail)) => Outcome::Events(Events::Stored(tail)),
        Ok(None) => Outcome::Ended,
        Err(error) => Outcome::Refused(error.into()),
    });
}
