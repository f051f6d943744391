//! What `status` lists: a row for each server, and what has to be said beside the rows.

mod upstreams;

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use anstyle::Style;
use mcp_sessiond_process as process;
use mcp_sessiond_proto::paths;
use mcp_sessiond_proxy::unkept::{self, Unkept};

use self::upstreams::Upstream;
use super::failure::Failure;
use super::install;
use super::kept::{Kept, Lost, Server};
use super::table::{self, BAD, DOUBTFUL, GOOD, bytes, duration, paint, shown};

/// Columns of what is printed, unless it is to be wide.
pub(super) const COLUMNS: usize = 80;

/// The columns, and behind them those that are shown when it is to be wide.
const HEADING: [&str; 10] = [
    "server",
    "host",
    "pid",
    "state",
    "age",
    "restarts",
    "memory",
    "session",
    "keeper",
    "last error",
];
const NARROW: usize = 7;

/// Everything that is listed.
pub(super) struct Listing {
    /// What keepers hold.
    pub(super) kept: Kept,
    pub(super) others: Others,
}

/// Servers that no keeper holds.
#[derive(Default)]
pub(super) struct Others {
    /// Those that speak HTTP themselves.
    pub(super) upstreams: Vec<Upstream>,
    /// Those that are not kept.
    pub(super) unkept: Vec<Unkept>,
}

impl Listing {
    /// Asks the daemon, and every keeper.
    ///
    /// # Errors
    /// When there is no runtime directory that could be looked into.
    pub(super) async fn look() -> Result<Self, Failure> {
        let kept = Kept::look().await?;
        let notes = unkept::list(kept.directory.path());
        let mut upstreams = Vec::new();
        for note in &notes {
            upstreams.extend(Upstream::of(note, kept.connection.as_ref()).await);
        }
        let unkept = notes
            .into_iter()
            .filter(|note| note.service.is_none())
            .collect();
        Ok(Self {
            kept,
            others: Others { upstreams, unkept },
        })
    }

    /// Whether there is nothing to list.
    pub(super) fn is_empty(&self) -> bool {
        let Others { upstreams, unkept } = &self.others;
        self.kept.servers.is_empty() && upstreams.is_empty() && unkept.is_empty()
    }

    /// What is wrong about there being no daemon.
    pub(super) fn trouble(&self) -> Option<String> {
        let kept = &self.kept;
        let failure = kept.failure.as_ref()?;
        if !kept.has_no_daemon() {
            return Some(failure.to_string());
        }
        let is_ours = paths::derived().is_ok_and(|derived| derived == kept.directory.path());
        if is_ours && install::installed().is_some() {
            return Some(format!(
                "{failure}, although the service is installed; see `mcp-sessiond doctor`"
            ));
        }
        if !kept.servers.is_empty() {
            let sentence = "no daemon runs; what is kept goes on without it, and the next `mcp-sessiond wrap` starts one";
            return Some(sentence.to_owned());
        }
        let sentence = "no daemon runs; see `mcp-sessiond doctor`";
        (!self.others.unkept.is_empty()).then(|| sentence.to_owned())
    }

    /// What has to be said beside the rows.
    pub(super) fn notes(&self) -> Vec<String> {
        let Self { kept, others } = self;
        let notes = kept
            .servers
            .iter()
            .filter_map(|server| note(server, kept.connection.is_some()));
        let why = others.unkept.iter().map(|unkept| {
            let Unkept {
                process,
                program,
                why,
                ..
            } = unkept;
            format!("{program} (pid {}) is not kept: {why}", process.pid)
        });
        let upstreams = others.upstreams.iter().map(Upstream::note);
        let lost = kept.lost.iter().map(Lost::sentence);
        notes
            .chain(upstreams)
            .chain(why)
            .chain(lost)
            .map(|note| shown(&note))
            .collect()
    }

    /// The rows, those of the kept servers first, in their order.
    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        rows(self.kept.servers.iter(), &self.others)
    }

    /// The rows under their heading, in so many columns; none: it is to be wide.
    pub(super) fn table(&self, width: Option<usize>) -> String {
        table(&self.rows(), width)
    }
}

/// What is said where nothing is listed.
pub(super) const NOTHING: &str = "Nothing is kept: there is no server that was started by `mcp-sessiond wrap` or `serve`. To wrap those of your hosts: `mcp-sessiond setup`.";

/// The columns.
pub(super) fn heading(is_wide: bool) -> &'static [&'static str] {
    if is_wide {
        &HEADING
    } else {
        &HEADING[..NARROW]
    }
}

/// How a cell is painted; none: not at all.
pub(super) fn style(column: usize, cell: &str) -> Option<Style> {
    match (column, cell) {
        (3, "in use") => Some(GOOD),
        (3, "silent" | "not kept") => Some(BAD),
        (3, _) => Some(DOUBTFUL),
        _ => None,
    }
}

/// What has to be said about a server beside its line.
fn note(server: &Server, daemon_answers: bool) -> Option<String> {
    server
        .trouble(daemon_answers)
        .map(|(what, mend)| format!("{what}; {mend}"))
}

/// Shows these servers to whoever reads the complaints.
pub(super) fn to_stderr(servers: &[&Server]) {
    let rows = rows(servers.iter().copied(), &Others::default());
    let _ = anstream::stderr()
        .lock()
        .write_all(table(&rows, Some(COLUMNS)).as_bytes());
}

fn table(rows: &[Vec<String>], width: Option<usize>) -> String {
    let painted = |column: usize, cell: &str| match style(column, cell) {
        Some(style) => paint(style, cell),
        None => cell.to_owned(),
    };
    table::fitted(heading(width.is_none()), rows, width, painted)
}

fn rows<'a>(servers: impl Iterator<Item = &'a Server>, others: &Others) -> Vec<Vec<String>> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    let upstreams = others.upstreams.iter().map(|upstream| upstream.row(now));
    let unkept = others.unkept.iter().map(|unkept| unkept_row(unkept, now));
    servers.map(row).chain(upstreams).chain(unkept).collect()
}

fn row(server: &Server) -> Vec<String> {
    let text = |text: Option<String>| text.map_or_else(|| "-".to_owned(), |text| shown(&text));
    let number = |number: Option<u32>| text(number.map(|number| number.to_string()));
    let host = match (&server.host_name, server.host) {
        _ if let Some(hosts) = server.hosts => Some(match hosts {
            1 => "1 host".to_owned(),
            hosts => format!("{hosts} hosts"),
        }),
        (Some(name), Some(pid)) => Some(format!("{name} {pid}")),
        // A server behind `serve` has no host.
        (_, pid) => pid
            .map(|pid| pid.to_string())
            .or_else(|| server.service.as_ref().map(ToString::to_string)),
    };
    vec![
        shown(&server.server),
        text(host),
        number(server.pid),
        server.state.word().to_owned(),
        text(server.age_ms.map(duration)),
        number(server.restarts),
        text(server.memory.filter(|memory| *memory > 0).map(bytes)),
        text(server.session.as_ref().map(ToString::to_string)),
        number(server.keeper_pid),
        text(server.last_error.clone()),
    ]
}

fn unkept_row(unkept: &Unkept, now_ms: u64) -> Vec<String> {
    let age = now_ms.saturating_sub(unkept.since_ms);
    let pid = unkept.process.pid;
    let none = || "-".to_owned();
    vec![
        shown(&unkept.program),
        none(),
        pid.to_string(),
        "not kept".to_owned(),
        duration(age),
        none(),
        process::resident_bytes(pid).map_or_else(none, bytes),
        none(),
        none(),
        none(),
    ]
}
