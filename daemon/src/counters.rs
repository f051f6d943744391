//! What is counted, for `debug stats`.

use std::sync::atomic::{AtomicU64, Ordering};

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::debug::{self, Counter};

/// The codes of refusals, as [`Error::code`] has them.
pub const CODES: [&str; 23] = [
    "no_verified_host",
    "not_an_ancestor",
    "names_host",
    "stale_epoch",
    "lease_ended",
    "unknown_session",
    "already_exists",
    "session_terminated",
    "session_held",
    "name_taken",
    "version_conflict",
    "binding_mismatch",
    "unknown_handle",
    "handle_expired",
    "unknown_stream",
    "stream_closed",
    "unknown_cursor",
    "unknown_backend",
    "invalid_argument",
    "quota_exceeded",
    "write_failed",
    "unavailable",
    "outcome_unknown",
];

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the start.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// Refusals by [`CODES`].
            refusals: [AtomicU64; CODES.len()],
        }

        impl Counters {
            /// Each counter with its name, in the order in which they should be read.
            #[must_use]
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
    /// Sessions that were terminated.
    sessions_terminated_total,
    /// Sessions that ended by themselves.
    sessions_expired_total,
    /// Keepers that were registered.
    backends_kept_total,
    /// Registered keepers that have ended, with their backends.
    backends_ended_total,
    /// Events appended.
    events_appended_total,
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
}

/// The powers of two that the buckets of a histogram end at: 1, 2, 4 … 2^25, which is 34 s in µs and 32 MiB in bytes.
const BUCKETS: usize = 26;

/// How often something was at most 1, 2, 4 … of its unit.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    count: AtomicU64,
    sum: AtomicU64,
}

impl Histogram {
    /// Takes down one measurement.
    pub fn record(&self, value: u64) {
        let at = value.max(1).next_power_of_two().trailing_zeros() as usize;
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    fn read(&self, name: &str) -> debug::Histogram {
        let mut so_far = 0;
        let bucket = |(at, bucket): (usize, &AtomicU64)| {
            so_far += bucket.load(Ordering::Relaxed);
            debug::Bucket { at_most: 1 << at, count: so_far }
        };
        debug::Histogram {
            name: name.into(),
            buckets: self.buckets.iter().enumerate().map(bucket).collect(),
            count: self.count.load(Ordering::Relaxed),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

macro_rules! histograms {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Measurements since the start.
        #[derive(Debug, Default)]
        pub struct Histograms {
            $($(#[$doc])* pub $name: Histogram,)*
        }

        impl Histograms {
            /// Each histogram with its name.
            #[must_use]
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
