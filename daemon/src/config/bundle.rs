//! What several servers in one session go by.

use super::names::Names;
use super::section::section;

section! {
    /// How `wrap --all` starts the servers of servers.json, and what it calls their tools. Each
    /// front reads it when it starts.
    pub struct Bundle {
        /// How many servers may be starting at once.
        init_concurrency: usize = 8; 1..,
        /// How long one may take until it has said what it has, in ms. Then it is ended, and tried
        /// again later.
        init_timeout_ms: u64 = 30_000; 1..,
        /// How long the host's `initialize` waits for all of them, in ms. Those that come later
        /// join by `list_changed`.
        ready_wait_ms: u64 = 4_000; 1..,
        /// Whether a tool has its server's name before its own: where another server has it, too,
        /// or always.
        names: Names = Names::Bare,
    }
}
