//! The state of a backend, as its keeper reports it.

use serde::{Deserialize, Serialize};

use super::*;

/// What a backend is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendState {
    /// It runs, and was not asked to initialise yet.
    Started,
    /// It is being initialised.
    Initializing,
    /// It runs.
    Ready,
    /// It has exited, and is started again.
    Restarting,
    /// It is being taken down.
    Stopping,
}

/// How a shared backend is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedUse {
    /// How many hosts have it.
    pub hosts: usize,
    /// How many of its notifications nobody was told, since it can't be known whom they concern.
    #[serde(with = "crate::text")]
    pub withheld: u64,
}

/// How a backend is. No message, no argument, no variable: only what it wrote to its standard
/// error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackendStatus {
    /// The session.
    pub session: SessionId,
    /// The keeper's version, as in Cargo.toml.
    pub version: String,
    /// The server's display name, as the keeper has registered with.
    pub program: String,
    /// The directory that the keeper and its servers run in; absent where it is not known, or no
    /// UTF-8. Nobody else can ask the kernel for it, as a keeper is not dumpable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The pid of the session's host; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u32>,
    /// The name of the host's executable; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
    /// The keeper's pid.
    pub keeper_pid: u32,
    /// The pid of the backend; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What it is doing.
    pub state: BackendState,
    /// How long the backend has been running, in ms.
    #[serde(with = "crate::text")]
    pub age_ms: u64,
    /// The pid of the front that is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<u32>,
    /// How it is shared, where hosts share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedUse>,
    /// How long a front has been attached, or none has, in ms.
    #[serde(with = "crate::text")]
    pub since_ms: u64,
    /// Calls that the backend has not answered: the method, and how long ago.
    pub calls: Vec<CallInfo>,
    /// Requests of the backend that no host has answered.
    pub asks: Vec<CallInfo>,
    /// Answers to calls of former fronts, the latest last. They are delivered to nobody.
    pub parked: Vec<ParkedInfo>,
    /// Messages that wait for a front.
    pub waiting: usize,
    /// Bytes of them.
    pub waiting_bytes: usize,
    /// Messages that were on their way to a front that ended, since the keeper started.
    #[serde(with = "crate::text")]
    pub lost: u64,
    /// Messages that were not passed on, since the keeper started: progress of calls of former
    /// fronts, answers to nothing, and what was too large.
    #[serde(with = "crate::text")]
    pub dropped: u64,
    /// Messages and bytes to the backend, since the keeper started.
    pub to_backend: Traffic,
    /// Messages and bytes from the backend, since the keeper started.
    pub from_backend: Traffic,
    /// How often the backend was started again.
    pub restarts: u32,
    /// Why the backend ended the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Resident memory of the keeper, in bytes.
    #[serde(with = "crate::text")]
    pub keeper_bytes: u64,
    /// Resident memory of the backend and of what it has started, in bytes.
    #[serde(with = "crate::text")]
    pub backend_bytes: u64,
    /// The end of what the backend wrote to its standard error.
    pub stderr: String,
}

/// A call under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallInfo {
    /// Its method.
    pub method: String,
    /// How long ago it was made, in ms.
    #[serde(with = "crate::text")]
    pub age_ms: u64,
    /// Whether a former front made it.
    pub former: bool,
}

/// An answer that came after the front that made the call had gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedInfo {
    /// The method of the call.
    pub method: String,
    /// How long ago the answer came, in ms.
    #[serde(with = "crate::text")]
    pub age_ms: u64,
    /// How long the call had taken, in ms.
    #[serde(with = "crate::text")]
    pub took_ms: u64,
    /// Bytes of the answer.
    pub bytes: usize,
    /// Whether it was an error.
    pub failed: bool,
}

/// Messages in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// How many.
    #[serde(with = "crate::text")]
    pub messages: u64,
    /// Their bytes, with the newlines.
    #[serde(with = "crate::text")]
    pub bytes: u64,
}

/// What a backend wrote to its standard error, as far as the keeper still has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The text. What is not UTF-8 shows as what can't be shown; a character of which only the
    /// beginning was written is left for later.
    pub text: String,
    /// How many bytes were written up to its end, since the keeper started.
    #[serde(with = "crate::text")]
    pub next: u64,
    /// How many bytes before the text were asked for, and are not kept any more.
    #[serde(with = "crate::text")]
    pub missed: u64,
}
