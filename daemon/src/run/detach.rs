//! A daemon that a client started: detached from the client's descriptors, session, directory and
//! parentage.
//!
//! `run --on-demand` becomes the leader of a new session, starts `run --detached` in it, waits for
//! that to be ready, and exits. So the daemon is no child of the client, and the client knows from
//! the exit code when to connect.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, ExitCode, Stdio};

use mcp_sessiond_process::directory::Directory;
use mcp_sessiond_process::{executable, fault};
use mcp_sessiond_proto::paths;

use super::{Fatal, Options, log_path};
use crate::config;
use crate::logging::open_log;

/// What the daemon says on standard output once clients can connect.
const READY: &str = "ready";

/// Starts the daemon proper and waits until it is ready. The exit code is 0 then, else the daemon's
/// own.
pub fn launch(options: &Options) -> ExitCode {
    match start(options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(
                io::stderr(),
                "mcp-sessiond: could not start the daemon: {error}"
            );
            ExitCode::from(70)
        }
    }
}

fn start(options: &Options) -> io::Result<u8> {
    mcp_sessiond_process::sys::forget_given_signals();
    // Fails if this process leads a process group, as under a shell with job control. The daemon
    // proper does not.
    let _ = nix::unistd::setsid();
    // Descriptors that the host left open by mistake would otherwise stay open as long as the
    // daemon lives.
    mcp_sessiond_process::sys::keep_only_standard_streams(&[])?;
    let directory = match paths::directory() {
        Ok(directory) => directory,
        Err(error) => {
            let _ = writeln!(io::stderr(), "mcp-sessiond: {error}");
            return Ok(Fatal::Path(error).code());
        }
    };
    let directory = Directory::open(&directory).map_err(io::Error::other)?;
    let mut command = Command::new(executable::own().ok_or(ErrorKind::NotFound)?);
    command.args(["run", "--detached"]);
    if let Some(config) = &options.config {
        command.arg("--config").arg(std::path::absolute(config)?);
    }
    for set in &options.set {
        command.args(["--set", set]);
    }
    // The program that happens to start the daemon must not configure it for all others, nor may
    // systemd confuse the two.
    let are_passing = std::env::var_os(SESSION_TOKEN).is_some();
    let is_kept = |name: &OsStr| {
        is_kept(name) && !(are_passing && CREDENTIALS.iter().any(|passing| name == *passing))
    };
    command
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
    if let Some(config) = std::env::var_os(config::FILE_VARIABLE) {
        command.env(config::FILE_VARIABLE, std::path::absolute(config)?);
    }
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command.stderr(match open_log(&log_path(directory.path())) {
        Ok(log) => log.into(),
        // Start the daemon all the same: it can say what is wrong.
        Err(error)
            if [ErrorKind::StorageFull, ErrorKind::QuotaExceeded].contains(&error.kind()) =>
        {
            Stdio::null()
        }
        Err(error) => return Err(error),
    });
    let mut daemon = command.spawn()?;
    let mut said = String::new();
    if let Some(output) = daemon.stdout.take() {
        BufReader::new(output).read_line(&mut said)?;
    }
    if said.trim_end() == READY {
        return Ok(0);
    }
    let status = daemon.wait()?;
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(70);
    if code != 75 {
        let _ = writeln!(
            io::stderr(),
            "mcp-sessiond: the daemon did not start; see {}",
            log_path(directory.path()).display()
        );
    }
    Ok(code)
}

/// The variables that a daemon started on demand keeps. TLS to shared storages reads those for
/// certificates.
const KEPT: [&str; 11] = [
    "HOME",
    "USER",
    "LOGNAME",
    "PATH",
    "LANG",
    "XDG_CONFIG_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    paths::DIRECTORY_VARIABLE,
    config::FILE_VARIABLE,
    fault::VARIABLE,
];

/// The prefix of the variables in which AWS's tools find region and credentials.
const AWS: &[u8] = b"AWS_";

/// If set, the credentials beside it expire within hours. The daemon runs for longer, so it drops
/// them and looks in the other places that AWS's tools use.
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";
const CREDENTIALS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", SESSION_TOKEN];

fn is_kept(name: &OsStr) -> bool {
    KEPT.iter().any(|kept| name == *kept) || name.as_bytes().starts_with(AWS)
}

/// Tells the process that waits in [`launch`], and closes the pipe.
pub(super) fn report_ready() -> io::Result<()> {
    let mut output = io::stdout();
    // The waiting process may have been killed; that is no reason to exit.
    let _ = writeln!(output, "{READY}").and_then(|()| output.flush());
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(null).map_err(Into::into)
}
