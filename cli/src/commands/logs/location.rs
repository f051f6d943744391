//! Where the daemon logs.

use std::path::{Path, PathBuf};

use mcp_sessiond_client::{ConnectError, Directory};
use mcp_sessiond_daemon::run::log_path;
use mcp_sessiond_proto::debug::About;
use mcp_sessiond_proto::paths;

use crate::calls::{Failure, reach};
use crate::service_manager::{self, Log};

/// Where lines are.
#[derive(Debug)]
pub(super) enum LogLocation {
    /// In this file.
    File(PathBuf),
    /// In the journal of systemd, under this unit.
    Journal(String),
    /// In no place from which they could be read. The sentence says why.
    Nowhere(String),
}

impl From<Log> for LogLocation {
    fn from(log: Log) -> Self {
        match log {
            Log::File(path) => Self::File(path),
            Log::Journal(unit) => Self::Journal(unit),
            Log::Nowhere(why) => Self::Nowhere(why),
        }
    }
}

/// Where the daemon logs that runs; else where the last one has.
pub(super) async fn of_daemon(directory: &Directory) -> LogLocation {
    let about = match reach(directory).await {
        Ok((_, about)) => Ok(about),
        Err(Failure::Connect(ConnectError::NotRunning { .. })) => return of_last(directory.path()),
        Err(failure) => Err(failure),
    };
    match about {
        Ok(about) => of_running(&about, directory.path()),
        // Its log is what is looked for just now.
        Err(why) => {
            crate::ui::output::warn(why);
            of_last(directory.path())
        }
    }
}

fn of_running(about: &About, directory: &Path) -> LogLocation {
    match &*about.started_by {
        "systemd" | "launchd" => service_manager::log(None).into(),
        "on_demand" => LogLocation::File(log_path(directory)),
        _ => by_hand(about.pid, directory),
    }
}

/// Where a daemon logs that somebody has started: to its standard error, which the system may name.
fn by_hand(pid: u32, directory: &Path) -> LogLocation {
    let given = std::fs::read_link(format!("/proc/{pid}/fd/2")).ok();
    if let Some(path) = given.as_deref().filter(|path| path.is_file()) {
        return LogLocation::File(path.to_owned());
    }
    let given = given.map_or_else(String::new, |given| {
        format!(", which is {}", given.display())
    });
    LogLocation::Nowhere(format!(
        "the daemon (pid {pid}) was started by hand, and logs to the standard error that it was given{given}; look there. One that is started on demand logs to {}",
        log_path(directory).display()
    ))
}

/// Where the last one has logged.
fn of_last(directory: &Path) -> LogLocation {
    let is_ours = paths::derived().is_ok_and(|derived| derived == directory);
    if is_ours && service_manager::installed().is_some() {
        return service_manager::log(None).into();
    }
    let path = log_path(directory);
    if path.is_file() {
        return LogLocation::File(path);
    }
    LogLocation::Nowhere(format!(
        "no daemon runs, and none has left a log: {} is not there. The first server behind `mcp-sessiond wrap` starts one",
        path.display()
    ))
}
