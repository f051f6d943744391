//! `mcp-sessiond import`: copies servers from hosts' files into `servers.json`, and has the hosts run
//! them from there.

pub(super) mod convert;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum as _};
use mcp_sessiond_process::regular_file;
use mcp_sessiond_proto::paths::{self, UserDirectories};
use serde::Serialize;
use serde_json::{Map, Value};

use super::setup::{Listing, Rewrite, rewrite};
use crate::exit_code::{CANT_CREATE, DATA_ERROR, NO_INPUT};
use crate::hosts::Host;
use crate::servers::{Servers, store_command, write};
use crate::ui::output::{print, to_json, warn};
use crate::ui::table;

/// Bytes that servers.json may have.
const SERVERS_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, Args)]
#[command(after_help = "\
Copies servers from a host's own file, of the user and not of a project, into `~/.config/mcp-sessiond/servers.json`. The host's file is \
changed by `--rewrite` alone. Without `--from` and `--rewrite` it shows which hosts are there and what would come from each, and writes nothing.

With `--rewrite` the host runs the servers from there afterwards: the command in its file becomes `mcp-sessiond wrap @NAME`, without variables, \
and the rest of the entry stays. It shows what would change, and asks first. `--undo` gives the file back as it was, as `mcp-sessiond setup --undo` \
does; servers.json stays.

A server that is wrapped by `mcp-sessiond wrap` comes as its own command. One whose name is there already is left as it is, and \
refused if it differs, unless `--replace` is given. What looks like a secret is copied as it is, and named.

Exit codes: 0; 64 bad usage; 65 a server was refused, or a host's file can't be read or understood, and the others were imported; or \
servers.json can't be read or understood, and nothing was written; 66 there is no such file, or no such server in it, and nothing was written; \
73 servers.json can't be written, or was edited meanwhile, and nothing was written; or a host's file could not be written, and is as it was.

Examples:
  mcp-sessiond import
  mcp-sessiond import --from claude --dry-run
  mcp-sessiond import --from claude files issues
  mcp-sessiond import --rewrite cursor
  mcp-sessiond import --rewrite cursor --undo")]
pub(crate) struct Arguments {
    /// The host whose servers to copy
    #[arg(long, value_name = "HOST", group = "source")]
    from: Option<Host>,
    /// The host whose servers to copy, and that runs them from servers.json afterwards
    #[arg(long, value_name = "HOST", group = "source")]
    rewrite: Option<Host>,
    /// With --rewrite: don't ask
    #[arg(long, requires = "rewrite")]
    yes: bool,
    /// With --rewrite: undo it
    #[arg(long, requires = "rewrite", conflicts_with = "names")]
    undo: bool,
    /// Show what would be copied, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace a different server of the same name
    #[arg(long)]
    replace: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "rewrite")]
    json: bool,
    /// Which servers; all by default
    #[arg(value_name = "NAME", requires = "source")]
    names: Vec<String>,
}

/// What becomes of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Added,
    Replaced,
    Unchanged,
    Refused,
}

/// A server of a host's file.
#[derive(Debug, Serialize)]
struct Candidate {
    host: String,
    file: PathBuf,
    name: String,
    outcome: Outcome,
    /// Why it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Variables and headers that look like secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    secrets: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    ExitCode::from(
        import_or_undo(arguments).unwrap_or_else(|(code, sentence)| {
            warn(sentence);
            code
        }),
    )
}

fn import_or_undo(arguments: &Arguments) -> Result<u8, Failure> {
    let rewritten = arguments.rewrite.map(|host| Rewrite {
        host: Some(host),
        only: None,
        yes: arguments.yes,
        dry_run: arguments.dry_run,
        undo: arguments.undo,
    });
    if let Some(rewritten) = rewritten.filter(|rewrite| rewrite.undo) {
        return rewrite(rewritten, Listing::default());
    }
    let (code, listed) = import(arguments)?;
    match rewritten.filter(|_| !listed.is_empty()) {
        Some(rewritten) => {
            let listing = Listing {
                entries: listed,
                ..Listing::default()
            };
            Ok(rewrite(rewritten, listing)?.max(code))
        }
        None => Ok(code),
    }
}

pub(super) type Failure = (u8, String);

/// Returns the exit code, and the servers of the host that are in `servers.json` now.
fn import(arguments: &Arguments) -> Result<(u8, Vec<(PathBuf, String)>), Failure> {
    let from = arguments.from.or(arguments.rewrite);
    let user = paths::user_directories()
        .ok_or_else(|| (NO_INPUT, "there is no home directory".to_owned()))?;
    let (path, text) = list()?;
    let there = understood(&path, &text)?;
    let hosts = from.map_or_else(|| Host::value_variants().to_vec(), |host| vec![host]);
    let (mut found, mut coming, mut code) = (Vec::new(), Vec::new(), 0);
    for host in hosts {
        // What one host has does not matter to another while they are only shown.
        let mut seen: Vec<(String, Map<String, Value>)> = Vec::new();
        let mut files = 0;
        for file in host.files(&user) {
            let servers = match host.read(&file) {
                Ok(Some(servers)) => servers,
                Ok(None) => continue,
                Err(error) => {
                    warn(&error);
                    code = DATA_ERROR;
                    files += 1;
                    continue;
                }
            };
            files += 1;
            for (name, server) in servers {
                let is_meant = arguments.names.is_empty() || arguments.names.contains(&name);
                if is_meant && seen.iter().all(|(other, _)| *other != name) {
                    let (one, entry) =
                        candidate(host, &file, name, &server, &there, arguments.replace);
                    seen.push((one.name.clone(), entry));
                    found.push(one);
                }
            }
        }
        // A server that is not found may be in a file that can't be read.
        if from.is_some() && code == 0 {
            missing(host, &user, files, &arguments.names, &found)?;
        }
        coming.extend(seen.into_iter().filter(|(name, _)| {
            found
                .iter()
                .any(|one| one.host == host.to_string() && one.name == *name && one.is_written())
        }));
    }
    let is_dry = arguments.dry_run || from.is_none();
    if !is_dry && !coming.is_empty() {
        let new = write::edited(&text, &coming)
            .map_err(|why| (DATA_ERROR, format!("{}: {why}", path.display())))?;
        // What is written can be read again, or is not written.
        let read = understood(&path, &new)?;
        for (name, _) in &coming {
            read.get(name)
                .map_err(|error| (error.code(), error.to_string()))?;
        }
        write::replace(&path, &text, &new).map_err(|why| (CANT_CREATE, why))?;
    }
    let refused = found.iter().any(|one| one.outcome == Outcome::Refused);
    let shown = if arguments.json {
        to_json(&found)
    } else {
        candidates_text(&found, &path, is_dry, from)
    };
    // A list is no failure of what it shows.
    let code = if code == 0 && refused && from.is_some() {
        DATA_ERROR
    } else {
        code
    };
    let printed = print(&shown);
    let code = match printed == ExitCode::SUCCESS {
        true => code,
        false => crate::exit_code::SOFTWARE,
    };
    let listed = found
        .into_iter()
        .filter(|one| one.outcome != Outcome::Refused)
        .map(|one| (one.file, one.name));
    Ok((code, listed.collect()))
}

/// Where servers.json is, and what it has; nothing where there is none.
pub(super) fn list() -> Result<(PathBuf, String), Failure> {
    let path = Servers::usual_path().map_err(|error| (error.code(), error.to_string()))?;
    match regular_file::read_text(&path, SERVERS_MAX) {
        Ok(text) => Ok((path, text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((path, String::new())),
        Err(error) => Err((
            DATA_ERROR,
            format!("could not read {}: {error}", path.display()),
        )),
    }
}

/// The servers that servers.json has with this text.
pub(super) fn understood(path: &Path, text: &str) -> Result<Servers, Failure> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    Servers::parse(text.as_bytes(), path).map_err(|error| (error.code(), error.to_string()))
}

/// Says what is not there of what was asked for.
fn missing(
    host: Host,
    user: &UserDirectories,
    files: usize,
    names: &[String],
    found: &[Candidate],
) -> Result<(), Failure> {
    if files == 0 {
        let places: Vec<String> = host
            .files(user)
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        return Err((
            NO_INPUT,
            format!(
                "{host} has no file here; it would be {}",
                places.join(" or ")
            ),
        ));
    }
    match names
        .iter()
        .find(|name| found.iter().all(|one| one.name != **name))
    {
        Some(name) => Err((
            NO_INPUT,
            format!("{host} has no server {name:?}; `mcp-sessiond import` shows which there are"),
        )),
        None => Ok(()),
    }
}

impl Candidate {
    fn is_written(&self) -> bool {
        matches!(self.outcome, Outcome::Added | Outcome::Replaced)
    }
}

/// What becomes of a server of a host's file, and its entry.
fn candidate(
    host: Host,
    file: &Path,
    name: String,
    server: &Value,
    there: &Servers,
    replace: bool,
) -> (Candidate, Map<String, Value>) {
    let converted = convert::converted(host, server)
        .and_then(|entry| Ok((there.would_be(&name, &entry)?, entry)));
    let (outcome, why, entry) = match converted {
        // It was rewritten.
        Err(_) if convert::is_listed(host, server, &name) && there.listed_as(&name).is_some() => {
            (Outcome::Unchanged, None, Map::new())
        }
        Err(why) => (Outcome::Refused, Some(why), Map::new()),
        Ok((new, entry)) => match there.listed_as(&name) {
            None => (Outcome::Added, None, entry),
            Some(Ok(former)) if *former == new => (Outcome::Unchanged, None, entry),
            Some(_) if replace => (Outcome::Replaced, None, entry),
            Some(_) => {
                let why = "servers.json has another one of this name; --replace puts this one in its place";
                (Outcome::Refused, Some(why.to_owned()), entry)
            }
        },
    };
    let secrets = convert::secrets(&entry);
    (
        Candidate {
            host: host.to_string(),
            file: file.to_owned(),
            name,
            outcome,
            why,
            secrets,
        },
        entry,
    )
}

/// The same for people.
fn candidates_text(found: &[Candidate], path: &Path, is_dry: bool, from: Option<Host>) -> String {
    let mut text = String::new();
    let mut line = |words: String| text.push_str(&(words + "\n"));
    let mut host = "";
    for one in found {
        if from.is_none() && one.host != host {
            line(format!("{}: {}", one.host, one.file.display()));
        }
        host = &one.host;
        let what = match (one.outcome, is_dry) {
            (Outcome::Added, false) => "added",
            (Outcome::Added, true) => "would be added",
            (Outcome::Replaced, false) => "replaced",
            (Outcome::Replaced, true) => "would be replaced",
            (Outcome::Unchanged, _) => "is there already",
            (Outcome::Refused, _) => "refused",
        };
        let why = one
            .why
            .as_ref()
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        // A file may be anybody's.
        let name = table::printable(&one.name);
        line(format!("  {name}: {what}{}", table::printable(&why)));
        for secret in one
            .secrets
            .iter()
            .filter(|_| one.outcome != Outcome::Refused)
        {
            line(format!(
                "    {} looks like a secret, and is copied as it is; better: {}, and ${{keyring:{name}/{0}}} in {}",
                table::printable(secret),
                table::printable(&store_command(&one.name, secret)),
                path.display()
            ));
        }
    }
    if found.is_empty() {
        line("no server was found in a host's file".to_owned());
    } else if from.is_none() {
        line(
            "Nothing was written. Copy them by: mcp-sessiond import --from HOST [NAME…]".to_owned(),
        );
    }
    text
}

#[cfg(test)]
mod tests;
