//! Keepers that run and are not on record, since the records were lost, and that could not be
//! adopted. Nobody would ever attach to them again, and their servers would run beside the next
//! ones. So they are ended before the first claim is answered, but for those that do not answer:
//! whose front may be waiting for one that is stopped nobody can say.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_sessiond_process::health::is_stopped;
use mcp_sessiond_process::{
    self as process, ExitWatch, Health, HealthWatch, PinnedProcess, ProcessId,
};
use mcp_sessiond_proto::backends::{BackendStatus, KeeperName, KeeperReply, KeeperRequest};
use mcp_sessiond_proto::paths;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::kill_left_over;
use crate::engine::Engine;
use crate::keepers::Listener;

/// How long it may take to end by itself. Hosts are waiting for the daemon.
const END_WAIT: Duration = Duration::from_millis(750);

/// How often it is looked whether a keeper answers that did not, and how long one may be silent that
/// could answer.
const LOOK: Duration = Duration::from_millis(500);
const HUNG_AFTER: Duration = Duration::from_secs(6);

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
            tokio::task::spawn_blocking(move || end_if_it_answers(&directory, keeper))
        })
        .collect();
    let mut ended = 0;
    for one in ending {
        match one.await {
            Ok(Outcome::Ended) => ended += 1,
            Ok(Outcome::Silent(keeper, process)) => {
                tokio::spawn(wait_for_silent(
                    engine.directory().to_owned(),
                    keeper,
                    process,
                ));
            }
            Ok(Outcome::Absent) | Err(_) => {}
        }
    }
    engine.orphans_ended(ended);
}

/// What became of an unrecorded keeper.
enum Outcome {
    /// Nobody listens there, or not a keeper.
    Absent,
    /// It is gone.
    Ended,
    /// It does not answer: it may be stopped, and is left alone until it does.
    Silent(KeeperName, PinnedProcess),
}

fn end_if_it_answers(directory: &Path, keeper: KeeperName) -> Outcome {
    let ended = Listener::find(directory, keeper).and_then(|found| {
        let Some(listener) = found else {
            return Ok(Outcome::Absent);
        };
        let process = listener.process.clone();
        let Some(status) = status_of(listener) else {
            return Ok(Outcome::Silent(keeper, process));
        };
        end(&process, status.pid).map(|()| Outcome::Ended)
    });
    ended.unwrap_or_else(|error| {
        let socket = paths::keeper_socket(directory, keeper);
        tracing::warn!(socket = %socket.display(), %error, "a process that is not on record listens there, and was left alone");
        Outcome::Absent
    })
}

/// Waits for a keeper that is not on record and does not answer. Once it does, it goes on where a
/// front is attached, and ends with that one; otherwise it is ended. One that hangs is killed.
async fn wait_for_silent(directory: PathBuf, keeper: KeeperName, process: PinnedProcess) {
    tracing::warn!(
        pid = process.id().pid,
        "a keeper that is not on record does not answer, and is waited for"
    );
    let mut watch = HealthWatch::new(process.clone());
    let mut awake = Duration::ZERO;
    loop {
        tokio::time::sleep(LOOK).await;
        match watch.look() {
            Health::Gone => return,
            Health::Stalled => continue,
            Health::Idle | Health::Working => awake += LOOK,
        }
        let directory = directory.clone();
        let asking = tokio::task::spawn_blocking(move || {
            let asked = Instant::now();
            let listener = Listener::find(&directory, keeper).ok().flatten();
            let waited = |status| (status, asked.elapsed());
            waited(listener.and_then(status_of))
        });
        let Ok((status, waited)) = asking.await else {
            return;
        };
        let pid = process.id().pid;
        let backend = match status {
            Some(status) if status.front.is_some() => {
                tracing::info!(
                    pid,
                    "a keeper that is not on record has a wrapper, and ends with it"
                );
                return;
            }
            Some(status) => status.pid,
            None => {
                // It could have answered meanwhile, unless it was stopped again.
                awake += if is_stopped(&process) {
                    Duration::ZERO
                } else {
                    waited
                };
                if awake < HUNG_AFTER {
                    continue;
                }
                let _ = process.signal(Signal::SIGKILL);
                None
            }
        };
        let process = process.clone();
        let ended = tokio::task::spawn_blocking(move || end(&process, backend)).await;
        match ended.map_err(io::Error::other).flatten() {
            Ok(()) => tracing::info!(pid, "a keeper that is not on record was ended"),
            Err(error) => {
                tracing::warn!(pid, %error, "a keeper that is not on record could not be ended");
            }
        }
        return;
    }
}

/// Ends a keeper, and what is left of its backend, which has this pid.
fn end(keeper: &PinnedProcess, backend: Option<u32>) -> io::Result<()> {
    let backend = backend.and_then(|pid| Some(process::child_of(keeper, pid).ok()??.id()));
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
    Ok(())
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

/// What a keeper says of itself. None where it does not answer.
fn status_of(listener: Listener) -> Option<BackendStatus> {
    match listener.ask(&KeeperRequest::Status {}) {
        Some(KeeperReply::Status(status)) => Some(*status),
        _ => None,
    }
}
