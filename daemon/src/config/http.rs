//! The settings of `serve` and of the servers behind it.

use super::Prefer;
use super::section::section;

section! {
    /// The settings of `serve`. Each `serve` reads them when it starts; `linger_ms` is the
    /// daemon's.
    pub struct Http {
        /// How long `serve` holds a request while the daemon does not answer, in ms. Then it
        /// answers 503, with a time to try again.
        hold_ms: u64 = 5_000; 1..,
        /// After how long without a request, an open stream or an open call a session ends, with
        /// its server, in ms; 0: never.
        idle_ms: u64 = 30 * 60_000,
        /// How long a server stays while no `serve` of its name runs, in ms. Applies to keepers
        /// that register from now on.
        linger_ms: u64 = 600_000; 1..,
        /// How many sessions there may be at one time.
        sessions: usize = 64; 1..,
        /// When there are `sessions` of them, a new one takes the place of the session of the same
        /// caller that nobody has used for longest, if that is at least so long, in ms; 0: never.
        unused_ms: u64 = 60_000,
        /// After what time a client reconnects when its connection has ended, in ms.
        retry_ms: u64 = 5_000,
        /// After how long without a message `serve` sends a comment, in ms: proxies close silent
        /// connections.
        keep_alive_ms: u64 = 15_000; 1..,
        /// How long a client may take to send the head of a request, and again its body, in ms.
        peer_wait_ms: u64 = 15_000; 1..,
        /// Whether the messages of a call whose client has disconnected go to the standalone stream
        /// until it is back. Answers always wait for it.
        redirect: bool = false,
        /// What a client gets that accepts both: a stream, which begins at once, so that it can be resumed
        /// also where `serve` is killed; or a message, where the answer is all that the server says.
        prefer: Prefer = Prefer::Stream,
    }
}
