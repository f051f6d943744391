//! Streams and events: what a session has said, in order, to be said again from any place.

use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::names::{RequestId, StreamId};
use crate::sessions::SessionRef;

/// Bytes that one message or state value may have at most, whatever the configuration says: as a
/// string in JSON every byte of it may take two, and it still has to fit into a frame.
pub const MESSAGE_MAX: usize = 2_000_000;
/// Messages that one append may have.
pub const APPEND_MAX: usize = 256;
/// Bytes of messages that one append may have, so that it fits into a frame and into a transaction
/// of any backend.
pub const APPEND_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Events that one answer has at most.
pub const EVENTS_MAX: usize = 1_000;
/// Bytes of messages from which on an answer ends: the frame has room for one more message.
pub const EVENTS_BYTES: usize = 1024 * 1024;
/// Streams that one `wait` may be about.
pub const WAIT_STREAMS_MAX: usize = 64;
/// How long a `wait` may take at most, in ms: less than a call in JSON-RPC may.
pub const WAIT_MAX_MS: u32 = 25_000;
/// Bytes that the text of an event id may have at most.
pub const EVENT_ID_MAX: usize = 512;

/// The id of an event, as it goes to a client as the `id` of an SSE event (MCP 2025-11-25): visible
/// ASCII that names its stream, can't be guessed, and means nothing in another session. Nothing
/// should be read from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(pub String);

/// A stream to be opened, or closed, or told to be an orphan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamRef {
    /// The session.
    pub of: SessionRef,
    /// The stream.
    pub stream: StreamId,
}

/// A stream to be opened. One that is open already stays as it is, but for its will.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenStreamRequest {
    /// The session.
    pub of: SessionRef,
    /// The stream.
    pub stream: StreamId,
    /// The id of the request that opened it, as JSON: a string or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_by: Option<Json>,
    /// A message that the daemon appends, and with which it closes the stream, when the process
    /// that has sent this has exited and the stream is still open. For a stream that is open
    /// already it takes the place of the former will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub will: Option<Json>,
}

/// Streams to be listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListStreamsRequest {
    /// The session.
    pub of: SessionRef,
    /// Only what comes after this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<StreamId>,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Its id.
    pub stream: StreamId,
    /// The id of the request that opened it, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_by: Option<Json>,
    /// Whether nothing more can be appended.
    pub closed: bool,
    /// Whether its reader is gone: what is no answer goes to the standalone stream.
    pub orphaned: bool,
    /// The position of its last event; 0: there was none.
    #[serde(with = "crate::text")]
    pub last_position: u64,
    /// The id of its last event: the newest cursor. Absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<EventId>,
    /// Events that can be replayed, priming events among them.
    pub events: u32,
    /// Bytes of their messages.
    #[serde(with = "crate::text")]
    pub bytes: u64,
}

/// Messages to be appended to a stream, all or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendRequest {
    /// The session.
    pub of: SessionRef,
    /// The stream, which is open. The standalone one always is.
    pub stream: StreamId,
    /// An idempotency key: a repeated request with the same one gets the first answer, and appends
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// The messages, 1 to [`APPEND_MAX`] and [`APPEND_BYTES_MAX`] together. null: a priming event
    /// (MCP 2025-11-25: an id and empty data), which has an id and is skipped in replay.
    #[serde(deserialize_with = "crate::bounded::list::<_, _, APPEND_MAX>")]
    pub messages: Vec<Option<Json>>,
    /// Whether the stream is closed with these messages, in one step: its will is void. A repeated
    /// request closes a stream that is open still.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub close: bool,
}

/// An event that was appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    /// Its id. It is kept when this is told.
    pub id: EventId,
    /// The stream that it went to.
    pub stream: StreamId,
    /// Its position in the stream, from 1, without gaps.
    #[serde(with = "crate::text")]
    pub position: u64,
    /// Its number in the session, from 1, without gaps.
    #[serde(with = "crate::text")]
    pub number: u64,
}

/// A place in what a session has said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cursor {
    /// In the event's own stream, after it. This is what `Last-Event-ID` brings.
    Event(EventId),
    /// At the beginning of this stream.
    Stream(StreamId),
    /// In the whole session, after the event of this number.
    Number(#[serde(with = "crate::text")] u64),
}

/// What is to be said again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    /// The session.
    pub of: SessionRef,
    /// From where.
    pub after: Cursor,
    /// How many events at most: 1 to [`EVENTS_MAX`]. Absent: as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
}

/// What comes next in several streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    /// The session.
    pub of: SessionRef,
    /// From where in each: 1 to [`WAIT_STREAMS_MAX`] cursors of different streams, or one number.
    #[serde(deserialize_with = "crate::bounded::list::<_, _, WAIT_STREAMS_MAX>")]
    pub after: Vec<Cursor>,
    /// How many events at most: 1 to [`EVENTS_MAX`]. Absent: as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// How long to wait, in ms, where there is nothing yet: at most [`WAIT_MAX_MS`], which it is
    /// where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u32>,
}

/// An event id that somebody brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindEventRequest {
    /// The session.
    pub of: SessionRef,
    /// The id: what `Last-Event-ID` brings.
    pub event: EventId,
}

/// Where an event is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundEvent {
    /// Its stream.
    pub stream: Stream,
    /// Its position in the stream.
    #[serde(with = "crate::text")]
    pub position: u64,
    /// Its number in the session.
    #[serde(with = "crate::text")]
    pub number: u64,
    /// Whether the stream is closed, and this is its last event: there is nothing to come.
    pub ended: bool,
}

/// Events to be pruned. What was pruned is a gap for who comes for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PruneRequest {
    /// The session.
    pub of: SessionRef,
    /// Of this stream alone. Absent: of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamId>,
    /// So many stay, the newest.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub keep: Option<u64>,
    /// Those stay that were appended within so many ms.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub older_than_ms: Option<u64>,
}

/// What was pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    /// Events.
    #[serde(with = "crate::text")]
    pub events: u64,
    /// Bytes of their messages.
    #[serde(with = "crate::text")]
    pub bytes: u64,
}

/// What was said after a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replayed {
    /// The events, in order of their numbers, without priming events.
    pub events: Vec<Event>,
    /// What is missing between them, because it was pruned.
    pub gaps: Vec<Gap>,
    /// Where to go on from, one for each cursor that was given, in their order.
    pub next: Vec<Cursor>,
    /// Whether there is more already.
    pub more: bool,
    /// Of the streams of the cursors, those that are closed and said to their ends: there is
    /// nothing to come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<StreamId>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its id.
    pub id: EventId,
    /// Its stream.
    pub stream: StreamId,
    /// Its position in the stream.
    #[serde(with = "crate::text")]
    pub position: u64,
    /// Its number in the session.
    #[serde(with = "crate::text")]
    pub number: u64,
    /// The message, as it was appended.
    pub message: Json,
}

/// Events that were there and are not any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The stream whose positions these are; absent: they are numbers of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamId>,
    /// The first that is missing.
    #[serde(with = "crate::text")]
    pub first: u64,
    /// The last.
    #[serde(with = "crate::text")]
    pub last: u64,
}
