//! `mcp-sessiond share`: the servers of a name in hosts' files become one process for all of them.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum as _};
use mcp_sessiond_proto::paths;
use mcp_sessiond_proto::text::did_you_mean;
use serde_json::{Map, Value};

use super::import::{Failure, convert, list, understood};
use super::setup::{ListEdit, Listing, Rewrite, rewrite};
use crate::exit_code::{DATA_ERROR, NO_INPUT, SOFTWARE};
use crate::hosts::inspect::{EntryState, entries_of};
use crate::hosts::record::{Added, Record, Records};
use crate::hosts::{Host, is_called};
use crate::servers::{Kind, Servers, write};
use crate::ui::output::warn;

/// What stays in a host's own entry, since it is about what this host sees of the server.
const HOSTS_OWN: [&str; 3] = ["only", "without", "disabled"];

#[derive(Debug, Args)]
#[command(after_help = "\
Moves the server's entry from the files that hosts have of their user to `~/.config/mcp-sessiond/servers.json` with \
`\"shared\": true`, and has each of these hosts run it from there, by `mcp-sessiond wrap @NAME`, when it is reloaded. It shows what would change, and asks first. \
Then one process serves all hosts, windows and projects. Don't share a server that remembers a conversation (a browser, a terminal), or works \
in the directory of its host: each sees what the others do there, and it runs in your home directory, or in the entry's `cwd`.

`--undo` gives the hosts their own entries back, and takes away from servers.json what was put there, unless it was edited since or another \
host runs it.

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
    fn rewrite(&self, listing: Listing) -> Result<u8, Failure> {
        let how = Rewrite {
            host: None,
            only: Some(&self.name),
            yes: self.yes,
            dry_run: self.dry_run,
            undo: self.undo,
        };
        rewrite(how, listing)
    }
}

/// What a host has under the name.
struct Found {
    host: Host,
    file: PathBuf,
    /// What it is called in that.
    own: String,
    /// In the form of servers.json. None: it runs what that has.
    entry: Option<Map<String, Value>>,
}

fn share(arguments: &Arguments) -> Result<u8, Failure> {
    let name = &arguments.name;
    let (path, text) = list()?;
    let there = understood(&path, &text)?;
    let (mut found, code) = find(name, &there)?;
    // One that runs what is listed has nothing of its own to differ by.
    let kind = |one: &Found| {
        Some(
            there
                .would_be(name, one.entry.as_ref()?)
                .ok()?
                .kind()
                .clone(),
        )
    };
    let same = |one: &Found, other: &Found| match (kind(one), kind(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    let is_first = |one: &&Found| arguments.from.is_none_or(|from| from == one.host);
    let own = |one: &&Found| one.entry.is_some();
    let first = found.iter().filter(is_first).find(own);
    let Some(first) = first.or_else(|| found.iter().find(is_first)) else {
        let from = arguments.from.map(|from| from.to_string());
        return Err((
            NO_INPUT,
            format!("{} has no server {name:?}", from.unwrap_or_default()),
        ));
    };
    let (entry, place) = (first.entry.clone(), first.place(name));
    let differs: Vec<String> = found
        .iter()
        .filter(|one| !same(first, one))
        .map(|one| one.place(name))
        .collect();
    if let (Some(host), None) = (differs.first(), arguments.from) {
        return Err((
            DATA_ERROR,
            format!(
                "{name:?} is not the same server in {place} and {host}; `mcp-sessiond share {name} --from HOST` shares that of HOST, \
                 and leaves the others as they are"
            ),
        ));
    }
    for host in &differs {
        warn(format_args!(
            "{host} has another server of this name, which stays as it is"
        ));
    }
    found.retain(|one| !differs.contains(&one.place(name)));
    let edit = edit(name, entry, &there, (&path, &text))?;
    let entries = found.into_iter().map(|one| (one.file, one.own));
    let entries = entries.collect();
    Ok(arguments.rewrite(Listing { entries, edit })?.max(code))
}

impl Found {
    /// The host, and the project where it is a single one's.
    fn place(&self, name: &str) -> String {
        let project = self.own.strip_prefix(name).unwrap_or_default();
        format!("{}{project}", self.host)
    }
}

/// Looks for the server in the files of all hosts. Those that can't be shared stay as they are, and
/// are named; then the exit code says so.
fn find(name: &str, there: &Servers) -> Result<(Vec<Found>, u8), Failure> {
    let user = paths::user_directories()
        .ok_or_else(|| (NO_INPUT, "there is no home directory".to_owned()))?;
    let (mut found, mut others, mut code) = (Vec::new(), Vec::new(), 0);
    for host in Host::value_variants() {
        for file in host.files(&user) {
            let servers = host.read_all(&file).unwrap_or_else(|error| {
                warn(error);
                code = DATA_ERROR;
                None
            });
            for (own, server) in servers.unwrap_or_default() {
                if !is_called(&own, name) {
                    others.push(own);
                    continue;
                }
                let entry = match shared_entry(*host, &server, there, name) {
                    Ok(entry) => entry,
                    Err(why) => {
                        warn(format_args!("{host}: it stays as it is: {why}"));
                        code = DATA_ERROR;
                        continue;
                    }
                };
                found.push(Found {
                    host: *host,
                    file: file.clone(),
                    own,
                    entry,
                });
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

/// A host's server as servers.json would have it. None: it runs what that has.
fn shared_entry(
    host: Host,
    server: &Value,
    there: &Servers,
    name: &str,
) -> Result<Option<Map<String, Value>>, String> {
    let mut entry = match convert::converted(host, server) {
        Err(why) if why == convert::runs_listed(name) && there.listed_as(name).is_some() => {
            return Ok(None);
        }
        converted => converted?,
    };
    entry.retain(|field, _| !HOSTS_OWN.contains(&&**field));
    entry.insert("shared".to_owned(), true.into());
    there.would_be(name, &entry)?;
    Ok(Some(entry))
}

/// What servers.json needs so that the server is shared. None: nothing.
fn edit(
    name: &str,
    entry: Option<Map<String, Value>>,
    there: &Servers,
    (path, text): (&Path, &str),
) -> Result<Option<ListEdit>, Failure> {
    let of_list = |why: String| (DATA_ERROR, format!("{}: {why}", path.display()));
    let (what, new) = match (there.listed_as(name), entry) {
        (None, None) => return Err((NO_INPUT, format!("servers.json has no server {name:?}"))),
        (None, Some(entry)) => (
            Added::Server,
            write::edited(text, &[(name.to_owned(), entry)]),
        ),
        (Some(Err(why)), _) => return Err(of_list(why.to_owned())),
        (Some(Ok(listed)), entry) => {
            if let Some(entry) = entry {
                let own = there.would_be(name, &entry).map_err(of_list)?;
                if own.kind() != listed.kind() {
                    return Err((
                        DATA_ERROR,
                        format!(
                            "servers.json has another server of this name; rename one of them, or have the hosts run that one: write \
                             \"shared\": true into its entry in {}, and `wrap @{name}` into the hosts' files",
                            path.display()
                        ),
                    ));
                }
            }
            if listed.options().shared {
                return Ok(None);
            }
            (Added::Shared, write::shared(text, name))
        }
    };
    let new = new.map_err(of_list)?;
    // What is written can be read again, or is not written.
    let read = understood(path, &new)?;
    let written = read.get(name);
    let written = written.map_err(|error| (error.code(), error.to_string()))?;
    let place = match written.kind() {
        Kind::Stdio { cwd: Some(cwd), .. } => cwd.display().to_string(),
        _ => "your home directory".to_owned(),
    };
    let added = match what {
        Added::Server => "added, and shared",
        Added::Shared => "shared",
    };
    Ok(Some(ListEdit {
        path: path.to_owned(),
        former: text.to_owned(),
        text: new,
        what,
        sentence: format!(
            "{name}: is {added}: all that run it see what the others do in it, and it runs in {place}"
        ),
    }))
}

fn undo(arguments: &Arguments) -> Result<u8, Failure> {
    let name = &arguments.name;
    let (path, text) = list()?;
    let there = understood(&path, &text)?;
    let records = Records::beside(&path).all();
    let records = records.map_err(|error| (SOFTWARE, error.to_string()))?;
    // One that can't be read is named by what takes the others back.
    let records: Vec<Record> = records.into_iter().flatten().collect();
    let of_record = |record: &&Record| record.servers.iter().any(|one| one.is_run_from_list(name));
    let records: Vec<&Record> = records.iter().filter(of_record).collect();
    if records.is_empty() {
        return Err((
            NO_INPUT,
            format!("no host's file was changed so that it runs {name:?} from servers.json"),
        ));
    }
    let all = records.iter().flat_map(|record| &record.servers);
    let added = all.filter(|one| one.is_run_from_list(name));
    let edit = match added.filter_map(|one| one.added).min() {
        Some(what) => taken_back(what, name, &records, &there, (&path, &text))?,
        None => None,
    };
    let code = arguments.rewrite(Listing {
        entries: Vec::new(),
        edit,
    })?;
    // It was wrapped before only where that was not done by `setup`, whose record says what was before.
    let is_bare = |record: &Record| {
        let host = Host::from_str(&record.host, false).ok()?;
        let entries = entries_of(host, &record.file).ok()??.entries;
        let own = entries.iter().find(|entry| is_called(&entry.name, name))?;
        Some(matches!(own.state, EntryState::Wrappable))
    };
    if records
        .iter()
        .any(|record| is_bare(record).unwrap_or_default())
        && code == 0
        && !arguments.dry_run
    {
        warn(format_args!(
            "{name:?} is not wrapped now; `mcp-sessiond setup` wraps it"
        ));
    }
    Ok(code)
}

/// Takes back what servers.json has got, unless somebody else has to do with it.
fn taken_back(
    what: Added,
    name: &str,
    records: &[&Record],
    there: &Servers,
    (path, text): (&Path, &str),
) -> Result<Option<ListEdit>, Failure> {
    let stays = |why: &str| {
        warn(format_args!(
            "{}: {name:?} stays there: {why}",
            path.display()
        ));
        Ok(None)
    };
    let Some(listed) = there.listed_as(name) else {
        return Ok(None);
    };
    let is_as_written = |record: &&&Record| {
        let host = Host::from_str(&record.host, false).ok()?;
        let servers = host.all_members(&record.before).ok()?;
        let (_, server) = servers.into_iter().find(|(own, _)| is_called(own, name))?;
        let entry = shared_entry(host, &server, there, name).ok()??;
        Some(there.would_be(name, &entry).ok().as_ref() == listed.ok())
    };
    if what == Added::Server
        && !records
            .iter()
            .any(|record| is_as_written(&record).unwrap_or_default())
    {
        return stays("somebody has edited it since");
    }
    let user = paths::user_directories();
    for host in Host::value_variants() {
        for file in user.iter().flat_map(|user| host.files(user)) {
            let is_taken_back = |record: &&Record| record.given == file || record.file == file;
            if records.iter().any(is_taken_back) {
                continue;
            }
            let servers = host.read_all(&file).ok().flatten().unwrap_or_default();
            let runs = |(_, server): &(String, Value)| {
                convert::converted(*host, server)
                    .is_err_and(|why| why == convert::runs_listed(name))
            };
            if servers.iter().any(runs) {
                return stays(&format!("{host} runs it, too"));
            }
        }
    }
    let new = write::without(text, name, what);
    let new = new.map_err(|why| (DATA_ERROR, format!("{}: {why}", path.display())))?;
    understood(path, &new)?;
    let sentence = match what {
        Added::Server => format!("{name}: is removed"),
        Added::Shared => format!("{name}: is no longer shared"),
    };
    Ok(Some(ListEdit {
        path: path.to_owned(),
        former: text.to_owned(),
        text: new,
        what,
        sentence,
    }))
}
