//! A server of either era, as one of 2025-11-25.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::future::BoxFuture;

use super::between::translated;
use super::server::ServerTranslation;
use crate::pipe::{Pipe, Source};
use crate::status::Failure;

/// A server that speaks MCP 2025-11-25, 2026-07-28, or both. To the bundle it speaks 2025-11-25.
#[derive(Debug)]
pub struct EitherEra {
    inner: Arc<dyn Source>,
    /// Whether it is asked by `server/discover` first.
    discovers: Arc<AtomicBool>,
}

impl EitherEra {
    /// Stands around a server.
    pub fn of(inner: Arc<dyn Source>) -> Arc<Self> {
        let discovers = Arc::default();
        Arc::new(Self { inner, discovers })
    }
}

impl Source for EitherEra {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn identity(&self) -> Option<String> {
        self.inner.identity()
    }

    fn is_running(&self) -> BoxFuture<'_, bool> {
        self.inner.is_running()
    }

    fn open(&self) -> BoxFuture<'_, Result<Pipe, Failure>> {
        Box::pin(async {
            let translation = ServerTranslation::new(self.discovers.clone());
            Ok(translated(self.inner.open().await?, translation))
        })
    }
}
