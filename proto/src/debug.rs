//! What `mcp-sessiond debug` is told. Never a token, never a value, never an argument or a variable of a process.

use serde::{Deserialize, Serialize};

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
}

/// A session.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its id.
    pub session: SessionId,
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

/// Counters since the daemon started, and what there is now.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Name and value, in the order in which they should be read.
    pub counters: Vec<Counter>,
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
    /// Its value, as TOML.
    pub value: String,
    /// Where it comes from: `default`, `file`, `environment` or `flag`.
    pub source: String,
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
