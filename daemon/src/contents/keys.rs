//! The keys of the items under a session's head.

use std::ops::Range;

use mcp_sessiond_proto::{RequestId, StateKey, StreamId, TaskId};

use crate::storage::Key;

/// What an item is, by the first byte of its key; behind it, its name.
const DONE: u8 = b'd';
const EVENT: u8 = b'e';
const STATE: u8 = b'k';
const METADATA: u8 = b'm';
const REQUEST: u8 = b'r';
const STREAM: u8 = b't';
const TASK: u8 = b'w';
const EXPIRY: u8 = b'x';
const TASK_BODY: u8 = b'y';

fn key(kind: u8, name: &[u8]) -> Key {
    let mut key = Vec::with_capacity(1 + name.len());
    key.push(kind);
    key.extend_from_slice(name);
    key.into()
}

pub(super) fn done_key() -> Key {
    key(DONE, b"")
}

pub(super) fn event_key(number: u64) -> Key {
    key(EVENT, &number.to_be_bytes())
}

/// The number that is in the key of a chunk.
pub(super) fn event_number(key: &Key) -> u64 {
    let bytes = key.get(1..9).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

pub(super) fn end_of_events() -> Key {
    key(EVENT + 1, b"")
}

pub(super) fn state_key(name: &StateKey) -> Key {
    key(STATE, name.as_str().as_bytes())
}

/// Just after a state key, or before all.
pub(super) fn state_after(name: Option<&StateKey>) -> Key {
    let mut after = name.map_or_else(|| vec![STATE], |name| state_key(name).to_vec());
    if name.is_some() {
        after.push(0);
    }
    after.into()
}

pub(super) fn end_of_state() -> Key {
    key(STATE + 1, b"")
}

/// The note that the value of this key expires then.
pub(super) fn expiry_key(at_ms: u64, name: &StateKey) -> Key {
    key(
        EXPIRY,
        &[&at_ms.to_be_bytes(), name.as_str().as_bytes()].concat(),
    )
}

/// When the value of a note expires.
pub(super) fn expiry_of(key: &Key) -> u64 {
    event_number(key)
}

/// The key of the value that a note is about.
pub(super) fn state_of_expiry(note: &Key) -> Key {
    key(STATE, note.get(9..).unwrap_or_default())
}

/// All notes, in order of the times.
pub(super) fn all_expiries() -> Range<Key> {
    key(EXPIRY, b"")..key(EXPIRY + 1, b"")
}

pub(super) fn metadata_key() -> Key {
    key(METADATA, b"")
}

pub(super) fn request_key(request: &RequestId) -> Key {
    key(REQUEST, request.as_str().as_bytes())
}

pub(super) fn stream_key(stream: &StreamId) -> Key {
    key(STREAM, stream.as_str().as_bytes())
}

/// Just after a stream's key, or before all.
pub(super) fn stream_after(stream: Option<&StreamId>) -> Key {
    let mut after = stream.map_or_else(|| vec![STREAM], |stream| stream_key(stream).to_vec());
    if stream.is_some() {
        after.push(0);
    }
    after.into()
}

pub(super) fn end_of_streams() -> Key {
    key(STREAM + 1, b"")
}

pub(super) fn task_key(task: &TaskId) -> Key {
    key(TASK, task.as_str().as_bytes())
}

pub(super) fn task_body_key(task: &TaskId) -> Key {
    key(TASK_BODY, task.as_str().as_bytes())
}

/// Just after a task's key, or before all.
pub(super) fn task_after(task: Option<&TaskId>) -> Key {
    let mut after = task.map_or_else(|| vec![TASK], |task| task_key(task).to_vec());
    if task.is_some() {
        after.push(0);
    }
    after.into()
}

pub(super) fn end_of_tasks() -> Key {
    key(TASK + 1, b"")
}

/// The name that an item's key ends with.
pub(super) fn name_in(key: &Key) -> &str {
    key.get(1..)
        .and_then(|name| std::str::from_utf8(name).ok())
        .unwrap_or_default()
}
