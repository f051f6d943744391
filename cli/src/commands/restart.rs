//! `mcp-sessiond restart`: fresh servers in the place of those that are kept.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use mcp_sessiond_process::health::is_stopped;
use mcp_sessiond_proto::backends::{BackendStatus, KeeperReply, KeeperRequest};
use mcp_sessiond_proto::paths;
use mcp_sessiond_proxy::keeper::dial::{DialError, Dialled, dial, keeper_of};

use super::stop;
use crate::exit_code::SOFTWARE;
use crate::inventory::selection::Selection;
use crate::inventory::{Inventory, Server, keeper_status};
use crate::ui::output::{print, warn};
use crate::ui::progress;
use crate::ui::table::printable;

/// How long the former server may take to end, and the fresh one to be started.
const START: Duration = Duration::from_secs(10);

/// The pause before it is looked again.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
#[command(after_help = "\
The server is ended, and then a fresh one is started. Its host stays connected, and finds the fresh one initialised like the \
previous one. Calls that were under way get an error, since their outcome is unknown. What the previous server had in memory \
is gone. `--all` restarts every server.

Exit codes: 0 the fresh server runs; 64 WHAT fits several servers, which are listed, and nothing was done; 66 no such server; \
69 the daemon does not answer; 70 it could not be restarted, or not within 10 s.

Examples:
  mcp-sessiond restart browser
  mcp-sessiond restart 4711
  mcp-sessiond restart --all")]
pub(crate) struct Arguments {
    #[command(flatten)]
    selection: Selection,
}

/// Why there is no fresh server.
#[derive(Debug, thiserror::Error)]
enum NotRestarted {
    #[error(transparent)]
    Unreachable(DialError),
    #[error(
        "its keeper no longer answers: {why}; `mcp-sessiond stop {keeper}` ends it, and its host's next call starts a fresh one"
    )]
    Silent { keeper: u32, why: String },
    #[error("the fresh one has ended: {0}")]
    Ended(String),
    #[error("{0}")]
    NotEnded(String),
    #[error("the previous server is still ending")]
    Slow,
}

impl NotRestarted {
    fn silent(server: &Server, why: Option<String>) -> Self {
        Self::Silent {
            keeper: server.keeper_pid.unwrap_or_default(),
            why: why.unwrap_or_default(),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    arguments.selection.apply(restart)
}

async fn restart(inventory: &Inventory, servers: &[&Server]) -> u8 {
    let mut code = 0;
    let mut asked = Vec::new();
    for server in servers {
        asked.push((server, replace(inventory, server).await));
    }
    let until = Instant::now() + START;
    for (server, asked) in asked {
        let what = format!("{} has ended, and a fresh one runs", server.display_name());
        match progress::wait_until(what, restarted(inventory, server, asked, until)).await {
            Ok(said) => drop(print(&format!("{said}\n"))),
            Err(why) => {
                warn(why);
                code = SOFTWARE;
            }
        }
    }
    code
}

/// Replaces one server, waits until the fresh one runs, and says so.
///
/// # Errors
/// A sentence, where there is none.
pub(crate) async fn one(inventory: &Inventory, server: &Server) -> Result<String, String> {
    let asked = replace(inventory, server).await;
    restarted(inventory, server, asked, Instant::now() + START).await
}

/// Waits until the fresh server runs.
async fn restarted(
    inventory: &Inventory,
    server: &Server,
    asked: Result<Asked, NotRestarted>,
    until: Instant,
) -> Result<String, String> {
    let called = server.display_name();
    let fresh = match asked {
        Ok(Asked::Keeper(former)) => started(inventory, server, &former, until).await,
        Ok(Asked::Daemon(said)) => return Ok(said),
        Err(why) => Err(why),
    };
    match fresh {
        Ok(pid) => Ok(format!("{called} was restarted; its pid is now {pid}")),
        Err(why) => Err(format!(
            "{called} was not restarted: {}",
            printable(&why.to_string())
        )),
    }
}

/// Who was asked for a fresh server.
enum Asked {
    /// The keeper, whose server was so.
    Keeper(Box<BackendStatus>),
    /// The daemon, which has ended a keeper that can't answer. What there is to say.
    Daemon(String),
}

/// Asks the keeper for a fresh server. A keeper that is stopped can't be asked: the daemon ends it,
/// and the next one has a fresh server.
async fn replace(inventory: &Inventory, server: &Server) -> Result<Asked, NotRestarted> {
    let directory = inventory.directory.path();
    let is_stopped = keeper_of(directory, server.keeper).is_ok_and(|keeper| is_stopped(&keeper));
    if is_stopped && inventory.connection.is_some() {
        stop::one(inventory, server)
            .await
            .map_err(NotRestarted::NotEnded)?;
        return Ok(Asked::Daemon(format!(
            "{}: the process that kept it was stopped (SIGSTOP), so it was ended; its host gets a fresh server at its next call",
            server.display_name()
        )));
    }
    let socket = paths::keeper_socket(directory, server.keeper);
    let former = match keeper_status(&socket) {
        (Some(status), ..) => status,
        (None, why, _) => return Err(NotRestarted::silent(server, why)),
    };
    match dial(&socket, &KeeperRequest::Restart {}) {
        Ok(Dialled {
            reply: KeeperReply::Restarting {},
            ..
        }) => Ok(Asked::Keeper(Box::new(former))),
        Ok(_) => Err(NotRestarted::Unreachable(DialError::Answer)),
        Err(error) => Err(NotRestarted::Unreachable(error)),
    }
}

/// The pid of the fresh server, when it runs.
async fn started(
    inventory: &Inventory,
    server: &Server,
    former: &BackendStatus,
    until: Instant,
) -> Result<u32, NotRestarted> {
    let socket = paths::keeper_socket(inventory.directory.path(), server.keeper);
    loop {
        match keeper_status(&socket) {
            (
                Some(BackendStatus {
                    restarts,
                    pid,
                    last_error,
                    ..
                }),
                ..,
            ) if restarts > former.restarts => {
                return pid.ok_or_else(|| NotRestarted::Ended(last_error.unwrap_or_default()));
            }
            (Some(_), ..) => {}
            (None, why, _) => return Err(NotRestarted::silent(server, why)),
        }
        if Instant::now() >= until {
            return Err(NotRestarted::Slow);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
