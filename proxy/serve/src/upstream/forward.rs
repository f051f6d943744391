//! A request that is passed on as it came: one of MCP 2026-07-28, which needs no session, or any
//! where nothing is kept. The connection to the server ends with that of the client, by which the
//! server knows that the request is cancelled, and the other way round.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, Method, Response, header};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mcp_sessiond_client::tower::SESSION_HEADER as SESSION;

use super::wire::{Connection, connect};
use crate::refusal::{Refusal, no_server};
use crate::url::Url;

/// The headers of a request that the server gets, beside those that begin with `mcp-`. Not ours:
/// `Authorization`, `Cookie`.
const PASSED_ON: [&str; 6] = [
    "accept",
    "content-type",
    "last-event-id",
    "traceparent",
    "tracestate",
    "baggage",
];
/// The headers of a response that the client gets.
const PASSED_BACK: [HeaderName; 6] = [
    SESSION,
    header::CONTENT_TYPE,
    header::CACHE_CONTROL,
    header::RETRY_AFTER,
    header::ALLOW,
    header::WWW_AUTHENTICATE,
];

/// Why there is no response.
#[derive(Debug)]
pub enum NotForwarded {
    /// The server has never got the request.
    Refused(Refusal),
    /// The connection broke before there was a response: the outcome is unknown.
    Unknown,
}

impl From<Refusal> for NotForwarded {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Passes a request on, and the response back, while it comes.
///
/// # Errors
/// When the server can't be reached within this time, or ends before it has answered.
pub async fn forward(
    url: &Url,
    wait: Duration,
    method: Method,
    headers: &HeaderMap,
    body: Bytes,
) -> Result<Response<Body>, NotForwarded> {
    let connected = connect(url, wait).await.map_err(|error| {
        NotForwarded::Refused(no_server(format_args!("{url} can't be reached: {error}")))
    })?;
    let is_ours =
        |name: &HeaderName| PASSED_ON.contains(&name.as_str()) || name.as_str().starts_with("mcp-");
    let headers = headers.iter().filter(|(name, _)| is_ours(name));
    let headers = headers
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let (response, connection) = connected
        .pass_on(method, headers, body)
        .await
        .map_err(|_| NotForwarded::Unknown)?;
    let (head, body) = response.into_parts();
    let mut back = Response::new(Body::from_stream(parts(body, connection)));
    *back.status_mut() = head.status;
    for name in PASSED_BACK {
        if let Some(value) = head.headers.get(&name) {
            back.headers_mut().insert(name, value.clone());
        }
    }
    back.headers_mut().insert(
        "x-accel-buffering",
        "no".parse().map_err(|_| NotForwarded::Unknown)?,
    );
    Ok(back)
}

/// The body, which ends the connection when it is dropped.
fn parts(
    body: Incoming,
    connection: Connection,
) -> impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static {
    futures::stream::unfold((body, connection), async |(mut body, connection)| {
        let part = match body.frame().await? {
            Ok(frame) => Ok(frame.into_data().unwrap_or_default()),
            Err(error) => Err(io::Error::other(error)),
        };
        Some((part, (body, connection)))
    })
}
