//! How long sessions live.

use super::section::section;

/// More often would keep the machine awake for nothing.
const SWEEP_MIN_MS: u64 = 100;

/// Other daemons believe in a client for three times as long after this one has reported it.
const SWEEP_MAX_MS: u64 = 60_000;

/// More often would load the storage for nothing.
const POLL_MIN_MS: u64 = 10;

section! {
    /// How long things live, in ms. Where 0 is allowed it means: without an end.
    pub struct Sessions {
        /// A service's session after its last use, unless its creator says otherwise.
        idle_ms: u64 = 30 * 60_000,
        /// The same, after it was made.
        absolute_ms: u64 = 0,
        /// The same, after its last client has gone.
        grace_ms: u64 = 10 * 60_000,
        /// How long a terminated session says that it was.
        tombstone_ms: u64 = 10 * 60_000; 1..,
        /// How long the contents of a host's sessions stay when the host is gone, for `debug` to
        /// look at. Nobody else can.
        host_grace_ms: u64 = 2_000,
        /// How often sessions are looked for that have outlived their time.
        sweep_ms: u64 = 60_000; SWEEP_MIN_MS..=SWEEP_MAX_MS,
        /// How long a handle is good at most.
        handle_life_ms: u64 = 24 * 3_600_000; 1..,
        /// How long a task is kept at most, from its creation on.
        task_life_ms: u64 = 24 * 3_600_000; 1..,
        /// How long an event can be replayed.
        event_age_ms: u64 = 24 * 3_600_000,
        /// How often a storage that other daemons write to is asked for what a `wait` waits for.
        poll_ms: u64 = 250; POLL_MIN_MS..,
    }
}
