//! What the director handles: hosts, the daemon, and the private directory.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use mcp_sessiond_client::{Directory, Start, connect};
use mcp_sessiond_daemon::config;
use mcp_sessiond_process::{ExitWatch, PinnedProcess};
use mcp_sessiond_proto::debug::About;
use mcp_sessiond_proto::paths::DIRECTORY_VARIABLE;
use mcp_sessiond_proxy::unkept;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::server::SessionUse;
use crate::runtime::block_on;

/// How long the daemon may take to say who it is, and a process to end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a process is looked at again.
const PAUSE: Duration = Duration::from_millis(20);

/// A private runtime directory, and the daemon in it. Both are gone when this is dropped.
pub(super) struct Sandbox {
    directory: PathBuf,
}

impl Sandbox {
    pub(super) fn new() -> io::Result<Self> {
        // Short, since a socket's path has little room.
        let directory = PathBuf::from(format!("/tmp/mcp-sessiond-demo-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self { directory })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The environment of everything in the sandbox: this directory, and no configuration of the
    /// user's.
    pub(super) fn environment(&self) -> [(&'static str, OsString); 2] {
        let config = self.directory.join("config.toml");
        [
            (DIRECTORY_VARIABLE, self.directory.clone().into()),
            (config::FILE_VARIABLE, config.into()),
        ]
    }

    /// This executable, in the sandbox.
    pub(super) fn command(&self, words: &[&str]) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(words)
            .envs(self.environment())
            .current_dir(&self.directory);
        Ok(command)
    }

    /// The daemon that answers, if one does.
    fn daemon(&self) -> io::Result<Option<About>> {
        block_on(async {
            let directory = Directory::at(&self.directory).map_err(io::Error::other)?;
            let Ok(connection) = connect(&directory, &Start::Never).await else {
                return Ok(None);
            };
            connection
                .about(ANSWER_TIMEOUT)
                .await
                .map(Some)
                .map_err(io::Error::other)
        })?
    }

    /// Sends SIGKILL to the daemon, and waits until its socket is dead. Returns its pid.
    pub(super) fn kill_daemon(&self) -> io::Result<u32> {
        let about = self
            .daemon()?
            .ok_or_else(|| io::Error::other("there is no daemon to kill"))?;
        signal(about.pid, Signal::SIGKILL)?;
        while self.daemon()?.is_some() {
            std::thread::yield_now();
        }
        Ok(about.pid)
    }

    /// Why a server in the sandbox runs without a keeper, if one does.
    pub(super) fn why_unkept(&self) -> Option<String> {
        let unkept = unkept::list(&self.directory);
        unkept.into_iter().next().map(|unkept| unkept.why)
    }

    /// The names of the token files.
    pub(super) fn token_files(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.directory.join("tokens"))?;
        entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Ok(Some(about)) = self.daemon() {
            // While it closes its databases, their files come and go.
            let _ = end(about.pid);
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Asks a process to end, and waits until it has.
fn end(pid: u32) -> io::Result<()> {
    let Ok(process) = PinnedProcess::open(pid) else {
        return Ok(());
    };
    process.signal(Signal::SIGTERM)?;
    let mut exits = ExitWatch::new()?;
    exits.add(process)?;
    let within = PollTimeout::try_from(ANSWER_TIMEOUT).map_err(io::Error::other)?;
    poll(&mut [PollFd::new(exits.as_fd(), PollFlags::POLLIN)], within)?;
    Ok(())
}

/// Whether a process ends in time.
pub(super) fn is_gone(pid: i32) -> bool {
    let until = Instant::now() + ANSWER_TIMEOUT;
    while kill(Pid::from_raw(pid), None).is_ok() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    kill(Pid::from_raw(pid), signal).map_err(Into::into)
}

/// A host process, and the pipes to it.
pub(super) struct Host {
    process: Child,
    orders: Option<ChildStdin>,
    reports: BufReader<ChildStdout>,
}

impl Host {
    pub(super) fn start(sandbox: &Sandbox) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["demo", "--part", "host"])
            .envs(sandbox.environment())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = process.stdin.take();
        let reports = process
            .stdout
            .take()
            .ok_or_else(|| io::Error::other("a host without a pipe"))?;
        Ok(Self {
            process,
            orders,
            reports: BufReader::new(reports),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Starts a server with these arguments, and returns what it is in.
    pub(super) fn start_server(&mut self, name: &str, arguments: &str) -> io::Result<SessionUse> {
        let said = self.order(&format!("start {name} {arguments}"))?;
        Ok(serde_json::from_str(&said)?)
    }

    /// Sends SIGKILL to a server, and returns when it is dead.
    pub(super) fn kill_server(&mut self, name: &str) -> io::Result<()> {
        self.order(&format!("kill {name}")).map(drop)
    }

    fn order(&mut self, order: &str) -> io::Result<String> {
        let orders = self
            .orders
            .as_mut()
            .ok_or_else(|| io::Error::other("the host is gone"))?;
        writeln!(orders, "{order}")?;
        let mut said = String::new();
        self.reports.read_line(&mut said)?;
        if said.is_empty() {
            Err(io::Error::other("the host has died"))
        } else {
            Ok(said)
        }
    }

    /// Sends SIGKILL to the host. Its servers see their pipes end.
    pub(super) fn kill(mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
