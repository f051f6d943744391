//! A server that runs elsewhere and is reached over HTTP: there is no keeper, since there is no
//! process to be kept. What the next front needs of the connection is in the session's state.

mod resume_store;

use futures::future::BoxFuture;
use mcp_sessiond_bundle::{Failure, Pipe};

pub use self::resume_store::ResumeStore;
pub(crate) use self::resume_store::StoreUsers;

/// Connects to a server elsewhere.
pub struct Connecting(
    Box<dyn FnOnce(ResumeStore) -> BoxFuture<'static, Result<Pipe, Failure>> + Send>,
);

impl Connecting {
    /// What is called for it, in a tokio runtime.
    pub fn new(
        connect: impl FnOnce(ResumeStore) -> BoxFuture<'static, Result<Pipe, Failure>> + Send + 'static,
    ) -> Self {
        Self(Box::new(connect))
    }

    /// Connects, and stores what the next connection needs to go on.
    ///
    /// # Errors
    /// [`Failure`]: what was wrong.
    pub async fn connect(self, store: ResumeStore) -> Result<Pipe, Failure> {
        (self.0)(store).await
    }
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connecting")
    }
}
