//! `mcp-sessiond share`: the servers of a name in hosts' files become one process for all of them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum as _};
use mcp_sessiond_proto::paths;
use mcp_sessiond_proto::text::did_you_mean;
use serde_json::{Map, Value};

use super::import::{Failure, convert, list, understood};
use super::setup::{ListEdit, Listing, Rewrite, confirm, rewrite};
use crate::exit_code::{CANT_CREATE, DATA_ERROR, NO_INPUT, SOFTWARE};
use crate::hosts::inspect::{EntryState, entries_of};
use crate::hosts::record::{Record, Records};
use crate::hosts::{Host, of_project};
use crate::servers::write::{self, Added};
use crate::servers::{Entry, Kind, Servers};
use crate::ui::output::{print, warn};

/// What stays in a host's own entry, since it is about what this host sees of the server.
const HOSTS_OWN: [&str; 3] = ["only", "without", "disabled"];

#[derive(Debug, Args)]
#[command(after_help = "\
Moves the server's entry from the files that hosts have of their user to `~/.config/mcp-sessiond/servers.json` with \
`\"shared\": true`, and has each of these hosts run it from there, by `mcp-sessiond wrap @NAME`, when it is reloaded. It shows what would change, and asks first. \
Then one process serves all hosts, windows and projects. Don't share a server that remembers a conversation (a browser, a terminal), or works \
in the directory of its host: each sees what the others do there, and it runs in your home directory, or in the entry's `cwd`.

`--undo` gives the hosts their own entries back, and takes away from servers.json what was put there, which the field `by_share` says. It stays where somebody has edited it, a host's file runs it, or a host's entry is not what it was.

Exit codes: 0; 64 bad usage; 65 the server is not the same in all hosts, or servers.json has another one of its name, or a file can't be \
understood; 66 no host's file has such a server; 73 a file could not be written.

Examples:
  mcp-sessiond share docs
  mcp-sessiond share docs --from claude
  mcp-sessiond share docs --undo")]
pub(crate) struct Arguments {
    /// The server, by its name in hosts' files
    name: String,
    /// Only where it is the same server as in this host's file
    #[arg(long, value_name = "HOST", conflicts_with = "undo")]
    from: Option<Host>,
    /// Don't ask
    #[arg(long)]
    yes: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Give the hosts their own entries back
    #[arg(long)]
    undo: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = match arguments.undo {
        true => undo(arguments),
        false => share(arguments),
    };
    ExitCode::from(done.unwrap_or_else(|(code, sentence)| {
        warn(sentence);
        code
    }))
}

impl Arguments {
    fn how(&self) -> Rewrite<'_> {
        Rewrite {
            host: None,
            only: Some(&self.name),
            yes: self.yes,
            dry_run: self.dry_run,
            undo: self.undo,
        }
    }
}

/// What a host has under the name.
struct Found {
    host: Host,
    file: PathBuf,
    project: Option<String>,
    /// In the form of servers.json. None: it runs what that has.
    entry: Option<Map<String, Value>>,
}

impl Found {
    /// Where it stands, for people.
    fn place(&self) -> String {
        let project = self.project.as_ref();
        let project = project.map_or_else(String::new, |project| format!("{project} in "));
        format!("{} ({project}{})", self.host, self.file.display())
    }
}

fn share(arguments: &Arguments) -> Result<u8, Failure> {
    let name = &arguments.name;
    let (path, text) = list()?;
    let there = understood(&path, &text)?;
    let (found, code) = find(name, &there)?;
    // What is run, whatever each host lets through of it.
    let kind = |one: &Found| {
        let own = one.entry.as_ref().map(|own| there.would_be(name, own));
        let own = own.and_then(Result::ok).map(|own| own.kind().clone());
        let listed = || {
            there
                .listed_as(name)?
                .ok()
                .map(|listed| listed.kind().clone())
        };
        own.or_else(listed)
    };
    let is_meant = |one: &&Found| arguments.from.is_none_or(|from| from == one.host);
    let Some(first) = found.iter().find(is_meant) else {
        let from = arguments.from.map(|from| from.to_string());
        return Err((
            NO_INPUT,
            format!("{} has no server {name:?}", from.unwrap_or_default()),
        ));
    };
    let (same, others): (Vec<&Found>, Vec<&Found>) =
        found.iter().partition(|one| kind(one) == kind(first));
    if let Some(other) = others.iter().copied().find(is_meant) {
        return Err((
            DATA_ERROR,
            format!(
                "{name:?} is not the same server in {} and {}; `mcp-sessiond share {name} --from HOST` shares that of HOST, \
                 and leaves the others as they are",
                first.place(),
                other.place()
            ),
        ));
    }
    for other in others {
        warn(format_args!(
            "{} has another server of this name, which stays as it is",
            other.place()
        ));
    }
    let entry = same.iter().find_map(|one| one.entry.clone());
    let edit = edit(name, entry, &there, (&path, &text))?;
    let in_file = |one: &Found| match &one.project {
        Some(project) => of_project(name, project),
        None => name.clone(),
    };
    let entries = same.iter().map(|one| (one.file.clone(), in_file(one)));
    let entries = entries.collect();
    let listing = Listing {
        entries,
        edit,
        is_shared: true,
    };
    Ok(rewrite(arguments.how(), listing)?.max(code))
}

/// Looks for the server in the files of all hosts. Those that can't be shared stay as they are, and
/// are named; then the exit code says so.
fn find(name: &str, there: &Servers) -> Result<(Vec<Found>, u8), Failure> {
    let (mut found, mut others, mut code) = (Vec::new(), Vec::new(), 0);
    for (host, file) in files()? {
        let servers = host.read_all(&file).unwrap_or_else(|error| {
            warn(error);
            code = DATA_ERROR;
            None
        });
        for (project, own, server) in servers.unwrap_or_default() {
            if own != name {
                others.push(own);
                continue;
            }
            match shared_entry(host, &server, there, name) {
                Ok(entry) => found.push(Found {
                    host,
                    file: file.clone(),
                    project,
                    entry,
                }),
                Err(why) => {
                    warn(format_args!("{host}: it stays as it is: {why}"));
                    code = DATA_ERROR;
                }
            }
        }
    }
    if found.is_empty() && code == 0 {
        let meant = did_you_mean(name, others.iter().map(|other| &**other));
        return Err((
            NO_INPUT,
            format!("no host's file has a server {name:?}{meant}"),
        ));
    }
    if found.is_empty() {
        return Err((code, format!("{name:?} can't be shared")));
    }
    Ok((found, code))
}

/// The files in which hosts have their users' servers, whether they are there or not.
fn files() -> Result<Vec<(Host, PathBuf)>, Failure> {
    let user = paths::user_directories()
        .ok_or_else(|| (NO_INPUT, "there is no home directory".to_owned()))?;
    let of = |host: &Host| {
        let host = *host;
        host.files(&user).into_iter().map(move |file| (host, file))
    };
    Ok(Host::value_variants().iter().flat_map(of).collect())
}

/// A host's server as servers.json would have it. None: it runs what that has.
fn shared_entry(
    host: Host,
    server: &Value,
    there: &Servers,
    name: &str,
) -> Result<Option<Map<String, Value>>, String> {
    if convert::is_listed(host, server, name) {
        return match there.listed_as(name) {
            Some(_) => Ok(None),
            None => Err(format!("it runs @{name}, which servers.json does not have")),
        };
    }
    let mut entry = convert::converted(host, server)?;
    entry.retain(|field, _| !HOSTS_OWN.contains(&&**field));
    entry.insert("shared".to_owned(), true.into());
    match there.would_be(name, &entry)?.kind() {
        Kind::Stdio {
            command, cwd: None, ..
        } if is_of_directory(command) => {
            Err("its command is a path from where the host runs; write an absolute one".to_owned())
        }
        _ => Ok(Some(entry)),
    }
}

/// Whether it depends on the directory which program a command is.
fn is_of_directory(command: &str) -> bool {
    let is_whole = |beginning: &&str| command.starts_with(*beginning);
    command.contains('/') && !["/", "~/", "${"].iter().any(is_whole)
}

/// What servers.json needs so that the server is shared. None: nothing.
fn edit(
    name: &str,
    entry: Option<Map<String, Value>>,
    there: &Servers,
    (path, text): (&Path, &str),
) -> Result<Option<ListEdit>, Failure> {
    let of_list = |why: String| (DATA_ERROR, format!("{}: {why}", path.display()));
    let own = entry.as_ref().map(|entry| there.would_be(name, entry));
    let own = own.transpose().map_err(of_list)?;
    let (with, added) = match (there.listed_as(name), entry) {
        (Some(Err(why)), _) => return Err(of_list(why.to_owned())),
        (Some(Ok(listed)), _) if own.is_some_and(|own| own.kind() != listed.kind()) => {
            return Err((
                DATA_ERROR,
                format!(
                    "servers.json has another server of this name; rename one of them, or have the hosts run that one: write \
                     \"shared\": true into its entry in {}, and `wrap @{name}` into the hosts' files",
                    path.display()
                ),
            ));
        }
        (Some(Ok(listed)), _) if listed.options().shared => return Ok(None),
        (None, Some(entry)) => (
            write::edited(text, &[(name.to_owned(), entry)]).map_err(of_list)?,
            Added::Server,
        ),
        _ => (text.to_owned(), Added::Shared),
    };
    let new = write::shared(&with, name, added).map_err(of_list)?;
    // What is written can be read again, or is not written.
    let read = understood(path, &new)?;
    let written = read.get(name);
    let written = written.map_err(|error| (error.code(), error.to_string()))?;
    let place = match written.kind() {
        Kind::Stdio { cwd: Some(cwd), .. } => cwd.display().to_string(),
        _ => "your home directory".to_owned(),
    };
    let what = match added {
        Added::Server => "added, and shared",
        Added::Shared => "shared",
    };
    Ok(Some(ListEdit {
        path: path.to_owned(),
        former: text.to_owned(),
        text: new,
        sentence: format!(
            "{name}: is {what}: all that run it see what the others do in it, and it runs in {place}"
        ),
    }))
}

fn undo(arguments: &Arguments) -> Result<u8, Failure> {
    let name = &arguments.name;
    let (path, text) = list()?;
    let records = Records::beside(&path).all();
    let records = records.map_err(|error| (SOFTWARE, error.to_string()))?;
    // One that can't be read is named by what takes the others back.
    let mut records: Vec<Record> = records.into_iter().flatten().collect();
    records.retain(|record| record.servers.iter().any(|one| one.shares(name)));
    let added = Added::of(&text, name);
    if records.is_empty() && added.is_none() {
        return Err((NO_INPUT, format!("`share` has not shared {name:?}")));
    }
    let mut code = 0;
    if !records.is_empty() {
        let listing = Listing {
            is_shared: true,
            ..Listing::default()
        };
        code = rewrite(arguments.how(), listing)?;
    } else if !arguments.yes && !arguments.dry_run {
        print(&format!(
            "{}\n  {name}: is no longer shared\n",
            path.display()
        ));
        if !confirm()? {
            return Ok(code);
        }
    }
    if let (Some(added), false) = (added, arguments.dry_run) {
        take_back(added, name, &records, (&path, &text))?;
    }
    Ok(code)
}

/// Takes back what servers.json has got, unless somebody else has to do with it. The hosts' files are
/// as they will be; `records` say which of them were given their own entries back.
fn take_back(
    added: Added,
    name: &str,
    records: &[Record],
    (path, text): (&Path, &str),
) -> Result<(), Failure> {
    let shown = path.display();
    let there = understood(path, text)?;
    let listed = there.listed_as(name).and_then(Result::ok);
    let stays = |why: &str| {
        warn(format_args!(
            "{shown}: {name:?} stays as it is there: {why}"
        ));
        Ok(())
    };
    let (mut is_known, mut is_bare) = (false, false);
    for (host, file) in files()? {
        let is_this = |record: &Record| record.file == file || record.given == file;
        let is_given_back = records.iter().any(is_this);
        let Ok(servers) = host.read_all(&file) else {
            return stays(&format!("{} can't be understood", file.display()));
        };
        for (_, own, server) in servers.unwrap_or_default() {
            let runs = convert::is_listed(host, &server, name);
            if runs && (added == Added::Server || is_given_back) {
                return stays(&format!("{host} runs it"));
            }
            if own != name || runs {
                continue;
            }
            let entry = shared_entry(host, &server, &there, name).ok().flatten();
            let own = entry.and_then(|entry| there.would_be(name, &entry).ok());
            is_known |= own.as_ref() == listed;
            // It may be the last copy of its variables.
            let is_same = own.as_ref().map(Entry::kind) == listed.map(Entry::kind);
            if added == Added::Server && is_given_back && !is_same {
                return stays(&format!("the entry in {} is another one", file.display()));
            }
            is_bare |= is_given_back && !is_wrapped(host, &file, name);
        }
    }
    if added == Added::Server && !is_known {
        return stays("somebody has edited it since, or no host's file has it");
    }
    let new = write::unshared(text, name, added);
    let new = new.map_err(|why| (DATA_ERROR, format!("{shown}: {why}")))?;
    understood(path, &new)?;
    write::replace(path, text, &new).map_err(|why| (CANT_CREATE, why))?;
    let what = match added {
        Added::Server => "is removed",
        Added::Shared => "is no longer shared",
    };
    print(&format!("{shown}\n  {name}: {what}\n"));
    if is_bare {
        warn(format_args!(
            "{name:?} is not wrapped now; `mcp-sessiond setup` wraps it"
        ));
    }
    Ok(())
}

/// Whether a host's file has a server of this name that runs by us.
fn is_wrapped(host: Host, file: &Path, name: &str) -> bool {
    let entries = entries_of(host, file).ok().flatten();
    let mut entries = entries.into_iter().flat_map(|all| all.entries);
    let own = entries.find(|entry| entry.name == name);
    own.is_none_or(|own| !matches!(own.state, EntryState::Wrappable))
}
