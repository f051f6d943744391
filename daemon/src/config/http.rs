//! The settings of `serve` and of the servers behind it.

use super::section::section;

section! {
    /// The settings of `serve`. Each `serve` reads them when it starts; `linger_ms` is the daemon's.
    pub struct Http {
        /// How long a request is held while the daemon is away, in ms. After that it is refused, and the client told to come again.
        hold_ms: u64 = 5_000,
        /// After how long without a stream and without a call a session ends, with its server, in ms; 0: never.
        idle_ms: u64 = 30 * 60_000,
        /// How long the server of a session stays when nobody serves it, in ms. Applies to keepers that register from now on.
        linger_ms: u64 = 600_000,
        /// Sessions at one time.
        sessions: usize = 64,
        /// After what time a client is told to come back whose connection has ended, in ms.
        retry_ms: u64 = 5_000,
        /// After how long without a message a comment is sent, in ms: proxies end connections that say nothing.
        keep_alive_ms: u64 = 15_000,
        /// How long a client may take to send the head of a request, and again its body, in ms.
        peer_wait_ms: u64 = 15_000,
        /// Whether messages of a call whose client is gone go to the standalone stream until it is back. Answers wait for it either
        /// way.
        redirect: bool = false,
    }
}
