//! A server that runs elsewhere and is reached over HTTP: there is no keeper, since there is no
//! process to be kept. What the next front needs of the connection is in the session's state.

mod resume_store;

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use mcp_sessiond_bundle::{Failure, Pipe};
use mcp_sessiond_proto::facts::ServerDigest;

use super::facts::digest_of_remote;

pub use self::resume_store::{ResumeStore, StoreUsers};

/// Connects to a server elsewhere.
pub struct Connecting {
    connect: Box<dyn FnOnce(ResumeStore) -> BoxFuture<'static, Result<Pipe, Failure>> + Send>,
    server: ServerDigest,
}

impl Connecting {
    /// What is called for it, in a tokio runtime. The server is known by its address and by what is
    /// sent with each request.
    pub fn new(
        address: &str,
        headers: &BTreeMap<String, String>,
        connect: impl FnOnce(ResumeStore) -> BoxFuture<'static, Result<Pipe, Failure>> + Send + 'static,
    ) -> Self {
        Self {
            connect: Box::new(connect),
            server: digest_of_remote(address, headers),
        }
    }

    /// Identifies the server, for what is known of it.
    pub(crate) fn server(&self) -> &ServerDigest {
        &self.server
    }

    /// Connects, and stores what the next connection needs to go on.
    ///
    /// # Errors
    /// [`Failure`]: what was wrong.
    pub async fn connect(self, store: ResumeStore) -> Result<Pipe, Failure> {
        (self.connect)(store).await
    }
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connecting")
    }
}
