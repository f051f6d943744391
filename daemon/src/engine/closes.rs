//! Which fronts have said that they leave in an orderly way, where no keeper may be there to hear
//! it: a session of remote servers has none, and one of several servers has them only for those
//! that were started.
//!
//! Such a front leaves a file of its own behind, `closed/PID-START` in the runtime directory, before
//! it does anything else: it holds as well where no daemon runs, or none that answers. In it is the
//! time, in ms of the clock that start times of processes are read from.

use std::path::{Path, PathBuf};

use mcp_sessiond_process::{PinnedProcess, ProcessId};
use mcp_sessiond_proto::paths;
use mcp_sessiond_registry::Registry;

#[derive(Debug)]
pub(super) struct Closes(PathBuf);

impl Closes {
    pub(super) fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// The runtime directory.
    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    /// These processes are about to give up their leases: the registry is told which of them have
    /// closed their sessions. A process that has `exited` leaves nothing behind.
    pub(super) fn tell(&self, registry: &mut Registry, processes: &[ProcessId], exited: bool) {
        for process in processes {
            if !registry.holds(process) {
                continue;
            }
            let name = paths::closed_name(process.pid, process.start.0);
            let path = paths::closed(&self.0).join(name);
            let Ok(written) = std::fs::read(&path) else {
                continue;
            };
            if exited {
                let _ = std::fs::remove_file(&path);
            }
            // A front that is killed while it writes has closed, and it is not known when.
            let at_ms = str::from_utf8(&written).ok().and_then(|at| at.parse().ok());
            for (session, epoch) in registry.held_by(process) {
                registry.front_closed(&session, epoch, at_ms);
            }
        }
    }

    /// Deletes what fronts have left that had no lease, and notes of keepers that are on record nowhere.
    pub(super) fn sweep(&self) {
        let ended = self.0.join(paths::ENDED);
        let found = [paths::closed(&self.0), ended].map(std::fs::read_dir);
        for entry in found.into_iter().flatten().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.split_once('-'));
            let pid = pid.and_then(|(pid, _)| pid.parse().ok());
            let lives = |pid| {
                PinnedProcess::open(pid).is_ok_and(|found| {
                    let found = found.id();
                    name.to_str() == Some(&paths::closed_name(found.pid, found.start.0))
                })
            };
            if !pid.is_some_and(lives) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
