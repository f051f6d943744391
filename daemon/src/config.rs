//! The settings: every one with a default, unknown ones refused with their line. Flags beat the environment, the
//! environment beats the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mcp_sessiond_proto::Siblings;
use mcp_sessiond_proto::debug::Setting;
use mcp_sessiond_proto::streams::MESSAGE_MAX;
use serde::{Deserialize, Serialize};

use crate::contents;
use crate::process::{Launcher, Table};
use crate::registry::Policy;
use crate::storage::{self, Durability};

/// Names the configuration file, in place of the usual one.
pub const FILE_VARIABLE: &str = "MCP_SESSIOND_CONFIG";

/// What precedes the name of a setting, in upper case, in the environment: `MCP_SESSIOND_CLAIM_WAIT_MS=500`.
const VARIABLE_PREFIX: &str = "MCP_SESSIOND_";

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

/// A configuration that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file that was named can't be read.
    #[error("{path}: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file says something that is not understood.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What, and in which line.
        error: Box<toml::de::Error>,
    },
    /// The same, in a line that is not quoted.
    #[error("{path}: {error}")]
    Hidden {
        /// The file.
        path: PathBuf,
        /// What, and in which line.
        error: String,
    },
    /// A variable or a flag says something that is not understood.
    #[error("{origin} {name}={value}: {error}")]
    Override {
        /// `the variable` or `--set`.
        origin: &'static str,
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong.
        error: String,
    },
    /// A value is out of its range.
    #[error("{0}")]
    Range(String),
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Nobody said anything.
    Default,
    /// The configuration file.
    File,
    /// The environment.
    Environment,
    /// `--set`.
    Flag,
}

impl Source {
    fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        }
    }
}

/// The configuration in force, and where each value of it comes from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// The file, whether it exists or not.
    pub path: Option<PathBuf>,
    sources: BTreeMap<String, Source>,
}

/// The configuration file that is read unless [`FILE_VARIABLE`] or a flag names another:
/// `~/.config/mcp-sessiond/config.toml`, or in `XDG_CONFIG_HOME` on Linux.
#[must_use]
pub fn usual_path() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(FILE_VARIABLE).filter(|value| !value.is_empty()) {
        return Some(named.into());
    }
    let base = directories::BaseDirs::new()?;
    let config =
        if cfg!(target_os = "macos") { base.home_dir().join(".config") } else { base.config_dir().into() };
    Some(config.join("mcp-sessiond").join("config.toml"))
}

/// Reads the file at `path`, if there is one, then the environment, then `--set NAME=VALUE` in `flags`.
///
/// # Errors
/// [`ConfigError`]: nothing of a configuration that is wrong somewhere is used.
pub fn load(path: Option<&Path>, flags: &[String]) -> Result<Loaded, ConfigError> {
    let mut sources = BTreeMap::new();
    let mut table = match path {
        Some(path) => read(path)?,
        None => toml::Table::new(),
    };
    for name in names(&table) {
        sources.insert(name, Source::File);
    }
    let known: Vec<String> = names(&defaults()).into_iter().chain([OPTIONAL.to_owned()]).collect();
    for name in &known {
        let variable = VARIABLE_PREFIX.to_owned() + &name.replace('.', "_").to_uppercase();
        if let Ok(value) = std::env::var(&variable) {
            override_value(&mut table, name, &value, "the variable", &variable)?;
            sources.insert(name.clone(), Source::Environment);
        }
    }
    for flag in flags {
        let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
        let name = name.trim();
        if !known.iter().any(|known| known == name) {
            let error = format!("no such setting; there are {}", known.join(", "));
            return Err(ConfigError::Override {
                origin: "--set",
                name: name.into(),
                value: value.into(),
                error,
            });
        }
        override_value(&mut table, name, value.trim(), "--set", name)?;
        sources.insert(name.into(), Source::Flag);
    }
    let config = Config::deserialize(table).map_err(|error| ConfigError::Range(error.to_string()))?;
    check(&config)?;
    Ok(Loaded { config, path: path.map(Into::into), sources })
}

/// The one setting that has no value by default.
const OPTIONAL: &str = "adopt_version_1";

/// Reads the file by itself first, so that what is wrong with it is told with its line.
fn read(path: &Path) -> Result<toml::Table, ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(toml::Table::new()),
        Err(error) => return Err(ConfigError::Unreadable { path: path.into(), error }),
    };
    let file_error = |error: toml::de::Error| match error.span() {
        // The line is quoted, and may have a password in it.
        Some(span) if line_of(&text, span.start).contains("://") => {
            let line = text[..span.start].matches('\n').count() + 1;
            let error = format!("line {line}: {}", error.message());
            ConfigError::Hidden { path: path.into(), error }
        }
        _ => ConfigError::File { path: path.into(), error: Box::new(error) },
    };
    toml::from_str::<Config>(&text).map_err(file_error)?;
    toml::from_str(&text).map_err(file_error)
}

/// The line that this place of a text is in.
fn line_of(text: &str, at: usize) -> &str {
    let at = at.min(text.len());
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    text[start..].lines().next().unwrap_or_default()
}

/// Puts one value into the table, and looks at once whether it fits.
fn override_value(
    table: &mut toml::Table,
    name: &str,
    value: &str,
    origin: &'static str,
    said: &str,
) -> Result<(), ConfigError> {
    let refused =
        |error: String| ConfigError::Override { origin, name: said.into(), value: value.into(), error };
    // A bare word is a string; everything else is TOML.
    let bare = || toml::Value::String(value.to_owned());
    let parsed = toml::from_str::<toml::Table>(&format!("value = {value}"))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(bare);
    let mut place = &mut *table;
    let (section, leaf) = name.rsplit_once('.').map_or((None, name), |(section, leaf)| (Some(section), leaf));
    if let Some(section) = section {
        let entry = place.entry(section).or_insert_with(|| toml::Table::new().into());
        place = entry.as_table_mut().ok_or_else(|| refused(format!("{section} must be a table")))?;
    }
    place.insert(leaf.to_owned(), parsed);
    Config::deserialize(table.clone()).map(drop).map_err(|error| refused(error.message().to_owned()))
}

fn check(config: &Config) -> Result<(), ConfigError> {
    /// Half of what the client library waits for an answer.
    const CLAIM_WAIT_MAX_MS: u64 = 5_000;
    /// More often would keep the machine awake for nothing.
    const SWEEP_MIN_MS: u64 = 100;
    /// Other daemons believe in a client for three times as long after this one has told of it.
    const SWEEP_MAX_MS: u64 = 60_000;
    const POLL_MIN_MS: u64 = 10;
    let limits = &config.limits;
    let counts = [
        ("limits.connections", limits.connections),
        ("limits.connections_per_process", limits.connections_per_process),
        ("limits.requests_per_connection", limits.requests_per_connection),
        ("limits.sessions_per_host", limits.sessions_per_host),
        ("limits.sessions_per_service", limits.sessions_per_service),
        ("limits.handles", limits.handles),
        ("limits.state_keys", limits.state_keys),
        ("limits.state_value_bytes", limits.state_value_bytes),
        ("limits.state_bytes", limits.state_bytes),
        ("limits.streams", limits.streams),
        ("limits.message_bytes", limits.message_bytes),
        ("limits.events", limits.events),
        ("limits.event_bytes", limits.event_bytes),
        ("limits.stream_events", limits.stream_events),
        ("limits.stream_event_bytes", limits.stream_event_bytes),
        ("limits.owner_bytes", limits.owner_bytes),
        ("limits.total_bytes", limits.total_bytes),
    ];
    if let Some((name, _)) = counts.into_iter().find(|(_, value)| *value == 0) {
        return Err(ConfigError::Range(format!("{name} must be at least 1")));
    }
    // A value and a message must fit into a frame, with what stands around them.
    let largest = [
        ("limits.state_value_bytes", limits.state_value_bytes, MESSAGE_MAX),
        ("limits.message_bytes", limits.message_bytes, MESSAGE_MAX),
    ];
    if let Some((name, _, most)) = largest.into_iter().find(|(_, value, most)| value > most) {
        return Err(ConfigError::Range(format!("{name} must be at most {most}")));
    }
    let sessions = &config.sessions;
    let times = [
        ("sessions.tombstone_ms", sessions.tombstone_ms, 1),
        ("sessions.sweep_ms", sessions.sweep_ms, SWEEP_MIN_MS),
        ("sessions.poll_ms", sessions.poll_ms, POLL_MIN_MS),
        ("sessions.handle_life_ms", sessions.handle_life_ms, 1),
    ];
    if sessions.sweep_ms > SWEEP_MAX_MS {
        return Err(ConfigError::Range(format!("sessions.sweep_ms must be at most {SWEEP_MAX_MS}")));
    }
    if let Some((name, _, least)) = times.into_iter().find(|(_, value, least)| value < least) {
        return Err(ConfigError::Range(format!("{name} must be at least {least}")));
    }
    storage::Url::parse(&config.storage.url)
        .map_err(|error| ConfigError::Range(format!("storage.url: {error}")))?;
    // One process gets a quarter of it, and must be able to send one frame.
    let frames = mcp_sessiond_proto::hello::FRAME_MAX as usize * crate::listener::FRAME_SHARES;
    if limits.frame_bytes < frames {
        return Err(ConfigError::Range(format!("limits.frame_bytes must be at least {frames}")));
    }
    if config.claim_wait_ms > CLAIM_WAIT_MAX_MS {
        return Err(ConfigError::Range(format!("claim_wait_ms must be at most {CLAIM_WAIT_MAX_MS}")));
    }
    if config.adopt_version_1.as_ref().is_some_and(|path| path.is_relative()) {
        return Err(ConfigError::Range("adopt_version_1 must be an absolute path".into()));
    }
    Ok(())
}

fn defaults() -> toml::Table {
    toml::Table::try_from(Config::default()).unwrap_or_default()
}

/// The names of the settings in a table, with a dot before what is in a section.
fn names(table: &toml::Table) -> Vec<String> {
    let name = |(name, value): (&String, &toml::Value)| match value {
        toml::Value::Table(section) => section.keys().map(|leaf| format!("{name}.{leaf}")).collect(),
        _ => vec![name.clone()],
    };
    table.iter().flat_map(name).collect()
}

fn value<'a>(table: &'a toml::Table, name: &str) -> Option<&'a toml::Value> {
    name.split_once('.').map_or_else(|| table.get(name), |(section, leaf)| table.get(section)?.get(leaf))
}

impl Loaded {
    /// Each setting with its value and its source, in order of the names.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        let table = toml::Table::try_from(&self.config).unwrap_or_default();
        let mut names = names(&table);
        if self.config.adopt_version_1.is_none() {
            names.push(OPTIONAL.into());
        }
        names.sort();
        let setting = |name: String| {
            let value = match value(&table, &name) {
                // There may be a password in it.
                Some(toml::Value::String(url)) if name == "storage.url" => {
                    format!("\"{}\"", storage::shown(url))
                }
                value => value.map_or_else(|| "unset".into(), ToString::to_string),
            };
            let source = self.sources.get(&name).copied().unwrap_or(Source::Default);
            Setting { name, value, source: source.as_str().into() }
        };
        names.into_iter().map(setting).collect()
    }

    /// What is different in `newer`, as `name: old -> new`.
    #[must_use]
    pub fn changes(&self, newer: &Self) -> Vec<String> {
        let pairs = self.settings().into_iter().zip(newer.settings());
        let changed = pairs.filter(|(old, new)| old.value != new.value);
        changed.map(|(old, new)| format!("{}: {} -> {}", old.name, old.value, new.value)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str, flags: &[&str]) -> Result<Loaded, ConfigError> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config.toml");
        std::fs::write(&path, text).expect("written");
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        load(Some(&path), &flags)
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let error = from("siblings = \"fresh\"\nclaim_wait = 5\n", &[]).expect_err("refused").to_string();
        assert!(error.contains("line 2") && error.contains("claim_wait"), "{error}");
    }

    #[test]
    fn a_flag_beats_the_file_and_says_so() {
        let text = "claim_wait_ms = 5\n[limits]\nconnections = 7\n";
        let loaded = from(text, &["claim_wait_ms=9", "siblings=oldest", "limits.connections_per_process=3"]);
        let loaded = loaded.expect("fits");
        assert_eq!((loaded.config.claim_wait_ms, loaded.config.siblings), (9, Siblings::Oldest));
        assert_eq!((loaded.config.limits.connections, loaded.config.limits.connections_per_process), (7, 3));
        let source = |name: &str| {
            loaded.settings().into_iter().find(|setting| setting.name == name).expect("there").source
        };
        assert_eq!(source("claim_wait_ms"), "flag");
        assert_eq!(source("limits.connections"), "file");
        assert_eq!(source("drain_ms"), "default");
    }

    #[test]
    fn a_value_out_of_range_is_refused() {
        for (flag, needle) in [
            ("limits.connections=0", "at least 1"),
            ("claim_wait_ms=5001", "at most 5000"),
            ("siblings=newest", "siblings"),
            ("sessions.sweep_ms=1", "at least 100"),
            ("limits.message_bytes=4000000", "at most"),
            ("storage.url=mysql://x", "storage.url"),
            ("storage.durability=paper", "durability"),
            ("adopt_version_1=tokens", "absolute"),
            ("colour=blue", "no such setting"),
        ] {
            let error = from("", &[flag]).expect_err(flag).to_string();
            assert!(error.contains(needle), "{flag}: {error}");
        }
    }

    #[test]
    fn a_password_in_the_url_is_not_shown() {
        let loaded =
            from("", &["storage.url=\"postgres://me:hunter2@db/x?password=hunter2\""]).expect("fits");
        let shown = format!("{:?}", loaded.settings());
        assert!(shown.contains("postgres://") && !shown.contains("hunter2"), "{shown}");
        let other = from("", &["storage.url=\"postgres://me:hunter3@db/x\""]).expect("fits");
        assert!(!format!("{:?}", loaded.changes(&other)).contains("hunter"));
    }

    #[test]
    fn a_line_with_a_password_is_not_quoted() {
        for wrong in ["url = \"postgres://me:hunter2@db/x", "ulr = \"postgres://me:hunter2@db/x\""] {
            let text = format!("log = \"info\"\n[storage]\n{wrong}\n");
            let error = from(&text, &[]).expect_err("refused").to_string();
            assert!(error.contains("line 3") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_reload_says_what_changed() {
        let old = from("claim_wait_ms = 5\n", &[]).expect("fits");
        let new = from("claim_wait_ms = 6\nadopt_version_1 = \"/x\"\n", &[]).expect("fits");
        assert_eq!(old.changes(&new), ["adopt_version_1: unset -> \"/x\"", "claim_wait_ms: 5 -> 6"]);
    }
}
