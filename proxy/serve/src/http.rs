//! Streamable HTTP (MCP 2025-11-25, Transports): requests and their responses.

mod accept;
mod get;
mod post;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, MethodRouter, post};
use axum::{Extension, Router};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use mcp_sessiond_client::tower::{SESSION_HEADER as SESSION, name_session, named_by_cookies};
use mcp_sessiond_client::{Caller, SessionId};
use mcp_sessiond_http_session::handshake::{ASSUMED, VERSIONS};
use tower_http::cors::{AllowHeaders, AllowOrigin, AllowPrivateNetwork, CorsLayer};

use crate::admission;
use crate::connections::Client;
use crate::inspect;
use crate::live::Live;
use crate::modern;
use crate::protected_resource;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::table::Table;

/// Where it is served.
pub const PATH: &str = "/mcp";

/// Where the client sees it, if that is elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct At(pub(crate) String);

/// Where the counts are.
const METRICS: &str = "/metrics";

/// Bytes that a body may have.
const BODY_MAX: usize = 4 * 1024 * 1024;

/// The session that an `initialize` would go on with, if it is there.
const RECONNECT: HeaderName = HeaderName::from_static("x-mcp-reconnect-session");
/// The version of MCP that a request speaks.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The last event that a reader was sent.
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

type Server = Arc<Table>;

/// The routes.
pub fn router(table: &Server) -> Router {
    let cors = cors(&table.shared().settings);
    Router::new()
        .merge(at_path(post(post::post).get(get::get).delete(delete)))
        .route(METRICS, axum::routing::get(metrics))
        .layer(middleware::from_fn_with_state(
            table.shared().settings.clone(),
            admitted,
        ))
        .with_state(table.clone())
        .merge(protected_resource::router(&table.shared().settings, PATH))
        .layer(cors)
        .merge(inspect::router(table))
        .layer(middleware::map_response_with_state(table.clone(), counted))
}

/// The routes of one of several servers, which has no page and no counts of its own.
pub(crate) fn single(table: &Server) -> Router {
    Router::new()
        .merge(at_path(post(post::post).get(get::get).delete(delete)))
        .layer(middleware::from_fn_with_state(
            table.shared().settings.clone(),
            admitted,
        ))
        .with_state(table.clone())
        .layer(cors(&table.shared().settings))
}

/// The routes of a server that is not there. Who is not admitted gets what they get of one that is
/// there.
pub(crate) fn missing(settings: &Arc<Settings>, name: &str) -> Router {
    let refusal = Refusal::new(
        StatusCode::NOT_FOUND,
        format!("there is no server {name:?} here"),
    );
    let refuse = move || std::future::ready(refusal.clone().into_response());
    Router::new()
        .merge(at_path(
            post(refuse.clone()).get(refuse.clone()).delete(refuse),
        ))
        .layer(middleware::from_fn_with_state(settings.clone(), admitted))
        .layer(cors(settings))
}

/// These handlers at [`PATH`], with a slash at its end or without. HEAD is not GET: it would take
/// the place of the reader of the standalone stream.
fn at_path<S: Clone + Send + Sync + 'static>(handlers: MethodRouter<S>) -> Router<S> {
    let handlers = handlers.on(MethodFilter::HEAD, async || {
        Refusal::not_allowed("GET, POST, DELETE", "HEAD is not allowed")
    });
    Router::new()
        .route(PATH, handlers.clone())
        .route(&format!("{PATH}/"), handlers)
}

/// Counts a response.
async fn counted(State(table): State<Server>, response: Response<Body>) -> Response<Body> {
    table.shared().counts.response(response.status().as_u16());
    response
}

/// Tells the counts.
async fn metrics(State(table): State<Server>) -> impl IntoResponse {
    let text = table.shared().counts.text(table.count());
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        text,
    )
}

/// For pages of the origins that were named.
fn cors(settings: &Settings) -> CorsLayer {
    let origins: Vec<HeaderValue> = settings
        .origins
        .iter()
        .filter_map(|origin| origin.parse().ok())
        .collect();
    let local = origins.clone();
    CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        // Tools name headers of their own (`Mcp-Param-…`).
        .allow_headers(AllowHeaders::mirror_request())
        .allow_credentials(true)
        // A page of a public site asks first whether this one, in the local network, wants it
        // (https://wicg.github.io/private-network-access).
        .allow_private_network(AllowPrivateNetwork::predicate(move |origin, _| {
            local.contains(origin)
        }))
        .expose_headers([
            SESSION,
            VERSION,
            header::RETRY_AFTER,
            header::WWW_AUTHENTICATE,
        ])
}

/// Admits a request, and notes on whose behalf it is made.
async fn admitted(
    State(settings): State<Arc<Settings>>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let caller = admission::check_single(request.headers())
        .and_then(|()| admission::check_origin(request.uri(), request.headers(), &settings))
        .and_then(|()| admission::caller(request.headers(), &settings));
    match caller {
        Ok(caller) => {
            if let Some(client) = request.extensions().get::<Arc<Client>>() {
                client.let_in();
            }
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(refusal) => {
            let mut response = refusal.into_response();
            if settings.proof.jwt().is_some() {
                let (uri, headers) = (request.uri(), request.headers());
                let at = request.extensions().get::<At>();
                let path = at.map_or_else(|| uri.path(), |At(path)| path);
                protected_resource::point_to(uri, headers, path, response.headers_mut());
            }
            response
        }
    }
}

/// Ends a session.
async fn delete(
    State(table): State<Server>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    modern::only_posts(&headers)?;
    let live = session(&table, &caller, &headers).await?;
    // In a task of its own, which goes on when the client hangs up.
    let ended = tokio::spawn(async move { live.end().await });
    ended.await.unwrap_or(Ok(()))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The session that a request names.
async fn session(
    table: &Server,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Arc<Live>, Refusal> {
    let live = match named(headers, &SESSION) {
        Some(named) => found(table, caller, named).await?,
        None => by_cookie(table, caller, headers)
            .await?
            .ok_or_else(Refusal::no_session)?,
    };
    speaks(&live, headers)?;
    Ok(live)
}

/// The session of this id.
async fn found(table: &Server, caller: &Caller, id: &str) -> Result<Arc<Live>, Refusal> {
    let id: SessionId = id.parse().map_err(|_| Refusal::unknown_session())?;
    table.find(&id, caller).await
}

/// The session that a cookie names, where cookies are taken. None: there is no cookie.
async fn by_cookie(
    table: &Server,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Option<Arc<Live>>, Refusal> {
    let mut refused = None;
    for named in named_by_cookies(headers).filter(|_| table.shared().settings.cookie) {
        match found(table, caller, named).await {
            Ok(live) => return Ok(Some(live)),
            Err(refusal) => refused = Some(refusal),
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Checks the version of MCP that a request names.
fn speaks(live: &Live, headers: &HeaderMap) -> Result<(), Refusal> {
    let version = named(headers, &VERSION).unwrap_or(ASSUMED);
    if version == live.handshake().version || VERSIONS.contains(&version) {
        return Ok(());
    }
    let known = VERSIONS.join(", ");
    Err(Refusal::invalid(format!(
        "`MCP-Protocol-Version` is not a supported version; supported are {known}"
    )))
}

fn named<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Reads the body.
async fn body(body: Body, wait: Duration) -> Result<Bytes, Refusal> {
    let read = tokio::time::timeout(wait, Limited::new(body, BODY_MAX).collect());
    match read.await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("a body has at most {BODY_MAX} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Ok(Err(_)) => Err(Refusal::invalid("the body ended early")),
        Err(_) => Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time",
        )),
    }
}

/// A response to a request with these headers, in a session.
fn in_session(
    headers: &HeaderMap,
    session: &SessionId,
    mut response: Response<Body>,
) -> Response<Body> {
    // Scripts of a page can read the header, and not the cookie.
    if headers.contains_key(SESSION) {
        name_session(response.headers_mut(), session);
    }
    response
}
