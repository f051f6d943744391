//! Whose exits matter to a keeper: the host's, and the attached front's.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use mcp_sessiond_process::{ExitWatch, PinnedProcess, ProcessId};
use tokio::io::unix::AsyncFd;

/// Watches the host, and one front.
#[derive(Debug)]
pub struct ExitWatcher {
    exits: ExitWatch,
    readable: AsyncFd<OwnedFd>,
    /// None: the session is the user's own.
    owner: Option<PinnedProcess>,
    front: Option<ProcessId>,
}

/// Who has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The session's host.
    Owner,
    /// The front that was watched.
    Front,
}

impl ExitWatcher {
    /// Watches the host, where there is one. To be called within a runtime.
    ///
    /// # Errors
    /// When there are too many open files, or watches.
    pub fn new(owner: Option<PinnedProcess>) -> io::Result<Self> {
        let mut exits = ExitWatch::new()?;
        owner
            .iter()
            .cloned()
            .try_for_each(|owner| exits.add(owner))?;
        let readable =
            mcp_sessiond_process::sys::when_readable(exits.as_fd().try_clone_to_owned()?)?;
        Ok(Self {
            exits,
            readable,
            owner,
            front: None,
        })
    }

    /// Watches this front, and no other one. Where that can't be done, its end shows on its
    /// connection alone.
    pub fn follow(&mut self, front: Option<PinnedProcess>) {
        let former = std::mem::replace(&mut self.front, front.as_ref().map(PinnedProcess::id));
        if let Some(former) = former.filter(|former| Some(*former) != self.front) {
            self.exits.remove(&former);
        }
        if let Some(front) = front {
            let _ = self.exits.add(front);
        }
    }

    /// Whether the host still runs, or there is none that could end.
    pub fn owner_is_alive(&self) -> bool {
        self.owner.as_ref().is_none_or(PinnedProcess::is_alive)
    }

    /// Who has exited, when somebody has. A future that is dropped has taken nothing away.
    pub async fn exited(&mut self) -> Exit {
        loop {
            // Nobody would tell of the host's end any more where this fails.
            let Ok(mut ready) = self.readable.readable().await else {
                return Exit::Owner;
            };
            let exited = self.exits.drain();
            if self
                .owner
                .as_ref()
                .is_some_and(|owner| exited.contains(&owner.id()))
            {
                return Exit::Owner;
            }
            if self.front.is_some_and(|front| exited.contains(&front)) {
                self.front = None;
                return Exit::Front;
            }
            if exited.is_empty() {
                ready.clear_ready();
            }
        }
    }
}
