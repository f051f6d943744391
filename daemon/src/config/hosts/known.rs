//! The hosts that are compiled in: `hosts.toml`, where each field is described.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use mcp_sessiond_process::CommandLine;
use mcp_sessiond_proto::paths::UserDirectories;
use mcp_sessiond_proto::{Resume, Siblings};
use serde::Deserialize;

use super::resume_by;

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    toml::from_str(include_str!("hosts.toml")).expect("a test reads it as it is compiled in")
});

/// Programs that run scripts.
const INTERPRETERS: [&str; 5] = ["node", "nodejs", "bun", "python*", "deno"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    hosts: Vec<KnownHost>,
    clients: BTreeMap<String, Resume>,
}

/// A host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownHost {
    /// What people call it. A mode that has a rule of its own is named behind a comma.
    title: String,
    /// How it is known what it does.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the pages are compared with it")
    )]
    pub(super) evidence: Evidence,
    #[serde(default)]
    executables: Vec<String>,
    #[serde(default)]
    scripts: Vec<String>,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    mode: Vec<String>,
    resume: Option<Resume>,
    conversation: Option<String>,
    pub(super) siblings: Option<Siblings>,
    reads: Option<String>,
    /// Where it keeps its servers, if that is known.
    pub servers: Option<ServersFile>,
}

/// How it is known what a host does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Evidence {
    /// It was run.
    Run,
    /// Its source or its documentation was read, or somebody else's account of a run.
    Read,
}

/// Where a host keeps its servers, and how they are written there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServersFile {
    /// The host's name on our command line.
    pub name: String,
    files: Vec<String>,
    home: Option<Home>,
    /// The files that the host reads a project's servers from, in the project's folder.
    #[serde(default)]
    pub project_files: Vec<String>,
    settings: Option<String>,
    /// The form of the file.
    #[serde(default)]
    pub form: FileForm,
    /// Under which name the file has the servers.
    #[serde(default = "usual_key")]
    pub key: String,
    /// Under which name they are within that, where they are.
    pub inner: Option<InnerKey>,
    /// Under which name an entry has its command.
    #[serde(default = "usual_command")]
    pub command: String,
    /// Under which name the file has what belongs to single projects, by their paths.
    pub projects: Option<String>,
    /// The types of entries that are parts of the host, and no servers.
    #[serde(default)]
    pub parts: Vec<String>,
    /// Whether it asks its user again to approve a server whose entry has changed.
    #[serde(default)]
    pub asks_again: bool,
    /// Whether the file may say beside the servers which of them are off.
    #[serde(default)]
    pub has_switches: bool,
    /// Whether nothing would be kept, since one process has the servers of all conversations.
    #[serde(default)]
    pub shares: bool,
    /// How a reference to a variable begins.
    #[serde(default = "usual_references")]
    pub references: String,
    /// Whether `${NAME}` is a variable.
    #[serde(default)]
    pub plain_names: bool,
    /// Whether `${NAME:-…}` is a variable with a default.
    #[serde(default)]
    pub defaults: bool,
    /// Under which name alone an entry has its variables.
    pub variables: Option<String>,
    /// Under which name an entry has the tools that it is cut down to.
    pub only: Option<String>,
}

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileForm {
    /// JSON, with comments and trailing commas.
    #[default]
    Json,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

/// Under which name the servers are within the file's key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InnerKey {
    /// The name.
    pub key: String,
    /// Whether they are there always. If not, only in the files of later versions.
    #[serde(default)]
    pub always: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Home {
    variable: String,
    file: String,
    #[serde(default)]
    is_absolute: bool,
}

fn usual_key() -> String {
    "mcpServers".to_owned()
}

fn usual_command() -> String {
    "command".to_owned()
}

fn usual_references() -> String {
    "${".to_owned()
}

impl KnownHost {
    /// What people call it. A mode goes by the host's name.
    #[must_use]
    pub fn title(&self) -> &str {
        self.title.split(',').next().unwrap_or(&self.title)
    }

    /// The same, with the mode.
    #[cfg(test)]
    pub(super) fn whole_title(&self) -> &str {
        &self.title
    }

    /// Whether it is recognised by its processes.
    #[cfg(test)]
    pub(super) fn has_programs(&self) -> bool {
        ![&self.executables, &self.scripts, &self.names]
            .iter()
            .all(|all| all.is_empty())
    }

    /// The same, also of a mode, which reads its host's file.
    #[must_use]
    pub fn reads(&self) -> Option<&ServersFile> {
        let other = || {
            known_hosts().find_map(|host| {
                let servers = host.servers.as_ref()?;
                (Some(&servers.name) == self.reads.as_ref()).then_some(servers)
            })
        };
        self.servers.as_ref().or_else(other)
    }

    /// Whether no row has the name of the host whose file it reads.
    #[cfg(test)]
    pub(super) fn reads_in_vain(&self) -> bool {
        self.reads.is_some() && self.reads().is_none()
    }

    pub(super) fn fits(&self, host: &CommandLine) -> bool {
        let is_interpreter = || INTERPRETERS.iter().any(|name| host.is_called(name));
        let is_it = self
            .executables
            .iter()
            .any(|name| host.is_called(name) || host.is_at(name))
            || self
                .scripts
                .iter()
                .any(|script| is_interpreter() && host.runs_script(script))
            || self
                .names
                .iter()
                .any(|name| is_interpreter() && host.is_titled(name));
        is_it && (self.mode.is_empty() || self.mode.iter().any(|word| host.has_argument(word)))
    }

    pub(super) fn resume(&self, gives: &impl Fn(&str) -> bool) -> Option<Resume> {
        resume_by(
            self.siblings,
            self.resume,
            self.conversation.as_deref(),
            gives,
        )
    }
}

impl ServersFile {
    /// The files that this host reads the user's servers from, whether they are there or not; the
    /// first one that has a name counts.
    #[must_use]
    pub fn files(&self, user: &UserDirectories) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.files.iter().map(|file| placed(file, user)).collect();
        let home = self.home.as_ref().and_then(|home| {
            let named = std::env::var_os(&home.variable).filter(|value| !value.is_empty())?;
            let named = PathBuf::from(named);
            (!home.is_absolute || named.is_absolute()).then(|| named.join(&home.file))
        });
        if let (Some(home), Some(first)) = (home, files.first_mut()) {
            *first = home;
        }
        files
    }

    /// A file of this host's settings that may have servers, too, which it takes from there.
    #[must_use]
    pub fn settings(&self, user: &UserDirectories) -> Option<PathBuf> {
        self.settings.as_ref().map(|file| placed(file, user))
    }

    /// Whether it has such a file.
    #[must_use]
    pub fn has_settings(&self) -> bool {
        self.settings.is_some()
    }
}

/// A path of the table, in the user's directories.
fn placed(path: &str, user: &UserDirectories) -> PathBuf {
    let (directory, rest) = path.split_once('/').unwrap_or((path, ""));
    let directory = match directory {
        "config" => &user.config,
        "data" => &user.application_data,
        _ => &user.home,
    };
    directory.join(rest)
}

/// Every host that `setup` knows, every host of `docs/hosts.md`, and programs that serve several
/// clients from one process. Where several fit, the strictest counts.
pub fn known_hosts() -> impl Iterator<Item = &'static KnownHost> {
    TABLE.hosts.iter()
}

/// The host that this is. None: it is not in the table.
pub fn known_host(host: &CommandLine) -> Option<&'static KnownHost> {
    known_hosts().find(|known| known.fits(host))
}

/// What the name of a client makes of its host's rule, whatever host that is.
pub(super) fn rule_of_client(name: &str) -> Option<Resume> {
    TABLE.clients.get(name).copied()
}
