//! Where the cases find a backend that nobody else uses.

use std::sync::Arc;

use mcp_sessiond::storage::{Memory, Storage};

/// A backend with nothing in it, for one case alone. What it has made elsewhere goes when it is dropped.
pub(crate) trait Backend: Sized {
    /// Whether what was kept is there when the backend is opened again.
    const DURABLE: bool;

    /// Makes a place of its own for the case.
    async fn open() -> Self;

    /// The handle of the daemon that the case stands for.
    fn store(&self) -> Arc<dyn Storage>;

    /// The handle of another daemon, to the same data: a second one where the backend is shared, else the same.
    async fn beside(&self) -> Arc<dyn Storage>;

    /// Lets the daemon crash and start again: from now on `store` is a new handle to the same data.
    async fn reopen(&mut self);
}

/// [`Memory`].
pub(crate) struct InMemory(Arc<Memory>);

impl Backend for InMemory {
    const DURABLE: bool = false;

    async fn open() -> Self {
        Self(Arc::default())
    }

    fn store(&self) -> Arc<dyn Storage> {
        self.0.clone()
    }

    async fn beside(&self) -> Arc<dyn Storage> {
        self.store()
    }

    async fn reopen(&mut self) {
        self.0 = Arc::default();
    }
}
