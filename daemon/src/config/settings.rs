//! Every setting, or the section that it is in; and what the parts of the daemon are given of them.

use std::path::PathBuf;

use mcp_sessiond_process::{CommandLine, Launcher, Table};
use mcp_sessiond_proto::Siblings;
use mcp_sessiond_registry::Policy;
use serde::{Deserialize, Serialize};

use super::hosts::{self, HostRow};
use super::{Backends, Bundle, Http, Limits, Metrics, Sessions, Wrap};
use crate::storage::{self, Durability};

/// Every setting. The names are those of the configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long a claim waits, in ms, for the session's holder to be gone: hosts start the new
    /// server before the old one has died. 0 to 5,000.
    pub claim_wait_ms: u64,
    /// What a claim gets where the host has, or had, several servers with the same key, unless the
    /// table of hosts says otherwise: `fresh`, `successor`, `oldest` or `never`.
    pub siblings: Siblings,
    /// Hosts, beside those that are known: the `executable`, an `argument` where that has to tell,
    /// and their `siblings`.
    pub hosts: Vec<HostRow>,
    /// Whether pid 1 may be a host, as in a container whose only program is the host.
    pub pid1_is_host: bool,
    /// Programs that start servers on behalf of a host, beside those that are known: `executable`
    /// and the `arguments` that it must begin with.
    pub launchers: Vec<Launcher>,
    /// Executables that adopt orphans, beside those that are known: a server below one has no host.
    pub adopters: Vec<String>,
    /// Variables that differ at every start of a server for no reason, beside those that are known.
    /// `*` at the end stands for anything.
    pub ignored_variables: Vec<String>,
    /// Variables in which a host tells its servers the conversation, beside those that are known.
    pub conversation_variables: Vec<String>,
    /// The directory in which version 1 left its token files. Absolute. None: they are not looked
    /// at.
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
    /// How `wrap` waits.
    pub wrap: Wrap,
    /// How `wrap --all` starts its servers.
    pub bundle: Bundle,
    /// How `serve` serves.
    pub http: Http,
    /// For a scraper.
    pub metrics: Metrics,
    /// Bounds.
    pub limits: Limits,
}

/// Where the contents of sessions are kept. Applies at start.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Storage {
    /// `memory:`, `sqlite:` (in the runtime directory), `sqlite:/path/to/file`, `postgres://…`,
    /// `dynamodb:table?…`.
    pub url: String,
    /// What an acknowledged change survives with SQLite: `process`, or `power` too.
    pub durability: Durability,
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

impl std::fmt::Debug for Storage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "Storage({}, {:?})",
            storage::shown(&self.url),
            self.durability
        )
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            url: "sqlite:".into(),
            durability: Durability::Process,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            claim_wait_ms: 1_000,
            siblings: Siblings::Fresh,
            hosts: Vec::new(),
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
            wrap: Wrap::default(),
            bundle: Bundle::default(),
            http: Http::default(),
            metrics: Metrics::default(),
            limits: Limits::default(),
        }
    }
}

impl Config {
    /// What counts for the claims of a host's instances: what the configuration says of it, else
    /// what is known.
    #[must_use]
    pub fn row_of(&self, host: &CommandLine) -> Option<Siblings> {
        hosts::siblings_of(&self.hosts, host)
    }

    /// What the registry needs of it.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            siblings: self.siblings,
            sessions_per_owner: self.limits.sessions_per_host,
        }
    }

    /// The built-in table of launchers, adopters and variables, and what the configuration adds.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table {
            pid1_is_host: self.pid1_is_host,
            ..Table::default()
        };
        table.launchers.extend(self.launchers.iter().cloned());
        table.adopters.extend(self.adopters.iter().cloned());
        table
            .ignored_variables
            .extend(self.ignored_variables.iter().cloned());
        table
            .conversation_variables
            .extend(self.conversation_variables.iter().cloned());
        table
    }
}
