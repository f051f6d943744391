//! Whom a process has started: its children, and the members of its session, in the sense of setsid(2).

use std::io;

use nix::unistd::geteuid;

use super::os;
use super::pinned::Pinned;
use super::walk::{confirm_child, hold_parent};

/// Holds the process that has this pid, if it is a child of `parent`'s and this user's. One that has exited is none.
#[must_use]
pub fn child_of(parent: &Pinned, pid: u32) -> Option<Pinned> {
    let child = hold_parent(pid, geteuid().as_raw()).ok()?;
    confirm_child(&child, parent).ok()?;
    Some(child)
}

/// Whether a process has called setsid(2), so that its session has its pid for an id. As long as the session has members
/// the system gives that number to nobody else.
#[must_use]
pub fn leads_session(process: &Pinned) -> bool {
    session_of(process).is_some_and(|session| session == process.pid())
}

/// The id of a process's session. None: the process has exited, or can't be looked at.
#[must_use]
pub fn session_of(process: &Pinned) -> Option<u32> {
    let session = os::session(process.pid()).ok()?;
    process.is_alive().then_some(session)
}

/// The processes of a session that have not exited, and that may be looked at.
///
/// # Errors
/// When the system does not tell which processes there are, or there are too many open files.
pub fn session_members(session: u32) -> io::Result<Vec<Pinned>> {
    let is_member = |pid: &u32| os::session(*pid).is_ok_and(|found| found == session);
    let mut members = Vec::new();
    for pid in os::pids()?.into_iter().filter(is_member) {
        match Pinned::pin(pid) {
            // The pid may have been another process's when it was looked at first.
            Ok(Some(process)) if session_of(&process) == Some(session) => members.push(process),
            Ok(_) => {}
            // macOS does not say when another user's process started.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(members)
}

/// The children of a process that have not exited, and that may be looked at.
///
/// # Errors
/// When the system does not tell which processes there are.
pub fn children_of(parent: &Pinned) -> io::Result<Vec<Pinned>> {
    // Most are somebody else's, which one look tells.
    let may_be = |pid: &u32| os::kin(*pid).is_ok_and(|kin| kin.parent == parent.pid());
    Ok(os::pids()?.into_iter().filter(may_be).filter_map(|pid| child_of(parent, pid)).collect())
}

/// Whether a process that has not exited has this pid.
///
/// # Errors
/// Whatever stands in the way of knowing, such as too many open files.
pub fn is_taken(pid: u32) -> io::Result<bool> {
    Ok(Pinned::pin(pid)?.is_some())
}
