//! How a keeper starts: `keep` starts `keep --detached`, waits until that has registered, and
//! exits. So the keeper is no child of the front, and survives when the front's process tree is
//! killed.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use mcp_sessiond_process::{self as process, Health, HealthWatch, PinnedProcess, executable};
use mcp_sessiond_proto::facts::ServerDigest;
use mcp_sessiond_proto::{BackendName, Epoch, KeeperName, ServiceName, SessionId};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout_at;

use crate::program::Program;
use crate::signals::GivenMask;

/// The option of `wrap` and `keep` by which what a script imports does not count.
pub const NO_SOURCES: &str = "--no-sources";

/// The option of a keeper that starts no daemon.
pub const NO_START: &str = "--no-start";

/// How often it is looked what a keeper does that takes long to start, and for how long it may only
/// wait.
const LOOK: Duration = Duration::from_millis(100);
const IDLE_MAX: Duration = Duration::from_secs(1);

/// What a keeper reports to the process that started it, in one line of JSON on standard output.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// It has the backend, and fronts can attach.
    Ready(KeeperName),
    /// The program does not exist or is not executable: the exit code that a shell would report,
    /// and why.
    NoProgram {
        /// 126 or 127.
        code: u8,
        /// One sentence.
        sentence: String,
    },
    /// The lease has been lost meanwhile: claim again.
    NoLease(String),
    /// There is no such session of the service.
    NoSession(String),
    /// The keeper can't run, and why.
    Failed(String),
}

impl Report {
    fn read(line: &[u8]) -> io::Result<Self> {
        serde_json::from_slice(line)
            .map_err(|_| io::Error::other("the keeper ended before it had said anything"))
    }

    /// Reports on standard output. The waiting process may have been killed; that is no reason to
    /// end.
    pub fn write(&self) {
        let mut output = io::stdout();
        if let Ok(line) = serde_json::to_string(self) {
            let _ = writeln!(output, "{line}").and_then(|()| output.flush());
        }
    }
}

/// Whose backend a keeper holds.
#[derive(Debug, Clone)]
pub enum BackendOf {
    /// A session's, which the process that starts the keeper has claimed.
    Session {
        /// The session.
        session: SessionId,
        /// The service that it belongs to, if any. Then its fronts continue each other.
        service: Option<ServiceName>,
        /// The name of the backend, where the session has several.
        backend: Option<BackendName>,
        /// What the backend is started with, for what is known of it.
        server: Option<ServerDigest>,
        /// The epoch of the lease: on the session, or on its service.
        epoch: Epoch,
    },
    /// All hosts', in a session that the keeper claims itself.
    Hosts {
        /// What tells it from every other one: hexadecimal digits.
        key: String,
        /// How long it stays when no host has it, in ms.
        linger_ms: u64,
    },
}

impl BackendOf {
    /// The same as options of `mcp-sessiond keep`.
    pub fn options(&self) -> Vec<String> {
        match self {
            Self::Session {
                session,
                service,
                backend,
                server,
                epoch,
            } => {
                let epoch = epoch.to_string();
                let options = [
                    ("--session", Some(session.as_str())),
                    ("--epoch", Some(&*epoch)),
                    ("--service", service.as_ref().map(ServiceName::as_str)),
                    ("--backend", backend.as_ref().map(BackendName::as_str)),
                    ("--server-digest", server.as_ref().map(ServerDigest::as_str)),
                ];
                let given = options
                    .into_iter()
                    .filter_map(|(name, value)| Some([name, value?]));
                given.flatten().map(str::to_owned).collect()
            }
            Self::Hosts { key, linger_ms } => {
                let linger_ms = linger_ms.to_string();
                let options = ["--shared", key, "--linger-ms", &linger_ms];
                options.map(str::to_owned).into()
            }
        }
    }
}

/// The name of the keeper of the backend with this key that hosts share: who has the key finds it.
pub fn keeper_of_key(key: &str) -> Option<KeeperName> {
    key.get(..8)?.parse().ok()
}

/// What a keeper is started with.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The executable `mcp-sessiond`.
    pub binary: &'a Path,
    /// Whose backend it holds.
    pub of: BackendOf,
    /// How long the keeper waits for its first front.
    pub wait: Duration,
    /// Whether the keeper starts a daemon where none runs, as whoever starts it does.
    pub starts_daemon: bool,
    /// The most descriptors that the backend may have; none: as many as this process.
    pub descriptors: Option<u64>,
    /// What it runs.
    pub program: &'a Program,
    /// The only variables of this process that keeper and backend get; none: all.
    pub inherits: Option<&'a [&'a str]>,
    /// Variables that they get in addition to these.
    pub environment: &'a [(OsString, OsString)],
    /// Where it runs; none: where this process does.
    pub home: Option<&'a Path>,
}

impl Launch<'_> {
    /// Starts a keeper. To be called in a runtime.
    ///
    /// # Errors
    /// When it could not be started.
    pub fn start(&self, mask: &GivenMask) -> io::Result<Starting> {
        let mut command = Command::new(self.binary);
        command.arg("keep").args(self.of.options());
        command.args(["--wait-ms", &self.wait.as_millis().to_string()]);
        if let Some(descriptors) = self.descriptors {
            command.args(["--descriptors", &descriptors.to_string()]);
        }
        if let Some(title) = &self.program.title {
            command.args(["--name", title.as_str()]);
        }
        if !self.program.has_sources {
            command.arg(NO_SOURCES);
        }
        if !self.starts_daemon {
            command.arg(NO_START);
        }
        command
            .arg("--")
            .arg(&self.program.name)
            .args(&self.program.arguments);
        if let Some(only) = self.inherits {
            command.env_clear();
            command.envs(
                only.iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            );
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(home) = self.home {
            command.current_dir(home);
        }
        if matches!(
            self.of,
            BackendOf::Session {
                service: Some(_),
                ..
            }
        ) {
            // systemd means the process that serves, not its servers.
            command.env_remove("NOTIFY_SOCKET");
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut starter = mask.while_in_force(|| command.spawn())?;
        let output = starter.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let output = Receiver::from_owned_fd(output.into())?;
        Ok(Starting {
            starter,
            output,
            read: Vec::new(),
        })
    }
}

/// A keeper that is being started. Dropped before its report, it is on its own; one to which no front
/// attaches ends by itself.
#[derive(Debug)]
pub struct Starting {
    /// It starts the keeper, passes its report on, and exits.
    starter: Child,
    output: Receiver,
    /// What was read of the report.
    read: Vec<u8>,
}

impl Starting {
    /// Waits until the keeper has registered and started the backend; longer than `until`, and until
    /// `last`, while it works, waits for its disk, or gets no processor time to do so. Dropped before
    /// its end, it may be called again.
    ///
    /// # Errors
    /// When the keeper ended without a report; or has sent none by `until` and only waits, or by
    /// `last`.
    pub async fn report(&mut self, until: Instant, last: Instant) -> io::Result<Report> {
        let (mut until, mut idle) = (until, Duration::ZERO);
        let (mut watch, mut is_keeper) = (None, false);
        let late = |why| Err(io::Error::new(io::ErrorKind::TimedOut, why));
        loop {
            match timeout_at(until.into(), self.output.read_buf(&mut self.read)).await {
                Ok(read) => {
                    if read? > 0 {
                        continue;
                    }
                    return Report::read(&self.read);
                }
                Err(_) if idle >= IDLE_MAX => {
                    return late("it did not start in time, and only waited");
                }
                Err(_) if Instant::now() >= last => {
                    return late("it was still starting when the time was over that a host waits");
                }
                Err(_) => {}
            }
            // Once it has started the keeper, the starter only waits for that.
            let starter = PinnedProcess::open(self.starter.id()).ok();
            if let Some(keeper) = starter.as_ref().filter(|_| !is_keeper).and_then(child_of) {
                (watch, is_keeper) = (Some(HealthWatch::new(keeper)), true);
            }
            let watch = match watch {
                Some(ref mut watch) => Some(watch),
                None => starter.map(|starter| watch.insert(HealthWatch::new(starter))),
            };
            match watch.map(HealthWatch::look) {
                Some(Health::Working | Health::Stalled) => {}
                Some(Health::Idle | Health::Gone) | None => idle += LOOK,
            }
            until = last.min(Instant::now() + LOOK);
        }
    }
}

/// The process that this one has started, if it has.
fn child_of(starter: &PinnedProcess) -> Option<PinnedProcess> {
    process::children_of(starter).ok()?.pop()
}

impl Drop for Starting {
    fn drop(&mut self) {
        // It has exited, or hangs.
        let _ = self.starter.kill();
        let _ = self.starter.wait();
    }
}

/// Starts the keeper proper, waits for its report, and passes it on.
pub fn launch(arguments: Vec<OsString>) -> ExitCode {
    let report = start(arguments).unwrap_or_else(|error| Report::Failed(error.to_string()));
    report.write();
    if matches!(report, Report::Ready(_)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(70)
    }
}

fn start(arguments: Vec<OsString>) -> io::Result<Report> {
    // Descriptors that the host left open by mistake would otherwise stay open as long as the
    // backend lives. Those that an argument names are for the backend.
    let named: Vec<i32> = arguments.iter().flat_map(|word| named_in(word)).collect();
    mcp_sessiond_process::sys::keep_only_standard_streams(&named)?;
    let mut keeper = Command::new(executable::own().ok_or(io::ErrorKind::NotFound)?)
        .args(["keep", "--detached"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = keeper.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Report::read(line.as_bytes())
}

/// Whether the process that started this one still waits for its report.
pub(crate) fn is_awaited() -> bool {
    let output = io::stdout();
    // An event that is always told.
    let mut reader = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let _ = poll(&mut reader, PollTimeout::ZERO);
    let told = reader[0].revents().unwrap_or(PollFlags::empty());
    !told.intersects(PollFlags::POLLERR | PollFlags::POLLHUP)
}

/// The descriptors that an argument names, as a shell does for `<(…)`: `/dev/fd/63`.
fn named_in(word: &OsStr) -> Vec<i32> {
    let word = word.to_string_lossy();
    let behind = |prefix| word.split(prefix).skip(1).filter_map(number_at_start);
    behind("/dev/fd/").chain(behind("/proc/self/fd/")).collect()
}

fn number_at_start(text: &str) -> Option<i32> {
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    text[..end.unwrap_or(text.len())].parse().ok()
}

/// Closes the pipe to the process that started this one.
pub(crate) fn close_report_pipe() -> io::Result<()> {
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(null).map_err(Into::into)
}
