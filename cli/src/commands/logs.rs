//! `mcp-sessiond logs`: what the daemon logs, wherever it goes, and what a kept server writes to
//! its standard error.

mod file;
mod journal;
mod line;
mod location;
mod server;

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use anstream::adapter::strip_str;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::ArgValueCandidates;
use futures::StreamExt as _;
use mcp_sessiond_client::Directory;
use mcp_sessiond_process::signals::not_ignored;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use signal_hook_tokio::Signals;
use tokio::time::{Instant, interval, timeout_at};

use self::file::Tail;
use self::journal::Journal;
use self::line::Line;
use self::location::LogLocation;
use self::server::ServerStderr;
use crate::exit_code::{NO_INPUT, SOFTWARE, USAGE};
use crate::inventory::{Inventory, Server, selection};
use crate::runtime::block_on;
use crate::service_manager;
use crate::ui::output::warn;
use crate::ui::table::printable;

/// The pause before it is looked again whether a file or a server has more, and whether anybody
/// reads what is printed.
const PAUSE: Duration = Duration::from_millis(200);

/// How many lines are shown, unless it is said.
const LINES: usize = 100;

/// How long after a server the daemon may take to log that it has ended.
const END_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
#[command(after_help = "\
Without NAME: the daemon's log. It is in the user's systemd journal if systemd has started the daemon; in `daemon.log` in the runtime directory if a client has; in ~/Library/Logs if launchd has. If no daemon runs, it is what the last one has logged.

With NAME: the lines of the daemon's log that are about that server, each after `mcp-sessiond: `, and then what the server has \
written to its standard error. The keeper holds the last 64 KiB of that (`backends.stderr_bytes`) until it exits; of a server that is gone, only the lines of the daemon's log are left. `serve.NAME` is the \
log of a service that `mcp-sessiond install --serve NAME` has made; of another `serve`, NAME shows the servers of all its sessions.

With -f it goes on until it is interrupted, its reader is gone, or the server has ended. With --json: an object a line: `from` (daemon, server; of `serve.NAME` always daemon), `time` (RFC 3339) \
and `level` (error, warn, info, debug, trace), null where they are not known, and `line`.

Exit codes: 0; 64 NAME fits several servers; 66 no such server, or there is no log, and a sentence says why; 69 the daemon does not answer, and there is no such server.

Examples:
  mcp-sessiond logs -f
  mcp-sessiond logs -n 20 browser")]
pub(crate) struct Arguments {
    /// The name that `mcp-sessiond status` shows, or a part of it or of the program that is run; the
    /// id of its session, or a part of it; the pid of the server, its keeper or its host; or the name
    /// of a `serve`
    #[arg(
        value_parser = NonEmptyStringValueParser::new(),
        add = ArgValueCandidates::new(selection::kept)
    )]
    name: Option<String>,
    /// Keep printing what comes
    #[arg(short, long)]
    follow: bool,
    /// Print only the last N lines; with NAME, of the daemon's log and of the server's each
    #[arg(short = 'n', long, value_name = "N", default_value_t = LINES)]
    lines: usize,
    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

/// Where lines come from.
enum Source {
    File(Tail),
    Journal(Box<Journal>),
    Server(ServerStderr),
    /// From nowhere: there will be none.
    Over,
}

/// Why there are no lines. The sentence is for people.
struct NoLog(String);

/// Nobody reads what is printed any more.
struct ReaderGone;

impl Source {
    fn of(place: LogLocation, goes_on: bool) -> Result<Self, NoLog> {
        match place {
            LogLocation::File(path) => Ok(Self::File(Tail::new(path, goes_on))),
            LogLocation::Journal(unit) => Ok(Self::Journal(Box::new(Journal::new(unit)))),
            LogLocation::Nowhere(why) => Err(NoLog(why)),
        }
    }

    /// The last of the lines that there are, of those that are wanted.
    async fn last(
        &mut self,
        most: usize,
        is_wanted: &dyn Fn(&Line) -> bool,
    ) -> Result<Vec<Line>, NoLog> {
        match self {
            Self::File(tail) => tail.last(most, is_wanted),
            Self::Journal(journal) => journal.last(most, is_wanted).await,
            Self::Server(errors) => errors.last(most),
            Self::Over => Ok(Vec::new()),
        }
    }

    /// The lines that come next; none: there will be no more. What was not waited for is not lost.
    async fn next(&mut self) -> Option<Vec<Line>> {
        match self {
            Self::File(tail) => tail.next().await,
            Self::Journal(journal) => journal.next().await,
            Self::Server(errors) => errors.next().await,
            Self::Over => None,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = block_on(async {
        match &arguments.name {
            None => of_daemon(arguments).await,
            Some(name) => match serve_log(name) {
                Some(log) => alone(arguments, Source::of(log.into(), arguments.follow)).await,
                None => of_server(arguments, name).await,
            },
        }
    });
    ExitCode::from(done.unwrap_or_else(|error| {
        warn(error);
        SOFTWARE
    }))
}

/// The log of an installed service of `serve`.
fn serve_log(name: &str) -> Option<service_manager::Log> {
    let name = name.strip_prefix(selection::SERVE_PREFIX)?;
    let known = service_manager::serve_services();
    let (name, _) = known.iter().find(|(known, _)| known.as_str() == name)?;
    Some(service_manager::log(Some(name)))
}

async fn of_daemon(arguments: &Arguments) -> u8 {
    match Directory::of_user() {
        Ok(directory) => {
            let place = location::of_daemon(&directory).await;
            alone(arguments, Source::of(place, arguments.follow)).await
        }
        Err(error) => crate::calls::Failure::from(error).report(),
    }
}

/// Shows one log.
async fn alone(arguments: &Arguments, source: Result<Source, NoLog>) -> u8 {
    let print = |lines: &[Line]| print(lines, arguments.json, false);
    let shown = async {
        let mut source = source?;
        let lines = source.last(arguments.lines, &|_| true).await?;
        if lines.is_empty() && arguments.lines > 0 && !arguments.follow {
            return Err(NoLog("the log is empty".to_owned()));
        }
        Ok((source, print(&lines)))
    };
    match shown.await {
        Ok((source, Ok(()))) if arguments.follow => {
            follow(source, Source::Over, |lines| print(&lines))
                .await
                .unwrap_or_default()
        }
        Ok(_) => 0,
        Err(NoLog(why)) => {
            warn(why);
            NO_INPUT
        }
    }
}

/// Shows what one server writes, and what the daemon says about it.
async fn of_server(arguments: &Arguments, name: &str) -> u8 {
    let inventory = match Inventory::read().await {
        Ok(inventory) => inventory,
        Err(failure) => return failure.report(),
    };
    if !selection::is_known(name, &inventory)
        && let Some(lines) = of_former(arguments, name, &inventory.directory).await
    {
        if print(&lines, arguments.json, true).is_ok() {
            warn(format_args!(
                "{} does not run now. These lines of the daemon's log are about it; what it has written itself is gone",
                printable(name)
            ));
        }
        return 0;
    }
    let servers = match selection::all(name, &inventory) {
        Ok(servers) => servers,
        Err(code) => {
            if let Some(unkept) = selection::unkept(name, &inventory) {
                warn(format_args!(
                    "what {} writes to its standard error goes to its host's own log",
                    printable(&unkept.program)
                ));
            }
            return code;
        }
    };
    if let ([_, _, ..], true) = (&servers[..], arguments.follow) {
        warn(format_args!(
            "{} has {} sessions; follow one of them by its id, which `mcp-sessiond status --wide` shows",
            printable(name),
            servers.len()
        ));
        return USAGE;
    }
    let mut code = 0;
    for server in &servers {
        if let (Some(session), [_, _, ..]) = (&server.session, &servers[..]) {
            warn(format_args!("session {session}:"));
        }
        match of_kept(arguments, server, &inventory.directory).await {
            Ok(shown) => code = code.max(shown),
            Err(ReaderGone) => return 0,
        }
    }
    code
}

/// The same of a server that is kept. Returns the exit code.
async fn of_kept(
    arguments: &Arguments,
    server: &Server,
    directory: &Directory,
) -> Result<u8, ReaderGone> {
    let FirstLines {
        about,
        written,
        events,
        errors,
    } = begin(server, directory, arguments.lines, arguments.follow).await;
    print(&about, arguments.json, true)?;
    let code = match &written {
        Ok(lines) => {
            print(lines, arguments.json, false)?;
            if lines.is_empty() && arguments.lines > 0 && !arguments.follow {
                warn(format_args!(
                    "{} has written nothing to its standard error",
                    server.display_name()
                ));
            }
            0
        }
        Err(NoLog(why)) => {
            warn(format_args!("{}: {why}", server.display_name()));
            NO_INPUT
        }
    };
    if !arguments.follow || code != 0 {
        return Ok(code);
    }
    let show = |lines: Vec<Line>| {
        let (about, written): (Vec<Line>, Vec<Line>) =
            lines.into_iter().partition(|line| line.is_daemons);
        let about: Vec<Line> = about
            .into_iter()
            .filter(|line| is_about(line, server))
            .collect();
        print(&about, arguments.json, true).and_then(|()| print(&written, arguments.json, false))
    };
    Ok(follow(errors, events, show).await.unwrap_or_else(|| {
        warn(format_args!("{} has ended", server.display_name()));
        0
    }))
}

/// The daemon's lines about a server that does not run. None: there are none.
async fn of_former(arguments: &Arguments, name: &str, directory: &Directory) -> Option<Vec<Line>> {
    let place = location::of_daemon(directory).await;
    let mut events = Source::of(place, false).ok()?;
    let lines = events
        .last(arguments.lines, &|line| names(line, name))
        .await;
    lines.ok().filter(|lines| !lines.is_empty())
}

/// Whether a line of the daemon's has a field with this name of a server, or with the id of its
/// session.
fn names(line: &Line, what: &str) -> bool {
    let lower = what.to_lowercase();
    let server = line.field("server");
    server.is_some_and(|server| server.to_lowercase().contains(&lower))
        || line.field("session") == Some(what)
}

/// The last lines about a server, and where the next come from.
struct FirstLines {
    /// The daemon's.
    about: Vec<Line>,
    /// Its own.
    written: Result<Vec<Line>, NoLog>,
    events: Source,
    errors: Source,
}

async fn begin(server: &Server, directory: &Directory, most: usize, goes_on: bool) -> FirstLines {
    // That there is none is no reason to hide what the server writes.
    let place = location::of_daemon(directory).await;
    let mut events = Source::of(place, goes_on).unwrap_or(Source::Over);
    let about = events
        .last(most, &|line| is_about(line, server))
        .await
        .unwrap_or_else(|_| {
            events = Source::Over;
            Vec::new()
        });
    let mut errors = Source::Server(ServerStderr::of(server, directory, goes_on));
    let written = errors.last(most, &|_| true).await;
    FirstLines {
        about,
        written,
        events,
        errors,
    }
}

/// Lines without colours. `marked`: whether it is said that they are the daemon's.
fn plain(lines: &[Line], marked: bool) -> Vec<String> {
    let text = |line: &Line| {
        strip_str(&line.painted(marked))
            .to_string()
            .trim_end()
            .to_owned()
    };
    lines.iter().map(text).collect()
}

/// The last lines of the daemon's log about a server, and of what it has written itself, or why that
/// can't be had.
pub(crate) async fn last(
    server: &Server,
    directory: &Directory,
    most: usize,
) -> (Vec<String>, Result<Vec<String>, String>) {
    let FirstLines { about, written, .. } = begin(server, directory, most, false).await;
    let written = written.map(|lines| plain(&lines, false));
    (plain(&about, false), written.map_err(|NoLog(why)| why))
}

/// Gives the lines about a server to whoever shows them: the last ones, and those that come, until
/// nobody takes them any more.
#[cfg(feature = "tui")]
pub(crate) async fn watch(
    server: &Server,
    directory: &Directory,
    show: impl Fn(Vec<String>) -> bool,
) {
    let FirstLines {
        about,
        written,
        mut events,
        mut errors,
    } = begin(server, directory, LINES, true).await;
    let mut lines = plain(&about, true);
    match &written {
        Ok(written) => lines.extend(plain(written, false)),
        Err(NoLog(why)) => lines.push(format!("{}: {why}", server.display_name())),
    }
    let mut goes_on = show(lines);
    while goes_on {
        let (lines, marked) = tokio::select! {
            Some(lines) = errors.next() => (lines, false),
            Some(lines) = events.next() => (lines, true),
            else => {
                show(vec![format!("{} has ended", server.display_name())]);
                break;
            }
        };
        let wanted: Vec<Line> = lines
            .into_iter()
            .filter(|line| !marked || is_about(line, server))
            .collect();
        goes_on = wanted.is_empty() || show(plain(&wanted, marked));
    }
}

/// Whether a line of the daemon's is about this server.
fn is_about(line: &Line, server: &Server) -> bool {
    // Its keeper's pid may have been another one's.
    let is_others = |of: &str| {
        server
            .session
            .as_ref()
            .is_some_and(|own| own.as_str() != of)
    };
    if line.field("session").is_some_and(is_others) {
        return false;
    }
    let session = server
        .session
        .as_ref()
        .map(|session| format!("session={session}"));
    let keeper = server.keeper_pid.map(|keeper| format!("keeper={keeper}"));
    let says = |what: &Option<String>| {
        what.as_deref()
            .is_some_and(|what| line.text.split_whitespace().any(|word| word == what))
    };
    // A session may have several servers. The daemon does not know the names in hosts' files.
    let names = [Some(&server.server), server.program.as_ref()];
    let is_named = || {
        names
            .into_iter()
            .flatten()
            .any(|name| line.text.contains(&**name))
    };
    says(&keeper) || says(&session) && is_named()
}

/// Shows what comes from both, until it is interrupted, nobody reads it, or there is no more from
/// the first one: none. Else the exit code.
async fn follow(
    mut first: Source,
    mut second: Source,
    show: impl Fn(Vec<Line>) -> Result<(), ReaderGone>,
) -> Option<u8> {
    let ending = not_ignored(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    let mut ends = match Signals::new(ending) {
        Ok(ends) => ends,
        Err(error) => {
            warn(error);
            return Some(SOFTWARE);
        }
    };
    let mut looks = interval(PAUSE);
    loop {
        let lines = tokio::select! {
            biased;
            Some(_) = ends.next() => return Some(0),
            _ = looks.tick() => if is_read() { continue } else { return Some(0) },
            lines = first.next() => match lines {
                Some(lines) => lines,
                None => break,
            },
            Some(lines) = second.next() => lines,
        };
        if show(lines).is_err() {
            return Some(0);
        }
    }
    // The daemon sees the end a moment later.
    let until = Instant::now() + END_WAIT;
    while let Ok(Some(lines)) = timeout_at(until, second.next()).await {
        let is_last = lines
            .iter()
            .any(|line| line.text.contains("a server has ended"));
        if show(lines).is_err() || is_last {
            break;
        }
    }
    None
}

/// Whether somebody may still read standard output: a pipe or a terminal tells when it is closed.
fn is_read() -> bool {
    let output = io::stdout();
    let mut asked = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let _ = poll(&mut asked, PollTimeout::ZERO);
    let closed = PollFlags::POLLERR | PollFlags::POLLHUP;
    !asked[0]
        .revents()
        .is_some_and(|about| about.intersects(closed))
}

/// Prints lines; `marked` says of each that the daemon has said it.
fn print(lines: &[Line], json: bool, marked: bool) -> Result<(), ReaderGone> {
    let mut output = anstream::stdout().lock();
    for line in lines {
        let text = if json {
            line.to_json()
        } else {
            line.painted(marked)
        };
        output.write_all(text.as_bytes()).map_err(|_| ReaderGone)?;
    }
    output.flush().map_err(|_| ReaderGone)
}
