//! Requests that are refused: with which status, and in which words.

use std::fmt::Display;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use mcp_sessiond_client::{Error, SessionError};
use serde_json::json;

/// JSON-RPC's code for a failure of the connection.
pub const CONNECTION: i64 = -32000;
/// JSON-RPC's code for what is no request.
pub const INVALID: i64 = -32600;
/// JSON-RPC's code for what can't be read.
pub const UNREADABLE: i64 = -32700;

/// When a client is to try again, in seconds.
const RETRY_AFTER: u64 = 1;

/// Why a request is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status (RFC 9110, section 15).
    pub status: StatusCode,
    /// JSON-RPC's code.
    pub code: i64,
    /// The sentence for people.
    pub message: String,
    /// What programs are to know beside the code.
    pub data: Option<Box<serde_json::Value>>,
    /// After how many seconds it may go better.
    pub retry_after: Option<u64>,
}

impl Refusal {
    /// Refused, with this status.
    #[must_use]
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: CONNECTION, message: message.into(), data: None, retry_after: None }
    }

    /// The request breaks a rule of the protocol.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { code: INVALID, ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    /// The request may succeed later: 503, with `Retry-After`.
    #[must_use]
    pub fn for_now(message: impl Into<String>) -> Self {
        Self { retry_after: Some(RETRY_AFTER), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// There is no such session. By this status a client knows that it has to begin a new one (MCP 2025-11-25, Session
    /// Management).
    #[must_use]
    pub fn unknown_session() -> Self {
        let message = "there is no such session, or it has ended: send `initialize` without a session id";
        Self { code: -32001, ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// There is no server for the session.
    #[must_use]
    pub fn no_server(why: impl Display) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, format!("the server can't be started: {why}"))
    }

    /// The daemon did not answer in time.
    #[must_use]
    pub fn daemon_away(waited: Duration) -> Self {
        Self::for_now(format!("the daemon mcp-sessiond did not answer within {} ms", waited.as_millis()))
    }
}

impl From<SessionError> for Refusal {
    fn from(error: SessionError) -> Self {
        if error.passes() {
            return Self::for_now("the daemon mcp-sessiond can't be reached");
        }
        match error.refusal() {
            Some(Error::QuotaExceeded { .. } | Error::WriteFailed { .. }) => Self::for_now(error.to_string()),
            Some(Error::UnknownSession | Error::SessionTerminated) => Self::unknown_session(),
            Some(Error::UnknownStream | Error::UnknownCursor) => {
                Self::invalid("this event id names no place in this session")
            }
            _ => {
                let status = StatusCode::from_u16(error.http_status());
                Self::new(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error.to_string())
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        self.answering("null")
    }
}

impl Refusal {
    /// The response to the request of this id, which is JSON.
    #[must_use]
    pub fn answering(self, id: &str) -> Response<Body> {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = self.data {
            error["data"] = *data;
        }
        let body = format!(r#"{{"jsonrpc":"2.0","error":{error},"id":{id}}}"#);
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
