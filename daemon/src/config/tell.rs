//! How a host is told of what was lost.

use serde::{Deserialize, Serialize};

/// Where a host is told that its server begins afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tell {
    /// On standard error, and as a log message.
    Log,
    /// The first call after the loss is refused with it as well.
    Error,
}
