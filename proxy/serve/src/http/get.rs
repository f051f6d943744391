//! GET: the standalone stream, or any stream from an event on.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use mcp_sessiond_client::{Caller, EventId};

use super::accept::{EVENTS, takes};
use super::{LAST_EVENT, Server, events, named, session};
use crate::modern::only_posts;
use crate::refusal::Refusal;

pub(super) async fn get(
    State(table): State<Server>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Response<Body>, Refusal> {
    only_posts(&headers)?;
    takes(&headers, &[EVENTS])?;
    if let Some(through) = table.through() {
        return through
            .pass(Method::GET, &caller, &headers, Bytes::new())
            .await;
    }
    let served = session(&table, &caller, &headers).await?;
    // If this process has just taken up the session, its server waits for a front. A task of its
    // own attaches to it, which goes on when this client hangs up.
    let waking = tokio::spawn({
        let served = served.clone();
        async move { served.wake().await }
    });
    let parts = match named(&headers, &LAST_EVENT) {
        Some(event) => served.resume(EventId(event.to_owned())).await?,
        None => {
            waking
                .await
                .unwrap_or_else(|error| Err(Refusal::for_now(error.to_string())))?;
            Some(served.listen().await?)
        }
    };
    // 204: the stream has ended. With 200 a client would come again and again.
    Ok(parts.map_or_else(
        || StatusCode::NO_CONTENT.into_response(),
        |parts| events(&headers, served.id(), parts),
    ))
}
