//! Starts the daemon: through the service manager where it is installed there, else detached.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::{io, thread};

use mcp_sessiond_proto::paths::{self, DIRECTORY_VARIABLE};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::BINARY_VARIABLE;
use crate::directory::Directory;
use crate::error::ConnectError;

/// The daemon's executable.
const BINARY: &str = "mcp-sessiond";

/// The exit code of `run` when another daemon holds the lock (`EX_TEMPFAIL` of sysexits.h): then
/// that one serves us.
const ANOTHER_RUNS: i32 = 75;

/// Starts a daemon for `directory`, and returns when it is ready, or when another one is about to
/// be.
pub(crate) async fn start(
    directory: &Directory,
    binary: Option<&Path>,
    until: Instant,
) -> Result<(), ConnectError> {
    if by_service_manager(directory, until).await {
        return Ok(());
    }
    let binary = binary.map_or_else(find, Path::to_path_buf);
    let mut command = Command::new(&binary);
    command.args(["run", "--on-demand"]);
    if paths::directory().as_deref() != Ok(directory.path()) {
        command.env(DIRECTORY_VARIABLE, directory.path());
    }
    silence(&mut command);
    match status(command, until).await {
        Err(error) => Err(ConnectError::NotStarted { binary, error }),
        Ok(Some(status)) if status.success() || status.code() == Some(ANOTHER_RUNS) => Ok(()),
        Ok(Some(status)) => Err(ConnectError::StartFailed { binary, status }),
        // Whoever connects next finds out.
        Ok(None) => Ok(()),
    }
}

/// How the command ended. It is waited for in a thread, because tokio would take over SIGCHLD,
/// which is the server's. None: it is left to finish, since the time is over; or nobody can learn
/// how it ended, since this process ignores SIGCHLD.
async fn status(mut command: Command, until: Instant) -> io::Result<Option<ExitStatus>> {
    let mut child = command.spawn()?;
    let (tell, told) = oneshot::channel();
    thread::Builder::new().spawn(move || tell.send(child.wait()))?;
    Ok(timeout_at(until, told)
        .await
        .ok()
        .and_then(Result::ok)
        .and_then(Result::ok))
}

fn silence(command: &mut Command) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
}

fn find() -> PathBuf {
    if let Some(named) = variable(BINARY_VARIABLE) {
        return named;
    }
    let beside = std::env::current_exe()
        .ok()
        .map(|this| this.with_file_name(BINARY));
    beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| BINARY.into())
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Whether the service manager has the daemon's socket, and started it. It serves the derived
/// directory alone, and where it fails (a shared home directory without a user manager) the
/// executable is run instead.
async fn by_service_manager(directory: &Directory, until: Instant) -> bool {
    let derived = paths::derived();
    if derived.as_deref() != Ok(directory.path()) {
        return false;
    }
    let Some(mut command) = service_command(directory.path()) else {
        return false;
    };
    silence(&mut command);
    matches!(status(command, until).await, Ok(Some(status)) if status.success())
}

#[cfg(target_os = "macos")]
fn service_command(_: &Path) -> Option<Command> {
    const LABEL: &str = "io.github.mcp-sessiond";
    let agent = paths::agents()?.join(format!("{LABEL}.plist"));
    agent.is_file().then(|| {
        let mut command = Command::new("/bin/launchctl");
        command.args([
            "kickstart".to_owned(),
            format!("gui/{}/{LABEL}", nix::unistd::getuid()),
        ]);
        command
    })
}

#[cfg(not(target_os = "macos"))]
fn service_command(directory: &Path) -> Option<Command> {
    const SOCKET: &str = "mcp-sessiond.socket";
    // Not the socket: that may be listening already, on a path that was taken away. This returns
    // when it is ready.
    const SERVICE: &str = "mcp-sessiond.service";
    let run = directory
        .parent()
        .filter(|run| run.starts_with("/run/user"))?;
    paths::unit(SOCKET).map(|_| {
        let mut command = Command::new("systemctl");
        command.args(["--user", "start", SERVICE]);
        // Hosts don't pass it on, and without it the user manager is not found.
        command.env("XDG_RUNTIME_DIR", run);
        command
    })
}
