//! The backend: a child that leads a process group, with pipes for its standard streams.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use mcp_sessiond_process::{ProcessId, descriptors};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, sink};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use super::children::{Children, StopMode};
use crate::lines::{CHUNK, Line, Lines};
use crate::program::Program;
use crate::signals::GivenMask;

/// Bytes that a pipe can hold at most where nobody has privileges (/proc/sys/fs/pipe-max-size of
/// Linux).
const PIPE_MAX: usize = 1024 * 1024;

/// A program that has spoken, and exits later than this after its start, was a server. A launcher forks
/// and exits at once, but what it has started may be quicker to answer than its exit is to be seen.
const LAUNCHED_WITHIN: Duration = Duration::from_secs(1);

/// A running backend.
#[derive(Debug)]
pub struct Backend {
    /// Its pid, and its group's, unless a launcher has left it behind.
    pub pid: Pid,
    /// When it was started.
    pub started: Instant,
    /// Its standard input; none once it was closed, or the backend closed it.
    pub input: Option<pipe::Sender>,
    /// Its standard output; none once it was closed.
    pub output: Option<Lines<pipe::Receiver>>,
    /// Whether anything was read of that.
    pub has_spoken: bool,
    /// Since when one of the two is closed.
    pub closed_since: Option<Instant>,
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
        let mut child = program.started(|name, arguments| {
            let mut command = Command::new(name);
            command
                .args(arguments)
                .process_group(0)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            mask.while_in_force(|| command.spawn())
        })?;
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
            has_spoken: false,
            closed_since: None,
            errors,
        })
    }

    /// A launcher has ended without an error, before anything was said or within [`LAUNCHED_WITHIN`]:
    /// what it has started goes on as the backend, if a process is left that has both pipes. Says whether
    /// there is one, which is known on Linux alone. `setsid` is such a launcher, since it forks where it
    /// leads a group.
    pub fn go_on_in_another(&mut self, children: &Children) -> bool {
        if self.has_spoken && self.started.elapsed() > LAUNCHED_WITHIN {
            return false;
        }
        let pipes = [
            self.input.as_ref().and_then(descriptors::name_of),
            self.output
                .as_ref()
                .and_then(|lines| descriptors::name_of(lines.reader())),
        ];
        let [Some(input), Some(output)] = pipes else {
            return false;
        };
        let next = children.all().into_iter().find(|child| {
            let names: BTreeSet<_> = descriptors::names_in(*child).collect();
            names.contains(&input) && names.contains(&output)
        });
        let Some(next) = next else {
            return false;
        };
        let next = Pid::from_raw(next.cast_signed());
        children.expect_instead(self.pid, next);
        self.pid = next;
        true
    }

    /// The lines that are left in its standard output when it has exited, and what stands behind
    /// the last newline. Does not wait, nor go on for ever: whoever it left behind may hold the
    /// pipe open, and write to it.
    pub fn remaining_lines(&mut self) -> (Vec<Line>, Option<Line>) {
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
    pub fn remaining_stderr(&mut self) -> Vec<u8> {
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

    /// Closes its standard input. Returns the processes to spare if it exits by that: whoever loses
    /// its parent by the exit itself is none of them.
    pub fn close_input(&mut self, children: &Children) -> BTreeSet<ProcessId> {
        let detached = children.detached(self.pid);
        self.input = None;
        detached
    }

    /// Takes it down, with what it has started: its standard input is closed, and signals follow,
    /// `patience` apart. What it still says is read, so that it can end, and thrown away.
    pub async fn take_down(mut self, children: &Children, stop_mode: StopMode, patience: Duration) {
        let polite = matches!(stop_mode, StopMode::Graceful { .. });
        let detached = if polite {
            self.close_input(children)
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
            () = children.end(self.pid, stop_mode, detached, patience) => {}
            () = drained => {}
        }
    }
}

async fn drain(pipe: Option<pipe::Receiver>) {
    if let Some(pipe) = pipe {
        let _ = tokio::io::copy(&mut pipe.take(u64::MAX), &mut sink()).await;
    }
}
