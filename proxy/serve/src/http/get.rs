//! GET: the standalone stream, or any stream from an event on.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use mcp_sessiond_client::{Caller, EventId};

use super::accept::takes_events;
use super::{LAST_EVENT, Server, in_session, named, session};
use crate::live::tail::{Tail, resumed, standalone};
use crate::modern::only_posts;
use crate::refusal::Refusal;
use crate::response::event_stream;

pub(super) async fn get(
    State(table): State<Server>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    only_posts(&headers)?;
    takes_events(&headers)?;
    let live = session(&table, &caller, &headers).await?;
    // If this process has just taken up the session, its server waits for a front. A task of its
    // own attaches to it, which goes on when this client hangs up.
    let waking = tokio::spawn({
        let live = live.clone();
        async move { live.wake().await }
    });
    if headers.contains_key(LAST_EVENT) && named(&headers, &LAST_EVENT).is_none() {
        return Err(Refusal::invalid(
            "`Last-Event-ID` is not ASCII, so it is not the id of an event",
        ));
    }
    let tail = match named(&headers, &LAST_EVENT) {
        Some(event) => resumed(&live, EventId(event.to_owned())).await?,
        None => {
            waking
                .await
                .unwrap_or_else(|error| Err(Refusal::for_now(error.to_string())))?;
            Some(standalone(&live).await?)
        }
    };
    // 204: the stream has ended. With 200 a client would come again and again.
    Ok(tail.map(Tail::parts).map_or_else(
        || StatusCode::NO_CONTENT.into_response(),
        |parts| in_session(&headers, live.id(), event_stream(parts)),
    ))
}
