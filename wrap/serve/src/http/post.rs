//! POST: messages of the client.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use mcp_sessiond_client::{Caller, SessionId};
use serde_json::value::RawValue;
use tokio::task::JoinError;

use super::accept::{EVENTS, JSON, is_json, takes};
use super::{COOKIE, PATH, RECONNECT, SESSION, Server, body, cookie, events, name_session, named, session};
use crate::live::{Began, Live};
use crate::refusal::Refusal;
use crate::said::{self, Posted, PostedKind, posted};
use crate::settings::Settings;
use crate::which::Id;

pub(super) async fn post(
    State(table): State<Server>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response<Body>, Refusal> {
    takes(&headers, &[JSON, EVENTS])?;
    is_json(&headers)?;
    let (messages, is_batch) = posted(&body(sent, table.shared().settings.peer_wait).await?)?;
    if messages.iter().any(|message| matches!(message.kind, PostedKind::Initialize(..))) {
        return match <[Posted; 1]>::try_from(messages) {
            Ok([Posted { kind: PostedKind::Initialize(id, params), .. }]) if !is_batch => {
                initialize(&table, caller, &headers, &id, params).await
            }
            _ => Err(Refusal::invalid("`initialize` comes alone")),
        };
    }
    let live = session(&table, &caller, &headers).await?;
    if is_batch && !live.record().batches() {
        return Err(Refusal::invalid(format!("MCP {} has no batches", live.record().version)));
    }
    let id = live.id().clone();
    // To its end, though the client may hang up: that cancels nothing.
    if messages.iter().any(|message| matches!(message.kind, PostedKind::Call(_))) {
        let called = tokio::spawn(async move { live.call(messages, is_batch).await });
        Ok(events(&id, called.await.map_err(broken)??))
    } else {
        tokio::spawn(async move { live.post(messages).await }).await.map_err(broken)??;
        Ok(StatusCode::ACCEPTED.into_response())
    }
}

fn broken(_: JoinError) -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "this was not carried out to its end")
}

/// Begins a session, or goes on with the one that is named.
async fn initialize(
    table: &Server,
    caller: Caller,
    headers: &HeaderMap,
    id: &Id,
    params: Box<RawValue>,
) -> Result<Response<Body>, Refusal> {
    let settings = &table.shared().settings;
    if let Some(live) = known(table, &caller, headers).await? {
        return Ok(handshaken(settings, &live, id));
    }
    // To its end, so that nothing is left half made.
    let table = table.clone();
    let began = tokio::spawn({
        let table = table.clone();
        async move { table.begin(caller, params).await }
    });
    match began.await.map_err(broken)?? {
        Began::Session(live) => Ok(handshaken(&table.shared().settings, &live, id)),
        Began::Refused(error) => Ok(json(said::error(id, &error))),
    }
}

/// The session that an `initialize` would go on with.
async fn known(table: &Server, caller: &Caller, headers: &HeaderMap) -> Result<Option<Arc<Live>>, Refusal> {
    let own = named(headers, &SESSION);
    let wished = named(headers, &RECONNECT).or_else(|| cookie(&table.shared().settings, headers));
    let Some(name) = own.or(wished) else { return Ok(None) };
    let found = match name.parse::<SessionId>() {
        Ok(session) => table.find(&session, caller).await,
        Err(_) => Err(Refusal::unknown_session()),
    };
    match found {
        Ok(live) => Ok(Some(live)),
        // A wish, which may come too late.
        Err(refusal) if own.is_none() && refusal == Refusal::unknown_session() => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// The answer to `initialize` that is on record.
fn handshaken(settings: &Settings, live: &Live, id: &Id) -> Response<Body> {
    let mut response = json(said::result(id, &live.record().result));
    let headers = response.headers_mut();
    name_session(headers, live.id());
    if settings.cookie {
        let secure = if settings.origins.iter().any(|origin| origin.starts_with("https://")) {
            "; Secure"
        } else {
            ""
        };
        let cookie = format!("{COOKIE}={}; Path={PATH}; HttpOnly; SameSite=Strict{secure}", live.id());
        if let Ok(value) = HeaderValue::from_str(&cookie) {
            headers.insert(header::SET_COOKIE, value);
        }
    }
    response
}

fn json(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}
