//! How `durable` works.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use mcp_sessiond_proto::ServiceName;
use mcp_sessiond_proto::sessions::{Caller, Lifetimes};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;

use crate::options::Options;
use crate::tower::{Refusal, SessionCookie, caller};

/// After what time a client comes back. Official clients give up after two attempts: a server that
/// is started again needs that long.
const RETRY: Duration = Duration::from_secs(5);
/// After how long without a request a server is let go. Its session stays, and gets another one
/// when it is used.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// How long the daemon is waited for, before a request is refused with 503, or answered without a
/// task.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Tells the caller of a request.
pub(super) type CallerOf = Arc<dyn Fn(&Parts) -> Result<Option<Caller>, Refusal> + Send + Sync>;

/// How [`durable`](super::durable) works. Every default is right for a server that listens for its
/// own user's clients.
#[derive(Clone)]
pub struct DurableOptions {
    pub(super) service: ServiceName,
    pub(super) client: Options,
    pub(super) caller: CallerOf,
    pub(super) lifetimes: Lifetimes,
    pub(super) cookie: Option<SessionCookie>,
    pub(super) retry: Duration,
    pub(super) idle: Duration,
    pub(super) rmcp: StreamableHttpServerConfig,
}

impl fmt::Debug for DurableOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            service,
            client,
            lifetimes,
            cookie,
            retry,
            idle,
            ..
        } = self;
        formatter
            .debug_struct("DurableOptions")
            .field("service", service)
            .field("client", client)
            .field("lifetimes", lifetimes)
            .field("cookie", cookie)
            .field("retry", retry)
            .field("idle", idle)
            .finish_non_exhaustive()
    }
}

impl DurableOptions {
    /// For the sessions of this service: every process of this user that says the name serves them.
    #[must_use]
    pub fn new(service: ServiceName) -> Self {
        Self {
            service,
            client: Options::default().timeout(TIMEOUT),
            caller: Arc::new(caller::bearer_if_shown),
            lifetimes: Lifetimes::default(),
            cookie: None,
            retry: RETRY,
            idle: IDLE,
            rmcp: StreamableHttpServerConfig::default(),
        }
    }

    /// How the daemon is found, and how long it is waited for: 5 s by default.
    #[must_use]
    pub fn client(self, client: Options) -> Self {
        Self { client, ..self }
    }

    /// Tells on whose behalf a request is made: a session belongs to the caller that began it, and
    /// any other gets 404. [`caller`] has functions that are ready to use; by default it is
    /// [`caller::bearer_if_shown`]. None of them checks a token: do that before, in a layer of
    /// yours.
    #[must_use]
    pub fn caller(
        self,
        caller: impl Fn(&Parts) -> Result<Option<Caller>, Refusal> + Send + Sync + 'static,
    ) -> Self {
        Self {
            caller: Arc::new(caller),
            ..self
        }
    }

    /// How long a session lives. By default as the daemon's settings have it.
    #[must_use]
    pub fn lifetimes(self, lifetimes: Lifetimes) -> Self {
        Self { lifetimes, ..self }
    }

    /// Names sessions in the cookie `mcp_session_id`, too, and reads it where the header is
    /// missing.
    #[must_use]
    pub fn cookie(self, cookie: SessionCookie) -> Self {
        Self {
            cookie: Some(cookie),
            ..self
        }
    }

    /// After what time a client comes back whose connection has ended: 5 s by default.
    #[must_use]
    pub fn retry(self, retry: Duration) -> Self {
        Self { retry, ..self }
    }

    /// After how long without a request this process lets a session's server go: 30 minutes by
    /// default. The session stays.
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// rmcp's own settings: hosts and origins that are let in, the largest body, comments on idle
    /// streams, the token that ends it all. The rest of them, such as `legacy_session_mode`,
    /// `session_store` and `sse_retry`, `durable` sets itself.
    #[must_use]
    pub fn rmcp(self, rmcp: StreamableHttpServerConfig) -> Self {
        Self { rmcp, ..self }
    }
}
