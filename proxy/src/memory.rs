//! The memory of processes that live as long as a host.

use std::sync::{Mutex, PoisonError};
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

/// Who may look at this process.
#[derive(Debug)]
struct Looks {
    /// Messages are carried, and nobody may.
    carries: bool,
    /// Claims whose answer is not known, during which the daemon may.
    claims: usize,
}

static LOOKS: Mutex<Looks> = Mutex::new(Looks {
    carries: false,
    claims: 0,
});

impl Looks {
    fn change(change: impl FnOnce(&mut Self)) {
        let mut looks = LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut looks);
        #[cfg(target_os = "linux")]
        let _ = nix::sys::prctl::set_dumpable(!looks.carries || looks.claims > 0);
    }
}

/// Keeps messages out of core files, of keepers and fronts. Leaves limits and signal mask alone:
/// the backend inherits them. On Linux no other process of this user can see any more what this one
/// was started with, where it runs, and what it has open.
pub fn forbid_core_dumps() {
    Looks::change(|looks| looks.carries = true);
}

/// While this is there, the daemon can read what this process was started with, although it
/// [hides that](forbid_core_dumps) otherwise: as long as a claim has no answer.
#[derive(Debug)]
pub(crate) struct Dumpable(());

impl Dumpable {
    pub(crate) fn begin() -> Self {
        Looks::change(|looks| looks.claims += 1);
        Self(())
    }
}

impl Drop for Dumpable {
    fn drop(&mut self) {
        Looks::change(|looks| looks.claims -= 1);
    }
}
