//! A message that is passed on as it came, to a server that speaks HTTP itself. The connection to
//! the server ends with that of the client, by which the server knows that the request is
//! cancelled, and the other way round.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use bytes::Bytes;
use mcp_sessiond_client::tower::SESSION_HEADER as SESSION;
use mcp_sessiond_http_session::substitute::outcome_unknown;
use mcp_sessiond_upstream::{NotForwarded, Remote};

use super::envelope::Posted;
use crate::passed_headers::PassedHeaders;
use crate::refusal::no_server;
use crate::response::json;

/// The headers of a request that the server gets, beside those that begin with `mcp-`, and those of
/// `--pass-header`. Not ours: `Authorization`, `Cookie`.
const PASSED_ON: [&str; 7] = [
    "accept",
    "accept-encoding",
    "content-type",
    "last-event-id",
    "traceparent",
    "tracestate",
    "baggage",
];
/// The headers of a response that the client gets.
const PASSED_BACK: [HeaderName; 7] = [
    SESSION,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CACHE_CONTROL,
    header::RETRY_AFTER,
    header::ALLOW,
    header::WWW_AUTHENTICATE,
];

/// Passes a POST on, and the response back, while it comes.
pub(super) async fn forward(
    remote: &Remote,
    passed: &PassedHeaders,
    posted: &Posted,
    headers: &HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let is_passed = |name: &HeaderName| {
        PASSED_ON.contains(&name.as_str())
            || name.as_str().starts_with("mcp-")
            || passed.contains(name)
    };
    let headers = headers.iter().filter(|(name, _)| is_passed(name));
    let headers = headers.map(|(name, value)| (name.clone(), value.clone()));
    let id = match posted {
        Posted::Request(request) => &*request.id,
        Posted::Notification(_) => "null",
    };
    let forwarded = remote.forward(Method::POST, headers.collect(), body).await;
    let forwarded = match forwarded {
        Ok(forwarded) => forwarded,
        Err(NotForwarded::NotReached(why)) => {
            return no_server(format_args!("{remote} can't be reached: {why}")).answering(id);
        }
        Err(NotForwarded::Broken) => {
            let mut response = json(outcome_unknown(id).as_str().to_owned());
            if let Posted::Notification(_) = posted {
                *response.status_mut() = StatusCode::BAD_GATEWAY;
            }
            return response;
        }
    };
    let mut back = Response::new(Body::from_stream(forwarded.body));
    *back.status_mut() = forwarded.status;
    for name in PASSED_BACK {
        if let Some(value) = forwarded.headers.get(&name) {
            back.headers_mut().insert(name, value.clone());
        }
    }
    back.headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    back
}
