//! Whether the keeper of an attached front still answers. It is asked while the host waits for
//! something and nothing comes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mcp_sessiond_proto::KeeperName;
use mcp_sessiond_proto::backends::StopReason;

use super::daemon_calls::{Runtime, Stopper};
use crate::keeper::dial::{DialError, ping};

/// How long nothing comes until a keeper is asked, and the longest time between two questions; each
/// is twice the one before, until something comes.
pub(crate) const QUIET: Duration = Duration::from_secs(2);
pub(crate) const QUIET_MAX: Duration = Duration::from_secs(60);

/// How one keeper is asked.
#[derive(Debug, Clone)]
pub(crate) struct KeeperWatch {
    pub(super) directory: PathBuf,
    pub(super) keeper: KeeperName,
    /// What the user calls its server.
    pub(super) server: String,
    pub(super) stopper: Stopper,
}

impl KeeperWatch {
    /// Asks the keeper, from which nothing has come since `quiet`, and waits until it has answered,
    /// or is gone. While it is stalled, its user is told so by `print`, once. The daemon ends a
    /// keeper that hangs. Blocks.
    pub(crate) fn check(&self, quiet: Instant, print: &dyn Fn(&str)) {
        let asked = ping(&self.directory, self.keeper, &self.server, quiet, print);
        // Otherwise it has answered, or its connection to the front says what became of it.
        if let Err(DialError::Hung) = asked {
            self.end();
        }
    }

    fn end(&self) {
        let stopper = self.stopper.clone();
        if let Ok(runtime) = Runtime::new() {
            runtime.block_on(stopper.stop_for(StopReason::KeeperHung(self.keeper)));
        }
    }
}
