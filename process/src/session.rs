//! Whom a process has started: its children, and the members of its session, in the sense of
//! setsid(2).

use std::io;

use nix::unistd::geteuid;

use super::exhausted::{Exhausted, readable};
use super::os;
use super::pinned::PinnedProcess;
use super::walk::{HostDoubt, confirm_child, hold_parent};

/// Holds the process that has this pid, if it is a child of `parent`'s and this user's. One that
/// has exited is none.
///
/// # Errors
/// [`Exhausted`].
pub fn child_of(parent: &PinnedProcess, pid: u32) -> Result<Option<PinnedProcess>, Exhausted> {
    let held = hold_parent(pid, geteuid().as_raw());
    HostDoubt::settled(held.and_then(|child| confirm_child(&child, parent).map(|()| child)))
}

/// Whether a process has called setsid(2), so that its session has its pid for an id. As long as
/// the session has members the system gives that number to nobody else.
///
/// # Errors
/// [`Exhausted`].
pub fn leads_session(process: &PinnedProcess) -> Result<bool, Exhausted> {
    Ok(session_of(process)?.is_some_and(|session| session == process.pid()))
}

/// The id of a process's session. None: the process has exited, or may not be looked at.
///
/// # Errors
/// [`Exhausted`].
pub fn session_of(process: &PinnedProcess) -> Result<Option<u32>, Exhausted> {
    let session = readable(os::session(process.pid()))?;
    Ok(session.filter(|_| process.is_alive()))
}

/// The processes of a session that have not exited, and that may be looked at.
///
/// # Errors
/// When the system does not tell which processes there are, or there are too many open files.
pub fn session_members(session: u32) -> io::Result<Vec<PinnedProcess>> {
    let mut members = Vec::new();
    for pid in os::pids()? {
        if readable(os::session(pid))? != Some(session) {
            continue;
        }
        match PinnedProcess::pin(pid) {
            // The pid may have been another process's when it was looked at first.
            Ok(Some(process)) if session_of(&process)? == Some(session) => members.push(process),
            Ok(_) => {}
            // macOS does not say when another user's process started.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(members)
}

/// The pids of what a process has started, if it leads a session and adopts orphans: its
/// descendants, or, where the system lists nobody's children, the rest of its session. For figures
/// only: the next moment they may be other processes'.
///
/// # Errors
/// When the system tells neither.
pub fn started_by(leader: u32) -> io::Result<Vec<u32>> {
    #[cfg(target_os = "linux")]
    if let Ok(mut found) = os::children(leader) {
        let mut looked = 0;
        while let Some(parent) = found.get(looked) {
            // One that has exited meanwhile has none.
            let children = os::children(*parent).unwrap_or_default();
            found.extend(children);
            looked += 1;
        }
        return Ok(found);
    }
    let members = session_members(leader)?;
    Ok(members
        .iter()
        .map(PinnedProcess::pid)
        .filter(|pid| *pid != leader)
        .collect())
}

/// The children of a process that have not exited, and that may be looked at.
///
/// # Errors
/// When the system does not tell which processes there are, or there are too many open files.
pub fn children_of(parent: &PinnedProcess) -> io::Result<Vec<PinnedProcess>> {
    let mut children = Vec::new();
    for pid in os::pids()? {
        // Most are somebody else's, which one look tells.
        if readable(os::status(pid))?.is_some_and(|status| status.parent == parent.pid()) {
            children.extend(child_of(parent, pid)?);
        }
    }
    Ok(children)
}

/// Whether a process that has not exited has this pid.
///
/// # Errors
/// Whatever stands in the way of knowing, such as too many open files.
pub fn is_taken(pid: u32) -> io::Result<bool> {
    Ok(PinnedProcess::pin(pid)?.is_some())
}
