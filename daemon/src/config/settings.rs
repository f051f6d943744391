//! Every setting, or the section that it is in; and what the parts of the daemon are given of them.

use std::path::PathBuf;

use mcp_sessiond_process::{CommandLine, Launcher, Table};
use mcp_sessiond_proto::{ClientName, Resume, Siblings};
use mcp_sessiond_registry::{HostRule, Policy};
use serde::{Deserialize, Serialize};

use super::hosts::{self, HostRow};
use super::section::section;
use super::{Backends, Bundle, ConfigError, Http, Limits, Metrics, Sessions, Wrap};
use crate::storage::{self, Durability};

/// Half of what the client library waits for an answer.
const CLAIM_WAIT_MAX_MS: u64 = 5_000;

section! {
    /// Every setting. The names are those of the configuration file.
    pub struct Config {
        /// How long a claim waits, in ms, for the session's holder to be gone: hosts start the new
        /// server before the old one has died. 0 to 5,000.
        claim_wait_ms: u64 = 1_000; ..=CLAIM_WAIT_MAX_MS,
        /// What a claim gets where the host has, or had, several servers with the same key, unless
        /// the table of hosts says otherwise: `fresh`, `successor`, `oldest` or `never`.
        siblings: Siblings = Siblings::Fresh,
        /// Hosts, beside those that are known: the `executable`, an `argument` where that has to
        /// tell, or the `client`; and their `siblings`, their `resume`, and the variable with the
        /// `conversation`.
        hosts: Vec<HostRow> = Vec::new(),
        /// Whether pid 1 may be a host, as in a container whose only program is the host.
        pid1_is_host: bool = false,
        /// Programs that start servers on behalf of a host, beside those that are known:
        /// `executable` and the `arguments` that it must begin with.
        launchers: Vec<Launcher> = Vec::new(),
        /// Executables that adopt orphans, beside those that are known: a server below one has no
        /// host.
        adopters: Vec<String> = Vec::new(),
        /// Variables that differ at every start of a server for no reason, beside those that are
        /// known. `*` at the end stands for anything.
        ignored_variables: Vec<String> = Vec::new(),
        /// Variables in which a host tells its servers the conversation, beside those that are
        /// known.
        conversation_variables: Vec<String> = Vec::new(),
        /// The directory in which version 1 left its token files. Absolute. None: they are not
        /// looked at.
        adopt_version_1: Option<PathBuf> = None,
        /// How long a daemon that was started on demand stays when nothing needs it any more, in
        /// ms.
        idle_exit_ms: u64 = 10_000,
        /// How long calls in flight may take to end after SIGTERM, in ms.
        drain_ms: u64 = 5_000,
        /// The least level that is logged: `error`, `warn`, `info`, `debug`, `trace`.
        log: LogLevel = LogLevel::Info,
        /// Where the contents of sessions are kept.
        storage: Storage = Storage::default(),
        /// How long sessions live.
        sessions: Sessions = Sessions::default(),
        /// Servers that outlive whoever speaks to them.
        backends: Backends = Backends::default(),
        /// How `wrap` waits.
        wrap: Wrap = Wrap::default(),
        /// How `wrap --all` starts its servers.
        bundle: Bundle = Bundle::default(),
        /// How `serve` serves.
        http: Http = Http::default(),
        /// For a scraper.
        metrics: Metrics = Metrics::default(),
        /// Bounds.
        limits: Limits = Limits::default(),
    }
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
            storage::redacted(&self.url),
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

impl Config {
    /// Refuses values that are out of their range, or don't fit together.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.check_ranges("")?;
        self.sessions.check_ranges("sessions.")?;
        self.backends.check_ranges("backends.")?;
        self.wrap.check_ranges("wrap.")?;
        self.bundle.check_ranges("bundle.")?;
        self.http.check_ranges("http.")?;
        self.metrics.check_ranges("metrics.")?;
        self.limits.check_ranges("limits.")?;
        self.metrics.bound().map_err(ConfigError::Range)?;
        for row in &self.hosts {
            row.check()
                .map_err(|why| ConfigError::Range(format!("hosts: {why}")))?;
        }
        storage::Url::parse(&self.storage.url)
            .map_err(|error| ConfigError::Range(format!("storage.url: {error}")))?;
        match &self.adopt_version_1 {
            Some(path) if path.is_relative() => Err(ConfigError::Range(
                "adopt_version_1 must be an absolute path".into(),
            )),
            _ => Ok(()),
        }
    }

    /// What counts for the claims of a host's instances: what the configuration says of it, else
    /// what is known. `gives` says whether the instance was given a variable.
    pub fn rule_of(
        &self,
        host: &CommandLine,
        gives: &impl Fn(&str) -> bool,
    ) -> (Option<Siblings>, HostRule) {
        hosts::rule_of(&self.hosts, host, gives)
    }

    /// Whether a server of this client in such a host is resumed: the client's name can only make
    /// the host's rule stricter.
    pub fn narrowed(&self, of_host: HostRule, client: Option<&ClientName>) -> Resume {
        hosts::narrowed(&self.hosts, of_host, client)
    }

    /// What the registry needs of it.
    pub fn policy(&self) -> Policy {
        Policy {
            siblings: self.siblings,
            sessions_per_owner: self.limits.sessions_per_host,
            closed_again_ms: self.backends.closed_again_ms,
        }
    }

    /// The built-in table of launchers, adopters and variables, and what the configuration adds.
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
            .conversation_variables
            .extend(hosts::conversation_variables(&self.hosts));
        table
    }
}
