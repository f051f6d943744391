//! A server that is a child of this process, and ends with it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_client::{RequestId, Session};
use mcp_sessiond_process::{ExitWatch, Pinned, sys};
use mcp_sessiond_proxy::keeper::backend::Program;
use mcp_sessiond_proxy::keeper::lines::{Line, Lines};
use mcp_sessiond_proxy::signals::GivenMask;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};

use crate::backend::{Backend, Backends, Ended};
use crate::complain;
use crate::refusal::{Refusal, no_server};
use crate::which::Id;

/// How long a server may take to end after its standard input was closed, and again after SIGTERM.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// Starts a server for each session.
#[derive(Debug)]
pub struct Children {
    program: Program,
    mask: GivenMask,
}

impl Children {
    /// Will run this program, in the environment and the directory of this process.
    #[must_use]
    pub fn of(program: Program) -> Self {
        Self {
            program,
            mask: GivenMask::block(&[]),
        }
    }
}

impl Backends for Children {
    fn backend<'a>(
        &'a self,
        _: Option<&'a Session>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>, Refusal>> {
        async {
            let child = Plain::start(&self.program, &self.mask);
            let child = child.map_err(|error| no_server(self.program.not_run(&error).1))?;
            let child: Arc<dyn Backend> = Arc::new(child);
            Ok(child)
        }
        .boxed()
    }

    fn claim<'a>(&'a self, _: &'a Session) -> BoxFuture<'a, Result<(), Refusal>> {
        async { Ok(()) }.boxed()
    }
}

struct Plain {
    input: Mutex<Option<pipe::Sender>>,
    output: Mutex<Lines<pipe::Receiver>>,
    number: AtomicU64,
    incarnation: String,
    ends: watch::Sender<bool>,
    /// Closed once the server has exited.
    gone: watch::Receiver<()>,
}

impl Plain {
    fn start(program: &Program, mask: &GivenMask) -> io::Result<Self> {
        let mut command = Command::new(&program.name);
        command.args(&program.arguments).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = mask.while_in_force(|| command.spawn())?;
        let missing = || io::Error::other("it has no pipe");
        let input = child.stdin.take().map(OwnedFd::from).ok_or_else(missing)?;
        let output = child.stdout.take().map(OwnedFd::from).ok_or_else(missing)?;
        let (input, output) = (
            pipe::Sender::from_owned_fd(input)?,
            pipe::Receiver::from_owned_fd(output)?,
        );
        let exit = Exit::of(&child).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let (ends, ended) = watch::channel(false);
        let (is_gone, gone) = watch::channel(());
        tokio::spawn(async move {
            see_off(&child, &exit, ended).await;
            drop(is_gone);
            // The group's id is not given to others before its leader was waited for.
            sleep(STOP_WAIT).await;
            signal(&child, Signal::SIGKILL);
            let _ = { child }.wait();
        });
        Ok(Self {
            input: Mutex::new(Some(input)),
            output: Mutex::new(Lines::new(output)),
            number: AtomicU64::new(0),
            incarnation: RequestId::mint().to_string(),
            ends,
            gone,
        })
    }
}

/// Is readable once a child has exited.
struct Exit {
    readable: AsyncFd<OwnedFd>,
    /// Held, as it watches.
    _exits: ExitWatch,
}

impl Exit {
    fn of(child: &Child) -> io::Result<Self> {
        let mut exits = ExitWatch::new()?;
        exits.add(Pinned::open(child.id()).map_err(io::Error::other)?)?;
        let readable = sys::when_readable(exits.as_fd().try_clone_to_owned()?)?;
        Ok(Self {
            readable,
            _exits: exits,
        })
    }

    async fn wait(&self) {
        let _ = self.readable.readable().await;
    }
}

/// Waits until a server has exited. If it has to end, signals follow on the end of its standard
/// input.
async fn see_off(child: &Child, exit: &Exit, mut ends: watch::Receiver<bool>) {
    let has_to_end = tokio::select! {
        () = exit.wait() => false,
        _ = ends.wait_for(|ends| *ends) => true,
    };
    if has_to_end {
        for last in [Signal::SIGTERM, Signal::SIGKILL] {
            if timeout(STOP_WAIT, exit.wait()).await.is_ok() {
                break;
            }
            signal(child, last);
        }
        exit.wait().await;
    }
    // What it has left behind.
    signal(child, Signal::SIGTERM);
}

fn signal(child: &Child, signal: Signal) {
    let _ = killpg(Pid::from_raw(child.id().cast_signed()), signal);
}

impl Backend for Plain {
    fn send(&self, line: Bytes) -> BoxFuture<'_, Result<(), Ended>> {
        async move {
            let mut slot = self.input.lock().await;
            let Some(input) = &mut *slot else {
                return Err(Ended {
                    may_have_arrived: false,
                });
            };
            let mut ends = self.ends.subscribe();
            let written = async {
                input.write_all(&line).await?;
                input.write_all(b"\n").await
            };
            let is_written = tokio::select! {
                written = written => written.is_ok(),
                _ = ends.wait_for(|ends| *ends) => false,
            };
            if !is_written {
                *slot = None;
                return Err(Ended {
                    may_have_arrived: true,
                });
            }
            Ok(())
        }
        .boxed()
    }

    fn next(&self) -> BoxFuture<'_, Option<(u64, Bytes)>> {
        async {
            let mut output = self.output.lock().await;
            match output.next().await {
                Ok(Some(Line::Whole(line))) => {
                    Some((self.number.fetch_add(1, Ordering::Relaxed), line))
                }
                Ok(Some(Line::Oversized { .. })) => {
                    complain("a server has written a line that is too long, and is ended");
                    None
                }
                Ok(None) | Err(_) => None,
            }
        }
        .boxed()
    }

    fn confirm(&self, _: u64) {}

    fn open_calls(&self) -> BoxFuture<'_, Result<Vec<Id>, Ended>> {
        async { Ok(Vec::new()) }.boxed()
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        async {
            self.ends.send_replace(true);
            *self.input.lock().await = None;
            self.gone().await;
        }
        .boxed()
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        let mut gone = self.gone.clone();
        async move { drop(gone.changed().await) }.boxed()
    }

    fn incarnation(&self) -> &str {
        &self.incarnation
    }

    fn continues(&self) -> bool {
        false
    }
}
