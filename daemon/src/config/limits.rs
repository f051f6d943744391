//! How much of each thing there may be.

use mcp_sessiond_proto::hello::FRAME_MAX;
use mcp_sessiond_proto::streams::MESSAGE_MAX;

use super::section::section;

const MIB: usize = 1024 * 1024;

/// One process may be in the middle of this part of all large frames.
const FRAME_SHARES: usize = 4;

/// Each process gets its part of it, and must be able to send one frame.
const FRAME_BYTES_MIN: u64 = FRAME_MAX as u64 * FRAME_SHARES as u64;

// No number of things, and no number of their bytes, may be 0. A value and a message must fit into
// a frame, with what stands around them.

section! {
    /// How much of each thing there may be.
    pub struct Limits {
        /// Connections in all. Each costs a descriptor and a few KiB.
        connections: usize = 4_096; 1..,
        /// Connections of one process: a library needs one, a pool some.
        connections_per_process: usize = 64; 1..,
        /// Requests of one connection that may be under way.
        requests_per_connection: usize = 32; 1..,
        /// Bytes of frames over 96 KiB that all connections together may be in the middle of
        /// receiving.
        frame_bytes: usize = 64 * MIB; FRAME_BYTES_MIN..,
        /// Sessions of one host: the busiest host seen has dozens of servers.
        sessions_per_host: usize = 1_024; 1..,
        /// Sessions and handles of one service: an HTTP server has one for each client that it has
        /// seen lately.
        sessions_per_service: usize = 20_000; 1..,
        /// Handles of one session that are good at the same time.
        handles: usize = 64; 1..,
        /// State values of one session.
        state_keys: usize = 1_024; 1..,
        /// Bytes of one state value.
        state_value_bytes: usize = MIB; 1..=MESSAGE_MAX as u64,
        /// Bytes of all keys and values of a session.
        state_bytes: usize = 4 * MIB; 1..,
        /// Streams of one session, the closed ones that can still be replayed among them.
        streams: usize = 256; 1..,
        /// Tasks of one session, those that have ended and can still be asked for among them.
        tasks: usize = 256; 1..,
        /// Bytes of one message. A frame has 4 MiB.
        message_bytes: usize = MIB; 1..=MESSAGE_MAX as u64,
        /// Events of one session that can be replayed. A session that has more forgets the oldest.
        events: usize = 10_000; 1..,
        /// Bytes of their messages.
        event_bytes: usize = 16 * MIB; 1..,
        /// Events of one stream that can be replayed.
        stream_events: usize = 5_000; 1..,
        /// Bytes of their messages.
        stream_event_bytes: usize = 8 * MIB; 1..,
        /// Bytes of one owner's sessions in the daemon's memory, with `memory` and `sqlite`.
        owner_bytes: usize = 64 * MIB; 1..,
        /// Bytes of all sessions in the daemon's memory, with `memory` and `sqlite`.
        total_bytes: usize = 256 * MIB; 1..,
    }
}

impl Limits {
    /// Bytes of large frames that one process may be in the middle of sending.
    pub fn frame_bytes_of_process(&self) -> usize {
        self.frame_bytes / FRAME_SHARES
    }
}
