//! A server as a child of this process: what is left where there can be no keeper.
//!
//! [`PlainChild`] is the command in our standard output and standard error: this process carries
//! the host's bytes to it, hands signals on, and exits as it does. [`ChildConnector`] reaches one of
//! several.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use mcp_sessiond_bundle::{End, Pipe, TrackedLine, WAITING};
use mcp_sessiond_jsonrpc::Oversized;
use nix::poll::PollFlags;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::connector::{Connected, Connector, Hello, NoBackend};
use crate::lines::{CHUNK, Line, LineBuffer, Lines, is_transient};
use crate::program::Program;
use crate::signals::{GivenMask, die_of};

/// How long a child may take to end once its input was closed, as the MCP specification has it
/// (2025-11-25, Lifecycle, Shutdown).
const STOP_WAIT: Duration = Duration::from_secs(2);

/// A command that runs as our child, in our standard output and standard error.
#[derive(Debug)]
pub struct PlainChild {
    child: process::Child,
    input: process::ChildStdin,
}

impl PlainChild {
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
        let mut child = program.started(|name, arguments| {
            let mut command = process::Command::new(name);
            command.args(arguments).stdin(Stdio::piped());
            command.envs(environment.iter().map(|(name, value)| (name, value)));
            if let Some(home) = home {
                command.current_dir(home);
            }
            mask.while_in_force(|| command.spawn())
        })?;
        let input = child
            .stdin
            .take()
            .ok_or_else(|| io::Error::other("its standard input is not a pipe"))?;
        Ok(Self { child, input })
    }

    /// Its pid.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Carries what was read already, and then what the host says, until the command exits. Returns
    /// its exit code; dies of the signal that it died of.
    pub fn forward(self, read: &LineBuffer, input: File) -> u8 {
        let Self {
            mut child,
            input: to,
        } = self;
        let read = read.buffered().to_vec();
        // It ends with this process: whoever waits in read(2) can't be woken otherwise.
        let carrying = std::thread::Builder::new()
            .name("to-command".into())
            .spawn(move || forward(&read, input, to));
        drop(carrying);
        let Ok(status) = child.wait() else {
            return 1;
        };
        match (
            status.code(),
            status
                .signal()
                .and_then(|signal| Signal::try_from(signal).ok()),
        ) {
            (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
            (None, Some(signal)) => die_of(signal),
            (None, None) => 1,
        }
    }
}

/// Hands a signal on to the command.
pub fn forward_signal(command: Pid, signal: Signal) {
    let _ = kill(command, signal);
}

fn forward(read: &[u8], mut input: File, mut to: process::ChildStdin) {
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
            Err(error) if is_transient(&error, &input, PollFlags::POLLIN) => {}
            Err(_) => return,
        }
    }
}

/// Starts a command as a child, each time that it connects.
#[derive(Debug)]
pub struct ChildConnector {
    /// The command.
    pub program: Program,
    /// Variables that it gets in addition to those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; none: where this process does.
    pub home: Option<PathBuf>,
    /// The signal mask that it gets.
    pub mask: GivenMask,
}

impl Connector for ChildConnector {
    fn connect<'a>(
        &'a mut self,
        _: &'a Hello,
        _: Instant,
    ) -> BoxFuture<'a, Result<Connected, NoBackend>> {
        Box::pin(ready(self.start().map(Connected::Pipe)))
    }

    /// It ends with its pipe.
    fn release(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

impl ChildConnector {
    fn start(&self) -> Result<Pipe, NoBackend> {
        let started = self.program.started(|name, arguments| {
            let mut command = Command::new(name);
            command
                .args(arguments)
                .envs(self.environment.iter().map(|(name, value)| (name, value)));
            if let Some(home) = &self.home {
                command.current_dir(home);
            }
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true);
            self.mask.while_in_force(|| command.spawn())
        });
        let mut child = started.map_err(|error| {
            let (code, sentence) = self.program.not_run(&error);
            NoBackend::NoProgram { code, sentence }
        })?;
        let no_pipe = || NoBackend::Passing("its standard streams are not pipes".to_owned());
        let input = child.stdin.take().ok_or_else(no_pipe)?;
        let output = child.stdout.take().ok_or_else(no_pipe)?;
        Ok(carried(child, input, output))
    }
}

/// The pipe to a child.
fn carried(child: Child, input: ChildStdin, output: ChildStdout) -> Pipe {
    // Whoever sends is to see what waits.
    let (to, wanted) = mpsc::channel(1);
    let (said, from) = mpsc::channel(WAITING);
    // Dropped, it is to end.
    let (end, ended) = watch::channel(());
    let (gone, is_gone) = oneshot::channel::<()>();
    let (closed, is_closed) = oneshot::channel();
    let own = ended.clone();
    tokio::spawn(async move {
        if write(input, wanted, own).await.is_err() {
            let _ = closed.send(());
        }
    });
    let mut reading = tokio::spawn(read(output, said, to.downgrade()));
    tokio::spawn(async move {
        if wait(child, ended, is_closed).await == EndReason::InputClosed {
            // What it has left behind may have its output, and nobody gets it to answer.
            drop(timeout(STOP_WAIT, &mut reading).await);
            reading.abort();
        }
        drop(gone);
    });
    let end = End::new(|| {
        Box::pin(async move {
            drop(end);
            let _ = is_gone.await;
        })
    });
    Pipe { to, from, end }
}

/// Carries lines to the child until the bundle hangs up, or the child is to end. Fails where the
/// child has closed its input.
async fn write(
    mut input: ChildStdin,
    mut wanted: mpsc::Receiver<Bytes>,
    mut ended: watch::Receiver<()>,
) -> io::Result<()> {
    loop {
        tokio::select! {
            line = wanted.recv() => {
                let Some(line) = line else { return Ok(()) };
                input.write_all(&[&line[..], b"\n"].concat()).await?;
            }
            _ = ended.changed() => return Ok(()),
        }
    }
}

/// Carries lines of the child to the bundle, and what is said of those that are too large to
/// whoever waits.
async fn read(output: ChildStdout, said: mpsc::Sender<TrackedLine>, to: mpsc::WeakSender<Bytes>) {
    let mut lines = Lines::new(output);
    while let Ok(Some(line)) = lines.next().await {
        let line = match line {
            Line::Whole(line) => line,
            Line::Oversized { head, tail } => match Oversized::of_server(&head, &tail) {
                Oversized::Failed(answer) => answer,
                Oversized::Refused(answer) => {
                    if let Some(to) = to.upgrade() {
                        // A child that reads nothing is still heard.
                        tokio::spawn(async move { to.send(answer).await });
                    }
                    continue;
                }
                Oversized::Dropped => continue,
            },
        };
        if said.send(TrackedLine::once(line)).await.is_err() {
            return;
        }
    }
}

/// Why a child has ended.
#[derive(Debug, PartialEq, Eq)]
enum EndReason {
    /// It has ended by itself, or was to end.
    Exited,
    /// It had closed its input, and could be told nothing any more.
    InputClosed,
}

/// Waits for the child's end. One whose input was closed has [`STOP_WAIT`], and is killed then.
async fn wait(
    mut child: Child,
    mut ended: watch::Receiver<()>,
    closed: oneshot::Receiver<()>,
) -> EndReason {
    let why = tokio::select! {
        _ = child.wait() => return EndReason::Exited,
        _ = ended.changed() => EndReason::Exited,
        Ok(()) = closed => EndReason::InputClosed,
    };
    drop(timeout(STOP_WAIT, child.wait()).await);
    // Where it has ended, there is nothing to be killed.
    let _ = child.kill().await;
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that asks for too much, tells what it gets for that, and answers with too much.
    const SERVER: &str = r#"
        printf '{"jsonrpc":"2.0","id":3,"method":"sampling/createMessage","params":{"pad":"'
        head -c 16777216 /dev/zero | tr '\0' x
        echo '"}}'
        read -r line
        echo "$line"
        printf '{"jsonrpc":"2.0","id":4,"result":{"pad":"'
        head -c 16777216 /dev/zero | tr '\0' x
        echo '"}}'
    "#;

    #[tokio::test]
    async fn what_is_too_large_is_refused_to_a_server_that_asks_and_fails_where_it_answers() {
        let arguments = vec!["-c".into(), SERVER.into()];
        let program = Program {
            name: "sh".into(),
            arguments,
            title: None,
            has_sources: true,
        };
        let connector = ChildConnector {
            program,
            environment: Vec::new(),
            home: None,
            mask: GivenMask::block(&[]),
        };
        let mut pipe = connector.start().expect("a shell");
        let mut next = async || {
            let line = pipe.from.recv().await.expect("a line").line;
            let line: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
            (line["id"].clone(), line["error"]["code"].clone())
        };
        // Not as an answer to the host's own call of that id: the server has got it.
        assert_eq!(next().await, (3.into(), (-32600).into()));
        assert_eq!(next().await, (4.into(), (-32000).into()));
    }
}
