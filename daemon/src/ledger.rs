//! `sessions.db`: the registry's own memory, in SQLite. One writer thread commits in groups whatever has come in
//! since the last commit. A commit survives the daemon's SIGKILL; sessions don't outlive a reboot anyway.

mod schema;

use std::path::{Path, PathBuf};

use mcp_sessiond_process::fault;
use mcp_sessiond_proto::Error;
use mcp_sessiond_registry::{Effect, Snapshot};

use crate::writer::{self, RETRY, Stalled, Writer};

/// The name of the database in the runtime directory.
const FILE: &str = "sessions.db";

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

/// The writing end.
#[derive(Debug)]
pub struct Ledger(Writer<Effect>);

/// Waits for what has been recorded.
#[derive(Debug, Clone)]
pub struct Waiter(writer::Waiter);

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
        let (mut connection, snapshot, discarded) = match schema::open(&path, boot) {
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
        let commit = move |effects: &[Effect]| -> rusqlite::Result<()> {
            schema::commit(&mut connection, effects.iter())?;
            fault::point("ledger-commit");
            Ok(())
        };
        let writer = Writer::start(FILE, commit).map_err(LedgerError::Thread)?;
        Ok(Opened { ledger: Self(writer), snapshot, discarded })
    }

    /// Puts an effect on record, in the order of the calls.
    pub fn record(&mut self, effect: Effect) {
        self.0.record(effect);
    }

    /// Whether what is recorded now has a chance to be kept.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while the writer fails.
    pub fn check(&self) -> Result<(), Error> {
        self.0.check().map_err(unavailable)
    }

    /// Whether the writer still runs. Without it nothing can be kept any more.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Waits for everything recorded up to now.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        Waiter(self.0.waiter())
    }
}

impl Waiter {
    /// Returns once it is kept.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it could not be written yet. The writer goes on trying.
    pub async fn kept(self) -> Result<(), Error> {
        self.0.kept().await.map_err(unavailable)
    }
}

fn unavailable(_: Stalled) -> Error {
    let sentence = "the daemon can't write its records at the moment".into();
    Error::Unavailable { sentence, retry_after_ms: u32::try_from(RETRY.as_millis()).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests;
