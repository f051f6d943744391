//! Requests that are refused: with which status, and in which words. What any server has to say is
//! in the client library.

use std::fmt::Display;
use std::time::Duration;

use axum::http::StatusCode;
pub use mcp_sessiond_client::tower::{CONNECTION, INVALID, Refusal};
use mcp_sessiond_http_session::posted::Malformed;

/// There is no server for the session.
pub fn no_server(why: impl Display) -> Refusal {
    Refusal::new(
        StatusCode::BAD_GATEWAY,
        format!("the server can't be started: {why}"),
    )
}

/// Another machine serves the session. It may be that this one takes it over.
pub fn elsewhere() -> Refusal {
    Refusal::for_now("another machine serves this session")
}

/// The daemon did not answer in time.
pub fn daemon_away(waited: Duration) -> Refusal {
    Refusal::for_now(format!(
        "the daemon mcp-sessiond did not answer within {} ms",
        waited.as_millis()
    ))
}

/// The body of a POST is refused: 400.
pub fn malformed(malformed: Malformed) -> Refusal {
    let Malformed { code, message } = malformed;
    Refusal {
        code,
        ..Refusal::invalid(message)
    }
}
