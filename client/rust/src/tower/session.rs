//! The session in a request's extensions.

use std::ops::Deref;

use http::Extensions;
use http::request::Parts;

use crate::session::Session;

/// The session of a request, which [`SessionLayer`](super::SessionLayer) has opened. A clone is the
/// same session.
///
/// With the feature `axum` it is an extractor, and so is `Option<SessiondSession>` where requests
/// may have none.
///
/// rmcp hands the head of a request to its tools:
///
/// ```
/// use http::request::Parts;
/// use mcp_sessiond_client::tower::SessiondSession;
/// use rmcp::RoleServer;
/// use rmcp::service::RequestContext;
///
/// fn session(context: &RequestContext<RoleServer>) -> Option<SessiondSession> {
///     context.extensions.get::<Parts>().and_then(SessiondSession::of_parts)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct SessiondSession(pub Session);

impl Deref for SessiondSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl SessiondSession {
    /// The session in these extensions, if there is one.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get::<Self>().cloned()
    }

    /// The session of the request with this head, if it has one.
    #[must_use]
    pub fn of_parts(parts: &Parts) -> Option<Self> {
        Self::of(&parts.extensions)
    }
}

/// In the extensions of every request that came through a [`SessionLayer`](super::SessionLayer).
#[derive(Debug, Clone, Copy)]
pub(super) struct HasLayer;

/// In the extensions of a request that begins its session.
#[cfg(feature = "rmcp")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct BeginsSession;

#[cfg(feature = "axum")]
mod extractors {
    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use http::StatusCode;
    use http::request::Parts;

    use super::{HasLayer, SessiondSession};
    use crate::tower::Refusal;

    impl<S: Sync> FromRequestParts<S> for SessiondSession {
        type Rejection = Refusal;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
            needs_layer(parts)?;
            Self::of_parts(parts).ok_or_else(Refusal::no_session)
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for SessiondSession {
        type Rejection = Refusal;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Refusal> {
            needs_layer(parts)?;
            Ok(Self::of_parts(parts))
        }
    }

    fn needs_layer(parts: &Parts) -> Result<(), Refusal> {
        let message = "this route of the server has no `SessionLayer`";
        let missing = || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message);
        parts
            .extensions
            .get::<HasLayer>()
            .map(|_| ())
            .ok_or_else(missing)
    }
}
