//! What keepers are told.

use serde::{Deserialize, Serialize};

/// Servers that outlive whoever speaks to them. Applies to keepers that register from now on, but for `stop_wait_ms` in
/// what the daemon itself waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Backends {
    /// How long a backend stays when no front is attached, in ms.
    pub linger_ms: u64,
    /// How long a request of a backend waits for a front that can answer it, in ms.
    pub ask_wait_ms: u64,
    /// How long a backend has to exit after its standard input was closed, and again after SIGTERM, in ms.
    pub stop_wait_ms: u64,
    /// Messages that are kept for the next front. When there are more, the backend is not read from.
    pub queue_messages: usize,
    /// Bytes of them.
    pub queue_bytes: usize,
    /// Bytes of a backend's standard error that are kept.
    pub stderr_bytes: usize,
}

impl Default for Backends {
    fn default() -> Self {
        Self {
            linger_ms: 600_000,
            ask_wait_ms: 300_000,
            stop_wait_ms: 2_000,
            queue_messages: 1_024,
            queue_bytes: 8 * 1024 * 1024,
            stderr_bytes: 64 * 1024,
        }
    }
}
