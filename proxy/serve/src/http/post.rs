//! POST: messages of the client.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use mcp_sessiond_client::tower::SessionCookie;
use mcp_sessiond_client::{Caller, Json};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::accept::{EVENTS, JSON, is_json, takes};
use super::{
    At, PATH, RECONNECT, SESSION, Server, body, by_cookie, events, found, name_session, named,
    session,
};
use crate::live::tail::Tail;
use crate::live::{Beginning, Live};
use crate::messages::{self, Id, Posted, PostedKind, read_post};
use crate::refusal::Refusal;
use crate::response::json;
use crate::settings::Settings;

pub(super) async fn post(
    State(table): State<Server>,
    Extension(caller): Extension<Caller>,
    at: Option<Extension<At>>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response<Body>, Refusal> {
    takes(&headers, &[JSON, EVENTS])?;
    is_json(&headers)?;
    let sent = body(sent, table.shared().settings.peer_wait).await?;
    if let Some(answered) = table.modern(&caller, &headers, &sent).await {
        return Ok(answered);
    }
    let (messages, is_batch) = read_post(&sent)?;
    if messages
        .iter()
        .any(|message| matches!(message.kind, PostedKind::Initialize(..)))
    {
        return match <[Posted; 1]>::try_from(messages) {
            Ok(
                [
                    Posted {
                        kind: PostedKind::Initialize(id, params),
                        ..
                    },
                ],
            ) if !is_batch => {
                let path = at.as_ref().map_or(PATH, |Extension(At(path))| path);
                initialize(&table, caller, path, &headers, &id, params).await
            }
            _ => Err(Refusal::invalid("`initialize` comes alone")),
        };
    }
    let live = session(&table, &caller, &headers).await?;
    if is_batch && !live.record().batches() {
        return Err(Refusal::invalid(format!(
            "MCP {} has no batches",
            live.record().version
        )));
    }
    let session = live.id().clone();
    let calls: Vec<Id> = messages
        .iter()
        .filter_map(|message| message.kind.call().cloned())
        .collect();
    // In tasks of their own: when the client hangs up, that cancels nothing (MCP 2025-11-25,
    // Sending Messages to the Server).
    if calls.is_empty() {
        tokio::spawn(async move { live.post(messages).await })
            .await
            .map_err(|_| broken())??;
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    let called = tokio::spawn(async move { live.call(messages, is_batch).await.map(Tail::parts) });
    let Ok(called) = called.await else {
        let unknown: Vec<_> = calls
            .iter()
            .map(|id| messages::outcome_unknown(id))
            .collect();
        return Ok(json(errors(&unknown, is_batch)));
    };
    match called {
        Ok(parts) => Ok(events(&headers, &session, parts)),
        Err(refusal) if is_about_the_call(&refusal) => {
            let refused: Vec<_> = calls
                .iter()
                .map(|id| messages::refused(id, &refusal))
                .collect();
            Ok(json(errors(&refused, is_batch)))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Whether a refusal concerns the calls of a POST alone. They are answered as JSON-RPC has it, with
/// status 200: some clients (`mcp` 1.30 for Python) give up the whole session at any other status.
/// Status 503 stays: it says when to come again.
fn is_about_the_call(refusal: &Refusal) -> bool {
    refusal.status == StatusCode::BAD_REQUEST
        || refusal.status.is_server_error() && refusal.status != StatusCode::SERVICE_UNAVAILABLE
}

/// A response of these errors: one, or a batch.
fn errors(errors: &[Json], is_batch: bool) -> String {
    let errors: Vec<&str> = errors.iter().map(Json::as_str).collect();
    match &errors[..] {
        [error] if !is_batch => (*error).to_owned(),
        errors => format!("[{}]", errors.join(",")),
    }
}

fn broken() -> Refusal {
    Refusal::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "`serve` has failed at this request",
    )
}

/// Begins a session, or goes on with the one that is named.
async fn initialize(
    table: &Server,
    caller: Caller,
    path: &str,
    headers: &HeaderMap,
    id: &Id,
    params: Box<RawValue>,
) -> Result<Response<Body>, Refusal> {
    let settings = &table.shared().settings;
    if let Some(live) = known(table, &caller, headers).await? {
        let mut response = handshaken(settings, path, &live, id);
        // As for streams: what a cookie has named, scripts don't get to know.
        if !headers.contains_key(SESSION) && !headers.contains_key(RECONNECT) {
            response.headers_mut().remove(SESSION);
        }
        return Ok(response);
    }
    // In a task of its own, so that nothing is left half made. A session of which the client will
    // never hear ends at once.
    let (told, began) = oneshot::channel();
    tokio::spawn({
        let table = table.clone();
        async move {
            let began = table.begin(caller, params).await;
            if let Err(Ok(Beginning::Session(live))) = told.send(began) {
                drop(live.end().await);
            }
        }
    });
    match began.await.map_err(|_| broken())?? {
        Beginning::Session(live) => Ok(handshaken(settings, path, &live, id)),
        Beginning::Refused(error) => Ok(json(messages::error(id, &error))),
    }
}

/// The session that an `initialize` would go on with.
async fn known(
    table: &Server,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Option<Arc<Live>>, Refusal> {
    if let Some(own) = named(headers, &SESSION) {
        return found(table, caller, own).await.map(Some);
    }
    let (is_cookie, known) = match named(headers, &RECONNECT) {
        Some(wished) => (false, found(table, caller, wished).await.map(Some)),
        None => (true, by_cookie(table, caller, headers).await),
    };
    match known {
        // A wish, which may come too late.
        Err(refusal) if refusal == Refusal::unknown_session() => Ok(None),
        // Browsers keep a cookie for longer than a token is valid.
        Err(refusal) if is_cookie && refusal.status == StatusCode::FORBIDDEN => Ok(None),
        known => known,
    }
}

/// The answer to `initialize` that is on record.
fn handshaken(settings: &Settings, path: &str, live: &Live, id: &Id) -> Response<Body> {
    let mut response = json(messages::result(id, &live.record().result));
    let headers = response.headers_mut();
    name_session(headers, live.id());
    if settings.cookie {
        let secure = settings
            .origins
            .iter()
            .any(|origin| origin.starts_with("https://"));
        SessionCookie::default()
            .path(path)
            .secure(secure)
            .name_session(headers, live.id());
    }
    response
}
