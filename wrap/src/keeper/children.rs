//! The keeper's children: its backend, and what the backend's children left behind when they died. All are reaped here.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use mcp_sessiond_process::{self as process, Pinned};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::sync::watch;
use tokio::time::timeout;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(Signal),
    /// Nobody knows: it was reaped by somebody else.
    Unknown,
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(formatter, "exit status {code}"),
            Self::Signal(signal) => write!(formatter, "killed by {signal}"),
            Self::Unknown => formatter.write_str("it is gone"),
        }
    }
}

/// Who has ended, as far as anybody waits for it.
#[derive(Debug, Default)]
struct Exits {
    /// The processes that are waited for, and how they ended.
    awaited: HashMap<Pid, Option<Ended>>,
}

/// The children of this process. Nobody else may wait for any of them.
#[derive(Debug)]
pub struct Children {
    exits: watch::Sender<Exits>,
}

impl Children {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self { exits: watch::Sender::new(Exits::default()) }
    }

    /// Will take down how this child ends. To be called before the next [`reap`](Self::reap).
    pub fn expect(&self, child: Pid) {
        self.exits.send_modify(|exits| {
            exits.awaited.insert(child, None);
        });
    }

    /// Reaps who has ended. To be called at every SIGCHLD.
    pub fn reap(&self) {
        self.exits.send_modify(|exits| {
            loop {
                let (child, ended) = match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
                    Ok(WaitStatus::Exited(child, code)) => (child, Ended::Code(code)),
                    Ok(WaitStatus::Signaled(child, signal, _)) => (child, Ended::Signal(signal)),
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
    #[must_use]
    pub fn ended(&self, child: Pid) -> Option<Ended> {
        self.exits.borrow().awaited.get(&child).copied().unwrap_or(Some(Ended::Unknown))
    }

    /// Ends a process group as hosts end a server, whose standard input is closed already: waits, SIGTERM, waits, SIGKILL.
    /// Returns when nobody is left in it, or nothing more can be done. It is led by a child that is
    /// [expected](Self::expect).
    pub async fn end_group(&self, leader: Pid, patience: Duration) {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            // Who was only started by one that has ended waits for nothing on its standard input.
            let orphaned = signal == Signal::SIGTERM && self.ended(leader).is_some();
            let wait = if orphaned { Duration::ZERO } else { patience };
            if timeout(wait, self.group_gone(leader)).await.is_ok() {
                break;
            }
            let _ = killpg(leader, signal);
        }
        let _ = timeout(patience, self.group_gone(leader)).await;
        self.exits.send_modify(|exits| {
            exits.awaited.remove(&leader);
        });
    }

    /// Ends the children that are in no group that was ended: those that the backend's processes had put into sessions of
    /// their own, and that became ours when their parents were gone. They have had their time with the others.
    pub async fn end_strays(&self, patience: Duration) {
        let Ok(myself) = Pinned::myself() else { return };
        let mut exits = self.exits.subscribe();
        let ended = async {
            loop {
                exits.mark_unchanged();
                let strays = process::children_of(&myself).unwrap_or_default();
                if strays.is_empty() {
                    return;
                }
                for stray in strays {
                    // It fails where it has just exited.
                    drop(stray.signal(Signal::SIGKILL));
                }
                // Whoever it has left behind becomes ours in turn.
                if exits.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(patience, ended).await;
    }

    /// Waits until nobody is left in the group. On Linux whoever loses its parent becomes our child, so the end of the last one
    /// is told to us.
    async fn group_gone(&self, leader: Pid) {
        let mut exits = self.exits.subscribe();
        loop {
            exits.mark_unchanged();
            if self.ended(leader).is_some() && killpg(leader, None) == Err(Errno::ESRCH) {
                return;
            }
            if exits.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Default for Children {
    fn default() -> Self {
        Self::new()
    }
}
