//! Which session a handler works for.

use http::request::Parts;
use rmcp::model::{ErrorCode, Extensions};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer};

use crate::error::SessionError;
use crate::tower::{CONNECTION, Refusal, SessiondSession};

/// What rmcp gives to a handler, and what the session is found in.
pub trait HasSession {
    /// What came with the request.
    fn extensions(&self) -> &Extensions;
}

impl HasSession for RequestContext<RoleServer> {
    fn extensions(&self) -> &Extensions {
        &self.extensions
    }
}

impl HasSession for NotificationContext<RoleServer> {
    fn extensions(&self) -> &Extensions {
        &self.extensions
    }
}

/// The session that a handler works for, with its state and streams: in tools, resources, prompts
/// and completions, and where a notification of the client's is handled. `context` is what rmcp
/// gives to the handler. Keys of the state that begin with `mcp.` are this crate's own.
///
/// # Errors
/// -32603 in a server that is not behind [`durable`](super::durable) or a
/// [`SessionLayer`](crate::tower::SessionLayer).
pub fn session(context: &impl HasSession) -> Result<SessiondSession, ErrorData> {
    let parts = context.extensions().get::<Parts>();
    let found = parts.and_then(SessiondSession::of_parts);
    found.ok_or_else(|| {
        ErrorData::internal_error("there is no session here: the server is not durable", None)
    })
}

/// So that a tool may use `?` on every call about its session. The message names no path of the
/// server's, and no value.
impl From<SessionError> for ErrorData {
    fn from(error: SessionError) -> Self {
        let message = Refusal::from(error).message;
        Self::new(
            ErrorCode(i32::try_from(CONNECTION).unwrap_or(ErrorCode::INTERNAL_ERROR.0)),
            message,
            None,
        )
    }
}
