//! Hosts that keep their servers in a file: where it is, and what is in it.

pub(crate) mod edit;
pub(crate) mod entries;
pub(crate) mod executable;
pub(crate) mod file;
pub(crate) mod inspect;
pub(crate) mod listed;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod record;
pub(crate) mod tree;
mod yaml;
mod yaml_list;

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstObject, CstObjectProp, CstRootNode};
use mcp_sessiond_daemon::config::{FileForm, KnownHost, ServersFile, known_hosts};
use mcp_sessiond_process::regular_file;
use serde_json::Value;

use self::yaml::{Kind, Yaml};

/// Bytes that a host's file may have: Claude Code keeps a history in it.
const FILE_MAX: u64 = 256 * 1024 * 1024;

/// The servers of a file, by their names there, in its order.
pub(crate) type Members = Vec<(String, Value)>;

/// A server's project, where it is a single one's, its name there, and its entry.
pub(crate) type OfProject = (Option<String>, String, Value);

/// The hosts whose files we know.
static HOSTS: LazyLock<Vec<Host>> = LazyLock::new(|| {
    let host = |known: &'static KnownHost| {
        let file = known.servers.as_ref()?;
        Some(Host {
            title: known.title(),
            file,
        })
    };
    known_hosts().filter_map(host).collect()
});

/// A host whose file we know: what its row in `hosts.toml` says of that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host {
    /// What people call it.
    pub(crate) title: &'static str,
    file: &'static ServersFile,
}

impl Deref for Host {
    type Target = ServersFile;

    fn deref(&self) -> &ServersFile {
        self.file
    }
}

impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Host {}

impl Hash for Host {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ValueEnum for Host {
    fn value_variants<'a>() -> &'a [Self] {
        &HOSTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(&*self.file.name))
    }
}

/// Why a host's file can't be used. What is in it is never part of the sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    #[error("could not read {}: {error}", path.display())]
    Unread {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{}: {why}", path.display())]
    Form { path: PathBuf, why: String },
}

impl Host {
    /// That of this name on the command line.
    #[cfg(test)]
    pub(crate) fn called(name: &str) -> Self {
        let mut hosts = HOSTS.iter().copied();
        hosts.find(|host| host.name == name).expect("a row")
    }

    /// The host whose file this one reads, if that is known.
    pub(crate) fn of(known: &'static KnownHost) -> Option<Self> {
        let file = known.reads()?;
        HOSTS.iter().copied().find(|host| host.name == file.name)
    }

    /// The files that this host reads a project's servers from.
    pub(crate) fn in_project(self, project: &Path) -> impl Iterator<Item = PathBuf> {
        let files = self.file.project_files.iter();
        files.map(move |file| project.join(file))
    }

    /// Whether a member of that name is the servers, by the names of its own members: opencode's
    /// file may have had a server that is called so.
    pub(crate) fn is_inner<'a>(self, mut names: impl Iterator<Item = &'a str>) -> bool {
        self.has_inner_alone() || !names.any(|name| ["type", "command", "url"].contains(&name))
    }

    /// The servers of a file of this host's, as they are written there, in its order. None: there
    /// is no such file.
    ///
    /// # Errors
    /// When it can't be read, or is not of its form.
    pub(crate) fn read(self, path: &Path) -> Result<Option<Members>, HostError> {
        self.read_by(path, Self::own_members)
    }

    /// The same, and those of single projects that are in the user's file: `(project, name, entry)`.
    ///
    /// # Errors
    /// When it can't be read, or is not of its form.
    pub(crate) fn read_all(self, path: &Path) -> Result<Option<Vec<OfProject>>, HostError> {
        self.read_by(path, Self::of_all)
    }

    fn read_by<T>(
        self,
        path: &Path,
        members_of: fn(Self, &str) -> Result<Vec<T>, String>,
    ) -> Result<Option<Vec<T>>, HostError> {
        let text = match regular_file::read_text(path, FILE_MAX) {
            Ok(text) => text,
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => {
                return Err(HostError::Unread {
                    path: path.to_owned(),
                    error,
                });
            }
        };
        let members = || {
            self.check_names(&text)?;
            members_of(self, &text)
        };
        members().map(Some).map_err(|why| HostError::Form {
            path: path.to_owned(),
            why,
        })
    }

    /// The user's servers that are in use there, or switched off.
    fn own_members(self, text: &str) -> Result<Members, String> {
        let mut members = self.members(text)?;
        members.retain(|(_, entry)| !self.is_part(entry));
        if self.has_switches {
            self.switch_off(text, &mut members)?;
        }
        Ok(members)
    }

    /// The same, and those of single projects.
    fn of_all(self, text: &str) -> Result<Vec<OfProject>, String> {
        let own = self.own_members(text)?.into_iter();
        let own = own.map(|(name, entry)| (None, name, entry));
        Ok(own.chain(self.of_projects(text)?).collect())
    }

    /// Refuses a file that has a name twice where its servers are: hosts take the last one, people
    /// read the first.
    fn check_names(self, text: &str) -> Result<(), String> {
        let tree = members::tree(self, edit::body(text))?;
        for server in members::servers(self, tree.as_ref())? {
            let checked = server.entry.check_names();
            checked.map_err(|why| format!("the server {:?}: {why}", server.name))?;
        }
        Ok(())
    }

    /// Marks the servers that the file has switched off: by `mcp.excluded`, or by `mcp.allowed`
    /// unless that is empty.
    fn switch_off(self, text: &str, members: &mut [(String, Value)]) -> Result<(), String> {
        if text.trim_start_matches('\u{feff}').trim().is_empty() {
            return Ok(());
        }
        let (_, object) = json_object(text)?;
        let switches = object.object_value("mcp");
        let names = |list: &str| -> Vec<String> {
            let list = switches.as_ref().and_then(|all| all.get(list)?.value());
            list.and_then(|list| serde_json::from_value(list.to_serde_value()?).ok())
                .unwrap_or_default()
        };
        let (allowed, excluded) = (names("allowed"), names("excluded"));
        for (name, entry) in members {
            let is_on = allowed.is_empty() || allowed.contains(name);
            if let (false, Value::Object(entry)) = (is_on && !excluded.contains(name), entry) {
                entry.insert("disabled".to_owned(), true.into());
            }
        }
        Ok(())
    }

    /// The same, from what the file has in it.
    ///
    /// # Errors
    /// When it is not of this host's form.
    fn members(self, text: &str) -> Result<Members, String> {
        match self.form {
            FileForm::Toml => toml_members(text, &self.key),
            FileForm::Yaml => yaml_members(text, &self.key),
            FileForm::Json => {
                if text.trim_start_matches('\u{feff}').trim().is_empty() {
                    return Ok(Vec::new());
                }
                let (_, object) = json_object(text)?;
                match self.inner_object(&object) {
                    Some(inner) => members_of(&inner, self.inner_key().unwrap_or_default()),
                    None if self.has_inner_alone() => Ok(Vec::new()),
                    None => members_of(&object, &self.key),
                }
            }
        }
    }

    /// Under which name an entry has its command.
    pub(crate) fn command_key(self) -> &'static str {
        &self.file.command
    }

    /// Whether the servers are always under [`inner_key`](Self::inner_key).
    pub(crate) fn has_inner_alone(self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.always)
    }

    /// Under which name the servers are within what `key` names, where they are.
    pub(crate) fn inner_key(self) -> Option<&'static str> {
        self.file.inner.as_ref().map(|inner| &*inner.key)
    }

    /// The object that has the servers under [`inner_key`](Self::inner_key), if there is one.
    fn inner_object(self, object: &CstObject) -> Option<CstObject> {
        let outer = object.object_value(&self.key)?;
        let inner = outer.object_value(self.inner_key()?)?;
        let names: Vec<String> = inner
            .properties()
            .iter()
            .filter_map(CstObjectProp::decoded_name)
            .collect();
        self.is_inner(names.iter().map(String::as_str))
            .then_some(outer)
    }

    /// The same, and those of single projects that are in the user's file.
    ///
    /// # Errors
    /// When it is not of this host's form.
    pub(crate) fn all_members(self, text: &str) -> Result<Members, String> {
        let mut found = self.members(text)?;
        let of_projects = self.of_projects(text)?.into_iter();
        found.extend(of_projects.map(|(project, server, value)| {
            (of_project(&server, &project.unwrap_or_default()), value)
        }));
        Ok(found)
    }

    /// The servers of single projects that are in the user's file.
    fn of_projects(self, text: &str) -> Result<Vec<OfProject>, String> {
        let mut found = Vec::new();
        let Some(projects) = self.projects.as_ref().filter(|_| !text.trim().is_empty()) else {
            return Ok(found);
        };
        let (_, object) = json_object(text)?;
        for project in object
            .object_value(projects)
            .iter()
            .flat_map(CstObject::properties)
        {
            let name = project.decoded_name().ok_or("a name in it is not JSON")?;
            let Some(project) = project.object_value() else {
                continue;
            };
            let servers = members_of(&project, &self.key)?.into_iter();
            found.extend(servers.map(|(server, value)| (Some(name.clone()), server, value)));
        }
        Ok(found)
    }

    /// Whether an entry is a part of this host, and no server.
    fn is_part(self, entry: &Value) -> bool {
        let kind = entry.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| self.parts.iter().any(|part| part == kind))
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// What a server of a single project is called among all of a file.
pub(crate) fn of_project(server: &str, project: &str) -> String {
    format!("{server} ({project})")
}

/// JSON as hosts read it: with comments and trailing commas.
pub(crate) fn tolerant() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// The object that a text is, which can be edited and keeps everything else in it.
pub(crate) fn json_object(text: &str) -> Result<(CstRootNode, CstObject), String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The parser's own error would quote the text.
    let root = CstRootNode::parse(text, &tolerant()).map_err(|error| {
        format!(
            "it is not JSON at line {} column {}",
            error.line_display(),
            error.column_display()
        )
    })?;
    let object = root.object_value().ok_or("it must be a JSON object")?;
    Ok((root, object))
}

fn members_of(object: &CstObject, key: &str) -> Result<Members, String> {
    let Some(servers) = object.get(key).filter(|servers| !is_null(servers)) else {
        return Ok(Vec::new());
    };
    let servers = servers
        .object_value()
        .ok_or_else(|| format!("`{key}` must be an object"))?;
    let mut found = Vec::new();
    for member in servers.properties() {
        let name = member.decoded_name().ok_or("a name in it is not JSON")?;
        let value = member
            .value()
            .and_then(|value| value.to_serde_value())
            .ok_or("a value in it is not JSON")?;
        found.push((name, value));
    }
    Ok(found)
}

/// Whether nothing is there, which hosts take for no servers.
fn is_null(member: &CstObjectProp) -> bool {
    member.value().and_then(|value| value.to_serde_value()) == Some(Value::Null)
}

fn yaml_members(text: &str, key: &str) -> Result<Members, String> {
    let tree = Yaml::read(text.trim_start_matches('\u{feff}'))?;
    let Some(servers) = tree.as_ref().and_then(|tree| tree.get(key)) else {
        return Ok(Vec::new());
    };
    match &servers.kind {
        Kind::Null => Ok(Vec::new()),
        // What an alias stands for is elsewhere.
        Kind::Table(members) => Ok(members
            .iter()
            .map(|(name, entry)| {
                (
                    name.clone(),
                    if entry.has_marks() {
                        Value::Null
                    } else {
                        entry.value()
                    },
                )
            })
            .collect()),
        _ => Err(format!("`{key}` must be a table")),
    }
}

fn toml_members(text: &str, key: &str) -> Result<Members, String> {
    let mut table: toml::Table = toml::from_str(text).map_err(|error| {
        let before = error
            .span()
            .map_or("", |span| text.get(..span.start).unwrap_or_default());
        format!(
            "it is not TOML at line {}",
            before.matches('\n').count() + 1
        )
    })?;
    let Some(servers) = table.remove(key) else {
        return Ok(Vec::new());
    };
    match serde_json::to_value(servers) {
        Ok(Value::Object(servers)) => Ok(servers.into_iter().collect()),
        _ => Err(format!("`{key}` must be a table")),
    }
}
