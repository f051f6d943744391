//! `mcp-sessiond status`: which servers are kept, one line each.

#[cfg(feature = "tui")]
mod watch;

use std::process::ExitCode;

use clap::Args;

use crate::exit_code::{SOFTWARE, UNAVAILABLE};
use crate::inventory::Inventory;
use crate::inventory::listing::{COLUMNS, Listing, Others};
use crate::runtime::block_on;
use crate::ui::output::{print, to_json, warn};
use crate::ui::table;

#[derive(Debug, Default, Args)]
#[command(after_help = "\
NAME is that of the server's entry in the host's file or in servers.json, or the one that its session was given; otherwise its program with the package or script \
that it runs. No other argument is ever shown. HOST is the host that uses the server, with its pid and the directory of the project; the service `serve.NAME`; or how many hosts share it. STATE is `in use`, a host is connected; `waiting`, its \
host has disconnected, and the server waits for it for `backends.linger_ms` (of `serve`: `http.linger_ms`); `starting`; \
`ended`, by itself, until it is needed again; `not running`, it was stopped, or nobody has called it yet, and its host's next call starts it; `stopping`; `silent`, its keeper does not answer; `failed`, it can't be started (below the table is why); `not tried`, it is one of `wrap --all` or `serve`, whose turn has not come; or `not kept`: the command runs as it is, \
and ends with its host. SINCE is how long the host has been there, or away. MEMORY has all that the server has started. Sessions of one service have a row for each server, and with --wide one each. A server behind `serve --upstream` is named \
by its address, and SINCE and MEMORY are those of `serve`; so are those of a `serve` for which no server runs.

With --json: an object. `daemon`: `answers`, and `why` not. `servers`: server (its name), program, directory, session, service, host, host_name, pid, keeper, \
keeper_pid, state (in_use, waiting, starting, ended, stopping, silent); hosts (how many share it, if it is shared), withheld (how many of its notifications none of these got); age_ms, since_ms (how long the host has been there, or \
away), restarts, memory (bytes), last_error, known (to the daemon), failure (why its keeper does not say); what is not known \
is null; trouble (of one that has failed): is, code, message, since_ms (Unix epoch). `unready`: servers of `wrap --all` and `serve` that no keeper holds: server, session, host, host_name, and what trouble has; is: failed, initializing, not_tried. `not_running`: servers that do not run while their hosts are connected: server, session, host, host_name, `front` (the wrapper's pid). `upstreams`: servers behind `serve --upstream`: url, service, pid (of `serve`), since_ms (Unix epoch), sessions; `without_server`: the same of a `serve` for which no server runs now, whose `url` is what it starts; `unkept`: process (pid, start, inode), program, why, since_ms (Unix epoch), has_failed (it does not run); `lost`: what is no longer kept, until that host, or that client of `serve`, has read of it: host, host_name (or the service), session (of the service), \
of (the server's name in a list), because, at_ms (Unix epoch).

With -w the list is drawn again once a second, and when the terminal changes its size. Keys: the arrows or j and k select a server, Enter or l \
shows its log, r restarts it and s stops it, each after a question, ? shows all keys, q leaves. It needs a terminal.

Exit codes: 0; 64 with -w, there is no terminal; 69 no daemon answers, and there are servers, or a service that should run it (with -w the screen says so).

Examples:
  mcp-sessiond status
  mcp-sessiond status -w
  mcp-sessiond status --json")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, conflicts_with_all = ["wide", "watch"])]
    json: bool,
    /// Shorten nothing, and show pids, programs, sessions and keepers
    #[arg(long)]
    wide: bool,
    /// Keep showing it, with keys that restart or stop a server and show its log
    #[arg(short, long)]
    watch: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.watch {
        #[cfg(feature = "tui")]
        return watch::run(arguments.wide);
        #[cfg(not(feature = "tui"))]
        {
            warn(crate::extras::absent("`status -w`", "tui"));
            return ExitCode::from(crate::exit_code::USAGE);
        }
    }
    match block_on(Listing::read()) {
        Ok(Ok(listing)) => show(arguments, &listing),
        Ok(Err(failure)) => ExitCode::from(failure.report()),
        Err(error) => {
            warn(error);
            ExitCode::from(SOFTWARE)
        }
    }
}

fn show(arguments: &Arguments, listing: &Listing) -> ExitCode {
    let trouble = listing.daemon_fault();
    let printed = print(&if arguments.json {
        let Inventory {
            servers,
            unready,
            not_running,
            losses,
            failure,
            ..
        } = &listing.inventory;
        let why = failure.as_ref().map(ToString::to_string);
        let daemon = serde_json::json!({"answers": why.is_none(), "why": why});
        let Others { served, unkept } = &listing.others;
        let (upstreams, without_server): (Vec<_>, Vec<_>) =
            served.iter().partition(|one| one.is_upstream());
        to_json(&serde_json::json!({
            "daemon": daemon, "servers": servers, "unready": unready, "not_running": not_running, "upstreams": upstreams, "without_server": without_server, "unkept": unkept, "lost": losses,
        }))
    } else {
        text(listing, arguments.wide)
    });
    match trouble {
        Some(sentence) => {
            warn(sentence);
            ExitCode::from(UNAVAILABLE)
        }
        None => printed,
    }
}

fn text(listing: &Listing, wide: bool) -> String {
    let width = (!wide).then_some(COLUMNS);
    let mut text = match listing.is_empty() {
        true => String::new(),
        false => listing.table(width),
    };
    for note in listing.notes() {
        if !text.is_empty() {
            text += "\n";
        }
        text += &table::wrapped(&note, width);
    }
    text
}
