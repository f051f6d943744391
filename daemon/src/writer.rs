//! A thread that writes for all tasks: it commits, as one group, all entries since its last commit,
//! and reports how far it has come.

mod database;
mod queue;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

pub use database::{Database, FileLock, Files, check, check_format};
pub use queue::Urgency;
use queue::{Queue, Work};

/// How long after a failed commit the next attempt is made, and after what time clients should try
/// again.
pub const RETRY: Duration = Duration::from_millis(250);

/// A place in the order of what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(u64);

/// How far the writer has come.
#[derive(Debug, Clone, Default)]
struct Progress {
    kept: Mark,
    /// Up to where the last attempt failed, and why.
    failed: Option<(Mark, Stalled)>,
}

/// Why the writer fails; it goes on trying.
#[derive(Debug, Clone)]
pub struct Stalled(pub Arc<Failure>);

/// Why nothing could be written.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{sentence}")]
pub struct Failure {
    /// What is wrong, and what to do about it, where that is known.
    pub sentence: String,
    /// Whether the disk is full, so that a user has to make room.
    pub is_full: bool,
}

impl Failure {
    /// What SQLite said of a database in this directory.
    pub fn of(error: &rusqlite::Error, directory: &Path) -> Self {
        let is_full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
            || may_be_full(error) && has_no_room(directory);
        let sentence = if is_full {
            format!(
                "the disk of {} is full; free some space there",
                directory.display()
            )
        } else {
            error.to_string()
        };
        Self { sentence, is_full }
    }
}

/// Begins a transaction that writes. It takes the write lock at once: only here does SQLite wait
/// for another program that writes; later it refuses a transaction that has read before.
///
/// # Errors
/// Those of SQLite, also when another program writes for longer than the connection waits.
pub fn begin(connection: &mut rusqlite::Connection) -> rusqlite::Result<rusqlite::Transaction<'_>> {
    connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
}

/// Whether a full disk may be behind it. SQLite says so itself where a write fails, but not where a
/// file can't be made or grow, or where it is the user's quota that is used up.
pub fn may_be_full(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull, SystemIoFailure};
    matches!(
        error.sqlite_error_code(),
        Some(DiskFull | SystemIoFailure | CannotOpen)
    )
}

/// Whether nothing more fits into the file system that a directory is in: no block, or no file.
fn has_no_room(directory: &Path) -> bool {
    nix::sys::statvfs::statvfs(directory).is_ok_and(|found| {
        found.blocks_available() == 0 || found.files() > 0 && found.files_available() == 0
    })
}

/// What is left to do after a commit has been acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    Nothing,
    /// Work that no client waits for. The thread calls `commit` with an empty group for it, after
    /// all other commits.
    Some,
}

impl Rest {
    /// [`Rest::Some`] if there is something to do.
    pub fn when(there_is: bool) -> Self {
        if there_is { Self::Some } else { Self::Nothing }
    }
}

/// The writing end.
#[derive(Debug)]
pub struct Writer<E> {
    queue: Arc<Queue<E>>,
    /// As the thread reports it, and as it is passed on to the tasks that wait.
    reported: watch::Receiver<Progress>,
    progress: watch::Receiver<Progress>,
    /// The thread holds the other end, and drops it when it ends.
    alive: watch::Receiver<()>,
    last: Mark,
}

/// Waits for what has been recorded.
#[derive(Debug, Clone)]
pub struct Waiter {
    progress: watch::Receiver<Progress>,
    mark: Mark,
}

impl<E: Send + 'static> Writer<E> {
    /// Starts the thread. `commit` writes all of a group or nothing. For an empty group it checks
    /// whether it could write, and does a part of the work that is left. It is dropped when the
    /// thread ends. `what` names the file in the log.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        what: &'static str,
        commit: impl FnMut(&[E]) -> Result<Rest, Failure> + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let incoming = queue.clone();
        let (report, reported) = watch::channel(Progress::default());
        let (lives, alive) = watch::channel(());
        std::thread::Builder::new()
            .name(what.into())
            .spawn(move || {
                let _lives = lives;
                write(what, commit, &incoming, &report);
            })?;
        let progress = passed_on(&reported);
        Ok(Self {
            queue,
            reported,
            progress,
            alive,
            last: Mark::default(),
        })
    }

    /// Puts an entry on record, in the order of the calls.
    pub fn record(&mut self, entry: E, urgency: Urgency) -> Mark {
        self.last = Mark(self.last.0 + 1);
        self.queue.push(self.last, entry, urgency);
        self.last
    }

    /// Whether what is recorded now has a chance to be kept.
    ///
    /// # Errors
    /// [`Stalled`] while the writer fails.
    pub fn check(&self) -> Result<(), Stalled> {
        self.reported
            .borrow()
            .failed
            .clone()
            .map_or(Ok(()), |(_, stalled)| Err(stalled))
    }

    /// Whether the writer still runs. Without it nothing can be kept any more.
    pub fn is_alive(&self) -> bool {
        self.reported.has_changed().is_ok()
    }

    /// Returns when the thread has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<E> {
        let mut alive = self.alive.clone();
        async move { while alive.changed().await.is_ok() {} }
    }

    /// Waits for everything recorded up to now.
    pub fn waiter(&self) -> Waiter {
        self.waiter_for(self.last)
    }

    /// Waits for everything recorded up to `mark`.
    pub fn waiter_for(&self, mark: Mark) -> Waiter {
        Waiter {
            progress: self.progress.clone(),
            mark,
        }
    }

    /// Whether everything up to `mark` is kept already.
    pub fn has_kept(&self, mark: Mark) -> bool {
        self.reported.borrow().kept >= mark
    }

    /// Has the thread look after the files.
    pub fn look(&self) {
        self.queue.look();
    }

    /// Has the thread write what it can, and end; entries after this are not kept. The returned
    /// future ends with the thread.
    pub fn end(&self) -> impl Future<Output = ()> + Send + use<E> {
        self.queue.end();
        let mut reported = self.reported.clone();
        async move { while reported.changed().await.is_ok() {} }
    }

    /// Returns when the thread has written what it can, and ended.
    #[cfg(test)]
    pub(crate) async fn close(self) {
        let mut progress = self.progress.clone();
        drop(self);
        while progress.changed().await.is_ok() {}
    }
}

impl<E> Drop for Writer<E> {
    fn drop(&mut self) {
        self.queue.end();
    }
}

impl Waiter {
    /// Returns once it is kept.
    ///
    /// # Errors
    /// [`Stalled`] when it could not be written yet.
    pub async fn kept(mut self) -> Result<(), Stalled> {
        let mark = self.mark;
        let failed = |progress: &Progress| {
            progress
                .failed
                .as_ref()
                .is_some_and(|(failed, _)| *failed >= mark)
        };
        let settled = |progress: &Progress| progress.kept >= mark || failed(progress);
        match self.progress.wait_for(settled).await {
            Ok(progress) if progress.kept >= mark => Ok(()),
            Ok(progress) => Err(progress
                .failed
                .clone()
                .map_or_else(Stalled::ended, |(_, stalled)| stalled)),
            Err(_) => Err(Stalled::ended()),
        }
    }
}

impl Stalled {
    fn ended() -> Self {
        let sentence = "the thread that writes it has ended".into();
        Self(Arc::new(Failure {
            sentence,
            is_full: false,
        }))
    }
}

/// Wakes the waiting tasks from a task of its own: from the thread, each wake-up would cost a
/// system call, so the thread only wakes this one.
fn passed_on(reported: &watch::Receiver<Progress>) -> watch::Receiver<Progress> {
    let mut reported = reported.clone();
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return reported;
    };
    let (pass_on, progress) = watch::channel(Progress::default());
    runtime.spawn(async move {
        while reported.changed().await.is_ok() {
            let reached = reported.borrow_and_update().clone();
            pass_on.send_replace(reached);
        }
    });
    progress
}

/// Commits until it is told to end or the other end is gone. Repeats a commit that has failed.
fn write<E>(
    what: &'static str,
    mut commit: impl FnMut(&[E]) -> Result<Rest, Failure>,
    incoming: &Queue<E>,
    report: &watch::Sender<Progress>,
) {
    let mut rest = Rest::Nothing;
    let mut work = Work::default();
    while work.is_open || !work.batch.is_empty() {
        let has_failed = report.borrow().failed.is_some();
        if !has_failed && rest == Rest::Nothing {
            incoming.wait();
        } else if !has_failed {
            // There is work left, so don't wait for more.
        } else if work.is_open {
            // Repeat a failed commit only after a pause, however much comes in meanwhile.
            std::thread::sleep(RETRY);
        } else {
            return;
        }
        incoming.take(&mut work);
        let looks = std::mem::take(&mut work.looks);
        if work.batch.is_empty() && !looks && !has_failed && rest == Rest::Nothing {
            continue;
        }
        match commit(&work.batch) {
            Ok(left) => {
                rest = left;
                work.batch.clear();
                work.batch.shrink_to(queue::MANY);
                if report.borrow().failed.is_some() {
                    tracing::info!("{what} can be written again");
                }
                report.send_modify(|progress| {
                    *progress = Progress {
                        kept: work.last,
                        failed: None,
                    }
                });
            }
            Err(error) => {
                if report.borrow().failed.is_none() {
                    tracing::error!(%error, "could not write {what}; trying again");
                }
                let stalled = Stalled(Arc::new(error));
                report.send_modify(|progress| progress.failed = Some((work.last, stalled)));
            }
        }
    }
}
