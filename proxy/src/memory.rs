//! The memory of processes that live as long as a host.

use std::time::Duration;

/// How long after its start a process gives back what it needed only for that.
const STARTED: Duration = Duration::from_secs(5);

/// How long nothing is carried until memory is given back that lines have taken.
pub(crate) const IDLE: Duration = Duration::from_secs(2);

/// Waits until this process has started, and then gives memory back, once. Spawn it in the
/// process's runtime.
pub async fn give_back_once_started() {
    tokio::time::sleep(STARTED).await;
    mcp_sessiond_process::runtime::give_back_memory();
}

/// Keeps messages out of core files, of keepers and fronts. Leaves limits and signal mask alone:
/// the backend inherits them.
pub fn forbid_core_dumps() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_dumpable(false);
}

/// While this is there, the daemon can read what this process was started with, where it
/// [keeps that to itself](forbid_core_dumps) otherwise.
#[derive(Debug)]
pub(crate) struct Dumpable {
    was: bool,
}

impl Dumpable {
    pub(crate) fn begin() -> Self {
        #[cfg(target_os = "linux")]
        if nix::sys::prctl::get_dumpable() == Ok(false) {
            let _ = nix::sys::prctl::set_dumpable(true);
            return Self { was: false };
        }
        Self { was: true }
    }
}

impl Drop for Dumpable {
    fn drop(&mut self) {
        if !self.was {
            forbid_core_dumps();
        }
    }
}
