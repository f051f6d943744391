//! The command as a plain child: what is left where there can be no keeper. It carries the host's
//! bytes to it, hands signals on, and exits as it does.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::carry::is_passing;
use crate::keeper::backend::Program;
use crate::keeper::lines::{CHUNK, LineBuffer};
use crate::signals::{GivenMask, die_of};
use nix::poll::PollFlags;

/// A command that runs as our child, in our standard output and standard error.
#[derive(Debug)]
pub struct Plain {
    child: Child,
    input: ChildStdin,
}

impl Plain {
    /// Starts it, with these variables in addition to those of this process, and there.
    ///
    /// # Errors
    /// Those of execve(2): no such program, or none that may be run.
    pub fn start(
        program: &Program,
        environment: &[(OsString, OsString)],
        home: Option<&Path>,
        mask: &GivenMask,
    ) -> io::Result<Self> {
        let mut command = Command::new(&program.name);
        command.args(&program.arguments).stdin(Stdio::piped());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        if let Some(home) = home {
            command.current_dir(home);
        }
        let mut child = mask.while_in_force(|| command.spawn())?;
        let input = child
            .stdin
            .take()
            .ok_or_else(|| io::Error::other("its standard input is no pipe"))?;
        Ok(Self { child, input })
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Carries what was read already, and then what the host says, until the command exits.
    #[must_use]
    pub fn carry(self, read: &LineBuffer, input: File) -> ExitCode {
        let Self {
            mut child,
            input: to,
        } = self;
        let read = read.so_far().to_vec();
        // It ends with this process: whoever waits in read(2) can't be woken otherwise.
        let carrying = std::thread::Builder::new()
            .name("to-command".into())
            .spawn(move || carry(&read, input, to));
        drop(carrying);
        let Ok(status) = child.wait() else {
            return ExitCode::FAILURE;
        };
        match (
            status.code(),
            status
                .signal()
                .and_then(|signal| Signal::try_from(signal).ok()),
        ) {
            (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, Some(signal)) => die_of(signal),
            (None, None) => ExitCode::FAILURE,
        }
    }
}

/// Hands a signal on to the command.
pub fn hand_on(command: Pid, signal: Signal) {
    let _ = kill(command, signal);
}

fn carry(read: &[u8], mut input: File, mut to: ChildStdin) {
    let mut chunk = vec![0; CHUNK];
    if to.write_all(read).is_err() {
        return;
    }
    loop {
        match input.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => {
                if to.write_all(&chunk[..read]).is_err() {
                    return;
                }
            }
            Err(error) if is_passing(&error, &input, PollFlags::POLLIN) => {}
            Err(_) => return,
        }
    }
}
