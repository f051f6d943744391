//! The layer: it opens the session of each request.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Request, Response, StatusCode};
use http_body::Body;
use mcp_sessiond_proto::sessions::{Binding, Caller, Lifetimes, OnMismatch, Status};
use mcp_sessiond_proto::{Json, SessionId};
use tokio::runtime::Handle;
use tower_layer::Layer;
use tower_service::Service;

use super::begin_policy::{Begin, FirstRequest, Purpose, asked};
use super::session::HasLayer;
use super::unannounced::UnannouncedSession;
use super::wire::{SESSION_HEADER, SessionCookie, name_session, named_by_cookies, named_by_header};
use super::{Refusal, SessiondSession};
use crate::sessions::{CreateOptions, Sessions};

/// Opens the session of each request, and puts it into the request's extensions, as a
/// [`SessiondSession`].
///
/// | the request | then |
/// | --- | --- |
/// | names a session of its caller's | the request is passed on with the session |
/// | names a session that is unknown, has ended, or is another caller's | 404; where it is `initialize`, or a cookie names the session and the request may begin one: a new one |
/// | names by a cookie a session that was begun without a caller, while it has one | the same as one that is unknown: somebody else may have planted the cookie |
/// | names none | the request begins a session ([`Begin`]), is passed on without one ([`SessionLayer::optional`]), or gets 400 |
/// | does not show who sends it | the refusal of the function that tells the caller: 401 |
/// | is `server/discover` without a session | 404, -32601, where sessions are required: clients of MCP 2026-07-28, which has none, then send `initialize` |
/// | comes while the daemon is away | 503 with `Retry-After`, after [`Options::timeout`](crate::Options::timeout) |
///
/// The response names the session in the header `Mcp-Session-Id`, unless a cookie alone has named
/// it, and, where [cookies](SessionLayer::cookie) are on and the session is new, in the cookie
/// `mcp_session_id`. A new session whose request fails (4xx, 5xx), or whose client hangs up before
/// the response, is ended at once.
///
/// Put a layer for CORS above this one, so that a preflight needs no session. `Host` and `Origin`
/// are not checked here.
#[derive(Clone)]
pub struct SessionLayer(Arc<Rules>);

/// The function that tells a request's caller.
type WhoAsks = dyn Fn(&Parts) -> Result<Option<Caller>, Refusal> + Send + Sync;

/// The function that tells whether a request that names a session of its caller's begins another
/// one all the same, and with which metadata.
#[cfg(feature = "rmcp")]
type BeginsAnother = dyn Fn(
        &http::Extensions,
        crate::session::Session,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Option<Json>>, Refusal>> + Send>>
    + Send
    + Sync;

#[derive(Clone)]
struct Rules {
    sessions: Sessions,
    #[cfg(feature = "rmcp")]
    begins_another: Option<Arc<BeginsAnother>>,
    caller: Arc<WhoAsks>,
    begin: Begin,
    lifetimes: Lifetimes,
    is_optional: bool,
    cookie: Option<SessionCookie>,
}

impl fmt::Debug for SessionLayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rules {
            sessions,
            begin,
            is_optional,
            cookie,
            ..
        } = &*self.0;
        formatter
            .debug_struct("SessionLayer")
            .field("sessions", sessions)
            .field("begin", begin)
            .field("is_optional", is_optional)
            .field("cookie", cookie)
            .finish_non_exhaustive()
    }
}

impl SessionLayer {
    /// A layer for these sessions. `caller` tells on whose behalf a request is made: new sessions
    /// are bound to that caller, and others are refused. [`caller`](super::caller) has functions
    /// that are ready to use.
    #[must_use]
    pub fn new(
        sessions: Sessions,
        caller: impl Fn(&Parts) -> Result<Option<Caller>, Refusal> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Rules {
            sessions,
            #[cfg(feature = "rmcp")]
            begins_another: None,
            caller: Arc::new(caller),
            begin: Begin::default(),
            lifetimes: Lifetimes::default(),
            is_optional: false,
            cookie: None,
        }))
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// When a request that names no session begins one. By default when it is `initialize`.
    #[must_use]
    pub fn begin(self, begin: Begin) -> Self {
        self.with(|rules| rules.begin = begin)
    }

    /// Asks this function of each request that names a session.
    #[cfg(feature = "rmcp")]
    pub(crate) fn begins_another(self, asks: Arc<BeginsAnother>) -> Self {
        self.with(|rules| rules.begins_another = Some(asks))
    }

    /// How long new sessions live. By default as the daemon is configured.
    #[must_use]
    pub fn lifetimes(self, lifetimes: Lifetimes) -> Self {
        self.with(|rules| rules.lifetimes = lifetimes)
    }

    /// Requests that name no session are passed on without one.
    #[must_use]
    pub fn optional(self) -> Self {
        self.with(|rules| rules.is_optional = true)
    }

    /// Names sessions in the cookie `mcp_session_id`, too, and reads it where the header is
    /// missing.
    #[must_use]
    pub fn cookie(self, cookie: SessionCookie) -> Self {
        self.with(|rules| rules.cookie = Some(cookie))
    }
}

impl<S> Layer<S> for SessionLayer {
    type Service = SessionService<S>;

    fn layer(&self, inner: S) -> SessionService<S> {
        SessionService {
            inner,
            rules: self.0.clone(),
        }
    }
}

/// A service whose requests have sessions. [`SessionLayer`] makes it.
#[derive(Clone)]
pub struct SessionService<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S: fmt::Debug> fmt::Debug for SessionService<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SessionService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for SessionService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    R: From<String> + Send,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was asked whether it is ready.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let rules = self.rules.clone();
        Box::pin(async move {
            let (found, mut request) = match rules.find(request).await {
                Ok(found) => found,
                Err(Refused { refusal, id }) => {
                    return Ok(refusal.answering(id.as_deref().unwrap_or("null")));
                }
            };
            let extensions = request.extensions_mut();
            extensions.insert(HasLayer);
            if let Some(found) = &found {
                extensions.insert(found.session().clone());
            }
            #[cfg(feature = "rmcp")]
            if matches!(found, Some(Found::New(_))) {
                extensions.insert(super::BeginsSession);
            }
            let response = inner.call(request).await?;
            Ok(match found {
                None => response,
                Some(Found::Known(session)) => named_in(response, &session),
                Some(Found::ByCookie(_)) => response,
                Some(Found::New(new)) => rules.tell(new, response).await,
            })
        })
    }
}

/// The version of MCP that a request speaks.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The session of a request.
enum Found {
    Known(SessiondSession),
    /// By a cookie alone. Scripts of a page can read the header of a response, and not the cookie:
    /// so the response does not name it.
    ByCookie(SessiondSession),
    New(UnannouncedSession),
}

impl Found {
    fn session(&self) -> &SessiondSession {
        match self {
            Self::Known(session) | Self::ByCookie(session) => session,
            Self::New(new) => new.session(),
        }
    }
}

/// A refusal, and the id of the request of JSON-RPC that it answers, where that was read.
struct Refused {
    refusal: Refusal,
    id: Option<String>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, id: None }
    }
}

impl Rules {
    /// The session of a request, if it has one.
    async fn find<B>(&self, request: Request<B>) -> Result<(Option<Found>, Request<B>), Refused>
    where
        B: Body + From<Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let caller = (self.caller)(&parts)?;
        let refused = match self.named(&parts, caller.as_ref()).await? {
            Named::Session(found) => {
                let request = Request::from_parts(parts, body);
                #[cfg(feature = "rmcp")]
                if let Some(metadata) = self.another(request.extensions(), &found).await? {
                    let new = self.create(caller, metadata).await?;
                    return Ok((Some(Found::New(new)), without_session(request)));
                }
                return Ok((Some(found), request));
            }
            Named::Stale(refusal) => refusal,
            Named::None => Refusal::no_session(),
        };
        let (FirstRequest { what, id }, request) =
            asked(self.begin, Request::from_parts(parts, body)).await?;
        let refusal = match what {
            Purpose::Session(metadata) => match self.create(caller, metadata).await {
                Ok(new) => return Ok((Some(Found::New(new)), without_session(request))),
                Err(refusal) => refusal,
            },
            Purpose::Discovery | Purpose::Other if self.is_optional => return Ok((None, request)),
            Purpose::Discovery => Refusal::no_discover(),
            Purpose::Other => refused,
        };
        Err(Refused { refusal, id })
    }

    /// The metadata of the session that this request begins, though it names another one.
    #[cfg(feature = "rmcp")]
    async fn another(
        &self,
        extensions: &http::Extensions,
        found: &Found,
    ) -> Result<Option<Option<Json>>, Refusal> {
        let Some(asks) = &self.begins_another else {
            return Ok(None);
        };
        asks(extensions, found.session().0.clone()).await
    }

    async fn named(&self, parts: &Parts, caller: Option<&Caller>) -> Result<Named, Refusal> {
        if let Some(named) = named_by_header(&parts.headers) {
            return match self.open(named, caller).await {
                Ok((session, _)) => Ok(Named::Session(Found::Known(session))),
                // MCP has 404 for an unknown session (2025-11-25, Session Management). `initialize`
                // alone departs from that: clients send the id of a session that is gone, and would
                // get 404 until they are started again.
                Err(refusal)
                    if refusal.status == StatusCode::NOT_FOUND
                        && self.begin == Begin::OnInitialize =>
                {
                    Ok(Named::Stale(refusal))
                }
                Err(refusal) => Err(refusal),
            };
        }
        let mut found = Named::None;
        for named in self
            .cookie
            .iter()
            .flat_map(|_| named_by_cookies(&parts.headers))
        {
            match self.open(named, caller).await {
                // What nobody in particular has begun, and anybody may know, is not for a caller
                // that has a name.
                Ok((_, false)) if caller.is_some() => {
                    found = Named::Stale(Refusal::unknown_session());
                }
                Ok((session, _)) => return Ok(Named::Session(Found::ByCookie(session))),
                // A browser sends its cookie to the end, also that of a session which has ended, or
                // of somebody who has logged out.
                Err(refusal)
                    if matches!(
                        refusal.status,
                        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN
                    ) =>
                {
                    found = Named::Stale(refusal);
                }
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(found)
    }

    /// The session, and whether it is bound to a caller.
    async fn open(
        &self,
        named: &str,
        caller: Option<&Caller>,
    ) -> Result<(SessiondSession, bool), Refusal> {
        let id: SessionId = named.parse().map_err(|_| Refusal::unknown_session())?;
        let opened = match caller {
            Some(caller) => self.sessions.on_behalf_of(caller.clone()).opened(&id).await,
            None => self.sessions.opened(&id).await,
        };
        opened
            .map(|(session, is_bound)| (SessiondSession(session), is_bound))
            .map_err(Refusal::from)
    }

    async fn create(
        &self,
        caller: Option<Caller>,
        metadata: Option<Json>,
    ) -> Result<UnannouncedSession, Refusal> {
        let mut options = CreateOptions::default()
            .status(Status::ready())
            .lifetimes(self.lifetimes);
        if let Some(caller) = caller {
            options = options.binding(Binding {
                caller,
                on_mismatch: OnMismatch::Refuse,
            });
        }
        if let Some(metadata) = metadata {
            options = options.metadata(metadata);
        }
        let sessions = self.sessions.clone();
        let creating = async move {
            sessions
                .create(options)
                .await
                .map(|made| UnannouncedSession::of(SessiondSession(made)))
        };
        let Ok(runtime) = Handle::try_current() else {
            return Ok(creating.await?);
        };
        // In a task of its own: if the client hangs up meanwhile, the session ends as soon as it is
        // there.
        let failed = |_| {
            Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the layer has failed at this request",
            )
        };
        Ok(runtime.spawn(creating).await.map_err(failed)??)
    }

    /// The response to the first request of a session, which tells the client of it. If the request
    /// has failed, the session ends.
    async fn tell<R: From<String>>(
        &self,
        new: UnannouncedSession,
        response: Response<R>,
    ) -> Response<R> {
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            new.end().await;
            return response;
        }
        if response.headers().contains_key(SESSION_HEADER) {
            new.end().await;
            let message = "the server behind this layer has named a session of its own; switch its sessions off";
            return Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message).to_response();
        }
        let session = new.announced();
        let mut response = named_in(response, &session);
        if let Some(cookie) = &self.cookie {
            cookie.name_session(response.headers_mut(), session.id());
        }
        response
    }
}

/// The request without the session that it names, which is another one, and without the version of
/// MCP that this one speaks.
fn without_session<B>(mut request: Request<B>) -> Request<B> {
    let headers = request.headers_mut();
    if headers.remove(SESSION_HEADER).is_some() {
        headers.remove(VERSION);
    }
    request
}

fn named_in<R>(mut response: Response<R>, session: &SessiondSession) -> Response<R> {
    name_session(response.headers_mut(), session.id());
    response
}

/// What a request says of its session.
enum Named {
    Session(Found),
    /// A cookie that is of no use, and what a request gets that needs one which is.
    Stale(Refusal),
    None,
}
