//! What fronts go by.

use super::Tell;
use super::section::section;

/// As large as a message may be allowed to be: several are held at a time.
const MESSAGE_MAX_MIB: u64 = 1024;

section! {
    /// How `wrap` waits and tells. Each front reads it when it starts.
    pub struct Wrap {
        /// For the host's first line, which says what the host calls itself, in ms.
        first_line_wait_ms: u64 = 1_000; 1..,
        /// To have the server kept, in ms. After that it is run as it is.
        keeper_wait_ms: u64 = 2_000; 1..,
        /// For answers to a host that has closed its input and still reads, in ms.
        input_end_wait_ms: u64 = 600_000; 1..,
        /// The largest MCP message, in MiB: with `wrap`, of a server with a URL, and what `serve` reads of a
        /// server. Each process holds a message as a whole, so one that has no end must not take all
        /// memory.
        message_max_mib: u64 = 16; 1..=MESSAGE_MAX_MIB,
        /// Where the host is told that its server begins afresh.
        tell: Tell = Tell::Error,
    }
}
