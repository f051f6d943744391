//! What is counted, for `debug stats`.

use std::sync::atomic::{AtomicU64, Ordering};

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::debug::Counter;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the start.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            /// Each counter with its name, in the order in which they should be read.
            #[must_use]
            pub fn list(&self) -> Vec<Counter> {
                vec![$(Counter { name: stringify!($name).into(), value: self.$name.load(Ordering::Relaxed) },)*]
            }
        }
    };
}

counters! {
    /// Connections that were let in.
    connections_total,
    /// Connections of other users, or of processes that could not be identified.
    connections_refused_total,
    /// Connections that ended because of what they sent, or did not.
    connections_broken_total,
    /// Connections over a limit.
    connections_over_limit_total,
    /// Claims that were answered with a lease.
    claims_total,
    /// Claims that resumed a former instance's session.
    claims_resumed_total,
    /// Claims that opened a new session.
    claims_fresh_total,
    /// Claims without a verified host.
    claims_unverified_total,
    /// Claims whose key was doubtful.
    claims_doubtful_total,
    /// Tokens written.
    tokens_stored_total,
    /// Tokens that a broker refused.
    tokens_rejected_total,
    /// Token files that could not be trusted.
    tokens_corrupted_total,
    /// Tokens that could not be written.
    tokens_failed_total,
    /// Writes under an epoch that was not the newest.
    stale_writes_total,
}

/// Counts one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Counts a refusal under its kind.
    pub fn refused(&self, error: &Error) {
        match error {
            Error::NoVerifiedHost { .. } => count(&self.claims_unverified_total),
            Error::StaleEpoch { .. } | Error::LeaseEnded => count(&self.stale_writes_total),
            Error::WriteFailed { .. } => count(&self.tokens_failed_total),
            _ => {}
        }
    }
}
