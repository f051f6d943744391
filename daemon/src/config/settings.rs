//! Every setting with its default, and what the parts of the daemon are given of them.

use std::path::PathBuf;

use mcp_sessiond_process::{Launcher, Table};
use mcp_sessiond_proto::Siblings;
use mcp_sessiond_registry::Policy;
use serde::{Deserialize, Serialize};

use super::Backends;
use crate::contents;
use crate::storage::{self, Durability};

/// One process may be in the middle of this part of all large frames.
pub(super) const FRAME_SHARES: usize = 4;

/// Every setting. The names are those of the configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long a claim waits, in ms, for the session's holder to be gone: hosts start the new server before the
    /// old one has died. 0 to 5,000.
    pub claim_wait_ms: u64,
    /// What a claim gets where sessions can't be told apart: `fresh` or `oldest`.
    pub siblings: Siblings,
    /// Whether pid 1 may be a host, as in a container whose only program is the host.
    pub pid1_is_host: bool,
    /// Programs that start servers on behalf of a host, beside those that are known: `executable` and the
    /// `arguments` that it must begin with.
    pub launchers: Vec<Launcher>,
    /// Executables that adopt orphans, beside those that are known: a server below one has no host.
    pub adopters: Vec<String>,
    /// Variables that differ at every start of a server for no reason, beside those that are known. `*` at the end
    /// stands for anything.
    pub ignored_variables: Vec<String>,
    /// Variables in which a host tells its servers the conversation, beside those that are known.
    pub conversation_variables: Vec<String>,
    /// The directory in which version 1 left its token files. Absolute. None: they are not looked at.
    pub adopt_version_1: Option<PathBuf>,
    /// How long a daemon that was started on demand stays when nothing needs it any more, in ms.
    pub idle_exit_ms: u64,
    /// How long calls in flight may take to end after SIGTERM, in ms.
    pub drain_ms: u64,
    /// The least level that is logged: `error`, `warn`, `info`, `debug`, `trace`.
    pub log: LogLevel,
    /// Where the contents of sessions are kept.
    pub storage: Storage,
    /// How long sessions live.
    pub sessions: Sessions,
    /// Servers that outlive whoever speaks to them.
    pub backends: Backends,
    /// Bounds.
    pub limits: Limits,
}

/// Where the contents of sessions are kept. Applies at start.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Storage {
    /// `memory:`, `sqlite:` (in the runtime directory), `sqlite:/path/to/file`, `postgres://…`, `dynamodb:table?…`.
    pub url: String,
    /// What an acknowledged change survives with SQLite: `process`, or `power` too.
    pub durability: Durability,
}

/// How long things live, in ms. Where 0 is allowed it means: without an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sessions {
    /// A service's session after its last use, unless its creator says otherwise.
    pub idle_ms: u64,
    /// The same, after it was made.
    pub absolute_ms: u64,
    /// The same, after its last client has gone.
    pub grace_ms: u64,
    /// How long a terminated session says that it was.
    pub tombstone_ms: u64,
    /// How long the contents of a host's sessions stay when the host is gone, for `debug` to look at. Nobody else can.
    pub host_grace_ms: u64,
    /// How often sessions are looked for that have outlived their time.
    pub sweep_ms: u64,
    /// How long a handle is good at most.
    pub handle_life_ms: u64,
    /// How long an event can be replayed.
    pub event_age_ms: u64,
    /// How often a storage that other daemons write to is asked for what a `wait` waits for.
    pub poll_ms: u64,
}

/// What is logged at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// What the daemon could not do.
    Error,
    /// And what was refused or lost.
    Warn,
    /// And starting, stopping, reloading.
    Info,
    /// And every claim.
    Debug,
    /// Everything.
    Trace,
}

/// How much of each thing there may be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections in all. Each costs a descriptor and a few KiB.
    pub connections: usize,
    /// Connections of one process: a library needs one, a pool some.
    pub connections_per_process: usize,
    /// Requests of one connection that may be under way.
    pub requests_per_connection: usize,
    /// Bytes of frames over 96 KiB that all connections together may be in the middle of receiving.
    pub frame_bytes: usize,
    /// Sessions of one host: the busiest host seen has dozens of servers.
    pub sessions_per_host: usize,
    /// Sessions and handles of one service: an HTTP server has one for each client that it has seen lately.
    pub sessions_per_service: usize,
    /// Handles of one session that are good at the same time.
    pub handles: usize,
    /// State values of one session.
    pub state_keys: usize,
    /// Bytes of one state value.
    pub state_value_bytes: usize,
    /// Bytes of all keys and values of a session.
    pub state_bytes: usize,
    /// Streams of one session, the closed ones that can still be replayed among them.
    pub streams: usize,
    /// Bytes of one message. A frame has 4 MiB.
    pub message_bytes: usize,
    /// Events of one session that can be replayed. A session that has more forgets the oldest.
    pub events: usize,
    /// Bytes of their messages.
    pub event_bytes: usize,
    /// Events of one stream that can be replayed.
    pub stream_events: usize,
    /// Bytes of their messages.
    pub stream_event_bytes: usize,
    /// Bytes of one owner's sessions in the daemon's memory, with `memory` and `sqlite`.
    pub owner_bytes: usize,
    /// Bytes of all sessions in the daemon's memory, with `memory` and `sqlite`.
    pub total_bytes: usize,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Storage({}, {:?})", storage::shown(&self.url), self.durability)
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self { url: "sqlite:".into(), durability: Durability::Process }
    }
}

impl Default for Sessions {
    fn default() -> Self {
        let contents::Limits {
            idle_ms,
            absolute_ms,
            grace_ms,
            tombstone_ms,
            handle_life_ms,
            event_age_ms,
            poll_ms,
            ..
        } = contents::Limits::default();
        Self {
            idle_ms,
            absolute_ms,
            grace_ms,
            tombstone_ms,
            host_grace_ms: 2_000,
            sweep_ms: 60_000,
            handle_life_ms,
            event_age_ms,
            poll_ms,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            claim_wait_ms: 1_000,
            siblings: Siblings::Fresh,
            pid1_is_host: false,
            launchers: Vec::new(),
            adopters: Vec::new(),
            ignored_variables: Vec::new(),
            conversation_variables: Vec::new(),
            adopt_version_1: None,
            idle_exit_ms: 10_000,
            drain_ms: 5_000,
            log: LogLevel::Info,
            storage: Storage::default(),
            sessions: Sessions::default(),
            backends: Backends::default(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let contents = contents::Limits::default();
        Self {
            connections: 4_096,
            connections_per_process: 64,
            requests_per_connection: 32,
            frame_bytes: 64 * 1024 * 1024,
            sessions_per_host: 1_024,
            sessions_per_service: contents.sessions_per_service,
            handles: contents.handles,
            state_keys: contents.state_keys,
            state_value_bytes: contents.state_value_bytes,
            state_bytes: contents.state_bytes,
            streams: contents.streams,
            message_bytes: contents.message_bytes,
            events: contents.events,
            event_bytes: contents.event_bytes,
            stream_events: contents.stream_events,
            stream_event_bytes: contents.stream_event_bytes,
            owner_bytes: contents.owner_bytes,
            total_bytes: contents.total_bytes,
        }
    }
}

impl Limits {
    /// Bytes of large frames that one process may be in the middle of sending.
    #[must_use]
    pub fn frame_bytes_of_process(&self) -> usize {
        self.frame_bytes / FRAME_SHARES
    }
}

impl Config {
    /// What the registry needs of it.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy { siblings: self.siblings, sessions_per_owner: self.limits.sessions_per_host }
    }

    /// What a session may hold, and how long it lives.
    #[must_use]
    pub fn contents_limits(&self) -> contents::Limits {
        let (limits, sessions) = (&self.limits, &self.sessions);
        contents::Limits {
            sessions_per_service: limits.sessions_per_service,
            state_keys: limits.state_keys,
            state_value_bytes: limits.state_value_bytes,
            state_bytes: limits.state_bytes,
            streams: limits.streams,
            message_bytes: limits.message_bytes,
            events: limits.events,
            event_bytes: limits.event_bytes,
            stream_events: limits.stream_events,
            stream_event_bytes: limits.stream_event_bytes,
            event_age_ms: sessions.event_age_ms,
            handles: limits.handles,
            handle_life_ms: sessions.handle_life_ms,
            owner_bytes: limits.owner_bytes,
            total_bytes: limits.total_bytes,
            idle_ms: sessions.idle_ms,
            absolute_ms: sessions.absolute_ms,
            grace_ms: sessions.grace_ms,
            tombstone_ms: sessions.tombstone_ms,
            poll_ms: sessions.poll_ms,
        }
    }

    /// The built-in table of launchers, adopters and variables, and what the configuration adds.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table { pid1_is_host: self.pid1_is_host, ..Table::default() };
        table.launchers.extend(self.launchers.iter().cloned());
        table.adopters.extend(self.adopters.iter().cloned());
        table.ignored_variables.extend(self.ignored_variables.iter().cloned());
        table.conversation_variables.extend(self.conversation_variables.iter().cloned());
        table
    }
}
