//! Whether the keeper of an attached front still answers. It is asked while the host waits for
//! something and nothing comes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mcp_sessiond_proto::backends::{KeeperRequest, StopReason};
use mcp_sessiond_proto::{KeeperName, paths};

use super::daemon_calls::{Runtime, Stopper};
use crate::keeper::dial::{DialError, dial_waiting};
use crate::keeper::silence::{Silence, stalled_sentence};

/// How long nothing comes until a keeper is asked, and the longest time between two questions; each
/// is twice the one before, until something comes.
pub(crate) const QUIET: Duration = Duration::from_secs(2);
pub(crate) const QUIET_MAX: Duration = Duration::from_secs(60);

/// How long one question may take before the keeper is looked up again.
const ATTEMPT: Duration = Duration::from_secs(10);

/// The pause before a keeper is asked again that has no descriptor free.
const BUSY_PAUSE: Duration = Duration::from_secs(1);

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
        let mut silence = Silence::since(self.keeper, quiet);
        loop {
            let until = Instant::now() + ATTEMPT;
            let asked = dial_waiting(
                &self.directory,
                &KeeperRequest::Ping {},
                until,
                &mut silence,
                &mut |silence| {
                    if let Some(pid) = silence.notice() {
                        print(&stalled_sentence(&self.server, pid, &pid));
                    }
                },
            );
            match asked {
                Err(DialError::Stalled(_) | DialError::Silent) => {}
                Err(DialError::Busy) => std::thread::sleep(BUSY_PAUSE),
                Err(DialError::Hung) => return self.end(),
                // It has answered; or its connection to the front says what became of it.
                _ => return,
            }
            if !paths::keeper_socket(&self.directory, self.keeper).exists() {
                return;
            }
        }
    }

    fn end(&self) {
        let stopper = self.stopper.clone();
        if let Ok(runtime) = Runtime::new() {
            runtime.block_on(stopper.stop_for(StopReason::KeeperHung(self.keeper)));
        }
    }
}
