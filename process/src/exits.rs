//! Which of many processes have exited.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use mcp_sessiond_identity::ProcessId;

use super::os;
use super::pinned::PinnedProcess;

/// Watches any number of processes through one descriptor, which is readable while there is an exit
/// that was not [drained](Self::drain) yet.
#[derive(Debug)]
pub struct ExitWatch {
    events: os::Events,
    watched: HashMap<u64, PinnedProcess>,
    tokens: HashMap<ProcessId, u64>,
    next_token: u64,
}

impl ExitWatch {
    /// A watch that watches nobody yet.
    ///
    /// # Errors
    /// Those of epoll_create1(2), on macOS kqueue(2): too many open files.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            events: os::Events::new()?,
            watched: HashMap::new(),
            tokens: HashMap::new(),
            next_token: 0,
        })
    }

    /// Watches this process from now on. One that has exited already is reported by the next drain;
    /// one that is watched already stays so.
    ///
    /// # Errors
    /// Those of epoll_ctl(2), on macOS kevent(2): the limit of watches, or of memory. It is not
    /// watched then.
    pub fn add(&mut self, process: PinnedProcess) -> io::Result<()> {
        let id = process.id();
        if self.tokens.contains_key(&id) {
            return Ok(());
        }
        // A number is never used twice, so an exit that is reported late is nobody else's.
        let token = self.next_token;
        self.events.add(process.handle(), &id, token)?;
        self.next_token += 1;
        self.tokens.insert(id, token);
        self.watched.insert(token, process);
        Ok(())
    }

    /// Watches this process no longer. It will not be reported, not even if it has exited by now.
    pub fn remove(&mut self, id: &ProcessId) {
        if let Some(token) = self.tokens.remove(id) {
            self.forget(token);
        }
    }

    /// A process that is watched, and was not [drained](Self::drain) yet.
    pub fn watched(&self, id: &ProcessId) -> Option<&PinnedProcess> {
        self.watched.get(self.tokens.get(id)?)
    }

    /// Every watched process that has exited up to now, each once and in no order. They are watched
    /// no longer. Does not wait.
    pub fn drain(&mut self) -> Vec<ProcessId> {
        let tokens = self.events.drain();
        let exited: Vec<ProcessId> = tokens
            .into_iter()
            .filter_map(|token| self.forget(token))
            .collect();
        for id in &exited {
            self.tokens.remove(id);
        }
        exited
    }

    fn forget(&mut self, token: u64) -> Option<ProcessId> {
        let process = self.watched.remove(&token)?;
        self.events.remove(process.handle(), &process.id());
        Some(process.id())
    }
}

impl AsFd for ExitWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl AsRawFd for ExitWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
