//! What `status` lists: a row for each server, and what has to be said beside the rows.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anstyle::Style;
use clap::ValueEnum as _;
use mcp_sessiond_process as process;
use mcp_sessiond_proto::{ServiceName, paths};
use mcp_sessiond_proxy::unkept::{self, Unkept};

use super::alike;
use super::parts::{Trouble, Unready};
use super::served::Served;
use super::{Inventory, LostServer, NotRunning, Server, State};
use crate::calls::Failure;
use crate::hosts::Host;
use crate::hosts::names::EntryNames;
use crate::hosts::record::Records;
use crate::servers::Servers;
use crate::service_manager;
use crate::ui::table::{self, BAD, DOUBTFUL, GOOD, bytes, duration, paint, printable};

/// Columns of what is printed, unless it is to be wide.
pub(crate) const COLUMNS: usize = 80;

/// The columns, and behind them those that are shown when it is to be wide.
const HEADING: [&str; 12] = [
    "name",
    "host",
    "state",
    "since",
    "restarts",
    "memory",
    "pid",
    "age",
    "program",
    "session",
    "keeper",
    "last error",
];
const NARROW: usize = 6;
/// The column of the state.
const STATE: usize = 2;

/// Characters of a directory that are shown, unless it is to be wide: the most with which the table
/// fits. Without room for a few, there is none.
const DIRECTORY_MAX: [usize; 5] = [40, 30, 20, 12, 0];

/// Everything that is listed.
pub(crate) struct Listing {
    /// What keepers hold.
    pub(crate) inventory: Inventory,
    pub(crate) others: Others,
}

/// What becomes of a server that could not be started.
pub(crate) const TRIED_AGAIN: &str = "mcp-sessiond tries again when its host connects again";

/// Servers that no keeper holds.
#[derive(Default)]
pub(crate) struct Others {
    /// What `serve` serves and no keeper holds: those that speak HTTP themselves, and programs for
    /// which no client has a session.
    pub(crate) served: Vec<Served>,
    /// Those that are not kept, or could not be started.
    pub(crate) unkept: Vec<Unkept>,
}

impl Listing {
    /// Asks the daemon, and every keeper.
    ///
    /// # Errors
    /// When there is no runtime directory that could be looked into.
    pub(crate) async fn read() -> Result<Self, Failure> {
        Self::read_with(&mut EntryNames::default()).await
    }

    /// The same, with what was read of hosts' files before.
    ///
    /// # Errors
    /// When there is no runtime directory that could be looked into.
    pub(crate) async fn read_with(names: &mut EntryNames) -> Result<Self, Failure> {
        let inventory = Inventory::read_with(names).await?;
        let notes = unkept::list(inventory.directory.path());
        let mut served = Vec::new();
        for note in &notes {
            served.extend(Served::of(note, inventory.connection.as_ref()).await);
        }
        let is_kept = |service: &ServiceName| {
            let mut servers = inventory.servers.iter();
            servers.any(|server| server.service.as_ref() == Some(service))
        };
        served.retain(|one| one.is_upstream() || !is_kept(&one.service));
        let unkept = notes
            .into_iter()
            .filter(|note| note.service.is_none())
            .collect();
        Ok(Self {
            inventory,
            others: Others { served, unkept },
        })
    }

    /// Whether there is nothing to list.
    pub(crate) fn is_empty(&self) -> bool {
        let Others { served, unkept } = &self.others;
        let Inventory {
            servers,
            unready,
            not_running,
            ..
        } = &self.inventory;
        servers.is_empty()
            && not_running.is_empty()
            && unready.is_empty()
            && served.is_empty()
            && unkept.is_empty()
    }

    /// What is wrong about there being no daemon.
    pub(crate) fn daemon_fault(&self) -> Option<String> {
        let inventory = &self.inventory;
        let failure = inventory.failure.as_ref()?;
        if !inventory.has_no_daemon() {
            return Some(failure.to_string());
        }
        let is_ours = paths::derived().is_ok_and(|derived| derived == inventory.directory.path());
        if is_ours && service_manager::installed().is_some() {
            return Some(format!(
                "{failure}, although the service is installed; see `mcp-sessiond doctor`"
            ));
        }
        if !inventory.servers.is_empty() {
            let sentence = "no daemon runs; what is kept goes on without it, and the next `mcp-sessiond wrap` starts one";
            return Some(sentence.to_owned());
        }
        let sentence = "no daemon runs; see `mcp-sessiond doctor`";
        (!self.others.unkept.is_empty()).then(|| sentence.to_owned())
    }

    /// What has to be said beside the rows, or where there are none.
    pub(crate) fn notes(&self) -> Vec<String> {
        let Self { inventory, others } = self;
        let notes = inventory
            .servers
            .iter()
            .filter_map(|server| note(server, inventory.connection.is_some()));
        let why = others.unkept.iter().map(|unkept| {
            let Unkept {
                process,
                program,
                why,
                has_failed,
                ..
            } = unkept;
            let pid = process.pid;
            match has_failed {
                true => format!("{program} (pid {pid}) can't be used: {why}; {TRIED_AGAIN}"),
                false => format!("{program} (pid {pid}) is not kept: {why}"),
            }
        });
        let unready = inventory.unready.iter().filter_map(Unready::fault);
        let unready = unready.map(|(what, fix)| format!("{what}; {fix}"));
        let upstreams = others.served.iter().filter(|one| one.is_upstream());
        let upstreams = upstreams.map(Served::note);
        let lost = inventory.losses.iter().map(LostServer::sentence);
        let alike = alike::faults(&inventory.servers).into_iter();
        let alike = alike.map(|(what, fix)| format!("{what}; {fix}"));
        let nothing = (self.is_empty() && self.daemon_fault().is_none()).then(nothing);
        nothing
            .into_iter()
            .chain(notes)
            .chain(unready)
            .chain(upstreams)
            .chain(why)
            .chain(lost)
            .chain(alike)
            .map(|note| printable(&note))
            .collect()
    }

    /// The rows, those of the kept servers first, in their order, for a table of so many columns;
    /// none: it is to be wide.
    pub(crate) fn rows(&self, width: Option<usize>) -> Vec<Vec<String>> {
        let servers: Vec<&Server> = self.inventory.servers.iter().collect();
        let others = Rest {
            not_running: &self.inventory.not_running,
            unready: &self.inventory.unready,
            others: &self.others,
        };
        fitting(&servers, others, heading(width.is_none()), width)
    }

    /// The rows under their heading, in so many columns; none: it is to be wide. Unless it is, the
    /// sessions of a service have one row for each server.
    pub(crate) fn table(&self, width: Option<usize>) -> String {
        let mut rows = self.rows(width);
        if width.is_some() {
            join_sessions(&self.inventory.servers, &mut rows);
        }
        table(&rows, width)
    }
}

/// Joins the rows of servers that differ in their sessions of one service alone. The servers are in
/// order of their names.
fn join_sessions(servers: &[Server], rows: &mut Vec<Vec<String>>) {
    let is_another = |one: &Server, other: &Server| {
        one.service.is_some() && one.service == other.service && one.server == other.server
    };
    let rest = rows.split_off(servers.len());
    let mut own = std::mem::take(rows).into_iter();
    for same in servers.chunk_by(is_another) {
        let mut of_same = own.by_ref().take(same.len());
        let Some(mut row) = of_same.next() else { break };
        of_same.for_each(drop);
        if let [first, .., _] = same {
            let used = same.iter().find(|server| server.state == State::InUse);
            let sum = |of: fn(&Server) -> Option<u64>| same.iter().filter_map(of).sum::<u64>();
            row[0] = format!("{} ({} sessions)", row[0], same.len());
            row[STATE] = used.unwrap_or(first).state.as_str().to_owned();
            let since = same.iter().filter_map(|server| server.since_ms).max();
            row[3] = since.map_or_else(|| "-".to_owned(), duration);
            row[4] = sum(|server| server.restarts.map(u64::from)).to_string();
            row[5] = bytes(sum(|server| server.memory));
        }
        rows.push(row);
    }
    rows.extend(rest);
}

/// What is said where nothing is listed: what `setup` has done already is no advice.
fn nothing() -> String {
    let records = Servers::usual_path().map(|servers| Records::beside(&servers).all());
    let records = records.ok().and_then(Result::ok).unwrap_or_default();
    let titles: BTreeSet<&str> = records
        .iter()
        .flatten()
        .filter_map(|record| Some(Host::from_str(&record.host, false).ok()?.title))
        .collect();
    if titles.is_empty() {
        return "No server is kept now. To wrap the servers of your hosts, run `mcp-sessiond setup`."
            .to_owned();
    }
    let titles = titles.into_iter().collect::<Vec<_>>().join(", ");
    format!(
        "No server is kept now. `mcp-sessiond setup` has wrapped servers of {titles}: they are kept once that host has started them, so restart it, or reload its servers."
    )
}

/// The columns.
pub(crate) fn heading(is_wide: bool) -> &'static [&'static str] {
    if is_wide {
        &HEADING
    } else {
        &HEADING[..NARROW]
    }
}

/// How a cell is painted; none: not at all.
pub(crate) fn style(column: usize, cell: &str) -> Option<Style> {
    match (column, cell) {
        (STATE, "in use") => Some(GOOD),
        (STATE, "silent" | "not kept" | "failed") => Some(BAD),
        (STATE, _) => Some(DOUBTFUL),
        _ => None,
    }
}

/// What has to be said about a server beside its line.
fn note(server: &Server, daemon_answers: bool) -> Option<String> {
    server
        .fault(daemon_answers)
        .map(|(what, fix)| format!("{what}; {fix}"))
}

/// What is listed behind the servers that keepers hold.
#[derive(Clone, Copy)]
struct Rest<'a> {
    not_running: &'a [NotRunning],
    unready: &'a [Unready],
    others: &'a Others,
}

/// The rows of these servers alone.
fn rows_of(servers: &[&Server]) -> Vec<Vec<String>> {
    let rest = Rest {
        not_running: &[],
        unready: &[],
        others: &Others::default(),
    };
    fitting(servers, rest, heading(false), Some(COLUMNS))
}

/// Shows these servers to whoever reads the complaints.
pub(crate) fn to_stderr(servers: &[&Server]) {
    let rows = rows_of(servers);
    let _ = anstream::stderr()
        .lock()
        .write_all(table(&rows, Some(COLUMNS)).as_bytes());
}

/// Shows these servers, and at the end of each line the word that is its own: the pid of its keeper.
pub(crate) fn to_stderr_with_words(servers: &[&Server]) {
    let mut rows = rows_of(servers);
    for (row, server) in rows.iter_mut().zip(servers) {
        row.truncate(NARROW - 2);
        row.extend(server.keeper_pid.map(|keeper| keeper.to_string()));
    }
    let heading = [&HEADING[..NARROW - 2], &["word"]].concat();
    let text = table::fitted(&heading, &rows, Some(COLUMNS), painted);
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

fn painted(column: usize, cell: &str) -> String {
    match style(column, cell) {
        Some(style) => paint(style, cell),
        None => cell.to_owned(),
    }
}

fn table(rows: &[Vec<String>], width: Option<usize>) -> String {
    table::fitted(heading(width.is_none()), rows, width, painted)
}

/// The rows with as much of each directory as fits.
fn fitting(
    servers: &[&Server],
    rest: Rest<'_>,
    heading: &[&str],
    width: Option<usize>,
) -> Vec<Vec<String>> {
    let Some(width) = width else {
        return rows(servers.iter().copied(), rest, None);
    };
    let of = |most| rows(servers.iter().copied(), rest, Some(most));
    let fits = |rows: &Vec<Vec<String>>| table::width(heading, rows) <= width;
    let [.., least] = DIRECTORY_MAX;
    DIRECTORY_MAX
        .into_iter()
        .map(of)
        .find(fits)
        .unwrap_or_else(|| of(least))
}

fn rows<'a>(
    servers: impl Iterator<Item = &'a Server>,
    Rest {
        not_running,
        unready,
        others,
    }: Rest<'_>,
    directory_max: Option<usize>,
) -> Vec<Vec<String>> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    let served = others.served.iter().map(|served| served.row(now));
    let whole = |mut row: Vec<String>| {
        row.resize(HEADING.len(), "-".to_owned());
        row
    };
    let unkept = others.unkept.iter().map(|unkept| unkept_row(unkept, now));
    servers
        .map(|server| row(server, now, directory_max))
        .chain(not_running.iter().map(|server| whole(server.row())))
        .chain(unready.iter().map(|unready| whole(unready.row(now))))
        .chain(served)
        .chain(unkept)
        .collect()
}

fn row(server: &Server, now_ms: u64, directory_max: Option<usize>) -> Vec<String> {
    let text = |text: Option<String>| text.map_or_else(|| "-".to_owned(), |text| printable(&text));
    let number = |number: Option<u32>| text(number.map(|number| number.to_string()));
    let host = match (server.hosts, &server.host_name, server.host) {
        (Some(1), ..) => Some("1 host".to_owned()),
        (Some(hosts), ..) => Some(format!("{hosts} hosts")),
        (None, Some(name), Some(pid)) => Some(match project(server, directory_max) {
            Some(project) => format!("{name} {pid} {project}"),
            None => format!("{name} {pid}"),
        }),
        // A server behind `serve` has no host.
        (None, _, pid) => pid
            .map(|pid| pid.to_string())
            .or_else(|| server.service.as_ref().map(ToString::to_string)),
    };
    let trouble = server.trouble.as_ref();
    let failed_for = trouble.and_then(|trouble| Some(now_ms.saturating_sub(trouble.since_ms?)));
    vec![
        printable(&server.server),
        text(host),
        trouble
            .map_or(server.state.as_str(), Trouble::state)
            .to_owned(),
        text(failed_for.or(server.since_ms).map(duration)),
        number(server.restarts),
        text(server.memory.filter(|memory| *memory > 0).map(bytes)),
        number(server.pid),
        text(server.age_ms.map(duration)),
        text(server.program.clone()),
        text(server.session.as_ref().map(ToString::to_string)),
        number(server.keeper_pid),
        text(server.last_error.clone()),
    ]
}

/// The directory that a host's server was started in: that of the project, in most hosts. None
/// where it says nothing, or there is no room. Of a long one the end is shown.
fn project(server: &Server, most: Option<usize>) -> Option<String> {
    let directory = server.directory.as_deref()?;
    let user = paths::user_directories();
    let in_home = user
        .as_ref()
        .and_then(|user| directory.strip_prefix(&user.home).ok());
    let text = match in_home {
        Some(rest) if rest.as_os_str().is_empty() => return None,
        Some(rest) => format!("~/{}", rest.display()),
        None if directory == Path::new("/") => return None,
        None => directory.display().to_string(),
    };
    let letters = text.chars().count();
    match most {
        Some(0) => None,
        Some(most) if letters > most => {
            let end: String = text.chars().skip(letters + 1 - most).collect();
            Some(format!("…{end}"))
        }
        _ => Some(text),
    }
}

fn unkept_row(unkept: &Unkept, now_ms: u64) -> Vec<String> {
    let since = now_ms.saturating_sub(unkept.since_ms);
    let pid = unkept.process.pid;
    let none = || "-".to_owned();
    vec![
        printable(&unkept.program),
        none(),
        match unkept.has_failed {
            true => "failed".to_owned(),
            false => "not kept".to_owned(),
        },
        duration(since),
        none(),
        process::resident_bytes(pid).map_or_else(none, bytes),
        pid.to_string(),
        none(),
        none(),
        none(),
        none(),
        none(),
    ]
}
