//! The RPCs, one peer's. Handlers only translate.
//!
//! tarpc aborts a handler when its caller hangs up, so everything that changes state runs in a task of its own.

use std::sync::Arc;

use mcp_sessiond_proto::debug::{
    About, Counter, HostInfo, PAGE_MAX, Page, SessionInfo, Setting, Stats, TokenInfo, WhoAmI,
};
use mcp_sessiond_proto::service::Sessiond;
use mcp_sessiond_proto::types::{LeaseRef, StoreRequest, Stored};
use mcp_sessiond_proto::{ClaimRequest, Claimed, Error};
use tarpc::context::Context;

use crate::edge::Edge;
use crate::listener::Gauge;
use crate::process::Pinned;

/// What every connection shares.
#[derive(Debug)]
pub struct Daemon {
    /// The sessions.
    pub edge: Edge,
    /// The connections.
    pub connections: Gauge,
    /// What does not change while the daemon runs; the uptime is filled in when asked.
    pub about: About,
}

/// The service as one peer sees it.
#[derive(Clone)]
pub struct Service {
    /// What all share.
    pub daemon: Arc<Daemon>,
    /// The process that connected.
    pub peer: Arc<Pinned>,
}

/// Runs what changes state to its end, although the caller may hang up.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work).await.unwrap_or_else(|_| {
        Err(Error::Unavailable { sentence: "the daemon could not do this".into(), retry_after_ms: 1_000 })
    })
}

impl Sessiond for Service {
    async fn ping(self, _: Context) {}

    async fn claim(self, _: Context, request: ClaimRequest) -> Result<Claimed, Error> {
        detached(async move { self.daemon.edge.claim(&self.peer, request).await }).await
    }

    async fn store_token(self, _: Context, request: StoreRequest) -> Result<Stored, Error> {
        detached(async move { self.daemon.edge.store_token(request).await }).await
    }

    async fn reject_token(self, _: Context, request: LeaseRef) -> Result<(), Error> {
        detached(async move { self.daemon.edge.reject_token(request).await }).await
    }

    async fn release(self, _: Context, request: LeaseRef) -> Result<(), Error> {
        detached(async move { self.daemon.edge.release(request).await }).await
    }

    async fn about(self, _: Context) -> About {
        About { uptime_ms: self.daemon.edge.now(), ..self.daemon.about.clone() }
    }

    async fn list_hosts(self, _: Context) -> Vec<HostInfo> {
        self.daemon.edge.hosts()
    }

    async fn list_sessions(self, _: Context, request: Page) -> Vec<SessionInfo> {
        self.daemon.edge.sessions(request.after.as_ref(), PAGE_MAX)
    }

    async fn list_tokens(self, _: Context, request: Page) -> Vec<TokenInfo> {
        self.daemon.edge.token_files(request.after.as_ref(), PAGE_MAX)
    }

    async fn stats(self, _: Context) -> Stats {
        let counter = |name: &str, value: usize| Counter { name: name.into(), value: value as u64 };
        let mut counters = self.daemon.edge.gauges();
        counters.push(counter("connections", self.daemon.connections.open()));
        counters.extend(self.daemon.edge.counters.list());
        Stats { counters }
    }

    async fn settings(self, _: Context) -> Vec<Setting> {
        self.daemon.edge.settings().loaded.settings()
    }

    async fn who_am_i(self, _: Context, request: ClaimRequest) -> Result<WhoAmI, Error> {
        self.daemon.edge.who_am_i(&self.peer, request).await
    }
}
