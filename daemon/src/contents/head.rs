//! What the head of a session's record says, and the rows under it.

use std::fmt;

use bytes::Bytes;
use mcp_sessiond_proto::sessions::Status;
use mcp_sessiond_proto::tasks::{TaskEnd, TaskInput, TaskStatus};
use mcp_sessiond_proto::{Json, RequestId, StreamId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use super::binding::Bound;
use super::bounds::Bounds;
use crate::storage::StorageError;

/// When an attached session with a grace period is looked at again, in ms: a daemon that was killed
/// can't detach it.
const ATTACHED_LOOK_MS: u64 = 60_000;

/// When a host's session is looked at again, in ms: where the daemon and the host were killed
/// together, nobody else says that it is over.
pub(super) const HOSTED_LOOK_MS: u64 = 24 * 3_600_000;

/// The head of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Head {
    pub(super) created_ms: u64,
    /// Drawn when it was made: another session of that id has another one.
    pub(super) born: u64,
    pub(super) active_ms: u64,
    /// Lifetimes in ms; 0: without an end.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) idle_ms: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) absolute_ms: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) grace_ms: u64,
    /// Whether a host owns it, and when the daemon of that host looked after it last.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) hosted: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) looked_ms: u64,
    /// Whether a client is attached, and if not, since when.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) attached: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) detached_ms: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) status: Status,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) terminated_ms: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) bound: Option<Bound>,
    /// The request that created it.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) request: Option<RequestId>,
    /// What its event ids are made with.
    #[serde(with = "serde_bytes")]
    pub(super) secret: [u8; 32],
    /// The number of its last event, and the last that is pruned.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) last_number: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) pruned: u64,
    /// Events that are there, the bytes of their messages, and when the oldest was appended.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) events: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) event_bytes: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) oldest_ms: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) streams: u32,
    /// Streams that have a will, and tasks that are under way.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) wills: u32,
    #[serde(skip_serializing_if = "Tasks::is_none")]
    pub(super) tasks: Tasks,
    /// The version that was given to a state value last.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) state_version: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) state_keys: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) state_bytes: u64,
    /// When the first of its state values expires, or a former one would have; 0: none does.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) state_due_ms: u64,
    /// Until when each of its handles is good.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) handles: Vec<u64>,
    /// The home of the daemon whose machine has the server of the session, in a storage that
    /// several daemons share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept_at: Option<String>,
}

/// What the head says of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Tasks {
    /// How many there are, those whose time is over among them.
    pub(super) count: u32,
    /// When the time of the first one is over, or earlier, and that of the last one, or later; 0:
    /// there is none.
    first_due_ms: u64,
    last_due_ms: u64,
}

impl Tasks {
    fn is_none(&self) -> bool {
        self.count == 0
    }

    /// There is a task whose time is over then.
    pub(super) fn note(&mut self, due_ms: u64) {
        let first = if self.first_due_ms == 0 {
            u64::MAX
        } else {
            self.first_due_ms
        };
        (self.first_due_ms, self.last_due_ms) = (first.min(due_ms), self.last_due_ms.max(due_ms));
    }

    /// When the time of the first one is over; `u64::MAX`: there is none.
    pub(super) fn first_due_ms(&self) -> u64 {
        if self.count == 0 {
            u64::MAX
        } else {
            self.first_due_ms
        }
    }
}

/// Why a session has ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Nobody used it for its idle lifetime.
    Idle,
    /// Its absolute lifetime was over.
    Absolute,
    /// Its last client was gone for its grace period.
    Grace,
    /// It had been terminated, and said so for long enough.
    Tombstone,
    /// Its host is gone.
    HostGone,
    /// Nobody had used it for as long as somebody asked for.
    Unused,
}

impl Why {
    /// As `debug` tells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Absolute => "absolute",
            Self::Grace => "grace",
            Self::Tombstone => "tombstone",
            Self::HostGone => "host_gone",
            Self::Unused => "unused",
        }
    }
}

/// Whether it need not be written: most of a head is like this, and each name costs more than the
/// number.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn after(since_ms: u64, lifetime_ms: u64) -> u64 {
    if lifetime_ms == 0 {
        u64::MAX
    } else {
        since_ms.saturating_add(lifetime_ms)
    }
}

/// Activity is put on record when what is on record is older than this, in ms, or than a quarter of
/// the idle lifetime.
const ACTIVE_NOTE_MS: u64 = 60_000;

impl Head {
    /// Of a session that a claim has made, and that nothing is on record of yet. It lives as long
    /// as its host.
    pub(super) fn claimed(now_ms: u64) -> Self {
        let born = u64::from_ne_bytes(super::draw());
        let secret = super::draw();
        Self {
            created_ms: now_ms,
            born,
            active_ms: now_ms,
            hosted: true,
            secret,
            ..Self::default()
        }
    }

    /// Whether what is on record of its activity is recent enough.
    pub(super) fn is_recently_active(&self, now_ms: u64) -> bool {
        // A host's session without an idle lifetime ends with its host, however long it is not
        // used.
        self.hosted && self.idle_ms == 0 || now_ms.saturating_sub(self.active_ms) < self.note_ms()
    }

    /// For how long at most it may have been used after what is on record of it.
    pub(super) fn note_ms(&self) -> u64 {
        if self.idle_ms == 0 {
            ACTIVE_NOTE_MS
        } else {
            ACTIVE_NOTE_MS.min(self.idle_ms / 4)
        }
    }

    /// Empties it. Counters don't go back, and former event ids are nothing any more.
    pub(super) fn empty(&mut self) {
        self.secret = super::draw();
        self.pruned = self.last_number;
        (self.events, self.event_bytes, self.streams, self.wills) = (0, 0, 0, 0);
        self.tasks = Tasks::default();
        (self.state_keys, self.state_bytes, self.state_due_ms) = (0, 0, 0);
    }

    pub(super) fn is_terminated(&self) -> bool {
        self.status == Status::Terminated
    }

    /// When it ends if nothing happens, and why; `u64::MAX`: never.
    pub(super) fn end(&self, bounds: &Bounds) -> (u64, Why) {
        if self.is_terminated() {
            return (
                self.terminated_ms
                    .saturating_add(bounds.sessions.tombstone_ms),
                Why::Tombstone,
            );
        }
        // A client comes back for the result of a task for as long as that is kept.
        let tasks_ms = if self.tasks.is_none() {
            0
        } else {
            self.tasks.last_due_ms
        };
        let idle = (after(self.active_ms, self.idle_ms).max(tasks_ms), Why::Idle);
        let absolute = (after(self.created_ms, self.absolute_ms), Why::Absolute);
        let grace = self
            .detached_ms
            .map_or(u64::MAX, |since_ms| after(since_ms, self.grace_ms));
        let grace = grace.max(tasks_ms);
        [absolute, (grace, Why::Grace), idle]
            .into_iter()
            .min_by_key(|(at, _)| *at)
            .unwrap_or(idle)
    }

    /// Why it has ended by now, if it has. One that is in use ends by its absolute lifetime alone.
    pub(super) fn ended(&self, now_ms: u64, bounds: &Bounds, in_use: bool) -> Option<Why> {
        if in_use && !self.is_terminated() {
            return (after(self.created_ms, self.absolute_ms) <= now_ms).then_some(Why::Absolute);
        }
        let (at, why) = self.end(bounds);
        (at <= now_ms).then_some(why)
    }

    /// When the sweep has to look at it.
    pub(super) fn due_ms(&self, bounds: &Bounds) -> u64 {
        let aged = if self.events > 0 {
            after(self.oldest_ms, bounds.sessions.event_age_ms)
        } else {
            u64::MAX
        };
        let looked_ms = self.looked_ms.max(self.active_ms);
        let attached = if self.attached && self.grace_ms > 0 {
            ATTACHED_LOOK_MS
        } else {
            0
        };
        // One that is held is not idle; by the time that its holder goes, that has to be on record.
        let hosted = match (self.hosted, self.idle_ms) {
            (false, _) => 0,
            (true, 0) => HOSTED_LOOK_MS,
            (true, _) => ATTACHED_LOOK_MS,
        };
        let look = after(looked_ms, attached).min(after(looked_ms, hosted));
        let state = if self.state_due_ms == 0 {
            u64::MAX
        } else {
            self.state_due_ms
        };
        self.end(bounds)
            .0
            .min(aged)
            .min(look)
            .min(state)
            .min(self.tasks.first_due_ms())
    }
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StreamRow {
    #[serde(skip_serializing_if = "is_default")]
    pub(super) opened_by: Option<Json>,
    /// The session's last number when it was opened: a cursor from before is of another stream of
    /// that name.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) opened_at: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) closed: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) orphaned: bool,
    /// The position of its last event, that event's number, and the number of the first that came
    /// with it.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) last_position: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) last_number: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) last_chunk: u64,
    /// The last position that is pruned, and the number from which on there is something of it.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) pruned: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) first_number: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) will: Option<Will>,
}

/// The last will of a stream.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Will {
    /// What is appended.
    pub(super) message: String,
    /// When this process has exited: as the engine writes it.
    pub(super) author: String,
}

impl fmt::Debug for Will {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Will({} bytes, {})",
            self.message.len(),
            self.author
        )
    }
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TaskRow {
    pub(super) status: TaskStatus,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) message: Option<String>,
    pub(super) created_ms: u64,
    pub(super) updated_ms: u64,
    pub(super) ttl_ms: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub(super) poll_ms: Option<u32>,
    pub(super) version: u64,
    /// Whose exit is the end of it: as the engine writes it. None: it has ended.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) author: Option<String>,
}

impl TaskRow {
    /// When its time is over.
    pub(super) fn until_ms(&self) -> u64 {
        self.created_ms.saturating_add(self.ttl_ms)
    }
}

/// What lists don't show of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TaskBody {
    pub(super) inputs: Vec<TaskInput>,
    pub(super) end: Option<TaskEnd>,
}

impl TaskBody {
    /// Bytes of its texts.
    pub(super) fn bytes(&self) -> usize {
        let response = |input: &TaskInput| input.response.as_ref().map_or(0, Json::len);
        let inputs = self
            .inputs
            .iter()
            .map(|input| input.request.len() + response(input));
        let end = match &self.end {
            Some(TaskEnd::Completed(text) | TaskEnd::Failed(text)) => text.len(),
            Some(TaskEnd::Cancelled) | None => 0,
        };
        inputs.sum::<usize>() + end
    }
}

impl StreamRow {
    pub(super) fn events(&self) -> u64 {
        self.last_position.saturating_sub(self.pruned)
    }
}

/// Events that were appended together to one stream. The number of the first is in the key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Chunk {
    /// The position of the first.
    pub(super) position: u64,
    pub(super) at_ms: u64,
    /// The request that they came with.
    #[serde(skip_serializing_if = "is_default")]
    pub(super) request: Option<RequestId>,
    /// None: a priming event.
    pub(super) messages: Vec<Option<String>>,
}

impl Chunk {
    pub(super) fn bytes(&self) -> u64 {
        self.messages
            .iter()
            .flatten()
            .map(|message| message.len() as u64)
            .sum()
    }
}

/// What a request to append came to, for who repeats it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) stream: StreamId,
    pub(super) position: u64,
    pub(super) number: u64,
    pub(super) count: u64,
}

/// The last requests that have written state or emptied the session, the latest last: each by its
/// hash, with the version that was given to a state value last before it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Done(Vec<(u64, u64)>);

/// How many are remembered. With more, the row would not fit into a page of SQLite's with others.
const DONE_MAX: usize = 48;

impl Done {
    /// The state version before this request was carried out, if it was.
    pub(super) fn find(&self, request: &RequestId) -> Option<u64> {
        let hash = hash(request);
        self.0
            .iter()
            .find(|(known, _)| *known == hash)
            .map(|(_, before)| *before)
    }

    /// The same with this request, too.
    pub(super) fn and(mut self, request: &RequestId, before: u64) -> Self {
        let surplus = (self.0.len() + 1).saturating_sub(DONE_MAX);
        self.0.drain(..surplus);
        self.0.push((hash(request), before));
        self
    }
}

fn hash(request: &RequestId) -> u64 {
    let hash = Sha256::digest(request.as_str());
    u64::from_be_bytes([
        hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7],
    ])
}

/// A handle's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HandleHead {
    pub(super) session: String,
    pub(super) born: u64,
    pub(super) expires_ms: u64,
    /// Until when it is known that there was such a handle.
    pub(super) forgotten_ms: u64,
}

pub(super) fn encode(row: &impl Serialize) -> Bytes {
    // Into memory, of types of ours: it can't fail.
    let row = rmp_serde::to_vec_named(row).unwrap_or_default();
    // Without spare capacity: it may be kept for long.
    row.into_boxed_slice().into()
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StorageError> {
    rmp_serde::from_slice(bytes).map_err(|_| {
        StorageError::Damaged("a record of the storage is not what a daemon has written".into())
    })
}
