//! Tasks: work that goes on after the request that began it was answered, after the Tasks extension
//! of MCP 2026-07-28 (SEP-2663).

use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::names::{InputKey, RequestId, TaskId};
use crate::sessions::SessionRef;

/// Requests that a task may have for its client, from its creation to its end.
pub const TASK_INPUTS_MAX: usize = 64;
/// Bytes that the message of a task may have.
pub const TASK_MESSAGE_MAX: usize = 4_096;
/// The error of a task whose writer has exited: an error of JSON-RPC 2.0.
pub const TASK_LOST: &str = r#"{"code":-32603,"message":"the server has ended in the middle of this task; its outcome is unknown","data":{"outcome":"unknown"}}"#;

/// What has become of a task so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It is under way.
    #[default]
    Working,
    /// It can't go on before its client has answered its requests.
    InputRequired,
    /// It has a result.
    Completed,
    /// It has an error.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl TaskStatus {
    /// Its name, as on the wire and in SEP-2663.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether it is final.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A task to be created. The process that sends this is the task's writer: if it exits before the
/// task has ended, the task has failed, with [`TASK_LOST`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTaskRequest {
    /// The session.
    pub of: SessionRef,
    /// An idempotency key: a repeated request with the same one gets the same task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// How long after its creation the task is kept, in ms, whatever has become of it. At most, and
    /// where absent, as long as the setting `sessions.task_life_ms` says.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl_ms: Option<u64>,
    /// How often clients should ask for it, in ms. The daemon keeps it for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_ms: Option<u32>,
    /// What people are told of its state, at most [`TASK_MESSAGE_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskRef {
    /// The session.
    pub of: SessionRef,
    /// The task.
    pub task: TaskId,
}

/// A task to be changed. What is absent stays. All changes apply, or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateTaskRequest {
    /// The session.
    pub of: SessionRef,
    /// The task, which has not ended.
    pub task: TaskId,
    /// What people are told of its state, at most [`TASK_MESSAGE_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How long after its creation the task is kept, in ms.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub ttl_ms: Option<u64>,
    /// How often clients should ask for it, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_ms: Option<u32>,
    /// Requests for the client, each by a key that the task has never used (SEP-2663, Task Update
    /// Requests). Repeating a request with its key has no further effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "crate::bounded::list::<_, _, TASK_INPUTS_MAX>")]
    pub ask: Vec<TaskAsk>,
    /// The client's answers, by the keys of their requests. The daemon ignores those to what was
    /// not asked, or is answered already (SEP-2663, Task Update Requests).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "crate::bounded::list::<_, _, TASK_INPUTS_MAX>")]
    pub answer: Vec<TaskAnswer>,
    /// How the task has ended. Repeating it has no further effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TaskEnd>,
    /// Whether the process that sends this is the task's writer from now on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take: bool,
}

/// A request of a task's for its client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskAsk {
    /// Its key.
    pub key: InputKey,
    /// The request, such as one of `elicitation/create`.
    pub request: Json,
}

/// A client's answer to a request of a task's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskAnswer {
    /// The key of the request.
    pub key: InputKey,
    /// The answer.
    pub response: Json,
}

/// How a task ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// By this result.
    Completed(Json),
    /// By this error of JSON-RPC.
    Failed(Json),
    /// It was cancelled.
    Cancelled,
}

/// A wait for the next change of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitTaskRequest {
    /// The session.
    pub of: SessionRef,
    /// The task.
    pub task: TaskId,
    /// The version that the caller knows. A task that has another one, or has ended, is answered at
    /// once.
    #[serde(with = "crate::text")]
    pub version: u64,
    /// How long to wait at most, in ms; [`WAIT_MAX_MS`](crate::streams::WAIT_MAX_MS) where it is
    /// absent or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u32>,
}

/// Tasks to be listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTasksRequest {
    /// The session.
    pub of: SessionRef,
    /// Only what comes after this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<TaskId>,
}

/// A task as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its id, which can't be guessed: at least 128 random bits.
    pub task: TaskId,
    /// What has become of it.
    pub status: TaskStatus,
    /// What people are told of its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was created, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub created_ms: u64,
    /// When it was changed last, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub updated_ms: u64,
    /// How long after its creation it is kept, in ms.
    #[serde(with = "crate::text")]
    pub ttl_ms: u64,
    /// How often clients should ask for it, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_ms: Option<u32>,
    /// Grows with each change of it, from 1.
    #[serde(with = "crate::text")]
    pub version: u64,
    /// Its requests for the client, in the order in which it has made them. Not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<TaskInput>,
    /// The result of one that is `completed`. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    /// The error of one that has `failed`. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Json>,
}

/// A request of a task's for its client, and what has become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInput {
    /// Its key.
    pub key: InputKey,
    /// The request.
    pub request: Json,
    /// The client's answer. Absent: the request is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Json>,
}
