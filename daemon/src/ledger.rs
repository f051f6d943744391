//! `sessions.db`: the registry's own memory, in SQLite. One writer thread commits in groups whatever has come in
//! since the last commit. A commit survives the daemon's SIGKILL; sessions don't outlive a reboot anyway.

mod schema;

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use mcp_sessiond_proto::Error;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::fault;
use crate::registry::{Effect, Snapshot};

/// The name of the database in the runtime directory.
const FILE: &str = "sessions.db";

/// How long after a failed commit the next attempt is made, and when clients are told to come back.
const RETRY: Duration = Duration::from_millis(250);

/// A registry that can't be kept.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// SQLite refused.
    #[error("{path}: {error}")]
    Database {
        /// The database.
        path: PathBuf,
        /// Why.
        error: rusqlite::Error,
    },
    /// Its thread could not be started.
    #[error("could not start the thread that writes sessions.db: {0}")]
    Thread(std::io::Error),
}

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

/// The writing end.
#[derive(Debug)]
pub struct Ledger {
    queue: mpsc::Sender<(Mark, Effect)>,
    progress: watch::Receiver<Progress>,
    last: Mark,
}

/// Waits for what has been recorded.
#[derive(Debug, Clone)]
pub struct Waiter {
    progress: watch::Receiver<Progress>,
    mark: Mark,
}

/// What was found at the start.
#[derive(Debug)]
pub struct Opened {
    /// The ledger.
    pub ledger: Ledger,
    /// What a former daemon of this boot left.
    pub snapshot: Snapshot,
    /// Why what was there was discarded, where it was.
    pub discarded: Option<String>,
}

impl Ledger {
    /// Opens the database in a runtime directory. What is from before a reboot, or can't be read, is discarded:
    /// losing a session is acceptable, resuming the wrong one is not.
    ///
    /// # Errors
    /// [`LedgerError`], when not even an empty database can be had.
    pub fn open(directory: &Path, boot: &str) -> Result<Opened, LedgerError> {
        let path = directory.join(FILE);
        let failed = |error| LedgerError::Database { path: path.clone(), error };
        let (connection, snapshot, discarded) = match schema::open(&path, boot) {
            Ok((connection, schema::State::Current(snapshot))) => (connection, snapshot, None),
            Ok((connection, schema::State::Empty)) => (connection, Snapshot::default(), None),
            Ok((connection, schema::State::Discarded(why))) => (connection, Snapshot::default(), Some(why)),
            // What stands in the way for the moment says nothing about what is recorded.
            Err(error) if !schema::is_damage(&error) => return Err(failed(error)),
            Err(error) => {
                for suffix in ["", "-wal", "-shm"] {
                    let _ = std::fs::remove_file(directory.join(format!("{FILE}{suffix}")));
                }
                let (connection, _) = schema::open(&path, boot).map_err(failed)?;
                (connection, Snapshot::default(), Some(error.to_string()))
            }
        };
        let (queue, incoming) = mpsc::channel();
        let (report, progress) = watch::channel(Progress::default());
        std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || write(connection, &incoming, &report))
            .map_err(LedgerError::Thread)?;
        let ledger = Self { queue, progress, last: Mark::default() };
        Ok(Opened { ledger, snapshot, discarded })
    }

    /// Puts an effect on record, in the order of the calls.
    pub fn record(&mut self, effect: Effect) {
        self.last = Mark(self.last.0 + 1);
        // The thread ends only when this sender is dropped.
        let _ = self.queue.send((self.last, effect));
    }

    /// Whether what is recorded now has a chance to be kept.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while the writer fails.
    pub fn check(&self) -> Result<(), Error> {
        if self.progress.borrow().failed.is_some() { Err(unavailable()) } else { Ok(()) }
    }

    /// Whether the writer still runs. Without it nothing can be kept any more.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.progress.has_changed().is_ok()
    }

    /// Waits for everything recorded up to now.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        Waiter { progress: self.progress.clone(), mark: self.last }
    }
}

impl Waiter {
    /// Returns once it is kept.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it could not be written yet. The writer goes on trying.
    pub async fn kept(mut self) -> Result<(), Error> {
        let mark = self.mark;
        let settled = |progress: &Progress| progress.kept >= mark || progress.failed >= Some(mark);
        let kept = match self.progress.wait_for(settled).await {
            Ok(progress) => progress.kept >= mark,
            Err(_) => false,
        };
        if kept { Ok(()) } else { Err(unavailable()) }
    }
}

fn unavailable() -> Error {
    let sentence = "the daemon can't write its records at the moment".into();
    Error::Unavailable { sentence, retry_after_ms: u32::try_from(RETRY.as_millis()).unwrap_or(u32::MAX) }
}

/// The writer: commits until the sender is gone, and what it could not commit again and again.
fn write(
    mut connection: Connection,
    incoming: &mpsc::Receiver<(Mark, Effect)>,
    report: &watch::Sender<Progress>,
) {
    let mut batch: Vec<(Mark, Effect)> = Vec::new();
    let mut open = true;
    while open || !batch.is_empty() {
        if batch.is_empty() {
            match incoming.recv() {
                Ok(entry) => batch.push(entry),
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
                Ok(entry) => batch.push(entry),
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => {
                    open = false;
                    break;
                }
            }
        }
        let Some(mark) = batch.last().map(|(mark, _)| *mark) else { continue };
        match schema::commit(&mut connection, batch.iter().map(|(_, effect)| effect)) {
            Ok(()) => {
                fault::point("ledger-commit");
                batch.clear();
                report.send_modify(|progress| *progress = Progress { kept: mark, failed: None });
            }
            Err(error) => {
                if report.borrow().failed.is_none() {
                    tracing::error!(%error, "could not write sessions.db; trying again");
                }
                report.send_modify(|progress| progress.failed = Some(mark));
            }
        }
    }
}

#[cfg(test)]
mod tests;
