//! Responses: a message, or a stream of events.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};

/// A message, which is JSON.
pub fn json(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// A stream of events.
pub fn event_stream(parts: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let mut response = Response::new(Body::from_stream(parts.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    // Else nginx waits for more before it passes anything on.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
