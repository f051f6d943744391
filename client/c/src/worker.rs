//! The thread of a handle: it runs the calls, and each caller waits for it until a deadline.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mcp_sessiond_client::{Options, Sessiond, Status};
use nix::sys::signal::SigSet;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::lines::Lines;
use crate::panics;
use crate::values::mcp_sessiond_result::{MCP_SESSIOND_RESOURCES, MCP_SESSIOND_TIMEOUT};

/// How much longer a caller waits than the call may take: the call itself knows why it was too
/// late, and says so.
const GRACE: Duration = Duration::from_millis(100);

/// A handle's thread, and its session with the daemon.
#[derive(Debug)]
pub(crate) struct Worker {
    sessiond: Sessiond,
    lines: Lines,
    runtime: Handle,
    /// The thread ends when this goes.
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
    timeout: Duration,
    /// The process that has the thread: another one, forked from it, hasn't.
    process: u32,
}

/// What a call came to, and how things stood when it ended.
#[derive(Debug)]
pub(crate) struct Done<T> {
    pub(crate) value: T,
    pub(crate) status: Status,
    /// What was logged last.
    pub(crate) message: Option<String>,
}

impl Worker {
    /// Starts the thread. Nothing is asked of the daemon yet.
    pub(crate) fn start(options: Options, timeout: Duration) -> Result<Self, Failure> {
        panics::silence();
        let failed = |error: io::Error| {
            let sentence = format!("the thread that asks the daemon could not be started: {error}");
            Failure::new(MCP_SESSIOND_RESOURCES, sentence)
        };
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let lines = Lines::default();
        let received = lines.clone();
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            panics::take_over_thread();
            received.receive(|| {
                // It ends with an error, since nothing is ever sent.
                let _ = runtime.block_on(stopped);
            });
        };
        // A thread begins with the mask of the one that starts it. The server's signals are for the
        // server's threads; and a daemon that hangs up must not raise SIGPIPE.
        let given = SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_SETMASK);
        let thread = thread::Builder::new()
            .name("mcp-sessiond".into())
            .spawn(run);
        if let Ok(given) = given {
            let _ = given.thread_set_mask();
        }
        let thread = thread.map_err(failed)?;
        let sessiond = Sessiond::init(options.timeout(timeout));
        let process = std::process::id();
        Ok(Self {
            sessiond,
            lines,
            runtime: handle,
            stop,
            thread,
            timeout,
            process,
        })
    }

    /// Does something in the thread, and waits for it.
    pub(crate) fn call<T, F>(&self, work: impl FnOnce(Sessiond) -> F) -> Result<Done<T>, Failure>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.check()?;
        let (sessiond, lines) = (self.sessiond.clone(), self.lines.clone());
        let work = work(self.sessiond.clone());
        let (tell, told) = sync_channel(1);
        let task = self.runtime.spawn(async move {
            let value = work.await;
            // Nothing else runs in between, so this is how the call itself left things.
            let _ = tell.send(Done {
                value,
                status: sessiond.status(),
                message: lines.last(),
            });
        });
        told.recv_timeout(self.timeout.saturating_add(GRACE))
            .map_err(|missing| match missing {
                RecvTimeoutError::Timeout => {
                    // It is dropped half-way: the next call finds out how things stand.
                    task.abort();
                    let sentence = format!(
                        "the call was not done within {} ms",
                        self.timeout.as_millis()
                    );
                    Failure::new(MCP_SESSIOND_TIMEOUT, sentence)
                }
                // It panicked.
                RecvTimeoutError::Disconnected => Failure::fault(),
            })
    }

    /// How things stand.
    pub(crate) fn status(&self) -> Result<Status, Failure> {
        self.check()?;
        Ok(self.sessiond.status())
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    fn check(&self) -> Result<(), Failure> {
        if self.process == std::process::id() {
            Ok(())
        } else {
            Err(Failure::forked())
        }
    }

    /// Ends the thread. In a forked process there is none: its copy of everything stays where it
    /// is, since taking it down could reach the parent's, by what both share.
    pub(crate) fn end(self) {
        if self.check().is_err() {
            std::mem::forget(self);
            return;
        }
        drop(self.stop);
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::mcp_sessiond_result::MCP_SESSIOND_FAULT;

    /// The thread's own way out of each test.
    fn worker() -> Worker {
        Worker::start(Options::default(), Duration::from_secs(30)).expect("a thread")
    }

    #[test]
    fn a_panic_in_the_thread_is_a_fault_and_the_next_call_is_done() {
        let worker = worker();
        let failed = worker
            .call(|_| async { panic!("a fault of ours") })
            .map(|done: Done<()>| done.value);
        assert_eq!(failed.expect_err("it panicked").result, MCP_SESSIOND_FAULT);
        let done = worker.call(|_| async { 7 }).expect("the thread goes on");
        assert_eq!((done.value, done.message), (7, None));
        worker.end();
    }

    #[test]
    fn a_call_whose_time_is_over_is_dropped() {
        let worker = Worker::start(Options::default(), Duration::from_millis(1)).expect("a thread");
        let (dropped, is_dropped) = sync_channel::<()>(1);
        let late = worker.call(|_| async move {
            let _until_dropped = dropped;
            std::future::pending::<()>().await;
        });
        assert_eq!(
            late.expect_err("it never ends").result,
            MCP_SESSIOND_TIMEOUT
        );
        assert!(
            is_dropped.recv().is_err(),
            "by the thread, while the handle is there"
        );
        worker.end();
    }
}
