//! Ends keepers that have to end, and what is left of backends whose keepers have exited.

mod orphans;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_process::health::is_stopped;
use mcp_sessiond_process::{self as process, PinnedProcess, ProcessId, note};
use mcp_sessiond_proto::end_note::EndNote;
use mcp_sessiond_proto::{Loss, SessionId};
use mcp_sessiond_registry::KeeperRecord;
use nix::sys::signal::Signal;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::engine::{Charge, Engine};

pub use orphans::end_orphans;

/// How long a keeper may take beyond what it grants its backend: four times the wait, for answers
/// that are under way, for the end of its input, for SIGTERM and for SIGKILL, and this.
const GRACE: Duration = Duration::from_secs(2);

/// How often it is looked whether a keeper that was asked to end can do so.
const LOOK: Duration = Duration::from_millis(250);

/// When the processes are listed again that could not be.
const RETRY: Duration = Duration::from_secs(1);

/// A keeper that was asked to end.
#[derive(Debug)]
struct Ending {
    keeper: PinnedProcess,
    /// What people know its server by.
    server: String,
    /// When it is looked at whether it can end by itself; none once it was killed.
    look_at: Option<Instant>,
    /// When it is killed; none once it was.
    kill_at: Option<Instant>,
    /// Why it has to end.
    why: &'static str,
}

/// Looks after the keepers of one daemon.
#[derive(Debug)]
pub struct Terminator {
    engine: Arc<Engine>,
    /// Keepers that were asked to end.
    ending: BTreeMap<ProcessId, Ending>,
    incoming: mpsc::UnboundedReceiver<Charge>,
}

impl Terminator {
    /// Will see to what comes in by `incoming`.
    pub fn new(engine: Arc<Engine>, incoming: mpsc::UnboundedReceiver<Charge>) -> Self {
        Self {
            engine,
            ending: BTreeMap::new(),
            incoming,
        }
    }

    /// Goes on until it is dropped. What it has not done by then is on record, and the next daemon
    /// does it.
    pub async fn run(mut self) {
        loop {
            let kill_at = self.ending.values().filter_map(Ending::due).min();
            tokio::select! {
                Some(charge) = self.incoming.recv() => match charge {
                    Charge::End { keeper, server, because, why, kills } => {
                        self.end(keeper, server, because, why, kills);
                    }
                    Charge::Sweep { keeper, is_seen, why, of } => {
                        let ours = self.ending.remove(&keeper.process).map(|ending| ending.why);
                        let reason = ours.map(str::to_owned).or(why);
                        tokio::spawn(sweep(self.engine.clone(), keeper, is_seen, reason, of));
                    }
                },
                () = tokio::time::sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => self.kill(),
            }
        }
    }

    /// Asks a keeper to end. One that can't do so, since it is stopped, is killed at once, and so is
    /// one that does not answer.
    fn end(
        &mut self,
        keeper: PinnedProcess,
        server: String,
        because: Loss,
        why: &'static str,
        kills: bool,
    ) {
        let stop_wait =
            Duration::from_millis(self.engine.settings().loaded.config.backends.stop_wait_ms);
        let now = Instant::now();
        let ending = self.ending.entry(keeper.id()).or_insert_with(|| Ending {
            look_at: Some(now + LOOK),
            kill_at: Some(now + stop_wait * 4 + GRACE),
            keeper,
            server,
            why,
        });
        if kills {
            return ending.kill(why);
        }
        if is_stopped(&ending.keeper) {
            return ending.kill("it is stopped, and can't end by itself");
        }
        // It says so to its host. Without a note it ends all the same.
        let (directory, id) = (self.engine.directory(), ending.keeper.id());
        let note = EndNote {
            because: Some(because),
            why: why.to_owned(),
        };
        if let Ok(note) = serde_json::to_string(&note) {
            let _ = note::leave(&EndNote::path(directory, id.pid, id.start.0), &note);
        }
        // It fails where the keeper has just exited, which is told anyway.
        let _ = ending.keeper.signal(Signal::SIGTERM);
    }

    /// Kills the keepers that can't end, and those that have not in time.
    fn kill(&mut self) {
        let now = Instant::now();
        for ending in self.ending.values_mut() {
            if ending.look_at.is_some_and(|at| at <= now) {
                if is_stopped(&ending.keeper) {
                    ending.kill("it is stopped, and can't end by itself");
                } else {
                    // It may still be stopped while it ends.
                    ending.look_at = Some(now + LOOK);
                }
            }
            if ending.kill_at.is_some_and(|at| at <= now) {
                ending.kill("it did not end in time");
            }
        }
    }
}

impl Ending {
    /// The next time at which something is to be done about it.
    fn due(&self) -> Option<Instant> {
        self.kill_at
            .map(|at| self.look_at.map_or(at, |look| look.min(at)))
    }

    fn kill(&mut self, why: &'static str) {
        (self.kill_at, self.look_at) = (None, None);
        let pid = self.keeper.id().pid;
        if self.keeper.signal(Signal::SIGKILL).is_ok() {
            tracing::warn!(
                server = self.server,
                keeper = pid,
                why,
                "a keeper that had to end was killed"
            );
        }
    }
}

/// Kills what is left of a keeper's backend. `reason`: why the keeper had to end, if that is known.
/// `of`: its session and its host.
async fn sweep(
    engine: Arc<Engine>,
    keeper: KeeperRecord,
    is_seen: bool,
    reason: Option<String>,
    of: Option<(SessionId, u32)>,
) {
    let session = of
        .as_ref()
        .map(|(session, _)| tracing::field::display(session));
    let host = of.as_ref().map(|(_, host)| *host);
    let (server, pid) = (&keeper.program, keeper.process.pid);
    loop {
        let of = keeper.clone();
        // Listing all processes takes its time.
        let killing =
            tokio::task::spawn_blocking(move || kill_left_over(of.process, of.backend, is_seen));
        match killing.await.map_err(io::Error::other).flatten() {
            Ok(killed) => {
                if killed > 0 {
                    tracing::warn!(
                        server,
                        session,
                        host,
                        keeper = pid,
                        killed,
                        "killed what was left of the backend of a keeper that is gone"
                    );
                }
                // One that never had a backend has said why to whoever started it.
                if keeper.backend.is_some() {
                    let why = reason.as_deref().unwrap_or(match is_seen {
                        false => "its keeper ended while no daemon ran, and has not said why",
                        true => "its keeper was killed",
                    });
                    tracing::info!(
                        server,
                        session,
                        host,
                        keeper = pid,
                        why,
                        "a server has ended"
                    );
                }
                return engine.swept(&keeper);
            }
            Err(error) => {
                tracing::warn!(%error, "could not look for what is left of a backend");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Kills the members of the keeper's session of processes, and tells how many there were.
fn kill_left_over(
    keeper: ProcessId,
    backend: Option<ProcessId>,
    is_seen: bool,
) -> io::Result<usize> {
    let mut killed = BTreeSet::new();
    for session in sessions_of(keeper, backend, is_seen)? {
        // Until nobody is found who was not killed yet: who has SIGKILL coming starts no process
        // any more.
        loop {
            let members = process::session_members(session)?;
            // The number was given again after all: these are somebody else's.
            let leads = |member: &&PinnedProcess| member.id().pid == session;
            if members
                .iter()
                .find(leads)
                .is_some_and(|leader| Some(leader.id()) != backend)
            {
                break;
            }
            let are_its = |member: &PinnedProcess| member.id().start >= keeper.start;
            let new = members
                .into_iter()
                .filter(are_its)
                .filter(|member| killed.insert(member.id()));
            let new: Vec<PinnedProcess> = new.collect();
            if new.is_empty() {
                break;
            }
            for member in new {
                // It fails where it has exited meanwhile, or has become another user's.
                let _ = member.signal(Signal::SIGKILL);
            }
        }
    }
    Ok(killed.len())
}

/// The sessions of processes that are the keeper's, or its backend's, for sure.
///
/// A number that a session has is given to no process as long as the session has a member. So the
/// keeper's pid is that of its own session if its exit was seen just now and nobody has the pid
/// again, or if the backend, which is known among all processes, is a member. A backend that has left
/// its keeper's session leads one, or is in one whose leader is gone, as a process that was forked
/// twice. Other people's sessions lose their leaders, too, as that of a shell that has ended: theirs
/// have members who were there before the keeper.
fn sessions_of(
    keeper: ProcessId,
    backend: Option<ProcessId>,
    is_seen: bool,
) -> io::Result<BTreeSet<u32>> {
    let mut sessions = BTreeSet::new();
    if is_seen && !process::is_taken(keeper.pid)? {
        sessions.insert(keeper.pid);
    }
    let backend = backend
        .map(|backend| PinnedProcess::reopen(&backend))
        .transpose()?
        .flatten();
    if let Some(backend) = backend
        && let Some(session) = process::session_of(&backend)?
        && ([keeper.pid, backend.id().pid].contains(&session) || is_left_behind(session, keeper)?)
    {
        sessions.insert(session);
    }
    Ok(sessions)
}

/// Whether a session's leader is gone, and all its members are younger than the keeper.
fn is_left_behind(session: u32, keeper: ProcessId) -> io::Result<bool> {
    // 0: its leader is outside of our PID namespace (pid_namespaces(7)).
    if session == 0 || process::is_taken(session)? {
        return Ok(false);
    }
    let members = process::session_members(session)?;
    let is_younger = |member: &PinnedProcess| member.id().start >= keeper.start;
    Ok(members.iter().all(is_younger))
}

#[cfg(test)]
mod tests;
