//! `mcp-sessiond stop`: ends servers that are kept.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use mcp_sessiond_client::Error;
use mcp_sessiond_process::{PeerError, PinnedProcess, note};
use mcp_sessiond_proto::backends::{StopReason, StopRequest};
use mcp_sessiond_proto::end_note::EndNote;
use mcp_sessiond_proto::{Loss, paths};
use mcp_sessiond_proxy::keeper::dial::{DialError, keeper_of};
use nix::sys::signal::Signal;

use crate::calls::{ANSWER_TIMEOUT, Failure};
use crate::exit_code::SOFTWARE;
use crate::inventory::selection::Selection;
use crate::inventory::{Inventory, Server, State};
use crate::ui::output::{print, warn};
use crate::ui::progress;

/// How long a server may take to end. With `backends.stop_wait_ms` as it is by default a keeper
/// that does not end by itself is killed before that, where there is a daemon.
const END: Duration = Duration::from_secs(10);

/// The pause before it is looked again.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
#[command(after_help = "\
The session stays, and the host stays connected; its next call starts a fresh server. `--all` stops every server. \
If no daemon runs, `stop` talks to the keepers directly.

Exit codes: 0 it has ended; 64 WHAT fits several servers, which are listed, and nothing was done; 66 no such server; 69 the \
daemon does not answer; 70 it is still ending after 10 s.

Examples:
  mcp-sessiond stop browser
  mcp-sessiond stop 019a4e3c-5d2f-7c1e-9a51-3f0d6c1b2a77
  mcp-sessiond stop 4711")]
pub(crate) struct Arguments {
    #[command(flatten)]
    selection: Selection,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    arguments.selection.apply(stop)
}

async fn stop(inventory: &Inventory, servers: &[&Server]) -> u8 {
    let mut code = 0;
    let mut ending = Vec::new();
    for server in servers {
        match end(inventory, server).await {
            Ok(keeper) => ending.push((server, keeper)),
            Err(failure) => code = failure.report(),
        }
    }
    // What is waited for is that these processes exit: a front may start the next one before that.
    let until = Instant::now() + END;
    for (server, keeper) in ending {
        let what = format!("{} has ended", server.display_name());
        match progress::wait_until(what, ended(server, keeper, until)).await {
            Ok(said) => drop(print(&format!("{said}\n"))),
            Err(why) => {
                warn(why);
                code = SOFTWARE;
            }
        }
    }
    code
}

/// Ends one server, waits until it is gone, and says so.
///
/// # Errors
/// A sentence, where it is not.
pub(crate) async fn one(inventory: &Inventory, server: &Server) -> Result<String, String> {
    let keeper = end(inventory, server)
        .await
        .map_err(|failure| failure.to_string())?;
    ended(server, keeper, Instant::now() + END).await
}

/// Waits until its keeper is gone.
async fn ended(
    server: &Server,
    keeper: Option<PinnedProcess>,
    until: Instant,
) -> Result<String, String> {
    let called = server.display_name();
    while keeper.as_ref().is_some_and(PinnedProcess::is_alive) && Instant::now() < until {
        tokio::time::sleep(PAUSE).await;
    }
    match keeper.filter(PinnedProcess::is_alive) {
        // Its host goes on calling it.
        None => Ok(match (server.state, &server.host_name) {
            (State::InUse, Some(host)) => {
                format!("{called} is stopped; it starts again when {host} next calls it")
            }
            _ => format!("{called} is stopped"),
        }),
        Some(keeper) => {
            let pid = keeper.id().pid;
            Err(format!(
                "{called} got the request to stop, but its keeper still runs; `kill -KILL {pid}` ends it"
            ))
        }
    }
}

/// Has a server end. Its keeper, where it still is there.
async fn end(inventory: &Inventory, server: &Server) -> Result<Option<PinnedProcess>, Failure> {
    let directory = inventory.directory.path();
    // One that ends has closed its socket.
    let (listens, doubt) = match keeper_of(directory, server.keeper) {
        Ok(keeper) => (Some(keeper), None),
        Err(DialError::Io(_) | DialError::Unidentified(PeerError::Gone)) => (None, None),
        Err(doubt) => (None, Some(doubt)),
    };
    if let (Some(connection), Some(session), true) =
        (&inventory.connection, &server.session, server.known)
    {
        let keeper = listens
            .clone()
            .or_else(|| PinnedProcess::open(server.keeper_pid?).ok());
        let request = StopRequest {
            session: session.clone(),
            service: server.service.clone(),
            backend: server.backend.clone(),
            why: StopReason::Asked,
        };
        match connection.stop_backend(ANSWER_TIMEOUT, request).await? {
            Ok(()) | Err(Error::UnknownBackend) => return Ok(keeper),
            // Several hosts have a session of this id: the keeper itself is told.
            Err(Error::InvalidArgument { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(doubt) = doubt {
        let socket = paths::keeper_socket(directory, server.keeper);
        return Err(Failure::Keeper(doubt, socket));
    }
    if let Some(keeper) = &listens {
        // There may be no daemon now that hears why.
        let note = EndNote {
            because: Some(Loss::Stopped),
            why: EndNote::BY_STOP.to_owned(),
        };
        if let Ok(note) = serde_json::to_string(&note) {
            let (pid, start) = (keeper.id().pid, keeper.id().start.0);
            let _ = note::leave(&EndNote::path(directory, pid, start), &note);
        }
        // It fails where it has exited just now.
        let _ = keeper.signal(Signal::SIGTERM);
    }
    Ok(listens)
}
