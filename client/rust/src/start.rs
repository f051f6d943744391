//! Whether a daemon is started where none runs.

#[cfg(unix)]
mod launch;

use std::path::PathBuf;

#[cfg(unix)]
pub(crate) use launch::start;

/// Names the daemon's executable, where it is neither beside this one nor in `PATH`.
pub const BINARY_VARIABLE: &str = "MCP_SESSIOND_BIN";

/// Whether a daemon is started where none runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Never. Without a daemon there is no resuming.
    Never,
    /// Yes: by systemd or launchd where the daemon is installed there, else by running its
    /// executable, which detaches itself and exits when nothing needs it any more.
    Auto {
        /// The executable. Absent: `MCP_SESSIOND_BIN`, else `mcp-sessiond` beside this process's
        /// own executable, else in `PATH`.
        binary: Option<PathBuf>,
    },
}

impl Default for Start {
    fn default() -> Self {
        Self::Auto { binary: None }
    }
}
