//! Commands to the service manager.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::{ServiceError, print_line};

/// A command to the service manager.
#[derive(Debug)]
pub(super) struct Step {
    words: Vec<String>,
    failure: OnFailure,
}

/// What it means that a command fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnFailure {
    Final,
    /// Nothing: there may be nothing to do.
    Ignored,
    /// What came before may still be under way, which the manager does not tell.
    #[cfg_attr(not(target_os = "macos"), allow(dead_code, reason = "systemd tells"))]
    Passing,
}

/// How often and after which pause a command is repeated whose failure may be passing.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

impl Step {
    pub(super) fn new(words: &[&str]) -> Self {
        Self {
            words: words.iter().map(|&word| word.to_owned()).collect(),
            failure: OnFailure::Final,
        }
    }

    pub(super) fn on_failure(self, failure: OnFailure) -> Self {
        Self { failure, ..self }
    }

    pub(super) fn text(&self) -> String {
        let quoted = |word: &String| {
            if word.contains(' ') {
                format!("'{word}'")
            } else {
                word.clone()
            }
        };
        self.words.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn run(&self) -> Result<(), ServiceError> {
        let mut attempts = 1;
        loop {
            match answer(&self.words) {
                Ok(_) => {
                    print_line(format_args!("ran      {}", self.text()));
                    return Ok(());
                }
                Err(_) if self.failure == OnFailure::Ignored => return Ok(()),
                Err(_) if self.failure == OnFailure::Passing && attempts < ATTEMPTS => {
                    attempts += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    return Err(ServiceError::Failed(format!(
                        "`{}` failed: {error}",
                        self.text()
                    )));
                }
            }
        }
    }
}

/// systemd's user manager is found by a variable that `su`, cron and MCP hosts leave out. launchd
/// needs none.
fn prepare(command: &mut Command) {
    if cfg!(not(target_os = "macos"))
        && std::env::var_os("XDG_RUNTIME_DIR").is_none_or(|value| value.is_empty())
    {
        command.env(
            "XDG_RUNTIME_DIR",
            format!("/run/user/{}", nix::unistd::getuid()),
        );
    }
}

/// Runs a command, and returns its standard output, or what it complained of.
pub(super) fn answer(words: &[impl AsRef<std::ffi::OsStr>]) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    prepare(&mut command);
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr)
        .trim_end()
        .to_owned();
    Err(if complaint.is_empty() {
        output.status.to_string()
    } else {
        complaint
    })
}
