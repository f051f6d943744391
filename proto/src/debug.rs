//! What `mcp-sessiond debug` is told. Never a token, never a value, never an argument or a variable
//! of a process.

use serde::{Deserialize, Serialize};

use crate::losses::LossRecord;
use crate::names::{ServiceName, StreamId, TaskId};
use crate::sessions::{Part, Status};
use crate::tasks::TaskStatus;
use crate::types::{Epoch, Label, SessionId};

/// The daemon about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct About {
    /// Its version, as in Cargo.toml.
    pub version: String,
    /// Its pid.
    pub pid: u32,
    /// The protocol version that it speaks.
    pub protocol: u16,
    /// How it was started: `foreground`, `on_demand`, `systemd` or `launchd`.
    pub started_by: String,
    /// How long it has been up, in ms.
    #[serde(with = "crate::text")]
    pub uptime_ms: u64,
    /// Its runtime directory.
    pub directory: String,
    /// The executable that it runs from.
    pub executable: String,
    /// How it knows which process has connected: by `SO_PEERPIDFD`, which the kernel has since
    /// Linux 6.5, or by a `challenge`, to which each process has to answer. On macOS by
    /// `LOCAL_PEERTOKEN`. Empty where it can identify nobody.
    #[serde(default)]
    pub peers: String,
    /// Where it keeps what sessions contain: `storage.url`, without any password.
    #[serde(default)]
    pub storage: String,
    /// What is the matter with that, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_failure: Option<String>,
    /// What else is wrong: with the settings, or with its own records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Finding>,
    /// What users may have to set, as what has happened shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Finding>,
}

/// Something that is wrong, or may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at: `settings` or `records`.
    pub what: String,
    /// What was found, a sentence.
    pub finding: String,
    /// What to do about it.
    pub advice: String,
}

/// A host, and what belongs to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostInfo {
    /// Its pid.
    pub pid: u32,
    /// Its start time: clock ticks since boot on Linux, `<seconds>.<microseconds>` on macOS.
    pub start: String,
    /// The name of its executable.
    pub name: String,
    /// Sessions that it owns.
    pub sessions: u32,
    /// Those that a live process holds.
    pub held: u32,
    /// Keys under which sessions can't be told apart.
    pub plural_keys: u32,
    /// What was lost of its servers, and was told to none of them yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<LossRecord>,
}

/// A session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its id.
    pub session: SessionId,
    /// The id that its owner chose for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SessionId>,
    /// Its host's pid.
    pub host: u32,
    /// The name of the executable that it was made for.
    pub program: String,
    /// Its label, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    /// The first 8 hex digits of its key's digest; absent where the key is doubtful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The newest epoch.
    pub epoch: Epoch,
    /// The pid of the live process that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<u32>,
    /// The name of its token file; absent where there is no token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// When it was opened, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub opened_ms: u64,
}

/// A token file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenInfo {
    /// Its name.
    pub file: String,
    /// The session that it belongs to.
    pub session: SessionId,
    /// Its size in bytes; absent where it can't be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u32>,
    /// `ok`, or what is wrong with it.
    pub state: String,
}

/// Where the next page of a list begins.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Page {
    /// Only what comes after this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<SessionId>,
}

/// Entries that a page has at most: a peer that never reads can have many pages waiting for it.
pub const PAGE_MAX: usize = 100;

/// What the storage holds of a session. Never a value, a message, or the name of a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContentInfo {
    /// Whom it belongs to: `service NAME`, or `host PID START BOOT`.
    pub owner: String,
    /// Its id.
    pub session: SessionId,
    /// How far it has come.
    pub status: Status,
    /// Whether it is bound to a caller.
    pub bound: bool,
    /// When it was made, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub created_ms: u64,
    /// When there was activity last, as far as it is on record, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub active_ms: u64,
    /// When it ends if nothing happens, in ms since the Unix epoch; absent: it does not by itself.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_ms: Option<u64>,
    /// Clients that are attached through this daemon.
    pub attached: u32,
    /// State values.
    pub state_keys: u32,
    /// Bytes of their keys and values.
    #[serde(with = "crate::text")]
    pub state_bytes: u64,
    /// When the first of them expires, as far as it is on record, in ms since the Unix epoch;
    /// absent: none does.
    #[serde(
        default,
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub state_expires_ms: Option<u64>,
    /// Streams.
    pub streams: u32,
    /// Events that can be replayed.
    pub events: u32,
    /// Bytes of their messages.
    #[serde(with = "crate::text")]
    pub event_bytes: u64,
    /// The number of the last event.
    #[serde(with = "crate::text")]
    pub last_number: u64,
    /// Handles that are good.
    pub handles: u32,
    /// Tasks, those that have ended among them.
    #[serde(default)]
    pub tasks: u32,
}

/// Where the next page of contents begins.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContentPage {
    /// Only what comes after this owner and this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<(String, SessionId)>,
}

/// The parts of a session, some of which can't be used. They are known as long as the connection is
/// open by which `update_session` told them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionParts {
    /// Whom the session belongs to: `service NAME`, or `host BOOT PID START`.
    pub owner: String,
    /// Its id.
    pub session: SessionId,
    /// Its parts, also those that can be used.
    pub parts: Vec<Part>,
}

/// Which sessions to look into.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InspectRequest {
    /// Their id: two services may have sessions of the same.
    pub session: SessionId,
    /// Whose; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A session, looked into.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Inspected {
    /// What is known of it where a host owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionInfo>,
    /// What the storage holds; absent where there is nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentInfo>,
    /// Its streams.
    pub streams: Vec<StreamInfo>,
    /// Its tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskInfo>,
}

/// A stream. Its events' ids are not told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StreamInfo {
    /// Its id.
    pub stream: StreamId,
    /// Whether nothing more can be appended.
    pub closed: bool,
    /// Whether its reader is gone.
    pub orphaned: bool,
    /// The position of its last event.
    #[serde(with = "crate::text")]
    pub last_position: u64,
    /// Events that can be replayed.
    pub events: u32,
    /// Bytes of their messages.
    #[serde(with = "crate::text")]
    pub bytes: u64,
}

/// A task. Its message, requests and result are not told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskInfo {
    /// Its id.
    pub task: TaskId,
    /// What has become of it so far.
    pub status: TaskStatus,
    /// When it was created, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub created_ms: u64,
    /// When it was changed last, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub updated_ms: u64,
    /// Until when it is kept, in ms since the Unix epoch.
    #[serde(with = "crate::text")]
    pub until_ms: u64,
}

/// What is to be ended. Without `older_than_ms`: whatever has outlived its time, as every sweep
/// does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepRequest {
    /// The service whose sessions are meant; only with `older_than_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// The service's sessions that nobody has used for so long, in ms, and nobody uses now; and no
    /// others.
    #[serde(
        with = "crate::text::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub older_than_ms: Option<u64>,
}

/// A session that a sweep has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    /// Whom it belonged to.
    pub owner: String,
    /// Its id.
    pub session: SessionId,
    /// Why: `idle`, `absolute`, `grace`, `host_gone`, `tombstone`, `unused`.
    pub why: String,
}

/// Counters and latencies since the daemon started, and what there is now.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Name and value, in the order in which they should be read.
    pub counters: Vec<Counter>,
    /// How long things took, and how large they were.
    #[serde(default)]
    pub histograms: Vec<Histogram>,
}

/// How long something took, or how large it was, by how often.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Histogram {
    /// What was measured: lower case, with the unit at its end.
    pub name: String,
    /// How often it was at most so much, in growing order and each with the ones before.
    pub buckets: Vec<Bucket>,
    /// How often in all.
    #[serde(with = "crate::text")]
    pub count: u64,
    /// How much in all.
    #[serde(with = "crate::text")]
    pub sum: u64,
}

/// One step of a histogram.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Bucket {
    /// At most so much.
    #[serde(with = "crate::text")]
    pub at_most: u64,
    /// So often.
    #[serde(with = "crate::text")]
    pub count: u64,
}

/// One counter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counter {
    /// What is counted: lower case, with the unit at its end.
    pub name: String,
    /// How many.
    #[serde(with = "crate::text")]
    pub value: u64,
}

/// One setting as it is in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setting {
    /// Its name in the configuration file.
    pub name: String,
    /// Its value in force, as TOML.
    pub value: String,
    /// Where it comes from: `default`, `file`, `environment` or `flag`.
    pub source: String,
    /// What the configuration says by now, as TOML, where that applies when the daemon is
    /// restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}

/// What the daemon makes of the process that asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WhoAmI {
    /// The instance that a claim would be for.
    pub instance: u32,
    /// The processes from the instance up to the last one looked at.
    pub walk: Vec<Step>,
    /// The host's pid; absent where none was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u32>,
    /// Why there is no verified host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_doubt: Option<String>,
    /// The first 8 hex digits of the key's digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Why the key is doubtful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_doubt: Option<String>,
}

/// One process on the way to the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// Its pid.
    pub pid: u32,
    /// The name of its executable.
    pub name: String,
    /// `instance`, `launcher`, `host`, or why the walk ended here.
    pub role: String,
}
