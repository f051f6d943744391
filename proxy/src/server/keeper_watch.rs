//! Whether the keeper of an attached front still answers. It is asked while the host waits for
//! something and nothing comes.

use std::path::PathBuf;
use std::time::Duration;

use mcp_sessiond_proto::KeeperName;
use mcp_sessiond_proto::backends::StopReason;
use tokio::time::Instant;

use super::daemon_calls::SessionCalls;
use crate::keeper::dial::{DialError, ping};

/// For how long nothing comes from a keeper until it is asked whether it lives.
const PING_AFTER: Duration = Duration::from_secs(2);
/// The longest time between two questions; each is twice the one before, until something comes.
const PING_AFTER_MAX: Duration = Duration::from_secs(60);

/// When a keeper is to be asked whether it lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PingTimer {
    quiet_since: Instant,
    wait: Duration,
}

impl PingTimer {
    /// Something was said just now.
    pub(crate) fn start() -> Self {
        Self {
            quiet_since: Instant::now(),
            wait: PING_AFTER,
        }
    }

    /// The keeper has answered that it lives, and nothing else has come.
    pub(crate) fn back_off(&mut self) {
        self.quiet_since = Instant::now();
        self.wait = (self.wait * 2).min(PING_AFTER_MAX);
    }

    /// Since when nothing has come.
    pub(crate) fn quiet_since(&self) -> Instant {
        self.quiet_since
    }

    /// When the keeper is to be asked, if nothing comes.
    pub(crate) fn due(&self) -> Instant {
        self.quiet_since + self.wait
    }
}

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
    /// Asks the keeper, from which nothing has come since `quiet_since`, and waits until it has
    /// answered, or is gone. While it is stalled, its user is told so by `print`, once. The daemon
    /// ends a keeper that hangs.
    pub(crate) async fn check(self, quiet_since: Instant, print: impl Fn(&str)) {
        let Self {
            directory,
            keeper,
            server,
            session,
        } = self;
        let asked = ping(&directory, keeper, &server, quiet_since.into_std(), print).await;
        // Otherwise it has answered, or its connection to the front says what became of it.
        if let Err(DialError::Hung) = asked {
            session.stop_for(StopReason::KeeperHung(keeper)).await;
        }
    }
}
