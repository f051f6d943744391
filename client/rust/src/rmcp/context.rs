//! Which session a handler works for.

use http::request::Parts;
use rmcp::model::{ErrorCode, Extensions, GetExtensions as _, ServerNotification};
use rmcp::service::{NotificationContext, OriginatingRequestId, RequestContext};
use rmcp::{ErrorData, RoleServer, ServiceError};

use crate::error::SessionError;
use crate::sessiond::Sessiond;
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
/// In a server on stdio it is the session of the instance, once
/// [`Sessiond::session`](crate::Sessiond::session) or `load` has claimed it.
///
/// # Errors
/// -32603 in an HTTP server that is not behind [`durable`](super::durable) or a
/// [`SessionLayer`](crate::tower::SessionLayer), and on stdio where nothing is claimed.
pub fn session(context: &impl HasSession) -> Result<SessiondSession, ErrorData> {
    // Over HTTP rmcp hands on the head of the request.
    let found = match context.extensions().get::<Parts>() {
        Some(parts) => SessiondSession::of_parts(parts),
        None => Sessiond::held().map(SessiondSession),
    };
    found.ok_or_else(|| {
        let why = "there is no session here: the server is not durable, and no `Sessiond` of this process has claimed a session";
        ErrorData::internal_error(why, None)
    })
}

/// Sends the client a notification on the stream of the request that a handler works on, where
/// it comes before the answer: a line for its log, for example. A line that `context.peer` sends
/// goes there, too, as long as the client has no other request open. If it has, it goes to the
/// standalone stream, as everything else: rmcp does not say which request it belongs to.
///
/// # Errors
/// When the server has ended.
pub async fn notify(
    context: &RequestContext<RoleServer>,
    notification: impl Into<ServerNotification>,
) -> Result<(), ServiceError> {
    let mut notification = notification.into();
    let origin = OriginatingRequestId(context.id.clone());
    notification.extensions_mut().insert(origin);
    context.peer.send_notification(notification).await
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
