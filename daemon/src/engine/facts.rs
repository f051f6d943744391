//! What is known of servers, for keepers and fronts, and which of them are the same.

use std::time::Duration;

use mcp_sessiond_process::ProcessId;
use mcp_sessiond_proto::Lock as _;
use mcp_sessiond_proto::facts::{Discover, Facts, Learned, ServerDigest};
use mcp_sessiond_proto::time::now_ms;
use tokio::time::{Instant, timeout_at};

use super::Engine;

impl Engine {
    /// What is known of a server.
    pub fn facts(&self, server: &ServerDigest) -> Facts {
        self.tell(|registry| registry.facts(server, now_ms()))
    }

    /// Something was seen of a server. It is put on record in the background: what is lost is seen
    /// once more.
    pub fn learn(&self, server: &ServerDigest, learned: Learned) {
        self.tell(|registry| registry.learn(server, learned, now_ms()));
    }

    /// How a keeper's backend takes `server/discover`, if that is known.
    pub(super) fn discover(&self, server: Option<&ServerDigest>) -> Option<Discover> {
        self.facts(server?).discover
    }

    /// Waits until nothing is left of backends that were started with the same and whose hosts are
    /// gone, for as long as such a backend has to exit: they may hold a lock that the next one
    /// needs. A host that is started again and again, as `claude -p` is, comes sooner than that.
    pub(super) async fn await_former(&self, keeper: ProcessId, server: Option<&ServerDigest>) {
        let Some(server) = server else { return };
        let within = self.settings().loaded.config.backends.stop_wait_ms;
        let until = Instant::now() + Duration::from_millis(within);
        loop {
            let swept = self.swept.notified();
            let same: Vec<ProcessId> = {
                let servers = self.servers.locked();
                let same = servers.iter().filter(|(_, other)| *other == server);
                same.map(|(process, _)| *process).collect()
            };
            let is_free =
                self.tell(|registry| !same.iter().any(|former| registry.is_leaving(former)));
            if is_free || timeout_at(until, swept).await.is_err() {
                break;
            }
        }
        self.servers.locked().insert(keeper, server.clone());
    }
}
