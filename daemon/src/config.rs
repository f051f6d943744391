//! The settings: every one with a default, unknown ones refused with their line. Flags beat the environment, the
//! environment beats the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mcp_sessiond_proto::Siblings;
use mcp_sessiond_proto::debug::Setting;
use serde::{Deserialize, Serialize};

use crate::process::{Launcher, Table};
use crate::registry::Policy;

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
    /// Bounds.
    pub limits: Limits,
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
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4_096,
            connections_per_process: 64,
            requests_per_connection: 32,
            frame_bytes: 64 * 1024 * 1024,
            sessions_per_host: 1_024,
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
    let file_error = |error| ConfigError::File { path: path.into(), error: Box::new(error) };
    toml::from_str::<Config>(&text).map_err(file_error)?;
    toml::from_str(&text).map_err(file_error)
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
    let limits = &config.limits;
    let counts = [
        ("limits.connections", limits.connections),
        ("limits.connections_per_process", limits.connections_per_process),
        ("limits.requests_per_connection", limits.requests_per_connection),
        ("limits.sessions_per_host", limits.sessions_per_host),
    ];
    if let Some((name, _)) = counts.into_iter().find(|(_, value)| *value == 0) {
        return Err(ConfigError::Range(format!("{name} must be at least 1")));
    }
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
            let value = value(&table, &name).map_or_else(|| "unset".into(), ToString::to_string);
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
            ("adopt_version_1=tokens", "absolute"),
            ("colour=blue", "no such setting"),
        ] {
            let error = from("", &[flag]).expect_err(flag).to_string();
            assert!(error.contains(needle), "{flag}: {error}");
        }
    }

    #[test]
    fn a_reload_says_what_changed() {
        let old = from("claim_wait_ms = 5\n", &[]).expect("fits");
        let new = from("claim_wait_ms = 6\nadopt_version_1 = \"/x\"\n", &[]).expect("fits");
        assert_eq!(old.changes(&new), ["adopt_version_1: unset -> \"/x\"", "claim_wait_ms: 5 -> 6"]);
    }
}
