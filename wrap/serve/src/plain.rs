//! A plain child for each session: it ends with this process, and what it was doing is lost with it.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_client::{RequestId, SessionId};
use mcp_sessiond_relay::too_large;
use mcp_sessiond_wrap::keeper::backend::Program;
use mcp_sessiond_wrap::keeper::lines::{Line, Lines};
use mcp_sessiond_wrap::signals::GivenMask;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use crate::backend::{Backend, Backends, Ended};
use crate::which::Id;

/// Lines that a child which does not read may have waiting for it.
const WAITING_MAX: usize = 1_024;

/// Starts children.
#[derive(Debug)]
pub struct PlainChildren {
    /// What is run.
    pub program: Program,
    /// How long a child has to exit after its input was closed, and again after SIGTERM.
    pub stop_wait: Duration,
    /// The signals that a child is to have blocked.
    pub mask: GivenMask,
}

#[derive(Debug)]
struct PlainChild {
    incarnation: String,
    pid: Pid,
    stop_wait: Duration,
    /// None: its input is closed.
    input: std::sync::Mutex<Option<mpsc::Sender<Bytes>>>,
    output: Mutex<Lines<ChildStdout>>,
    said: AtomicU64,
    child: Mutex<Child>,
}

impl Backends for PlainChildren {
    fn backend(&self, _: &SessionId) -> BoxFuture<'_, io::Result<Arc<dyn Backend>>> {
        async {
            let mut command = Command::new(&self.program.name);
            command.args(&self.program.arguments).process_group(0).kill_on_drop(true);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = self.mask.while_in_force(|| command.spawn())?;
            let missing = || io::Error::other("its standard streams are no pipes");
            let (stdin, stdout) =
                (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
            let pid = child.id().ok_or_else(|| io::Error::other("it has exited at once"))?;
            let (input, lines) = mpsc::channel(WAITING_MAX);
            tokio::spawn(write(stdin, lines));
            let backend: Arc<dyn Backend> = Arc::new(PlainChild {
                incarnation: RequestId::mint().to_string(),
                pid: Pid::from_raw(pid.cast_signed()),
                stop_wait: self.stop_wait,
                input: std::sync::Mutex::new(Some(input)),
                output: Mutex::new(Lines::new(stdout)),
                said: AtomicU64::new(0),
                child: Mutex::new(child),
            });
            Ok(backend)
        }
        .boxed()
    }
}

async fn write(mut input: ChildStdin, mut lines: mpsc::Receiver<Bytes>) {
    while let Some(line) = lines.recv().await {
        let written = async {
            input.write_all(&line).await?;
            input.write_all(b"\n").await?;
            input.flush().await
        };
        if written.await.is_err() {
            return;
        }
    }
}

impl Backend for PlainChild {
    fn send(&self, line: Bytes) -> BoxFuture<'_, Result<(), Ended>> {
        let input = self.input.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        async move { input.ok_or(Ended)?.send(line).await.map_err(|_| Ended) }.boxed()
    }

    fn next(&self) -> BoxFuture<'_, Option<(u64, Bytes)>> {
        async {
            let line = match self.output.lock().await.next().await {
                Ok(Some(Line::Whole(line))) => line,
                // Whoever waits for it is told.
                Ok(Some(Line::Oversized { head, tail })) => too_large(&head, &tail),
                Ok(None) | Err(_) => return None,
            };
            Some((self.said.fetch_add(1, Ordering::Relaxed) + 1, line))
        }
        .boxed()
    }

    fn confirm(&self, _: u64) {}

    fn open_calls(&self) -> BoxFuture<'_, Vec<Id>> {
        async { Vec::new() }.boxed()
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        async {
            drop(self.input.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
            let mut child = self.child.lock().await;
            if timeout(self.stop_wait, child.wait()).await.is_err() {
                let _ = killpg(self.pid, Signal::SIGTERM);
                if timeout(self.stop_wait, child.wait()).await.is_err() {
                    let _ = killpg(self.pid, Signal::SIGKILL);
                    drop(child.wait().await);
                }
            }
        }
        .boxed()
    }

    fn incarnation(&self) -> &str {
        &self.incarnation
    }

    fn continues(&self) -> bool {
        false
    }
}
