//! The keeper's children: its backend, and orphans of the backend's processes. All are reaped here.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_sessiond_process::{self as process, ListenerLock, PinnedProcess, ProcessId};
use mcp_sessiond_proto::paths;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::sync::watch;
use tokio::time::timeout;

/// The pause before another attempt to list the children.
const LIST_AGAIN: Duration = Duration::from_millis(50);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildExit {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(Signal),
    /// Unknown: other code has reaped it.
    Unknown,
}

impl fmt::Display for ChildExit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit status {code}"),
            Self::Signal(signal) => write!(formatter, "killed by {signal}"),
            Self::Unknown => formatter.write_str("it is gone"),
        }
    }
}

/// How a backend is ended. In each case its standard input is closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// As hosts do: SIGTERM after some time, which is the backend's.
    Graceful {
        /// The signal by which its host has ended it: the backend itself gets it at once, as a direct
        /// child would.
        signal: Option<Signal>,
    },
    /// SIGTERM at once: it hangs, or it has exited, and only its orphans are left.
    Terminate,
}

/// Which processes have ended, of those that the keeper waits for.
#[derive(Debug, Default)]
struct Exits {
    /// The processes that the keeper waits for, and how they ended.
    awaited: HashMap<Pid, Option<ChildExit>>,
    /// The processes that the keeper does not end.
    spared: BTreeSet<ProcessId>,
}

/// The children of this process. No other code may wait for any of them.
#[derive(Debug)]
pub struct Children {
    exits: watch::Sender<Exits>,
    /// By what this keeper is known, as the others are.
    known_by: ListenerLock,
    /// The daemon's lock.
    daemon_lock: PathBuf,
}

impl Children {
    /// No children yet. `known_by`: the lock of this keeper. `directory`: the runtime directory.
    pub fn new(known_by: ListenerLock, directory: &Path) -> Self {
        Self {
            exits: watch::Sender::new(Exits::default()),
            known_by,
            daemon_lock: paths::daemon_lock(directory),
        }
    }

    /// Keepers and a daemon. One that a wrapper below the backend has started may be our child, and is
    /// nobody's but the user's.
    fn never_adopted(&self) -> BTreeSet<u32> {
        let mut pids = self.known_by.others().unwrap_or_default();
        let daemon = process::lock_holder(&self.daemon_lock, paths::DAEMON_BYTE);
        pids.extend(daemon.ok().flatten());
        pids
    }

    /// Notes from now on how this child ends. Call it before the next [`reap`](Self::reap).
    pub fn expect(&self, child: Pid) {
        self.exits.send_modify(|exits| {
            exits.awaited.insert(child, None);
        });
    }

    /// The same of another child in this one's place.
    pub fn expect_instead(&self, of: Pid, child: Pid) {
        self.exits.send_modify(|exits| {
            exits.awaited.remove(&of);
            exits.awaited.insert(child, None);
        });
    }

    /// The pids of all children that have not exited.
    pub fn all(&self) -> Vec<u32> {
        let own = PinnedProcess::myself().ok();
        let children = own.and_then(|own| process::children_of(&own).ok());
        let children = children.unwrap_or_default();
        children.iter().map(|child| child.id().pid).collect()
    }

    /// Reaps the children that have ended. Call it at every SIGCHLD.
    pub fn reap(&self) {
        self.exits.send_modify(|exits| {
            loop {
                let (child, ended) = match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
                    Ok(WaitStatus::Exited(child, code)) => (child, ChildExit::Code(code)),
                    Ok(WaitStatus::Signaled(child, signal, _)) => {
                        (child, ChildExit::Signal(signal))
                    }
                    Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => break,
                    Ok(_) | Err(Errno::EINTR) => continue,
                    Err(_) => break,
                };
                if let Some(awaited) = exits.awaited.get_mut(&child) {
                    *awaited = Some(ended);
                }
            }
        });
    }

    /// How this child ended, if it has.
    pub fn ended(&self, child: Pid) -> Option<ChildExit> {
        self.exits
            .borrow()
            .awaited
            .get(&child)
            .copied()
            .unwrap_or(Some(ChildExit::Unknown))
    }

    /// The backend's orphans in process sessions of their own, such as the user's browser, opened
    /// for a login. The keeper spares them if the backend exits by itself, as a host would.
    pub fn detached(&self, leader: Pid) -> BTreeSet<ProcessId> {
        let own = nix::unistd::getsid(None)
            .map(|session| session.as_raw().cast_unsigned())
            .ok();
        let orphans = self.orphans(leader).unwrap_or_default();
        orphans
            .into_iter()
            .filter(|orphan| process::session_of(orphan).ok().flatten() != own)
            .map(|orphan| orphan.id())
            .collect()
    }

    /// Ends the backend, whose standard input is closed: its process group, and its orphans.
    /// Returns when none of them is left, or nothing more can be done. The group's leader is a
    /// child that is [expected](Self::expect). `detached`: the processes to spare if the leader exits
    /// by itself. `patience`: how long each step may take.
    pub async fn end(
        &self,
        leader: Pid,
        stop_mode: StopMode,
        detached: BTreeSet<ProcessId>,
        patience: Duration,
    ) {
        if let StopMode::Graceful { signal } = stop_mode {
            if let Some(signal) = signal {
                self.signal(leader, signal);
            }
            if timeout(patience, self.exited(leader)).await.is_ok() {
                self.exits
                    .send_modify(|exits| exits.spared.extend(detached));
            }
        }
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let gone = self.signal_until_gone(leader, signal);
            if timeout(patience, gone).await.is_ok() {
                break;
            }
        }
        self.exits.send_modify(|exits| {
            exits.awaited.remove(&leader);
        });
    }

    /// Sends the backend itself a signal, if it has not exited: what it has started hears of it by the
    /// backend, as it would without us.
    pub fn signal(&self, leader: Pid, signal: Signal) {
        if self.ended(leader).is_none() {
            let _ = kill(leader, signal);
        }
    }

    /// Sends a signal to all processes that are left of the backend, and to those that become our
    /// children meanwhile, and waits until they are gone. On Linux orphans become our children, so
    /// the kernel reports the end of each.
    async fn signal_until_gone(&self, leader: Pid, signal: Signal) {
        let mut exits = self.exits.subscribe();
        let mut told = BTreeSet::new();
        if !self.is_group_gone(leader) {
            let _ = killpg(leader, signal);
        }
        loop {
            exits.mark_unchanged();
            let Some(orphans) = self.orphans(leader) else {
                tokio::time::sleep(LIST_AGAIN).await;
                continue;
            };
            if orphans.is_empty() && self.is_group_gone(leader) {
                return;
            }
            for orphan in orphans
                .into_iter()
                .filter(|orphan| told.insert(orphan.id()))
            {
                // This fails if the process has just exited.
                drop(orphan.signal(signal));
            }
            if exits.changed().await.is_err() {
                return;
            }
        }
    }

    /// Our children that are not in the leader's group: those that the backend's processes had put
    /// into groups of their own, and that became ours when their parents were gone. None: they
    /// can't be listed now, for example because no descriptor is free.
    fn orphans(&self, leader: Pid) -> Option<Vec<PinnedProcess>> {
        // Listing takes longer, the more processes there are.
        if has_none() {
            return Some(Vec::new());
        }
        let myself = PinnedProcess::myself().ok()?;
        let spared = self.exits.borrow().spared.clone();
        let is_orphan = |child: &PinnedProcess| {
            let group = nix::unistd::getpgid(Some(Pid::from_raw(child.id().pid.cast_signed())));
            group != Ok(leader) && !spared.contains(&child.id())
        };
        let mut orphans = process::children_of(&myself).ok()?;
        orphans.retain(is_orphan);
        if !orphans.is_empty() {
            let others = self.never_adopted();
            orphans.retain(|orphan| !others.contains(&orphan.id().pid));
        }
        Some(orphans)
    }

    fn is_group_gone(&self, leader: Pid) -> bool {
        self.ended(leader).is_some() && killpg(leader, None) == Err(Errno::ESRCH)
    }

    /// Waits until the leader has exited.
    async fn exited(&self, leader: Pid) {
        let mut exits = self.exits.subscribe();
        while self.ended(leader).is_none() {
            if exits.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Whether we have no children at all, also none that have exited.
#[cfg(target_os = "linux")]
fn has_none() -> bool {
    use nix::sys::wait::{Id, waitid};
    let any = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, any) == Err(Errno::ECHILD)
}

#[cfg(not(target_os = "linux"))]
fn has_none() -> bool {
    false
}
