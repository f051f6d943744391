//! `mcp-sessiond setup`: puts `wrap` in front of the servers in hosts' files, and takes it away
//! again.

mod display;
#[cfg(test)]
mod tests;
mod undo;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum as _};
use clap_complete::ArgValueCandidates;
use mcp_sessiond_proto::paths::{self, UserDirectories};
use mcp_sessiond_proto::text::did_you_mean;
use serde::Serialize;
use serde_json::Value;

use self::display::{display, redacted_command};
use crate::completion;
use crate::exit_code::{CANT_CREATE, DATA_ERROR, NO_INPUT, SOFTWARE, USAGE};
use crate::hosts::Host;
use crate::hosts::edit::{body, with_body};
use crate::hosts::entries::{self, Form, form, own_words};
use crate::hosts::executable::Executable;
use crate::hosts::file::{FileError, HostFile};
use crate::hosts::listed::{expect_listed, list};
use crate::hosts::members::{Server, in_settings, servers, tree};
use crate::hosts::record::{Record, Records, Wrapped};
use crate::hosts::tree::Node;
use crate::servers::{Servers, write};
use crate::ui::output::{print, to_json, warn, warn_list};
use crate::ui::table::{columns, lines_within};

#[derive(Debug, Args)]
#[command(after_help = "\
Puts `mcp-sessiond wrap --` in front of each server's command in a host's file, shows what it would change, and asks first. Without HOST \
it does so for each host that has a file here, except Codex, where only a name keeps a server. Everything else in the file \
stays as it is, byte for byte: comments, order, line endings. Servers with a URL stay as they are. A second run changes nothing.

It keeps a copy of the file, which nobody else can read, in `~/.config/mcp-sessiond/setup`. `--undo` restores the file; if somebody has edited it since, it removes only what `setup` has added. With `--only` it does so for that server.

Exit codes: 0; 64 bad usage; 65 a file can't be edited safely, and stays as it is; 66 no such host or server here; 73 a file could not be \
written, and is as it was.

Examples:
  mcp-sessiond setup
  mcp-sessiond setup claude-desktop --only browser
  mcp-sessiond setup claude --file .mcp.json
  mcp-sessiond setup --undo")]
pub(crate) struct Arguments {
    /// The host; all that have a file here, by default
    #[arg(add = ArgValueCandidates::new(completion::hosts))]
    host: Option<Host>,
    /// Another file of this host, such as a project's
    #[arg(long, value_name = "PATH", requires = "host")]
    file: Option<PathBuf>,
    /// Only the server of this name; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Don't ask
    #[arg(long)]
    yes: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Undo what `setup` has done
    #[arg(long)]
    undo: bool,
    /// Print JSON: host, file, server, outcome, why
    #[arg(long)]
    json: bool,
}

/// What becomes of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// It is wrapped now.
    Wrapped,
    /// It was wrapped before.
    Unchanged,
    /// It can't be, or need not be.
    Skipped,
    /// It is as it was before `setup`.
    Unwrapped,
}

/// What becomes of a server of a host's file.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Line {
    host: String,
    file: PathBuf,
    server: String,
    /// What it is called where it stands.
    #[serde(skip)]
    own: String,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// How the command begins. Arguments may be secrets.
    #[serde(skip)]
    command: String,
    /// The same of what it becomes.
    #[serde(skip)]
    becomes: String,
}

/// What becomes of the entries of a file.
#[derive(Debug)]
enum Change {
    /// `wrap --` is put before their commands.
    Wrap,
    /// They run servers of `servers.json`.
    List(Listing),
}

/// Entries that run the servers of their names in `servers.json` from now on, or no longer.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Each in its file.
    pub(crate) entries: Vec<(PathBuf, String)>,
    /// What becomes of `servers.json` before that.
    pub(crate) edit: Option<ListEdit>,
    /// Whether it is done, or taken back, by `share`.
    pub(crate) is_shared: bool,
}

/// An edit of `servers.json`.
#[derive(Debug)]
pub(crate) struct ListEdit {
    pub(crate) path: PathBuf,
    pub(crate) former: String,
    pub(crate) text: String,
    /// It is said so, below the file's name.
    pub(crate) sentence: String,
}

impl Change {
    fn edit(&self) -> Option<&ListEdit> {
        match self {
            Self::Wrap => None,
            Self::List(listing) => listing.edit.as_ref(),
        }
    }
}

/// What is to be done to a file.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    host: Host,
    file: HostFile,
    /// What it will have.
    text: String,
    lines: Vec<Line>,
    /// What will be remembered of it. None, or without servers: nothing.
    record: Option<Record>,
    /// Servers that would still run by us when all is taken back.
    left: Vec<String>,
}

impl Plan {
    fn has_changes(&self) -> bool {
        self.text != self.file.text
    }

    /// What an undo has to leave to people.
    fn left(&self) -> Option<String> {
        if self.left.is_empty() {
            return None;
        }
        let (servers, file) = (self.left.join(", "), self.file.path.display());
        Some(format!(
            "{file}: still runs mcp-sessiond for {servers}, since somebody has changed that; edit it by hand. The copy of the file is kept"
        ))
    }
}

type Failure = (u8, String);

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    ExitCode::from(
        set_up(arguments, &Change::Wrap).unwrap_or_else(|(code, sentence)| {
            warn(sentence);
            code
        }),
    )
}

/// How a host is rewritten.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rewrite<'a> {
    /// None: all that have a file here.
    pub(crate) host: Option<Host>,
    /// The only server that it is about.
    pub(crate) only: Option<&'a str>,
    /// Whether nobody is asked.
    pub(crate) yes: bool,
    /// Whether it is only shown.
    pub(crate) dry_run: bool,
    /// Whether it is taken back, with all that `setup` has done to the host's files.
    pub(crate) undo: bool,
}

/// Has hosts run servers of `servers.json` in the place of these of their own.
///
/// # Errors
/// The exit code, and a sentence.
pub(crate) fn rewrite(rewrite: Rewrite<'_>, listing: Listing) -> Result<u8, Failure> {
    let Rewrite {
        host,
        only,
        yes,
        dry_run,
        undo,
    } = rewrite;
    let arguments = Arguments {
        host,
        file: None,
        only: only.map(str::to_owned).into_iter().collect(),
        yes,
        dry_run,
        undo,
        json: false,
    };
    set_up(&arguments, &Change::List(listing))
}

fn set_up(arguments: &Arguments, change: &Change) -> Result<u8, Failure> {
    let servers = Servers::usual_path().map_err(|error| (error.code(), error.to_string()))?;
    let records = Records::beside(&servers);
    let executable = Executable::that_stays().map_err(|why| (SOFTWARE, why))?;
    let planned = || match arguments.undo {
        true => undo::plans(arguments, change, &records),
        false => plans(arguments, change, &executable, &records),
    };
    let (plans, mut code) = planned()?;
    let edit = change.edit();
    if !arguments.only.is_empty() && matches!(change, Change::Wrap) {
        check_names(&arguments.only, &plans)?;
    }
    if !arguments.json {
        print_or_fail(&lines_within(
            &display(&plans, edit, &executable),
            columns(),
        ))?;
    }
    let (mut plans, unchanged): (Vec<_>, Vec<_>) = plans
        .into_iter()
        .partition(|plan| plan.has_changes() || arguments.undo);
    let has_changes = edit.is_some() || plans.iter().any(Plan::has_changes);
    let mut done = 0;
    let mut asking = BTreeSet::new();
    if arguments.undo && !arguments.dry_run && plans.is_empty() {
        records.clean();
    }
    let is_dry = arguments.dry_run || !(has_changes || arguments.undo && !plans.is_empty());
    if !is_dry {
        // JSON is for programs: nobody has seen what they would agree to.
        if has_changes && arguments.json && !arguments.yes {
            return Err((
                USAGE,
                "--json asks no questions; add --yes or --dry-run".to_owned(),
            ));
        }
        if has_changes && !arguments.yes && !confirm()? {
            warn("nothing was changed");
            return Ok(code);
        }
        // Another one may have run while somebody was asked.
        let lock = records
            .lock()
            .map_err(|error| (CANT_CREATE, error.to_string()))?;
        records.sweep();
        let (now, _) = planned()?;
        if !now
            .iter()
            .filter(|plan| plan.has_changes() || arguments.undo)
            .eq(&plans)
        {
            return Err((
                CANT_CREATE,
                "a file was changed meanwhile; nothing was written, run this again".to_owned(),
            ));
        }
        if !arguments.undo {
            executable.settle().map_err(|why| (CANT_CREATE, why))?;
            // No host's file names what is not there.
            if let Some(ListEdit {
                path, former, text, ..
            }) = edit
            {
                write::replace(path, former, text).map_err(|why| (CANT_CREATE, why))?;
                done += 1;
            }
        }
        for plan in &mut plans {
            if let Err(why) = plan.apply(&records, arguments.undo) {
                warn(format_args!("{}: {why}", plan.file.path.display()));
                plan.lines.clear();
                code = CANT_CREATE;
            } else {
                done += usize::from(plan.has_changes());
                if plan.has_changes() && plan.host.asks_again {
                    asking.insert(plan.host.title);
                }
                if let Some(left) = plan.left() {
                    warn(left);
                    code = DATA_ERROR;
                }
            }
        }
        drop(lock);
    }
    let files = if done == 1 {
        "1 file was changed."
    } else {
        &format!("{done} files were changed.")
    };
    if arguments.json {
        let lines: Vec<&Line> = plans
            .iter()
            .chain(&unchanged)
            .flat_map(|plan| &plan.lines)
            .collect();
        print_or_fail(&to_json(&lines))?;
    } else if done > 0 {
        print_or_fail(&if arguments.undo {
            format!("{files} Restart the host, or reload its servers.\n")
        } else {
            let undo = match (change, &arguments.only[..]) {
                (Change::List(_), [name]) if name.contains(char::is_whitespace) => {
                    format!("share {name:?} --undo")
                }
                (Change::List(_), [name]) => format!("share {name} --undo"),
                _ => "setup --undo".to_owned(),
            };
            let offer = match change {
                Change::Wrap => {
                    "One more server of the host's, with the command `mcp-sessiond mcp`, lets the model restart a server that hangs.\n"
                }
                Change::List(_) => "",
            };
            format!(
                "{files} Restart the host, or reload its servers, so that it restarts them. `mcp-sessiond status` shows them then, \
                 and `mcp-sessiond {undo}` takes all of it back.\n{offer}"
            )
        })?;
        for host in asking {
            print_or_fail(&format!(
                "{host} may ask you again to approve these servers, since their entries have changed.\n"
            ))?;
        }
    } else if !has_changes && code == 0 {
        print_or_fail("There is nothing to change.\n")?;
    } else if arguments.dry_run {
        print_or_fail("Nothing was changed.\n")?;
    }
    Ok(code)
}

fn print_or_fail(text: &str) -> Result<(), Failure> {
    let printed = print(text);
    if printed == ExitCode::SUCCESS {
        Ok(())
    } else {
        Err((SOFTWARE, "could not print".to_owned()))
    }
}

/// Asks whoever sits at the terminal.
pub(crate) fn confirm() -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err((
            USAGE,
            "standard input is not a terminal; pass --yes to answer yes".to_owned(),
        ));
    }
    let mut answer = String::new();
    let asked = write!(io::stdout(), "Change this? [y/N] ")
        .and_then(|()| io::stdout().flush())
        .and_then(|()| io::stdin().read_line(&mut answer));
    asked.map_err(|error| (SOFTWARE, format!("could not ask: {error}")))?;
    Ok(["y", "yes"].contains(&&*answer.trim().to_lowercase()))
}

fn user_directories() -> Result<UserDirectories, Failure> {
    paths::user_directories().ok_or_else(|| (NO_INPUT, "there is no home directory".to_owned()))
}

/// What is to be done to which files, and the exit code so far.
fn plans(
    arguments: &Arguments,
    change: &Change,
    executable: &Executable,
    records: &Records,
) -> Result<(Vec<Plan>, u8), Failure> {
    let user = user_directories()?;
    let usual = || {
        Host::value_variants()
            .iter()
            .copied()
            .filter(|host| !host.shares)
    };
    let all = || match change {
        Change::Wrap => usual().collect::<Vec<_>>(),
        Change::List(_) => Host::value_variants().to_vec(),
    };
    let hosts = arguments.host.map_or_else(all, |host| vec![host]);
    let (mut plans, mut code, mut places) = (Vec::new(), 0, Vec::new());
    for host in hosts {
        let mut files = arguments
            .file
            .as_ref()
            .map_or_else(|| host.files(&user), |file| vec![file.clone()]);
        if let Change::List(listing) = change {
            files.retain(|file| listing.entries.iter().any(|(path, _)| path == file));
        }
        for path in files {
            match plan(
                host,
                &path,
                (change, &arguments.only),
                &executable.path,
                records,
            ) {
                // Two hosts may share a file, by a symbolic link, too.
                Ok(Some(plan))
                    if plans
                        .iter()
                        .any(|other: &Plan| other.file.path == plan.file.path) => {}
                Ok(Some(plan)) => plans.push(plan),
                Ok(None) => places.push(path.display().to_string()),
                Err(why) => {
                    warn(format_args!("{}: {why}; it stays as it is", path.display()));
                    code = DATA_ERROR;
                }
            }
        }
        if let (None, Change::Wrap, Some(path)) = (&arguments.file, change, host.settings(&user)) {
            plans.extend(settings(host, &path, &arguments.only));
        }
    }
    if arguments.host.is_none() && !arguments.json && matches!(change, Change::Wrap) {
        let sharing = Host::value_variants().iter().filter(|host| host.shares);
        let files =
            sharing.flat_map(|host| host.files(&user).into_iter().map(move |file| (host, file)));
        for (host, file) in files.filter(|(_, file)| file.is_file()) {
            warn(format_args!(
                "{}: {} is left out, since nothing would be kept there; `mcp-sessiond setup {host}` wraps its servers all the same",
                file.display(),
                host.title
            ));
        }
    }
    if plans.is_empty() && code == 0 && change.edit().is_none() {
        warn("no host's file was found; these were looked for:");
        warn_list(&places);
        return Err((
            NO_INPUT,
            "name another file: `mcp-sessiond setup HOST --file PATH`".to_owned(),
        ));
    }
    Ok((plans, code))
}

/// Why servers under `mcp.servers` are not changed.
const IN_SETTINGS: &str =
    "it is under `mcp.servers`, where `setup` changes nothing; move it to VS Code's mcp.json";

fn check_names(names: &[String], plans: &[Plan]) -> Result<(), Failure> {
    let lines = || plans.iter().flat_map(|plan| &plan.lines);
    match names
        .iter()
        .find(|name| !lines().any(|line| line.server == **name || line.own == **name))
    {
        Some(name) => {
            let meant = did_you_mean(name, lines().map(|line| &*line.own));
            Err((
                NO_INPUT,
                format!("there is no server {name:?} in these files{meant}"),
            ))
        }
        None => Ok(()),
    }
}

/// Lines about servers of a file that are under `mcp.servers`, and stay as they are.
fn lines_in_settings(
    host: Host,
    path: &Path,
    tree: Option<&Node>,
    only: &[String],
) -> Result<Vec<Line>, String> {
    let line = |own: &str| Line {
        host: host.to_string(),
        file: path.to_owned(),
        server: own.to_owned(),
        own: own.to_owned(),
        outcome: Outcome::Skipped,
        why: Some(IN_SETTINGS.to_owned()),
        command: String::new(),
        becomes: String::new(),
    };
    let names = in_settings(host, tree)?.into_iter();
    let is_meant = |own: &&str| only.is_empty() || only.iter().any(|only| only == own);
    Ok(names.filter(is_meant).map(line).collect())
}

/// The servers in a host's file of settings. What is wrong in it otherwise is no matter of ours.
fn settings(host: Host, path: &Path, only: &[String]) -> Option<Plan> {
    let file = HostFile::read(path).ok()??;
    let tree = tree(host, body(&file.text)).ok()?;
    let lines = lines_in_settings(host, path, tree.as_ref(), only).ok()?;
    (!lines.is_empty()).then(|| Plan {
        host,
        text: file.text.clone(),
        file,
        lines,
        record: None,
        left: Vec::new(),
    })
}

/// What is to be done to a file. None: there is no such file.
fn plan(
    host: Host,
    path: &Path,
    (change, only): (&Change, &[String]),
    executable: &str,
    records: &Records,
) -> Result<Option<Plan>, String> {
    let Some(file) = HostFile::read(path).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let (mut edits, mut lines, mut wrapped, mut renewed) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // What each server that is wrapped now is called in the file, and where it stands there.
    let mut owns: Vec<(String, String)> = Vec::new();
    let body = body(&file.text);
    let tree = tree(host, body)?;
    for Server { name, own, entry } in servers(host, tree.as_ref())? {
        let is_meant = match change {
            Change::Wrap => only.is_empty() || only.iter().any(|only| *only == name || only == own),
            Change::List(Listing { entries, .. }) => {
                entries.iter().any(|one| (&*one.0, &one.1) == (path, &name))
            }
        };
        if !is_meant {
            continue;
        }
        let form = form(host, entry).map_err(|why| format!("the server {name:?}: {why}"))?;
        let command = redacted_command(&form.words());
        let (own_words, becomes) = match change {
            Change::Wrap => (own_words(own), format!(" {command}")),
            Change::List(_) => (vec!["wrap"], format!(" @{own}")),
        };
        let becomes = format!("{executable} {}{becomes}", own_words.join(" "));
        let has_made_arguments = matches!(
            form,
            Form::Command {
                arguments: None,
                ..
            }
        );
        let (outcome, why) = match (&form, change) {
            (Form::NotWrappable(why), _) => (Outcome::Skipped, Some((*why).to_owned())),
            (form, Change::List(_)) => {
                let at_name = format!("@{own}");
                if form.is_ours(executable) && form.words()[1..] == ["wrap", &at_name] {
                    (Outcome::Unchanged, None)
                } else {
                    edits.extend(list((host, body), entry, form, (executable, own))?);
                    wrapped.push(Wrapped {
                        name: name.clone(),
                        executable: executable.to_owned(),
                        has_made_arguments,
                        listed: Some(own.to_owned()),
                        is_shared: matches!(change, Change::List(listing) if listing.is_shared),
                    });
                    (Outcome::Wrapped, None)
                }
            }
            (form, Change::Wrap) if form.is_ours(executable) => match form.renew(executable) {
                Some(edit) => {
                    edits.push(edit);
                    renewed.push(name.clone());
                    let why = "is wrapped by an executable that is gone, and will be by this one";
                    (Outcome::Wrapped, Some(why.to_owned()))
                }
                None => (Outcome::Unchanged, None),
            },
            (form, Change::Wrap) => {
                edits.extend(form.wrap(host, body, executable, own));
                owns.push((name.clone(), own.to_owned()));
                wrapped.push(Wrapped {
                    name: name.clone(),
                    executable: executable.to_owned(),
                    has_made_arguments,
                    listed: None,
                    is_shared: false,
                });
                (Outcome::Wrapped, None)
            }
        };
        lines.push(Line {
            host: host.to_string(),
            file: path.to_owned(),
            server: name,
            own: own.to_owned(),
            outcome,
            why,
            command,
            becomes,
        });
    }
    lines.extend(lines_in_settings(host, path, tree.as_ref(), only)?);
    let text = with_body(&file.text, edits);
    if text == file.text {
        return Ok(Some(Plan {
            host,
            text,
            file,
            lines,
            record: None,
            left: Vec::new(),
        }));
    }
    if let Some(why) = file.hindrance() {
        return Err(why);
    }
    let found = servers(host, tree.as_ref())?;
    let expect = |name: &str, entry: &mut Value| {
        let is_this = |one: &&Wrapped| one.name == name;
        let listed = wrapped
            .iter()
            .find(is_this)
            .and_then(|one| one.listed.as_ref());
        let plain = found.iter().find(|one| one.name == name);
        if let (Some(listed), Some(plain)) = (listed, plain) {
            // A name that is there twice was refused.
            let _ = expect_listed((host, body), plain.entry, entry, (executable, listed));
        } else if let Some((_, own)) = owns.iter().find(|(wrapped, _)| wrapped == name) {
            entries::expect_wrapped(host, entry, executable, own);
        } else if renewed.iter().any(|one| one == name) {
            entries::expect_renewed(host, entry, executable);
        }
    };
    check(host, &file.text, &text, expect)?;
    let former = records
        .get(&host.to_string(), &file.path)
        .map_err(|error| error.to_string())?;
    // As it would be without any of us, also where somebody has edited it since.
    let (before, mut known) = match former {
        Some(former) if former.after == file.text => (former.before, former.servers),
        Some(former) => (
            undo::unwrapped(host, &file.text, &former.before, (&former.servers, &[]))?,
            former.servers,
        ),
        None => (file.text.clone(), Vec::new()),
    };
    known.retain(|known| !wrapped.iter().any(|one| one.name == known.name));
    for known in &mut known {
        if renewed.contains(&known.name) {
            executable.clone_into(&mut known.executable);
        }
    }
    known.extend(wrapped);
    let record = Record {
        host: host.to_string(),
        file: file.path.clone(),
        given: path.to_owned(),
        before,
        after: text.clone(),
        servers: known,
    };
    Ok(Some(Plan {
        host,
        text,
        file,
        lines,
        record: Some(record),
        left: Vec::new(),
    }))
}

/// Whether the text says what it said, but for what is expected of each server: as its host will
/// read it.
fn check(
    host: Host,
    former: &str,
    text: &str,
    expect: impl Fn(&str, &mut Value),
) -> Result<(), String> {
    let read = |text: &str| host.all_members(body(text));
    let (mut expected, mut found) = (read(former)?, read(text)?);
    for (name, entry) in &mut expected {
        expect(name, entry);
    }
    for (_, entry) in expected.iter_mut().chain(&mut found) {
        entries::without_empty_arguments(host, entry);
    }
    if found == expected {
        return Ok(());
    }
    Err("it can't be edited without changing more than the commands; edit it by hand".to_owned())
}

impl Plan {
    /// Does it. The record comes first, so that a kill in between leaves nothing that can't be
    /// taken back.
    fn apply(&self, records: &Records, is_undo: bool) -> Result<(), String> {
        if let (false, Some(record)) = (is_undo, &self.record) {
            records
                .put(record)
                .map_err(|error| FileError::Unwritten(error).to_string())?;
        }
        if self.has_changes() {
            self.file
                .replace(&self.text)
                .map_err(|error| error.to_string())?;
        } else {
            self.file.sweep();
        }
        if let (true, true, Some(record)) = (is_undo, self.left.is_empty(), &self.record) {
            let kept = match record.servers[..] {
                [] => records.remove(record),
                _ => records.put(record),
            };
            kept.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}
