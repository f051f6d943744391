//! POST: messages of the client.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use mcp_sessiond_client::tower::SessionCookie;
use mcp_sessiond_client::{Caller, Json};
use mcp_sessiond_http_session::messages::{Id, is_answer};
use mcp_sessiond_http_session::posted::{Posted, PostedKind, read_post};
use mcp_sessiond_http_session::{sse, substitute};
use mcp_sessiond_jsonrpc::answers;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::accept::{Accepted, EVENTS, accepted, is_json, not_acceptable};
use super::{
    At, PATH, RECONNECT, SESSION, Server, body, by_cookie, found, in_session, name_session, named,
    session,
};
use crate::live::{Beginning, Live};
use crate::refusal::{Refusal, malformed};
use crate::response::{event_stream, json};
use crate::settings::Settings;

pub(super) async fn post(
    State(table): State<Server>,
    Extension(caller): Extension<Caller>,
    at: Option<Extension<At>>,
    headers: HeaderMap,
    sent: Body,
) -> Result<Response<Body>, Refusal> {
    let accepted = accepted(&headers)?;
    is_json(&headers)?;
    let sent = body(sent, table.shared().settings.peer_wait).await?;
    if let Some(answered) = table.modern(&caller, &headers, &sent).await {
        return match accepted {
            Accepted::Json if is_stream(&answered) => Err(not_acceptable(EVENTS)),
            _ => Ok(answered),
        };
    }
    let answered = answer(table, caller, at, &headers, accepted, sent).await?;
    let is_message = answered.status() == StatusCode::OK && !is_stream(&answered);
    match accepted {
        Accepted::Json if is_stream(&answered) => as_message(answered).await,
        Accepted::Events if is_message => as_event(answered).await,
        _ => Ok(answered),
    }
}

fn is_stream(response: &Response<Body>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes() == EVENTS.as_bytes())
}

/// The answers of a stream as one message, or as a batch if there are several. What else is said on
/// the stream has no place in it.
async fn as_message(response: Response<Body>) -> Result<Response<Body>, Refusal> {
    let (head, body) = response.into_parts();
    let text = body.collect().await.map_err(|_| broken())?.to_bytes();
    let text = String::from_utf8_lossy(&text);
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut answers: Vec<&str> = data.filter(|data| is_answer(data)).collect();
    let Some(last) = answers.pop() else {
        return Err(broken());
    };
    let mut message = json(if answers.is_empty() {
        last.to_owned()
    } else {
        format!("[{},{last}]", answers.join(","))
    });
    if let Some(session) = head.headers.get(SESSION) {
        message.headers_mut().insert(SESSION, session.clone());
    }
    Ok(message)
}

/// A message as the one event of a stream.
async fn as_event(response: Response<Body>) -> Result<Response<Body>, Refusal> {
    let (head, body) = response.into_parts();
    let text = body.collect().await.map_err(|_| broken())?.to_bytes();
    let event = sse::event(None, &String::from_utf8_lossy(&text));
    let mut stream = event_stream(futures::stream::iter([Bytes::from(event)]));
    for (name, value) in &head.headers {
        if ![CONTENT_TYPE, CONTENT_LENGTH].contains(name) {
            stream.headers_mut().append(name, value.clone());
        }
    }
    Ok(stream)
}

async fn answer(
    table: Server,
    caller: Caller,
    at: Option<Extension<At>>,
    headers: &HeaderMap,
    accepted: Accepted,
    sent: Bytes,
) -> Result<Response<Body>, Refusal> {
    let (messages, is_batch) = read_post(&sent).map_err(malformed)?;
    let refused = messages.iter().find_map(|message| match &message.kind {
        PostedKind::NotJson(id, why) => Some((id, why)),
        _ => None,
    });
    match refused {
        Some((id, why)) if !is_batch => return Ok(json(substitute::not_json_params(id, why))),
        // Nothing of a batch is carried out then.
        Some((_, why)) => return Err(Refusal::invalid(why.clone())),
        None => {}
    }
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
                initialize(&table, caller, path, headers, &id, params).await
            }
            _ => Err(Refusal::invalid("`initialize` can't be part of a batch")),
        };
    }
    let live = session(&table, &caller, headers).await?;
    if is_batch && !live.handshake().batches() {
        return Err(Refusal::invalid(format!(
            "MCP {} has no batches",
            live.handshake().version
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
    let as_json = (!is_batch && accepted == Accepted::Both)
        .then(|| {
            let settings = &table.shared().settings;
            as_json(settings.prefers_json, settings.keep_alive, headers)
        })
        .flatten();
    let called = tokio::spawn(async move { live.call(messages, is_batch).await });
    let Ok(called) = called.await else {
        let unknown: Vec<_> = calls
            .iter()
            .map(|id| substitute::outcome_unknown(id))
            .collect();
        return Ok(json(errors(&unknown, is_batch)));
    };
    match called {
        Ok(mut tail) => {
            let answer = match as_json {
                Some((more_than, wait)) => tail.only_answer(more_than, wait).await,
                None => None,
            };
            Ok(match answer {
                Some(answer) => in_session(headers, &session, json(answer)),
                None => in_session(headers, &session, event_stream(tail.parts())),
            })
        }
        Err(refusal) if is_about_the_call(&refusal) => {
            let refused: Vec<_> = calls
                .iter()
                .map(|id| substitute::refused(id, refusal.code, &refusal.message))
                .collect();
            Ok(json(errors(&refused, is_batch)))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Bytes of an event that `mcp` 2 for Python reads, which sends its requests by httpx2.
const SMALL_EVENT_MAX: usize = 1 << 20;

/// How long such a client waits for the head of a response. Until then it has no cursor by which it could come back.
const SMALL_EVENT_WAIT: Duration = Duration::from_secs(1);

/// Whether a client that accepts both gets an answer as a message: if its event has more than so many bytes, and it
/// comes within this time.
fn as_json(
    prefers_json: bool,
    keep_alive: Duration,
    headers: &HeaderMap,
) -> Option<(usize, Duration)> {
    let agent = headers
        .get(USER_AGENT)
        .and_then(|agent| agent.to_str().ok());
    let reads_small_events = agent.is_some_and(|agent| agent.contains("python-httpx2/"));
    match prefers_json {
        true => Some((0, keep_alive)),
        false => reads_small_events.then_some((SMALL_EVENT_MAX, SMALL_EVENT_WAIT)),
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
        "`serve` failed to handle this request",
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
    // By its own header a client asks for this session, whoever has begun it: so does our page.
    let is_asked_for = !headers.contains_key(SESSION) && headers.contains_key(RECONNECT);
    if let Some(live) = known(table, &caller, headers)
        .await?
        .filter(|live| is_asked_for || live.handshake().is_of(params.get()))
    {
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
        Beginning::Refused(error) => Ok(json(answers::failure(id, error.get()))),
    }
}

/// The session that an `initialize` would go on with. None: there is none any more, or it is
/// another caller's.
async fn known(
    table: &Server,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Option<Arc<Live>>, Refusal> {
    let wished = named(headers, &SESSION).or_else(|| named(headers, &RECONNECT));
    let known = match wished {
        Some(wished) => found(table, caller, wished).await.map(Some),
        None => by_cookie(table, caller, headers).await,
    };
    match known {
        // A wish, which may come too late; and browsers keep a cookie for longer than a token is
        // valid. MCP has 404 for an unknown session (2025-11-25, Session Management). `initialize`
        // alone departs from that: clients send the id of a session that is gone, and would get
        // 404 until they are started again.
        Err(refusal) if refusal == Refusal::unknown_session() => Ok(None),
        known => known,
    }
}

/// The answer to `initialize` that is on record.
fn handshaken(settings: &Settings, path: &str, live: &Live, id: &Id) -> Response<Body> {
    let mut response = json(answers::result(id, live.handshake().result.get()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_reads_small_events_gets_larger_answers_as_messages() {
        let keep_alive = Duration::from_secs(15);
        let of = |agent: &str, prefers_json| {
            let headers = HeaderMap::from_iter([(USER_AGENT, agent.parse().expect("a value"))]);
            as_json(prefers_json, keep_alive, &headers)
        };
        let small = Some((SMALL_EVENT_MAX, SMALL_EVENT_WAIT));
        assert_eq!(of("python-httpx2/2.16.2", false), small);
        assert_eq!(of("python-httpx/0.28.1", false), None);
        assert_eq!(of("node", true), Some((0, keep_alive)));
        assert_eq!(as_json(false, keep_alive, &HeaderMap::new()), None);
    }
}
