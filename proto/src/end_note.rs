//! Why a keeper ends: a note in the runtime directory, by whoever has it end, or by the keeper itself.
//! It holds where no daemon runs, or none that answers; the daemon reads it before it guesses.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::losses::Loss;
use crate::paths;

/// The note: its text is JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndNote {
    /// What has become of the backend. None: nothing is lost.
    pub because: Option<Loss>,
    /// The same for people, in words that follow "the server is stopped: ".
    pub why: String,
}

impl EndNote {
    /// What people are told of a server that `mcp-sessiond stop` has ended.
    pub const BY_STOP: &str = "`mcp-sessiond stop` has ended it";

    /// Where the note on the keeper stands that is this process: its pid, and its start time as in
    /// [`ProcessRef`](crate::backends::ProcessRef).
    #[must_use]
    pub fn path(directory: &Path, pid: u32, start: u64) -> PathBuf {
        directory
            .join(paths::ENDED)
            .join(paths::closed_name(pid, start))
    }
}
