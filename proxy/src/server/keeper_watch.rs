//! Whether the keeper of an attached front still answers. It is asked while the host waits for
//! something and nothing comes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mcp_sessiond_proto::KeeperName;
use mcp_sessiond_proto::backends::StopReason;

use super::daemon_calls::SessionCalls;
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
    pub(super) session: SessionCalls,
}

impl KeeperWatch {
    /// Asks the keeper, from which nothing has come since `quiet`, and waits until it has answered,
    /// or is gone. While it is stalled, its user is told so by `print`, once. The daemon ends a
    /// keeper that hangs.
    pub(crate) async fn check(self, quiet: Instant, print: impl Fn(&str)) {
        let Self {
            directory,
            keeper,
            server,
            session,
        } = self;
        let asked = ping(&directory, keeper, &server, quiet, print).await;
        // Otherwise it has answered, or its connection to the front says what became of it.
        if let Err(DialError::Hung) = asked {
            session.stop_for(StopReason::KeeperHung(keeper)).await;
        }
    }
}
