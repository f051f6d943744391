//! The names of servers in hosts' files, for servers whose entry does not say its own: an entry that
//! was written by hand runs `mcp-sessiond wrap -- COMMAND`, and the server that is kept runs the
//! same COMMAND.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use mcp_sessiond_process::executable;
use mcp_sessiond_proto::paths;
use serde::Deserialize;
use serde_json::Value;

use super::Host;
use super::entries::is_us;

/// Bytes of a file that is read with comments and all. A larger one must be plain JSON.
const TOLERANT_MAX: u64 = 1024 * 1024;

/// What an entry of a host's file has run by us.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedEntry {
    name: String,
    /// The project that it belongs to. None: all of them.
    project: Option<PathBuf>,
    /// Our executable, our options, and the command behind them.
    words: Vec<String>,
}

/// This very executable, under whatever name it runs.
static OWN: LazyLock<Option<PathBuf>> = LazyLock::new(executable::own);

fn is_ours(word: &str) -> bool {
    is_us(word) || OWN.as_deref() == Some(Path::new(word))
}

/// What tells whether a file was changed: device, inode, time of the last change (s, ns), bytes.
type Stamp = (u64, u64, i64, i64, u64);

/// The files that were read, each once, and again only where it was changed.
#[derive(Debug, Default)]
pub(crate) struct EntryNames(HashMap<(Host, PathBuf), (Stamp, Vec<NamedEntry>)>);

impl EntryNames {
    /// The name of the entry of this host that has this command run in this directory. None: there
    /// is no such entry, or there are several, with different names.
    pub(crate) fn of(
        &mut self,
        host: Host,
        command: &[String],
        directory: Option<&Path>,
    ) -> Option<String> {
        let of_user = host.files(&paths::user_directories()?);
        let of_project: Vec<PathBuf> = directory
            .into_iter()
            .flat_map(|directory| host.in_project(directory))
            .collect();
        // What a project says counts before what the user says for all of them.
        for path in of_project.into_iter().chain(of_user) {
            let fitting: Vec<NamedEntry> = self
                .read(host, &path)
                .iter()
                .filter(|entry| runs(&entry.words, command))
                .cloned()
                .collect();
            let in_project = |entry: &&NamedEntry| {
                entry.project.is_some() && entry.project.as_deref() == directory
            };
            let of_all = |entry: &&NamedEntry| entry.project.is_none();
            let found = only_name(fitting.iter().filter(in_project))
                .or_else(|| only_name(fitting.iter().filter(of_all)));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn read(&mut self, host: Host, path: &Path) -> &[NamedEntry] {
        let place = (host, path.to_owned());
        let stamp = path.metadata().ok().filter(std::fs::Metadata::is_file);
        let Some(stamp) = stamp.map(|meta| {
            let changed = (meta.mtime(), meta.mtime_nsec());
            (meta.dev(), meta.ino(), changed.0, changed.1, meta.len())
        }) else {
            self.0.remove(&place);
            return &[];
        };
        let known = self.0.entry(place).or_default();
        if known.0 != stamp {
            *known = (stamp, entries(host, path, stamp.4));
        }
        &known.1
    }
}

/// The name that all of these have.
fn only_name<'a>(mut entries: impl Iterator<Item = &'a NamedEntry>) -> Option<String> {
    let first = entries.next()?;
    entries
        .all(|other| other.name == first.name)
        .then(|| first.name.clone())
}

/// Whether these words have us run this command. A host puts values of its own in the place of
/// `${…}`.
fn runs(words: &[String], command: &[String]) -> bool {
    let Some(front) = words.len().checked_sub(command.len()) else {
        return false;
    };
    let (front, own) = words.split_at(front);
    let is_wrap = front
        .windows(2)
        .any(|two| is_ours(&two[0]) && two[1] == "wrap");
    is_wrap && own.iter().zip(command).all(|(own, word)| fits(own, word))
}

fn fits(own: &str, word: &str) -> bool {
    let Some((begin, rest)) = own.split_once("${") else {
        return own == word;
    };
    let end = rest.rsplit_once('}').map_or("", |(_, end)| end);
    word.len() >= begin.len() + end.len() && word.starts_with(begin) && word.ends_with(end)
}

/// The servers of a file that run by us. What can't be read has none.
fn entries(host: Host, path: &Path, bytes: u64) -> Vec<NamedEntry> {
    let Some(text) = std::fs::read_to_string(path).ok() else {
        return Vec::new();
    };
    if host.projects.is_some()
        && let Ok(file) = serde_json::from_str::<ClaudeFile>(&text)
    {
        let of_projects = file.projects.into_iter().flat_map(|(project, own)| {
            let named = move |(name, entry)| (name, Some(PathBuf::from(&project)), entry);
            own.servers.unwrap_or_default().into_iter().map(named)
        });
        let of_user = file.servers.unwrap_or_default().into_iter();
        return of_user
            .map(|(name, entry)| (name, None, entry))
            .chain(of_projects)
            .filter_map(|(name, project, entry)| named(host, name, project, &entry))
            .collect();
    }
    if bytes > TOLERANT_MAX {
        return Vec::new();
    }
    let members = host.members(&text).unwrap_or_default();
    members
        .into_iter()
        .filter_map(|(name, entry)| named(host, name, None, &entry))
        .collect()
}

fn named(host: Host, name: String, project: Option<PathBuf>, entry: &Value) -> Option<NamedEntry> {
    let (command, arguments) = match entry.get(&host.command)? {
        // Zed's older form.
        Value::Object(inner) => (inner.get("path")?, inner.get("args")),
        command => (command, entry.get("args")),
    };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let list = |value: &Value| value.as_array()?.iter().map(text).collect();
    let words: Vec<String> = match command {
        Value::Array(_) => list(command)?,
        _ => {
            let arguments: Vec<String> = arguments.and_then(list).unwrap_or_default();
            [vec![text(command)?], arguments].concat()
        }
    };
    words
        .iter()
        .any(|word| is_ours(word))
        .then_some(NamedEntry {
            name,
            project,
            words,
        })
}

/// The servers in Claude Code's own file, which has a history of many megabytes beside them: that is
/// passed over and not built.
#[derive(Deserialize)]
struct ClaudeFile {
    #[serde(default, rename = "mcpServers")]
    servers: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    projects: BTreeMap<String, ClaudeProject>,
}

#[derive(Deserialize)]
struct ClaudeProject {
    #[serde(default, rename = "mcpServers")]
    servers: Option<BTreeMap<String, Value>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn an_entry_runs_the_command_behind_our_options() {
        let entry = words(&[
            "/bin/mcp-sessiond",
            "wrap",
            "--lazy",
            "--",
            "npx",
            "x",
            "${HOME}/y",
        ]);
        assert!(runs(&entry, &words(&["npx", "x", "/home/me/y"])));
        for command in [
            &["npx", "x"][..],
            &["npx", "x", "/home/me/z"],
            &["wrap", "--lazy", "--", "npx", "x", "/home/me/y"],
        ] {
            assert!(!runs(&entry, &words(command)), "{command:?}");
        }
        // By way of a launcher.
        let entry = words(&["npx", "-y", "mcp-sessiond@1", "wrap", "npx", "x"]);
        assert!(runs(&entry, &words(&["npx", "x"])));
    }

    #[test]
    fn the_project_tells_two_entries_apart() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("claude.json");
        let entry = |name: &str| serde_json::json!({"mcpServers": {name: {"command": "mcp-sessiond", "args": ["wrap", "--", "npx", "x"]}}});
        let file = serde_json::json!({
            "history": [{"anything": [1, 2, 3]}],
            "projects": {"/a": entry("one"), "/b": entry("two"), "/c": {"mcpServers": null}},
        });
        std::fs::write(&path, file.to_string()).expect("written");
        let found = entries(Host::called("claude"), &path, 0);
        let of = |project: &str| {
            let project = Some(Path::new(project));
            let in_project = |entry: &&NamedEntry| entry.project.as_deref() == project;
            only_name(found.iter().filter(in_project))
        };
        assert_eq!(of("/a").as_deref(), Some("one"));
        assert_eq!(of("/b").as_deref(), Some("two"));
        assert_eq!(of("/c"), None);
    }
}
