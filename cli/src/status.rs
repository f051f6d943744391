//! `mcp-sessiond status`: which servers are kept, one line each.

mod upstreams;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use mcp_sessiond_process as process;
use mcp_sessiond_proto::paths;
use mcp_sessiond_wrap::unkept::{self, Unkept};

use self::upstreams::Upstream;
use super::failure::Failure;
use super::kept::{Kept, Lost, Server, State};
use super::table::{self, BAD, DOUBTFUL, GOOD, bytes, duration, paint, shown};
use super::{FAILED, UNAVAILABLE, block_on, complain, install, print, to_json};

/// Columns of what is printed, unless it is to be wide.
const COLUMNS: usize = 80;

#[derive(Debug, Args)]
#[command(after_help = "\
HOST is the program that uses the server, or the service `serve.NAME`. STATE is `in use`, a host is connected; `waiting`, its \
host has disconnected, and the server waits for it for `backends.linger_ms` (of `serve`: `http.linger_ms`); `starting`; \
`stopping`; `silent`, its keeper does not answer; or `not kept`: the command runs as it is, \
and ends with its host. AGE is that of the server's process, MEMORY has all that it has started. A server behind `serve --upstream` is named \
by its address, and PID, AGE and MEMORY are those of `serve`. A server is named by its program and the package \
or script that it runs; no other argument is ever shown.

With --json: an object. `daemon`: `answers`, and `why` not. `servers`: server, session, service, host, host_name, pid, keeper, \
keeper_pid, state (in_use, waiting, starting, stopping, silent), age_ms, since_ms (how long the host has been there, or \
away), restarts, memory (bytes), last_error, known (to the daemon), failure (why its keeper does not say); what is not known \
is null. `upstreams`: servers behind `serve --upstream`: url, service, pid (of `serve`), since_ms (Unix epoch), sessions. `unkept`: process (pid, start, inode), program, why, since_ms (Unix epoch). `lost`: host, host_name, because; what is \
kept no more, until a server of that host is told.

Exit codes: 0; 69 no daemon answers, and there are servers, or a service that should run it.

Example: mcp-sessiond status")]
pub(super) struct Arguments {
    /// Print JSON
    #[arg(long, conflicts_with = "wide")]
    json: bool,
    /// Shorten nothing, and show sessions and keepers
    #[arg(long)]
    wide: bool,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let look = async {
        let kept = Kept::look().await?;
        let notes = unkept::list(kept.directory.path());
        let mut upstreams = Vec::new();
        for note in &notes {
            upstreams.extend(Upstream::of(note, kept.connection.as_ref()).await);
        }
        let unkept = notes.into_iter().filter(|note| note.service.is_none()).collect();
        Ok::<_, Failure>((kept, Others { upstreams, unkept }))
    };
    match block_on(look) {
        Ok(Ok((kept, others))) => show(arguments, &kept, &others),
        Ok(Err(failure)) => ExitCode::from(failure.report()),
        Err(error) => {
            complain(error);
            ExitCode::from(FAILED)
        }
    }
}

/// Servers that no keeper holds.
#[derive(Default)]
struct Others {
    /// Those that speak HTTP themselves.
    upstreams: Vec<Upstream>,
    /// Those that are not kept.
    unkept: Vec<Unkept>,
}

fn show(arguments: &Arguments, kept: &Kept, others: &Others) -> ExitCode {
    let trouble = trouble(kept, &others.unkept);
    let printed = print(&if arguments.json {
        let why = kept.failure.as_ref().map(ToString::to_string);
        let daemon = serde_json::json!({"answers": why.is_none(), "why": why});
        let Kept { servers, lost, .. } = kept;
        let Others { upstreams, unkept } = others;
        to_json(&serde_json::json!({
            "daemon": daemon, "servers": servers, "upstreams": upstreams, "unkept": unkept, "lost": lost,
        }))
    } else {
        text(kept, others, arguments.wide, trouble.is_some())
    });
    match trouble {
        Some(sentence) => {
            complain(sentence);
            ExitCode::from(UNAVAILABLE)
        }
        None => printed,
    }
}

/// What is wrong about there being no daemon.
fn trouble(kept: &Kept, unkept: &[Unkept]) -> Option<String> {
    let failure = kept.failure.as_ref()?;
    if !kept.has_no_daemon() {
        return Some(failure.to_string());
    }
    let is_ours = paths::derived().is_ok_and(|derived| derived == kept.directory.path());
    if is_ours && install::installed().is_some() {
        return Some(format!("{failure}, although the service is installed; see `mcp-sessiond debug check`"));
    }
    if !kept.servers.is_empty() {
        let sentence =
            "no daemon runs; what is kept goes on without it, and the next `mcp-sessiond wrap` starts one";
        return Some(sentence.to_owned());
    }
    let sentence = "no daemon runs; see `mcp-sessiond debug check`";
    (!unkept.is_empty()).then(|| sentence.to_owned())
}

fn text(kept: &Kept, others: &Others, wide: bool, is_trouble: bool) -> String {
    let servers: Vec<&Server> = kept.servers.iter().collect();
    let width = (!wide).then_some(COLUMNS);
    let mut text = match (&servers[..], &others.unkept[..], &others.upstreams[..]) {
        ([], [], []) if is_trouble => String::new(),
        ([], [], []) => {
            "Nothing is kept: there is no server that was started by `mcp-sessiond wrap` or `serve`.\n"
                .to_owned()
        }
        _ => table(&servers, others, width),
    };
    let notes = servers.iter().filter_map(|server| note(server, kept.connection.is_some()));
    let why = others.unkept.iter().map(|unkept| {
        let Unkept { process, program, why, .. } = unkept;
        format!("{program} (pid {}) is not kept: {why}", process.pid)
    });
    let upstreams = others.upstreams.iter().map(Upstream::note);
    for note in notes.chain(upstreams).chain(why).chain(kept.lost.iter().map(Lost::sentence)) {
        text += "\n";
        text += &table::wrapped(&shown(&note), width);
    }
    text
}

/// What has to be said about a server beside its line.
fn note(server: &Server, daemon_answers: bool) -> Option<String> {
    let called = server.called();
    let keeper = server.keeper_pid.unwrap_or_default();
    if let Some(failure) = &server.failure {
        return Some(format!("{called}: {failure}; `mcp-sessiond stop {keeper}` ends it"));
    }
    if let (State::Starting, None, Some(why)) = (server.state, server.pid, &server.last_error) {
        return Some(format!(
            "{called} has ended ({why}); it is started again when its host says something, or by `mcp-sessiond restart {keeper}`"
        ));
    }
    (daemon_answers && !server.known).then(|| {
        format!("{called} is not known to the daemon; its host starts another one when it reconnects. `mcp-sessiond stop {keeper}` ends it")
    })
}

/// Shows these servers to whoever reads the complaints.
pub(super) fn to_stderr(servers: &[&Server]) {
    let _ = anstream::stderr().lock().write_all(table(servers, &Others::default(), Some(COLUMNS)).as_bytes());
}

fn table(servers: &[&Server], others: &Others, width: Option<usize>) -> String {
    let mut heading = vec!["server", "host", "pid", "state", "age", "restarts", "memory"];
    if width.is_none() {
        heading.extend(["session", "keeper", "last error"]);
    }
    let kept = servers.iter().map(|server| row(server));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    let upstreams = others.upstreams.iter().map(|upstream| upstream.row(now));
    let unkept = others.unkept.iter().map(|unkept| unkept_row(unkept, now));
    let rows: Vec<Vec<String>> = kept.chain(upstreams).chain(unkept).collect();
    let style = |column: usize, cell: &str| match (column, cell) {
        (3, "in use") => paint(GOOD, cell),
        (3, "silent" | "not kept") => paint(BAD, cell),
        (3, _) => paint(DOUBTFUL, cell),
        _ => cell.to_owned(),
    };
    table::fitted(&heading, &rows, width, style)
}

fn row(server: &Server) -> Vec<String> {
    let text = |text: Option<String>| text.map_or_else(|| "-".to_owned(), |text| shown(&text));
    let number = |number: Option<u32>| text(number.map(|number| number.to_string()));
    let host = match (&server.host_name, server.host) {
        (Some(name), Some(pid)) => Some(format!("{name} {pid}")),
        // A server behind `serve` has no host.
        (_, pid) => {
            pid.map(|pid| pid.to_string()).or_else(|| server.service.as_ref().map(ToString::to_string))
        }
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
