//! A process that is held.

use std::io;

use mcp_sessiond_identity::ProcessId;
use nix::sys::signal::Signal;

use super::os;

/// One process, held so that it can't be mistaken for another: on Linux by its pidfd, on macOS,
/// where there is no such thing, by its identity, which is looked at again each time.
///
/// Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct PinnedProcess {
    handle: os::Handle,
    id: ProcessId,
}

/// There is nobody to hold: the process has exited, or the kernel would not let us look at it (out
/// of descriptors, another user's process on macOS). Either way nothing can be granted to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the process has exited, or can't be looked at")]
pub struct Gone;

impl PinnedProcess {
    /// Holds the process that has this pid now.
    ///
    /// # Errors
    /// [`Gone`], also for a zombie and for the id of a thread.
    pub fn open(pid: u32) -> Result<Self, Gone> {
        Self::pin(pid).ok().flatten().ok_or(Gone)
    }

    /// Holds exactly this process, if it is alive. `None` is certain: it has exited.
    ///
    /// # Errors
    /// Whatever stands in the way of knowing, such as too many open files. The process may well be
    /// alive then, and its leases with it.
    pub fn reopen(id: &ProcessId) -> io::Result<Option<Self>> {
        Ok(Self::pin(id.pid)?.filter(|found| found.id == *id))
    }

    /// Holds this very process.
    ///
    /// # Errors
    /// [`Gone`] where the system does not let us look at ourselves (no /proc, or that of another
    /// pid namespace).
    pub fn myself() -> Result<Self, Gone> {
        Self::open(std::process::id())
    }

    /// Its identity.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Whether it still runs. A zombie counts as exited.
    pub fn is_alive(&self) -> bool {
        os::is_alive(&self.handle, &self.id)
    }

    /// Sends it a signal, and nobody else. On macOS, which has no way to do this in one step, it is
    /// looked at immediately before.
    ///
    /// # Errors
    /// `ESRCH` where it has exited, `EPERM` where it has become another user's.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        os::signal(&self.handle, &self.id, signal)
    }

    /// The process that calls this.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn own() -> io::Result<Self> {
        Self::pin(std::process::id())?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The pid, which is this process's as long as it is alive.
    pub(super) fn pid(&self) -> u32 {
        self.id.pid
    }

    /// What the operating system holds it by.
    pub(super) fn handle(&self) -> &os::Handle {
        &self.handle
    }

    /// Holds the process that has this pid now; `Ok(None)` where there surely is none.
    pub(super) fn pin(pid: u32) -> io::Result<Option<Self>> {
        match os::hold(pid)? {
            Some(handle) => Self::identify(handle, pid),
            None => Ok(None),
        }
    }

    /// Reads the identity of a process that is held already. It is its own if the process was alive
    /// afterwards: until then nobody else could have its pid.
    pub(super) fn identify(handle: os::Handle, pid: u32) -> io::Result<Option<Self>> {
        let id = match os::identify(&handle, pid) {
            Ok(id) => id,
            Err(error) if os::is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let pinned = Self { handle, id };
        Ok(pinned.is_alive().then_some(pinned))
    }
}
