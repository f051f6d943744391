//! Keepers that run and are not on record, since the records were lost, and that could not be
//! adopted. Nobody would ever attach to them again, and their servers would run beside the next
//! ones. So they are ended before the first claim is answered.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_sessiond_process::{self as process, ExitWatch, PinnedProcess, ProcessId};
use mcp_sessiond_proto::backends::{KeeperName, KeeperReply, KeeperRequest};
use mcp_sessiond_proto::paths;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::kill_left_over;
use crate::engine::Engine;
use crate::keepers::Listener;

/// How long it may take to end by itself. Hosts are waiting for the daemon.
const END_WAIT: Duration = Duration::from_millis(750);

/// How long the kernel may take to end it.
const KILL_WAIT: Duration = Duration::from_millis(500);
const KILL_PAUSE: Duration = Duration::from_millis(5);

/// Ends every keeper that listens in `keepers/` and is not on record, and what is left of its
/// backend.
pub async fn end_orphans(engine: &Arc<Engine>) {
    let keepers = engine.unrecorded_keepers();
    let ending: Vec<_> = keepers
        .into_iter()
        .map(|keeper| {
            let directory = engine.directory().to_owned();
            // It asks, waits, and lists all processes.
            tokio::task::spawn_blocking(move || match end(&directory, keeper) {
                Ok(is_ended) => usize::from(is_ended),
                Err(error) => {
                    let socket = paths::keeper_socket(&directory, keeper);
                    tracing::warn!(socket = %socket.display(), %error, "a process that is not on record listens there, and was left alone");
                    0
                }
            })
        })
        .collect();
    let mut ended = 0;
    for one in ending {
        ended += one.await.unwrap_or(0);
    }
    engine.orphans_ended(ended);
}

/// Ends whoever listens there. False: nobody does any more.
fn end(directory: &Path, keeper: KeeperName) -> io::Result<bool> {
    let Some(listener) = Listener::find(directory, keeper)? else {
        return Ok(false);
    };
    let keeper = listener.process.clone();
    let backend = backend_of(listener);
    let mut exits = ExitWatch::new()?;
    exits.add(keeper.clone())?;
    // It fails where the keeper has just exited, which is what it is for.
    let _ = keeper.signal(Signal::SIGTERM);
    if !wait(&mut exits, END_WAIT)? {
        let _ = keeper.signal(Signal::SIGKILL);
        wait(&mut exits, KILL_WAIT)?;
    }
    let is_gone = !keeper.is_alive();
    kill_left_over(keeper.id(), backend, is_gone)?;
    // Until the next server can be started beside none of it.
    let until = Instant::now() + KILL_WAIT;
    while is_gone && runs(keeper.id().pid, backend)? && Instant::now() < until {
        std::thread::sleep(KILL_PAUSE);
    }
    Ok(true)
}

/// Whether anything is left of a keeper that is gone: a member of its session of processes, or its
/// backend.
fn runs(session: u32, backend: Option<ProcessId>) -> io::Result<bool> {
    let backend = backend
        .map(|backend| PinnedProcess::reopen(&backend))
        .transpose()?
        .flatten();
    Ok(backend.is_some() || !process::session_members(session)?.is_empty())
}

/// Waits for the exit of who is watched.
fn wait(exits: &mut ExitWatch, patience: Duration) -> io::Result<bool> {
    let until = Instant::now() + patience;
    loop {
        if !exits.drain().is_empty() {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        match poll(
            &mut [PollFd::new(exits.as_fd(), PollFlags::POLLIN)],
            timeout,
        ) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The keeper's backend, as the keeper says and the kernel confirms. None where it does not answer:
/// what is in the keeper's own session of processes is known without.
fn backend_of(listener: Listener) -> Option<ProcessId> {
    let keeper = listener.process.clone();
    let Some(KeeperReply::Status(status)) = listener.ask(&KeeperRequest::Status {}) else {
        return None;
    };
    Some(process::child_of(&keeper, status.pid?).ok()??.id())
}
