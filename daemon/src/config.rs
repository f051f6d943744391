//! The settings: every one with a default, unknown ones refused with their line. Flags beat the
//! environment, the environment beats the file.

mod applies;
mod backends;
mod bundle;
mod hosts;
mod http;
mod limits;
mod metrics;
mod names;
mod prefer;
mod section;
mod sessions;
mod settings;
mod tell;
mod wrap;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mcp_sessiond_proto::debug::Setting;
use mcp_sessiond_proto::paths;
use mcp_sessiond_proto::text::closest;
use serde::Deserialize;

use crate::storage;

pub use applies::Applies;
use applies::HeldValue;
pub use backends::Backends;
pub use bundle::Bundle;
pub use hosts::{FileForm, HostRow, KnownHost, ServersFile, known_host, known_hosts};
pub use http::Http;
pub use limits::Limits;
pub use metrics::Metrics;
pub use names::Names;
pub use prefer::Prefer;
pub use sessions::Sessions;
pub use settings::{Config, LogLevel, Storage};
pub use tell::Tell;
pub use wrap::Wrap;

/// Names the configuration file, in place of the usual one.
pub const FILE_VARIABLE: &str = "MCP_SESSIOND_CONFIG";

/// What precedes the name of a setting, in upper case, in the environment:
/// `MCP_SESSIOND_CLAIM_WAIT_MS=500`.
const VARIABLE_PREFIX: &str = "MCP_SESSIOND_";

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
    #[error("{path}: {}{meant}", .error.to_string().trim_end())]
    File {
        /// The file.
        path: PathBuf,
        /// What, and in which line.
        error: Box<toml::de::Error>,
        /// Which setting may be meant, if one may.
        meant: String,
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
    /// What is wrong with the file, of which the rest is in force.
    pub fault: Option<Fault>,
    sources: BTreeMap<String, Source>,
    /// What stays in force until the daemon is restarted, by name.
    held: BTreeMap<String, HeldValue>,
}

/// What is wrong with a file that had to be used all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What, in one line.
    pub sentence: String,
    /// Whether it can't be known where the contents of sessions are kept.
    pub hides_storage: bool,
}

/// The configuration file that is read unless [`FILE_VARIABLE`] or a flag names another:
/// `~/.config/mcp-sessiond/config.toml`, or in `XDG_CONFIG_HOME` on Linux.
pub fn usual_path() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(FILE_VARIABLE).filter(|value| !value.is_empty()) {
        return Some(named.into());
    }
    let user = paths::user_directories()?;
    // A daemon of launchd's has no XDG_CONFIG_HOME, and reads the same file as a shell's.
    let config = if cfg!(target_os = "macos") {
        user.home.join(".config")
    } else {
        user.config
    };
    Some(config.join("mcp-sessiond").join("config.toml"))
}

/// Reads the file at `path`, if there is one, then the environment, then `--set NAME=VALUE` in
/// `flags`.
///
/// # Errors
/// [`ConfigError`]: nothing of a configuration that is wrong somewhere is used.
pub fn load(path: Option<&Path>, flags: &[String]) -> Result<Loaded, ConfigError> {
    let table = match path {
        Some(path) => read(path)?,
        None => toml::Table::new(),
    };
    with_overrides(path, table, flags, None)
}

/// Reads what can be read of a file that [`load`] refused with this error: every setting that is
/// understood by itself. The others have their defaults.
///
/// # Errors
/// The same error, where it is not the file that is wrong.
pub fn load_readable(
    path: Option<&Path>,
    flags: &[String],
    error: ConfigError,
) -> Result<Loaded, ConfigError> {
    let Some(path) = path.filter(|_| !matches!(error, ConfigError::Override { .. })) else {
        return Err(error);
    };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let sentence = match &error {
        ConfigError::File { error, meant, .. } => {
            let line = error
                .span()
                .map_or(1, |span| line_number(&text, span.start));
            format!(
                "{}: line {line}: {}{meant}",
                path.display(),
                without_url(error.message())
            )
        }
        ConfigError::Range(why) => format!("{}: {why}", path.display()),
        other => other.to_string(),
    };
    // A line of the log is one line.
    let sentence = sentence.replace('\n', " ");
    let parsed = toml::from_str::<toml::Table>(&text)
        .ok()
        .filter(|_| !text.is_empty());
    let mut hides_storage = parsed.is_none();
    let mut table = toml::Table::new();
    for (name, value) in parsed.iter().flat_map(|parsed| leaves(parsed)) {
        let mut with = table.clone();
        put(&mut with, &name, value.clone());
        let understood =
            Config::deserialize(with.clone()).is_ok_and(|config| config.check().is_ok());
        if understood {
            table = with;
        } else {
            hides_storage |= name == "storage" || name.starts_with("storage.");
        }
    }
    with_overrides(
        Some(path),
        table,
        flags,
        Some(Fault {
            sentence,
            hides_storage,
        }),
    )
}

fn with_overrides(
    path: Option<&Path>,
    mut table: toml::Table,
    flags: &[String],
    fault: Option<Fault>,
) -> Result<Loaded, ConfigError> {
    let mut sources = BTreeMap::new();
    for name in names(&table) {
        sources.insert(name, Source::File);
    }
    let known = known();
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
            let error = match meant(name) {
                meant if meant.is_empty() => {
                    "there is no such setting; `mcp-sessiond debug config` lists all of them"
                        .to_owned()
                }
                meant => format!("there is no such setting{meant}"),
            };
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
    let config =
        Config::deserialize(table).map_err(|error| ConfigError::Range(error.to_string()))?;
    config.check()?;
    Ok(Loaded {
        config,
        path: path.map(Into::into),
        fault,
        sources,
        held: BTreeMap::new(),
    })
}

/// The names of all settings.
fn known() -> Vec<String> {
    let mut all = names(&defaults());
    all.push(OPTIONAL.to_owned());
    all
}

/// Which settings may be meant by a name that is none: those with the same last word, or one of
/// which few letters differ.
fn meant(name: &str) -> String {
    let known = known();
    let last = |name: &'_ str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let with_last = |word: &str| -> Vec<&str> {
        let names = known.iter().map(String::as_str);
        names.filter(|known| last(known) == word).collect()
    };
    let mut all = with_last(&last(name));
    if all.is_empty() {
        all.extend(closest(name, known.iter().map(String::as_str)));
    }
    if all.is_empty() {
        let words: Vec<String> = known.iter().map(|known| last(known)).collect();
        let word = closest(&last(name), words.iter().map(String::as_str));
        all = word.map(with_last).unwrap_or_default();
    }
    match all.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", all.join(" or ")),
    }
}

/// The one setting that has no value by default.
const OPTIONAL: &str = "adopt_version_1";

/// Reads the file by itself first, so that what is wrong with it is told with its line.
fn read(path: &Path) -> Result<toml::Table, ConfigError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(toml::Table::new()),
        Err(error) => {
            return Err(ConfigError::Unreadable {
                path: path.into(),
                error,
            });
        }
    };
    let file_error = |error: toml::de::Error| match error.span() {
        // The line is quoted, and may have a password in it.
        Some(span) if lines_about(&text, span.start).contains("://") => {
            let line = line_number(&text, span.start);
            let error = format!("line {line}: {}", without_url(error.message()));
            ConfigError::Hidden {
                path: path.into(),
                error,
            }
        }
        _ => {
            let unknown = error.message().strip_prefix("unknown field `");
            let unknown = unknown.and_then(|rest| Some(rest.split_once('`')?.0));
            ConfigError::File {
                path: path.into(),
                meant: unknown.map(meant).unwrap_or_default(),
                error: Box::new(error),
            }
        }
    };
    toml::from_str::<Config>(&text).map_err(file_error)?;
    toml::from_str(&text).map_err(file_error)
}

/// A sentence without what it quotes, if that may be a URL with a password in it.
fn without_url(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(start), Some(end)) if start < end && message[start..end].contains("://") => {
            format!("{}…{}", &message[..=start], &message[end..])
        }
        _ => message.to_owned(),
    }
}

fn line_number(text: &str, at: usize) -> usize {
    text.as_bytes()
        .iter()
        .take(at)
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// The line at this place of a text, and the line before it, which the error quotes if the place is
/// the end of the text.
fn lines_about(text: &str, at: usize) -> &str {
    let at = at.min(text.len());
    let before = text[..at].rfind('\n').unwrap_or(0);
    let start = text[..before].rfind('\n').map_or(0, |end| end + 1);
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    &text[start..end]
}

/// Puts one value into the table, and looks at once whether it fits.
fn override_value(
    table: &mut toml::Table,
    name: &str,
    value: &str,
    origin: &'static str,
    written_as: &str,
) -> Result<(), ConfigError> {
    let refused = |error: String| ConfigError::Override {
        origin,
        name: written_as.into(),
        value: match name {
            // There may be a password in it.
            "storage.url" => storage::redacted(value),
            _ => value.into(),
        },
        error,
    };
    // A bare word is a string; everything else is TOML.
    let bare = || toml::Value::String(value.to_owned());
    let parsed = toml::from_str::<toml::Table>(&format!("value = {value}"))
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(bare);
    // By itself, so that what else is wrong is not taken for what is wrong with this.
    let mut alone = toml::Table::new();
    put(&mut alone, name, parsed.clone());
    let understood = Config::deserialize(alone).map_err(|error| error.message().to_owned());
    let checked = understood.and_then(|config| match config.check() {
        Err(ConfigError::Range(why)) => Err(why),
        _ => Ok(()),
    });
    checked.map_err(|error| {
        refused(match self::value(&defaults(), name) {
            Some(toml::Value::Integer(_)) => {
                format!("it must be a whole number{}", range(name))
            }
            Some(toml::Value::Boolean(_)) => "it must be true or false".to_owned(),
            _ => error,
        })
    })?;
    let mut place = &mut *table;
    let (section, leaf) = name
        .rsplit_once('.')
        .map_or((None, name), |(section, leaf)| (Some(section), leaf));
    if let Some(section) = section {
        let entry = place
            .entry(section)
            .or_insert_with(|| toml::Table::new().into());
        place = entry
            .as_table_mut()
            .ok_or_else(|| refused(format!("{section} must be a table")))?;
    }
    place.insert(leaf.to_owned(), parsed);
    Ok(())
}

/// What a number must be, behind a comma.
fn range(name: &str) -> String {
    let (section, leaf) = name.split_once('.').unwrap_or(("", name));
    let range = match section {
        "sessions" => Sessions::range_of(leaf),
        "backends" => Backends::range_of(leaf),
        "wrap" => Wrap::range_of(leaf),
        "bundle" => Bundle::range_of(leaf),
        "http" => Http::range_of(leaf),
        "metrics" => Metrics::range_of(leaf),
        "limits" => Limits::range_of(leaf),
        _ => Config::range_of(leaf),
    };
    range.map_or_else(|| ", 0 or more".to_owned(), |range| format!(", {range}"))
}

fn defaults() -> toml::Table {
    toml::Table::try_from(Config::default()).unwrap_or_default()
}

/// The names of the settings in a table, with a dot before what is in a section.
fn names(table: &toml::Table) -> Vec<String> {
    let name = |(name, value): (&String, &toml::Value)| match value {
        toml::Value::Table(section) => section
            .keys()
            .map(|leaf| format!("{name}.{leaf}"))
            .collect(),
        _ => vec![name.clone()],
    };
    table.iter().flat_map(name).collect()
}

/// The settings in a table, by their names.
fn leaves(table: &toml::Table) -> Vec<(String, &toml::Value)> {
    let named = names(table).into_iter();
    named
        .filter_map(|name| value(table, &name).map(|found| (name.clone(), found)))
        .collect()
}

/// Puts a setting into a table.
fn put(table: &mut toml::Table, name: &str, value: toml::Value) {
    let Some((section, leaf)) = name.split_once('.') else {
        table.insert(name.to_owned(), value);
        return;
    };
    let section = table
        .entry(section)
        .or_insert_with(|| toml::Table::new().into());
    if let Some(section) = section.as_table_mut() {
        section.insert(leaf.to_owned(), value);
    }
}

fn value<'a>(table: &'a toml::Table, name: &str) -> Option<&'a toml::Value> {
    name.split_once('.').map_or_else(
        || table.get(name),
        |(section, leaf)| table.get(section)?.get(leaf),
    )
}

impl Loaded {
    /// Each setting with its value and its source, in order of the names.
    pub fn settings(&self) -> Vec<Setting> {
        let setting = |(name, written): (String, HeldValue)| {
            let HeldValue { value, source } = self.held.get(&name).unwrap_or(&written).clone();
            let pending = Some(written.value).filter(|written| *written != value);
            Setting {
                name,
                value,
                source: source.as_str().into(),
                pending,
            }
        };
        self.written().into_iter().map(setting).collect()
    }

    /// The values in force, by name.
    fn values(&self) -> BTreeMap<String, HeldValue> {
        let mut values: BTreeMap<_, _> = self.written().into_iter().collect();
        values.extend(self.held.clone());
        values
    }

    /// What the configuration says, in order of the names.
    fn written(&self) -> Vec<(String, HeldValue)> {
        let table = toml::Table::try_from(&self.config).unwrap_or_default();
        let mut names = names(&table);
        if self.config.adopt_version_1.is_none() {
            names.push(OPTIONAL.into());
        }
        names.sort();
        let written = |name: String| {
            let value = match value(&table, &name) {
                // There may be a password in it.
                Some(toml::Value::String(url)) if name == "storage.url" => {
                    format!("\"{}\"", storage::redacted(url))
                }
                value => value.map_or_else(|| "unset".into(), ToString::to_string),
            };
            let source = self.sources.get(&name).copied().unwrap_or(Source::Default);
            (name, HeldValue { value, source })
        };
        names.into_iter().map(written).collect()
    }

    /// What is written otherwise in `newer`, as `name: old -> new`, with a remark where that does
    /// not apply to what runs already.
    pub fn changes(&self, newer: &Self) -> Vec<String> {
        let pairs = self.written().into_iter().zip(newer.written());
        let changed = pairs.filter(|((_, old), (_, new))| old.value != new.value);
        changed
            .map(|((name, old), (_, new))| {
                let is_held = newer.held.contains_key(&name);
                let remark = match Applies::of(&name) {
                    Applies::DaemonStart if !is_held => "",
                    applies => applies.remark(),
                };
                format!("{name}: {} -> {}{remark}", old.value, new.value)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
