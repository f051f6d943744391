//! GET: the standalone stream, or any stream from an event on.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use mcp_sessiond_client::{Caller, Cursor, EventId, SessionError, StreamId};
use tokio::time::timeout;

use super::accept::{EVENTS, takes};
use super::{LAST_EVENT, Server, events, named, session};
use crate::live::Live;
use crate::refusal::Refusal;
use crate::tail::Tail;

pub(super) async fn get(
    State(table): State<Server>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    takes(&headers, &[EVENTS])?;
    let live = session(&table, &caller, &headers).await?;
    // Whoever listens wants to hear the server, which waits for its next front where this process has just taken up the session. In a
    // task of its own, which goes on when this client hangs up.
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
    // Said to its end. With 200 a client would come again and again.
    Ok(tail.map_or_else(|| StatusCode::NO_CONTENT.into_response(), |tail| events(live.id(), tail)))
}

/// A stream from an event on. None: it is said to its end.
async fn resumed(live: &Arc<Live>, event: EventId) -> Result<Option<Tail>, Refusal> {
    let found = held(live.settings().hold, live.session().find_event(&event)).await?;
    if found.ended {
        return Ok(None);
    }
    let stream = found.stream.stream;
    // Before the look at what was said: what comes after it is told to this reader.
    let reading = live.read(&stream);
    let after = Cursor::Event(event.clone());
    let mut tail = Tail::new(live.clone(), stream, found.position, after, reading).catching_up();
    if live.record().primes() {
        // The client's memory of where it was does not outlast this connection.
        tail.prime(&event);
    }
    Ok(Some(tail))
}

/// The standalone stream, from what no reader of it was given.
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
    if live.record().primes() {
        let hold = live.settings().hold;
        let said = held(hold, live.session().replay(&Cursor::Stream(stream.clone()))).await?;
        if said.events.is_empty() {
            let primed = held(hold, live.session().stream(stream).prime()).await?;
            live.tell(primed.position, &primed.id);
            tail.prime(&primed.id);
        }
    }
    Ok(tail)
}

async fn held<T>(hold: Duration, call: impl Future<Output = Result<T, SessionError>>) -> Result<T, Refusal> {
    match timeout(hold, call).await {
        Ok(answer) => answer.map_err(Refusal::from),
        Err(_) => Err(Refusal::daemon_away(hold)),
    }
}
