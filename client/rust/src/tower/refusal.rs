//! Requests that are refused: with which status of HTTP, and in which words.

use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use mcp_sessiond_proto::Error;
use serde_json::json;

use crate::error::SessionError;

/// JSON-RPC's code for a failure of the connection.
pub const CONNECTION: i64 = -32000;
/// The code that MCP's SDKs give a session that is not there.
pub const NO_SESSION: i64 = -32001;
/// JSON-RPC's code for what is no request.
pub const INVALID: i64 = -32600;

/// JSON-RPC's code for a method that is not there.
pub const NO_METHOD: i64 = -32601;

/// Why a request is not carried out, as an HTTP response says it: a status, and a JSON-RPC error as
/// body. A handler whose error it is may use `?` on every call about a session.
///
/// | error | status |
/// | --- | --- |
/// | no daemon, or it is busy; a quota is used up; the disk is full | 503, with `Retry-After` |
/// | the session is unknown, has ended, or is bound to another caller | 404: by this a client knows that it has to begin a new one |
/// | any other | that of [`SessionError::http_status`] |
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The status (RFC 9110, section 15).
    pub status: StatusCode,
    /// JSON-RPC's code.
    pub code: i64,
    /// The sentence for people.
    pub message: String,
    /// What programs are to know beside the code.
    pub data: Option<Box<serde_json::Value>>,
    /// After how many seconds the same request may succeed.
    pub retry_after: Option<u64>,
    /// The methods that are allowed instead.
    pub allow: Option<&'static str>,
    /// Why a token is refused, as RFC 6750 (section 3.1) names it, such as `invalid_token`. The
    /// header `WWW-Authenticate` says it, with the message.
    pub challenge: Option<&'static str>,
}

impl Refusal {
    /// Refused, with this status.
    #[must_use]
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            status,
            code: CONNECTION,
            message,
            data: None,
            retry_after: None,
            allow: None,
            challenge: None,
        }
    }

    /// The request breaks a rule of the protocol: 400.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: INVALID,
            ..Self::new(StatusCode::BAD_REQUEST, message)
        }
    }

    /// The request may succeed later: 503, with `Retry-After`.
    #[must_use]
    pub fn for_now(message: impl Into<String>) -> Self {
        Self {
            retry_after: Some(1),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }

    /// The request does not show who sends it, or not credibly: 401.
    #[must_use]
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    /// The request shows a token that is not valid: 401 (RFC 6750, `invalid_token`).
    #[must_use]
    pub fn invalid_token(message: impl Into<String>) -> Self {
        Self {
            challenge: Some("invalid_token"),
            ..Self::unauthorized(message)
        }
    }

    /// Only these methods are allowed, such as `POST`: 405.
    #[must_use]
    pub fn not_allowed(allow: &'static str, message: impl Into<String>) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, message)
        }
    }

    /// There is no such session: 404 (MCP 2025-11-25, Session Management).
    #[must_use]
    pub fn unknown_session() -> Self {
        let message =
            "there is no such session, or it has ended: send `initialize` without a session id";
        Self {
            code: NO_SESSION,
            ..Self::new(StatusCode::NOT_FOUND, message)
        }
    }

    /// The request names no session: 400 (MCP 2025-11-25, Session Management).
    #[must_use]
    pub fn no_session() -> Self {
        Self::invalid("the header `Mcp-Session-Id` is missing: send `initialize` first")
    }

    /// The server does not speak MCP 2026-07-28: 404, with JSON-RPC's code for an unknown method.
    /// Of all answers to `server/discover` it is the one after which every official client sends
    /// `initialize`.
    #[must_use]
    pub fn no_discover() -> Self {
        let message = "the server does not speak MCP 2026-07-28: begin with `initialize`";
        Self {
            code: NO_METHOD,
            ..Self::new(StatusCode::NOT_FOUND, message)
        }
    }

    /// The response, where it is not known which request of JSON-RPC it answers.
    #[must_use]
    pub fn to_response<B: From<String>>(&self) -> Response<B> {
        self.answering("null")
    }

    /// The response to the request of this id, which is JSON.
    #[must_use]
    pub fn answering<B: From<String>>(&self, id: &str) -> Response<B> {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = (**data).clone();
        }
        let body = format!(r#"{{"jsonrpc":"2.0","error":{error},"id":{id}}}"#);
        let mut response = Response::new(body.into());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(methods) = self
            .allow
            .and_then(|methods| HeaderValue::from_str(methods).ok())
        {
            headers.insert(ALLOW, methods);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, self.challenged());
        }
        response
    }
}

impl Refusal {
    /// The value of `WWW-Authenticate` (RFC 6750, section 3).
    fn challenged(&self) -> HeaderValue {
        let bare = HeaderValue::from_static("Bearer");
        let Some(challenge) = self.challenge else {
            return bare;
        };
        let is_plain = |letter: &char| matches!(letter, ' ' | '!' | '#'..='[' | ']'..='~');
        let message: String = self.message.chars().filter(is_plain).collect();
        let value = format!(r#"Bearer error="{challenge}", error_description="{message}""#);
        HeaderValue::from_str(&value).unwrap_or(bare)
    }

    /// What the server's author wrote has failed, which the author has to hear of.
    #[cfg(feature = "rmcp")]
    pub(crate) fn failed() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the server has failed")
    }

    fn in_ms(retry_after_ms: u32, message: &str) -> Self {
        let seconds = u64::from(retry_after_ms).div_ceil(1_000).max(1);
        Self {
            retry_after: Some(seconds),
            ..Self::for_now(message)
        }
    }
}

impl From<SessionError> for Refusal {
    fn from(error: SessionError) -> Self {
        match error.refusal() {
            _ if error.is_over() => Self::unknown_session(),
            // Another caller does not learn that there is such a session.
            Some(Error::BindingMismatch) => Self::unknown_session(),
            // Of the paths and sockets that these errors name, a client learns nothing.
            Some(Error::Unavailable { retry_after_ms, .. }) => {
                Self::in_ms(*retry_after_ms, "the daemon mcp-sessiond can't do this now")
            }
            Some(Error::OutcomeUnknown { retry_after_ms, .. }) => {
                let message = "the daemon mcp-sessiond went away before it had answered: the outcome is unknown";
                Self::in_ms(*retry_after_ms, message)
            }
            Some(Error::WriteFailed { .. }) => {
                Self::for_now("the daemon mcp-sessiond can't store this")
            }
            Some(Error::QuotaExceeded { .. }) => Self::for_now(error.to_string()),
            Some(Error::UnknownCursor) => {
                Self::invalid("this event id names no place in this session")
            }
            None if error.passes() => Self::for_now("the daemon mcp-sessiond can't be reached"),
            _ => {
                let status = StatusCode::from_u16(error.http_status());
                let refused = Self::new(
                    status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                    error.to_string(),
                );
                let code = if refused.status == StatusCode::BAD_REQUEST {
                    INVALID
                } else {
                    CONNECTION
                };
                Self { code, ..refused }
            }
        }
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Refusal {
    fn into_response(self) -> axum_core::response::Response {
        self.to_response()
    }
}
