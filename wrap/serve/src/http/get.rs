//! GET: the standalone stream, or any stream from an event on.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use mcp_sessiond_client::{Caller, Cursor, EventId, StreamId};

use super::accept::{EVENTS, takes};
use super::{LAST_EVENT, Server, events, named, session};
use crate::live::Live;
use crate::modern::only_posts;
use crate::refusal::Refusal;
use crate::tail::Tail;

pub(super) async fn get(
    State(table): State<Server>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    only_posts(&headers)?;
    takes(&headers, &[EVENTS])?;
    let live = session(&table, &caller, &headers).await?;
    // If this process has just taken up the session, its server waits for a front. A task of its own attaches to it, which goes on
    // when this client hangs up.
    let waking = tokio::spawn({
        let live = live.clone();
        async move { live.wake().await }
    });
    let tail = match named(&headers, &LAST_EVENT) {
        Some(event) => resumed(&live, EventId(event.to_owned())).await?,
        None => {
            waking.await.unwrap_or_else(|error| Err(Refusal::for_now(error.to_string())))?;
            Some(standalone(&live).await?)
        }
    };
    // 204: the stream has ended. With 200 a client would come again and again.
    Ok(tail.map_or_else(|| StatusCode::NO_CONTENT.into_response(), |tail| events(&headers, live.id(), tail)))
}

/// A stream from an event on. None: it has ended, and that was its last event.
async fn resumed(live: &Arc<Live>, event: EventId) -> Result<Option<Tail>, Refusal> {
    let found = live.held(live.session().find_event(&event)).await?;
    if found.ended {
        return Ok(None);
    }
    let stream = found.stream.stream;
    // Before what is stored is read: this reader is sent everything that comes after that.
    let reading = live.read(&stream);
    let after = Cursor::Event(event.clone());
    let mut tail = Tail::new(live.clone(), stream, found.position, after, reading).catching_up();
    // Some clients forget the id of the last event with each connection.
    tail.prime(&event);
    Ok(Some(tail))
}

/// The standalone stream, from the first event that no reader of it was sent.
pub(super) async fn standalone(live: &Arc<Live>) -> Result<Tail, Refusal> {
    live.wake().await?;
    if let Some(event) = live.told()
        && let Some(tail) = resumed(live, event).await?
    {
        return Ok(tail);
    }
    let stream = StreamId::standalone();
    let reading = live.read(&stream);
    let after = Cursor::Stream(stream.clone());
    let mut tail = Tail::new(live.clone(), stream.clone(), 0, after, reading).catching_up();
    let said = live.held(live.session().replay(&Cursor::Stream(stream.clone()))).await?;
    if said.events.is_empty() {
        let primed = live.held(live.session().stream(stream).prime()).await?;
        live.tell(primed.position, &primed.id);
        tail.prime(&primed.id);
    }
    Ok(tail)
}
