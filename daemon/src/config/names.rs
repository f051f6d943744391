//! How the tools of several servers are called.

use serde::{Deserialize, Serialize};

/// Whether a tool has its server's name before its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Names {
    /// Only where another server has a tool of that name.
    Bare,
    /// Always.
    Always,
}
