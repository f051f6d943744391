//! A server that runs elsewhere and is reached over HTTP: there is no keeper, since there is no
//! process to be kept. What the next front needs of the connection is in the session's state.

mod resume_store;

use std::collections::BTreeMap;

use mcp_sessiond_proto::facts::ServerDigest;

use super::connector::Connector;
use super::facts::digest_of_remote;

pub use self::resume_store::{ResumeStore, StoreUsers};

/// A server elsewhere, and how to connect to it.
pub struct RemoteServer {
    connector: Box<dyn FnOnce(ResumeStore) -> Box<dyn Connector> + Send>,
    digest: ServerDigest,
}

impl RemoteServer {
    /// What connects to it, in a tokio runtime, is made of where it stores what the next connection
    /// needs to go on. The server is known by its address and by what is sent with each request.
    pub fn new(
        address: &str,
        headers: &BTreeMap<String, String>,
        connector: impl FnOnce(ResumeStore) -> Box<dyn Connector> + Send + 'static,
    ) -> Self {
        Self {
            connector: Box::new(connector),
            digest: digest_of_remote(address, headers),
        }
    }

    /// Identifies the server, for what is known of it.
    pub(crate) fn digest(&self) -> &ServerDigest {
        &self.digest
    }

    /// What connects to it.
    pub fn connector(self, store: ResumeStore) -> Box<dyn Connector> {
        (self.connector)(store)
    }
}

impl std::fmt::Debug for RemoteServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("RemoteServer")
    }
}
