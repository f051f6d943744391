//! What keepers are told.

use super::section::section;

/// A backend must not outlive its host for longer than anybody would wait for it to go.
const STOP_WAIT_MAX_MS: u64 = 60_000;

/// It is returned as one line, and kept by each keeper.
const STDERR_MAX: u64 = 1024 * 1024;

// 0 as a time to linger would have a backend go between one front and the next, and so be of no
// use.
section! {
    /// Servers that outlive whoever speaks to them. Applies to keepers that register from now on,
    /// but for `stop_wait_ms` in what the daemon itself waits.
    pub struct Backends {
        /// How long a backend stays after its front was cut off (killed, or its host went away
        /// without a word), in ms.
        linger_ms: u64 = 600_000; 1..,
        /// How long a backend stays after its host has closed it in an orderly way, in ms.
        closed_linger_ms: u64 = 30_000; 1..,
        /// How soon after a close a host that names the conversation starts the next front, if it
        /// reconnects, in ms.
        closed_again_ms: u64 = 1_000; 1..,
        /// How long a backend with a name (`wrap --name`) stays without a front, in ms.
        named_linger_ms: u64 = 28_800_000; 1..,
        /// How long a backend may take to answer a ping before a host that comes back is answered
        /// from memory, in ms. One that does not is replaced.
        ping_wait_ms: u64 = 1_500; 1..,
        /// Orderly closes within `closes_ms` after which a host gets a fresh backend: somebody
        /// tries to fix it by reconnecting.
        closes: u32 = 3; 1..,
        /// The time within which they are counted, in ms.
        closes_ms: u64 = 60_000; 1..,
        /// How long a request of a backend waits for a front that can answer it, in ms.
        ask_wait_ms: u64 = 300_000; 1..,
        /// How long a backend has to exit after its standard input was closed, and again after
        /// SIGTERM, in ms.
        stop_wait_ms: u64 = 2_000; 1..=STOP_WAIT_MAX_MS,
        /// Messages that are kept for the next front. When there are more, the backend is not read
        /// from.
        queue_messages: usize = 1_024; 1..,
        /// Bytes of them.
        queue_bytes: usize = 8 * 1024 * 1024; 1..,
        /// Bytes of a backend's standard error that are kept.
        stderr_bytes: usize = 64 * 1024; ..=STDERR_MAX,
    }
}
