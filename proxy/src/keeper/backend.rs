//! The backend: a child that leads a process group, with pipes for its standard streams.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use mcp_sessiond_client::Label;
use mcp_sessiond_process::digest;
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, sink};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::children::{Children, Manner};
use super::lines::{CHUNK, Line, Lines};
use super::telling;
use crate::signals::GivenMask;

/// Bytes that a pipe can hold at most where nobody has privileges (/proc/sys/fs/pipe-max-size of
/// Linux).
const PIPE_MAX: usize = 1024 * 1024;

/// What is run, as the front was told.
#[derive(Debug, Clone)]
pub struct Program {
    /// A path, or a name to be found in PATH.
    pub name: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The name that the user has given its session.
    pub title: Option<Label>,
}

impl Program {
    /// What people know it by: its [telling words](super::telling). Its other arguments are
    /// nobody's business.
    #[must_use]
    pub fn shown(&self) -> String {
        let words = telling::words(&self.name, &self.arguments);
        match &self.title {
            Some(title) => telling::cut(format!("{}: {words}", title.as_str())),
            None => words,
        }
    }

    /// A digest of the command line, as hexadecimal text.
    #[must_use]
    pub fn digest(&self) -> String {
        let words = std::iter::once(&self.name)
            .chain(&self.arguments)
            .map(|word| word.as_bytes());
        // No word has a NUL in it.
        let line = words.collect::<Vec<_>>().join(&0);
        digest("mcp-sessiond command line", &line)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// Why it can't be run, in a sentence, with the exit code that a shell has for it: 127 where
    /// there is none, 126 where there is one that may not be run.
    #[must_use]
    pub fn not_run(&self, error: &io::Error) -> (u8, String) {
        let name = self.name.to_string_lossy();
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        match std::env::var_os("PATH") {
            // Hosts with a graphical interface have another one than a shell.
            Some(path) if is_missing && !name.contains('/') => (
                127,
                format!(
                    "{name} can't be run: it was not found in PATH={}",
                    path.to_string_lossy()
                ),
            ),
            _ => (
                if is_missing { 127 } else { 126 },
                format!("{name} can't be run: {error}"),
            ),
        }
    }
}

/// A running backend.
#[derive(Debug)]
pub struct Backend {
    /// Its pid, and its group's.
    pub pid: Pid,
    /// When it was started.
    pub started: Instant,
    /// Its standard input; none once it was closed, or the backend closed it.
    pub input: Option<pipe::Sender>,
    /// Its standard output; none once it was closed.
    pub output: Option<Lines<pipe::Receiver>>,
    /// Since when one of the two is closed.
    pub mute_since: Option<Instant>,
    /// Its standard error; none once it was closed.
    pub errors: Option<pipe::Receiver>,
}

impl Backend {
    /// Starts it, in the environment and the directory of this process, with the signals blocked
    /// that the host had blocked.
    ///
    /// # Errors
    /// Those of execve(2): no such program, or none that may be run.
    pub fn start(program: &Program, children: &Children, mask: &GivenMask) -> io::Result<Self> {
        let mut command = Command::new(&program.name);
        command
            .args(&program.arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = mask.while_in_force(|| command.spawn())?;
        let pid = Pid::from_raw(child.id().cast_signed());
        children.expect(pid);
        let input = child
            .stdin
            .take()
            .map(OwnedFd::from)
            .map(pipe::Sender::from_owned_fd)
            .transpose()?;
        let receiver = |fd: Option<OwnedFd>| fd.map(pipe::Receiver::from_owned_fd).transpose();
        let output = receiver(child.stdout.take().map(OwnedFd::from))?.map(Lines::new);
        let errors = receiver(child.stderr.take().map(OwnedFd::from))?;
        Ok(Self {
            pid,
            started: Instant::now(),
            input,
            output,
            mute_since: None,
            errors,
        })
    }

    /// The lines that are left in its standard output when it has exited, and what stands behind
    /// the last newline. Does not wait, nor go on for ever: whoever it left behind may hold the
    /// pipe open, and write to it.
    pub fn last_lines(&mut self) -> (Vec<Line>, Option<Line>) {
        let Some(output) = self.output.take() else {
            return (Vec::new(), None);
        };
        let (pipe, mut buffer) = output.into_parts();
        let mut lines = Vec::new();
        let mut chunk = vec![0; CHUNK];
        let mut left = PIPE_MAX;
        loop {
            lines.extend(std::iter::from_fn(|| buffer.next_line()));
            match nix::unistd::read(pipe.as_fd(), &mut chunk) {
                Ok(read @ 1..) if left > 0 => {
                    left = left.saturating_sub(read);
                    buffer.room().extend_from_slice(&chunk[..read]);
                }
                Ok(_) | Err(_) => break,
            }
        }
        (lines, buffer.last_line())
    }

    /// What is left in its standard error when it has exited. Does not wait.
    pub fn last_words(&mut self) -> Vec<u8> {
        let Some(pipe) = self.errors.take() else {
            return Vec::new();
        };
        let mut words = Vec::new();
        let mut chunk = vec![0; CHUNK];
        while words.len() < PIPE_MAX {
            match nix::unistd::read(pipe.as_fd(), &mut chunk) {
                Ok(read @ 1..) => words.extend_from_slice(&chunk[..read]),
                Ok(_) | Err(_) => break,
            }
        }
        words
    }

    /// Takes it down, with what it has started: its standard input is closed, and signals follow,
    /// `patience` apart. What it still says is read, so that it can end, and thrown away.
    pub async fn take_down(mut self, children: &Children, manner: Manner, patience: Duration) {
        let polite = matches!(manner, Manner::Politely { .. });
        // Before it can have exited: who loses its parent by that is none of them.
        let apart = if polite {
            children.apart(self.pid)
        } else {
            BTreeSet::new()
        };
        drop(self.input.take());
        let output = self.output.take().map(|lines| lines.into_parts().0);
        let drained = async {
            futures::future::join(drain(output), drain(self.errors.take())).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = children.end(self.pid, manner, apart, patience) => {}
            () = drained => {}
        }
    }
}

async fn drain(pipe: Option<pipe::Receiver>) {
    if let Some(pipe) = pipe {
        let _ = tokio::io::copy(&mut pipe.take(u64::MAX), &mut sink()).await;
    }
}
