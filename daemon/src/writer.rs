//! A thread that writes for everybody: it commits in groups whatever has come in since its last commit, and tells how
//! far it has come.

use std::fmt::Display;
use std::io;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::watch;

/// How long after a failed commit the next attempt is made, and when clients are told to come back.
pub const RETRY: Duration = Duration::from_millis(250);

/// A place in the order of what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(u64);

/// How far the writer has come.
#[derive(Debug, Clone, Default)]
struct Progress {
    kept: Mark,
    /// Up to where the last attempt failed, and that it failed.
    failed: Option<Mark>,
}

/// The writer fails, and goes on trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalled;

/// The writing end.
#[derive(Debug)]
pub struct Writer<E> {
    queue: mpsc::Sender<(Mark, E)>,
    /// As the thread reports it, and as whoever waits is told.
    reported: watch::Receiver<Progress>,
    progress: watch::Receiver<Progress>,
    last: Mark,
}

/// Waits for what has been recorded.
#[derive(Debug, Clone)]
pub struct Waiter {
    progress: watch::Receiver<Progress>,
    mark: Mark,
}

impl<E: Send + 'static> Writer<E> {
    /// Starts the thread. `commit` writes all of a group or nothing; `what` is what it writes, for the log.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start<Why: Display>(
        what: &'static str,
        commit: impl FnMut(&[E]) -> Result<(), Why> + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, incoming) = mpsc::channel();
        let (report, reported) = watch::channel(Progress::default());
        std::thread::Builder::new()
            .name(what.into())
            .spawn(move || write(what, commit, &incoming, &report))?;
        let progress = passed_on(&reported);
        Ok(Self { queue, reported, progress, last: Mark::default() })
    }

    /// Puts an entry on record, in the order of the calls.
    pub fn record(&mut self, entry: E) -> Mark {
        self.last = Mark(self.last.0 + 1);
        // The thread ends only when this sender is dropped.
        let _ = self.queue.send((self.last, entry));
        self.last
    }

    /// Whether what is recorded now has a chance to be kept.
    ///
    /// # Errors
    /// [`Stalled`] while the writer fails.
    pub fn check(&self) -> Result<(), Stalled> {
        if self.reported.borrow().failed.is_some() { Err(Stalled) } else { Ok(()) }
    }

    /// Whether the writer still runs. Without it nothing can be kept any more.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.reported.has_changed().is_ok()
    }

    /// Waits for everything recorded up to now.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        self.waiter_for(self.last)
    }

    /// Waits for everything recorded up to `mark`.
    #[must_use]
    pub fn waiter_for(&self, mark: Mark) -> Waiter {
        Waiter { progress: self.progress.clone(), mark }
    }

    /// Whether everything up to `mark` is kept already.
    #[must_use]
    pub fn has_kept(&self, mark: Mark) -> bool {
        self.reported.borrow().kept >= mark
    }

    /// Returns when the thread has written what it can, and ended.
    #[cfg(test)]
    pub(crate) async fn close(self) {
        let mut progress = self.progress.clone();
        drop(self);
        while progress.changed().await.is_ok() {}
    }
}

impl Waiter {
    /// Returns once it is kept.
    ///
    /// # Errors
    /// [`Stalled`] when it could not be written yet.
    pub async fn kept(mut self) -> Result<(), Stalled> {
        let mark = self.mark;
        let settled = |progress: &Progress| progress.kept >= mark || progress.failed >= Some(mark);
        match self.progress.wait_for(settled).await {
            Ok(progress) if progress.kept >= mark => Ok(()),
            _ => Err(Stalled),
        }
    }
}

/// Wakes whoever waits from a task beside them: from the thread, each of them would cost a call of the kernel, and so the
/// thread tells this task alone.
fn passed_on(reported: &watch::Receiver<Progress>) -> watch::Receiver<Progress> {
    let mut reported = reported.clone();
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return reported };
    let (pass_on, progress) = watch::channel(Progress::default());
    runtime.spawn(async move {
        while reported.changed().await.is_ok() {
            let reached = reported.borrow_and_update().clone();
            pass_on.send_replace(reached);
        }
    });
    progress
}

/// Commits until the sender is gone, and what it could not commit again and again.
fn write<E, Why: Display>(
    what: &'static str,
    mut commit: impl FnMut(&[E]) -> Result<(), Why>,
    incoming: &mpsc::Receiver<(Mark, E)>,
    report: &watch::Sender<Progress>,
) {
    let mut batch: Vec<E> = Vec::new();
    let mut last = Mark::default();
    let mut open = true;
    while open || !batch.is_empty() {
        if batch.is_empty() {
            match incoming.recv() {
                Ok((mark, entry)) => {
                    last = mark;
                    batch.push(entry);
                }
                Err(mpsc::RecvError) => return,
            }
        } else if open {
            // What failed is tried again after a pause, however much comes in meanwhile.
            std::thread::sleep(RETRY);
        } else {
            return;
        }
        loop {
            match incoming.try_recv() {
                Ok((mark, entry)) => {
                    last = mark;
                    batch.push(entry);
                }
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => {
                    open = false;
                    break;
                }
            }
        }
        match commit(&batch) {
            Ok(()) => {
                batch.clear();
                report.send_modify(|progress| *progress = Progress { kept: last, failed: None });
            }
            Err(error) => {
                if report.borrow().failed.is_none() {
                    tracing::error!(%error, "could not write {what}; trying again");
                }
                report.send_modify(|progress| progress.failed = Some(last));
            }
        }
    }
}
