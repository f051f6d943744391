//! Why `serve` does not begin.

use std::io;

use mcp_sessiond_client::{ServiceName, SessionError};
use mcp_sessiond_proxy::service::NotLeased;

/// Why it does not serve.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no daemon.
    #[error("there is no daemon to keep sessions: {0}")]
    NoDaemon(SessionError),
    /// Another process serves this name.
    #[error("process {pid} serves {service} already; end it, or take another --name")]
    Taken {
        /// Its pid.
        pid: u32,
        /// The service.
        service: ServiceName,
    },
    /// The daemon does not lease the name.
    #[error("the daemon does not lease this name: {0}")]
    NotLeased(NotLeased),
    /// It can't listen there.
    #[error("can't listen at {at}: {error}")]
    NoListener {
        /// Where.
        at: String,
        /// Why.
        error: io::Error,
    },
    /// What is added to the servers of the list can't be.
    #[error("{0}")]
    List(String),
    /// There is no runtime.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why a service was not leased.
pub(crate) fn not_leased(error: NotLeased, service: &ServiceName) -> StartError {
    match error {
        NotLeased::Taken { pid, .. } => StartError::Taken {
            pid,
            service: service.clone(),
        },
        error => StartError::NotLeased(error),
    }
}
