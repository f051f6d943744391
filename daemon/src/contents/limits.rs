//! How much a session may hold, and how long it lives. The configuration has the defaults and their reasons.

/// Limits and lifetimes in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Sessions and handles of one service.
    pub sessions_per_service: usize,
    /// State values of one session.
    pub state_keys: usize,
    /// Bytes of one state value.
    pub state_value_bytes: usize,
    /// Bytes of all keys and values of a session's state.
    pub state_bytes: usize,
    /// Streams of one session.
    pub streams: usize,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Events of one session that can be replayed.
    pub events: usize,
    /// Bytes of their messages.
    pub event_bytes: usize,
    /// Events of one stream that can be replayed.
    pub stream_events: usize,
    /// Bytes of their messages.
    pub stream_event_bytes: usize,
    /// How long an event can be replayed, in ms; 0: as long as its session lives.
    pub event_age_ms: u64,
    /// Handles of one session that are good at the same time.
    pub handles: usize,
    /// How long a handle is good at most, in ms.
    pub handle_life_ms: u64,
    /// Bytes of one owner's sessions, where the storage keeps them in this process's memory.
    pub owner_bytes: usize,
    /// Bytes of all sessions, likewise.
    pub total_bytes: usize,
    /// What a service's session gets for its lifetimes where its creator says nothing, in ms; 0: without an end.
    pub idle_ms: u64,
    /// The same, after its creation.
    pub absolute_ms: u64,
    /// The same, after its last client has gone.
    pub grace_ms: u64,
    /// How long a terminated session says that it was, in ms.
    pub tombstone_ms: u64,
    /// How often a storage that other daemons write to is asked whether a `wait` is over, in ms.
    pub poll_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            sessions_per_service: 20_000,
            state_keys: 1_024,
            state_value_bytes: MIB,
            state_bytes: 4 * MIB,
            streams: 256,
            message_bytes: MIB,
            events: 10_000,
            event_bytes: 16 * MIB,
            stream_events: 5_000,
            stream_event_bytes: 8 * MIB,
            event_age_ms: 24 * 3_600_000,
            handles: 64,
            handle_life_ms: 24 * 3_600_000,
            owner_bytes: 64 * MIB,
            total_bytes: 256 * MIB,
            idle_ms: 30 * 60_000,
            absolute_ms: 0,
            grace_ms: 10 * 60_000,
            tombstone_ms: 10 * 60_000,
            poll_ms: 250,
        }
    }
}
