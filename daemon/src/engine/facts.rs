//! What is known of servers, for keepers and fronts.

use mcp_sessiond_proto::facts::{Discover, Facts, Learned, ServerDigest};
use mcp_sessiond_proto::time::now_ms;

use super::Engine;

impl Engine {
    /// What is known of a server. `probed`: the caller's client has probed it.
    pub fn facts(&self, server: &ServerDigest, probed: bool) -> Facts {
        self.tell(|registry| registry.facts(server, probed, now_ms()))
    }

    /// Something was seen of a server. It is put on record in the background: what is lost is seen
    /// once more.
    pub fn learn(&self, server: &ServerDigest, learned: Learned) {
        self.tell(|registry| registry.learn(server, learned, now_ms()));
    }

    /// How a keeper's backend takes `server/discover`, if that is known.
    pub(super) fn discover(&self, server: Option<&ServerDigest>) -> Option<Discover> {
        self.facts(server?, false).discover
    }
}
