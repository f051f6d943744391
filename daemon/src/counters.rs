//! What is counted, for `stats` and for Prometheus.

mod histogram;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mcp_sessiond_proto::debug::{self, Counter};
use mcp_sessiond_proto::service::METHODS;
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{CODES, Error};

pub use histogram::Histogram;
pub use text::{Gauge, text};

/// How claims were answered, with the words for it.
pub const OUTCOMES: [(Outcome, &str); 7] = [
    (Outcome::Held, "held"),
    (Outcome::Resumed, "resumed"),
    (Outcome::FreshFirst, "fresh_first"),
    (Outcome::FreshHeld, "fresh_held"),
    (Outcome::FreshPlural, "fresh_plural"),
    (Outcome::FreshNever, "fresh_never"),
    (Outcome::FreshDoubtful, "fresh_doubtful"),
];

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Counters since the start.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])* pub $name: AtomicU64,)*
            /// Refusals by [`CODES`].
            refusals: [AtomicU64; CODES.len()],
            /// Claims by [`OUTCOMES`].
            claims: [AtomicU64; OUTCOMES.len()],
        }

        impl Counters {
            /// Each counter with what it counts.
            fn described(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($doc),*).trim_ascii(), self.$name.load(Ordering::Relaxed)),)*]
            }

            /// Each counter with its name, in the order in which they should be read.
            pub fn list(&self) -> Vec<Counter> {
                let mut list = vec![
                    $(Counter { name: stringify!($name).into(), value: self.$name.load(Ordering::Relaxed) },)*
                ];
                let refusals = CODES.iter().zip(&self.refusals);
                list.extend(refusals.map(|(code, refused)| Counter {
                    name: format!("refused_{code}_total"),
                    value: refused.load(Ordering::Relaxed),
                }));
                list
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
    /// Sessions that were made by their ids.
    sessions_created_total,
    /// Sessions that were terminated, by their servers or for who asked for them.
    sessions_terminated_total,
    /// Sessions that ended by themselves.
    sessions_expired_total,
    /// Keepers that were registered.
    backends_kept_total,
    /// Registered keepers that have ended, with their backends.
    backends_ended_total,
    /// Backends that were started again.
    wrap_restarts_total,
    /// Fronts that had a backend after another front.
    wrap_reconnects_total,
    /// Messages that were on their way to a front when it ended, as far as keepers have told.
    wrap_lost_total,
    /// Answers to calls of former fronts, which were dropped, as far as keepers have told.
    wrap_undelivered_total,
    /// Events appended.
    events_appended_total,
    /// Events that were pruned.
    events_pruned_total,
    /// Times that the storage did not answer, or could not be read.
    storage_errors_total,
    /// Changes that met another daemon's, and were tried again.
    storage_conflicts_total,
}

/// Everything that is counted and measured.
#[derive(Debug, Default)]
pub struct Meters {
    /// How often.
    pub counters: Counters,
    /// How long, and how much.
    pub histograms: Histograms,
    /// How long calls took, by [`METHODS`].
    requests: ByName<{ METHODS.len() }>,
    /// How long the storage took, by [`OPERATIONS`].
    storage: ByName<{ OPERATIONS.len() }>,
}

/// What a storage is asked to do; `keep` is from a change to its being kept, where that comes
/// later.
pub const OPERATIONS: [&str; 8] = [
    "read", "scan", "commit", "keep", "list", "list_all", "due", "count",
];

/// A histogram of times for each of some names.
#[derive(Debug)]
struct ByName<const COUNT: usize>([Histogram; COUNT]);

impl<const COUNT: usize> Default for ByName<COUNT> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Histogram::default()))
    }
}

impl Meters {
    /// Takes down how long a call took.
    pub fn requested(&self, method: &str, took: Duration) {
        if let Some(at) = METHODS.iter().position(|known| *known == method) {
            self.requests.0[at].record_time(took);
        }
    }

    /// Takes down how long the storage took for one of [`OPERATIONS`].
    pub fn stored(&self, operation: &str, took: Duration) {
        if let Some(at) = OPERATIONS.iter().position(|known| *known == operation) {
            self.storage.0[at].record_time(took);
        }
    }
}

macro_rules! histograms {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Measurements since the start.
        #[derive(Debug, Default)]
        pub struct Histograms {
            $($(#[doc = $doc])* pub $name: Histogram,)*
        }

        impl Histograms {
            /// Each histogram with what it measures.
            fn described(&self) -> Vec<(debug::Histogram, &'static str)> {
                vec![$((self.$name.read(stringify!($name)), concat!($($doc),*).trim_ascii()),)*]
            }

            /// Each histogram with its name.
            pub fn list(&self) -> Vec<debug::Histogram> {
                vec![$(self.$name.read(stringify!($name)),)*]
            }
        }
    };
}

histograms! {
    /// From a claim to its answer.
    claim_us,
    /// From a token to its being kept.
    store_token_us,
    /// From a call that makes or changes a session to its being kept.
    change_session_us,
    /// From a call that reads a session to its answer.
    read_session_us,
    /// From a call that reads state to its answer.
    read_state_us,
    /// From a call that writes state to its being kept.
    write_state_us,
    /// From an append to its events being kept.
    append_us,
    /// From a replay to its answer.
    replay_us,
    /// Bytes of the messages of one append.
    append_bytes,
    /// Messages of one append.
    append_messages,
    /// Bytes of the values of one write of state.
    write_state_bytes,
}

/// Counts one.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Counts a claim that was answered with a lease.
    pub fn claimed(&self, outcome: Outcome) {
        count(&self.claims_total);
        match outcome {
            Outcome::Held => {}
            Outcome::Resumed => count(&self.claims_resumed_total),
            _ => count(&self.claims_fresh_total),
        }
        if let Some(at) = OUTCOMES.iter().position(|(known, _)| *known == outcome) {
            count(&self.claims[at]);
        }
    }

    /// Counts a refusal under its kind.
    pub fn refused(&self, error: &Error) {
        let code = error.code();
        if let Some(at) = CODES.iter().position(|known| *known == code) {
            count(&self.refusals[at]);
        }
        match error {
            Error::NoVerifiedHost { .. } => count(&self.claims_unverified_total),
            Error::StaleEpoch { .. } | Error::LeaseEnded => count(&self.stale_writes_total),
            Error::WriteFailed { .. } => count(&self.tokens_failed_total),
            _ => {}
        }
    }
}
