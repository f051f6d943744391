//! `sessions.db`: the registry's own memory, in SQLite. One writer thread commits in groups
//! whatever has come in since the last commit. A commit survives the daemon's SIGKILL; sessions
//! don't outlive a reboot anyway.
//!
//! When the disk is full, the writer first frees the ballast (`ballast.rs`). When that is gone,
//! nothing can be put on record until there is room: callers get an error at once, and the writer
//! goes on trying.

mod ballast;
mod schema;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mcp_sessiond_process::fault;
use mcp_sessiond_proto::Error;
use mcp_sessiond_registry::{Effect, Records};
use rusqlite::Connection;

use crate::writer::{
    self, Database, Failure, Files, RETRY, Rest, Stalled, Urgency, Writer, may_be_full,
};
use ballast::Ballast;
use schema::State;

/// The name of the database in the runtime directory.
pub(crate) const FILE: &str = "sessions.db";

/// The name of one that can't be used, for whoever wants to know why.
const SET_ASIDE: &str = "sessions.db.set-aside";

/// Why the records of a former boot are discarded.
const REBOOTED: &str = "it is from before the last reboot";

/// How long a caller waits for a commit at most: a host waits for it, and a disk may hang.
const KEPT_WAIT: Duration = Duration::from_secs(1);

/// When clients should try again after a full disk: longer than they wait, since a user has to make
/// room first.
const FULL_RETRY: Duration = Duration::from_secs(10);

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
pub struct Ledger {
    writer: Writer<Effect>,
    /// The files of the database, once there is one.
    files: Arc<OnceLock<Arc<Files>>>,
}

/// Waits for what has been recorded.
#[derive(Debug, Clone)]
pub struct Waiter(writer::Waiter);

/// What was found at the start.
#[derive(Debug)]
pub struct Opened {
    /// The ledger.
    pub ledger: Ledger,
    /// What a former daemon of this boot left.
    pub records: Records,
    /// Why what was there was discarded, where it was.
    pub discarded: Option<String>,
}

impl Opened {
    /// Why the records of a former daemon are lost. That they are discarded after a reboot is no
    /// loss: no process of theirs lives any more.
    pub fn lost(&self) -> Option<String> {
        self.discarded.clone().filter(|why| why != REBOOTED)
    }
}

impl Ledger {
    /// Whether there is no database where a daemon has made one: what it has set aside beside it is
    /// still there.
    pub fn is_missing(directory: &Path) -> bool {
        std::fs::symlink_metadata(directory.join(FILE)).is_err() && Ballast::is_in(directory)
    }

    /// Whether there is a database, whatever is in it.
    pub fn is_there(directory: &Path) -> bool {
        std::fs::symlink_metadata(directory.join(FILE)).is_ok()
    }

    /// Opens the database in a runtime directory. What is from before a reboot is discarded, and what
    /// can't be read is set aside: losing a session is acceptable, resuming the wrong one is not.
    ///
    /// Where the disk is too full for even an empty one, it is made when there is room.
    ///
    /// # Errors
    /// [`LedgerError`], when there is a database and it can't be opened at the moment, or none can
    /// be had.
    pub fn open(directory: &Path, boot: &str) -> Result<Opened, LedgerError> {
        let path = directory.join(FILE);
        let was_there = Ballast::is_in(directory);
        let ballast = Ballast::of(directory);
        let is_there = std::fs::symlink_metadata(&path).is_ok();
        let opened = loop {
            match find(directory, boot, was_there) {
                Err(error) if may_be_full(&error) && ballast.free() => {}
                opened => break opened,
            }
        };
        let watched = |connection| Database::new(&path, connection, schema::set_up);
        let opened = opened.and_then(|(connection, records, discarded)| {
            Ok((watched(connection)?, records, discarded))
        });
        let (mut database, records, discarded) = match opened {
            Ok((database, records, discarded)) => (Some(database), records, discarded),
            Err(error) if !is_there && Failure::of(&error, directory).is_full => {
                remove(directory, FILE);
                (None, Records::default(), None)
            }
            Err(error) => return Err(LedgerError::Database { path, error }),
        };
        let files = Arc::<OnceLock<Arc<Files>>>::default();
        if let Some(database) = &database {
            let _ = files.set(database.files());
        }
        let (place, boot, known) = (directory.to_owned(), boot.to_owned(), files.clone());
        let commit = move |effects: &[Effect]| -> Result<Rest, Failure> {
            loop {
                if database.is_none() {
                    let found = find(&place, &boot, was_there).and_then(|(found, ..)| {
                        Database::new(&place.join(FILE), found, schema::set_up)
                    });
                    match found {
                        Ok(found) => {
                            let _ = known.set(found.files());
                            database = Some(found);
                        }
                        Err(error) if may_be_full(&error) && ballast.free() => continue,
                        Err(error) => return Err(Failure::of(&error, &place)),
                    }
                }
                let Some(database) = &mut database else {
                    continue;
                };
                let committed = match database.ready() {
                    Ok(_) if effects.is_empty() => return Ok(Rest::Nothing),
                    Ok(connection) => schema::commit(connection, effects.iter()),
                    Err(failure) if failure.is_full && ballast.free() => continue,
                    Err(failure) => return Err(failure),
                };
                match committed {
                    Ok(()) => {
                        database.committed();
                        break;
                    }
                    Err(error) if may_be_full(&error) && ballast.free() => {}
                    Err(error) => return Err(Failure::of(&error, &place)),
                }
            }
            fault::point("ledger-commit");
            Ok(Rest::Nothing)
        };
        let writer = Writer::start(FILE, commit).map_err(LedgerError::Thread)?;
        Ok(Opened {
            ledger: Self { writer, files },
            records,
            discarded,
        })
    }

    /// Puts an effect on record, in the order of the calls.
    pub fn record(&mut self, effect: Effect) {
        self.writer.record(effect, Urgency::Awaited);
    }

    /// Whether what is recorded now has a chance to be kept.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while the writer fails.
    pub fn check(&self) -> Result<(), Error> {
        self.writer.check().map_err(|stalled| unavailable(&stalled))
    }

    /// What is the matter with the database, if anything.
    pub fn failure(&self) -> Option<Failure> {
        self.writer
            .check()
            .err()
            .map(|Stalled(failure)| Failure::clone(&failure))
    }

    /// Whether the writer still runs. Without it nothing can be kept any more.
    pub fn is_alive(&self) -> bool {
        self.writer.is_alive()
    }

    /// Returns when the writer's thread has ended.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.writer.ended()
    }

    /// Checks whether the files still exist, and has missing ones restored.
    pub fn look_after(&self) {
        if self.files.get().is_some_and(|files| !files.are_in_place()) {
            self.writer.look();
        }
    }

    /// Stops recording. When the returned future ends, all that was recorded is kept, as far as
    /// possible.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.writer.end()
    }

    /// Waits for everything recorded up to now.
    pub fn waiter(&self) -> Waiter {
        Waiter(self.writer.waiter())
    }
}

impl Waiter {
    /// Returns once it is kept.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it could not be written yet, or takes long. The writer goes on
    /// trying.
    pub async fn kept(self) -> Result<(), Error> {
        match tokio::time::timeout(KEPT_WAIT, self.0.kept()).await {
            Ok(kept) => kept.map_err(|stalled| unavailable(&stalled)),
            Err(_) => Err(refused("the disk does not answer", RETRY)),
        }
    }
}

fn unavailable(Stalled(failure): &Stalled) -> Error {
    refused(
        &failure.sentence,
        if failure.is_full { FULL_RETRY } else { RETRY },
    )
}

fn refused(why: &str, retry_after: Duration) -> Error {
    let retry_after_ms = u32::try_from(retry_after.as_millis()).unwrap_or(u32::MAX);
    Error::Unavailable {
        sentence: format!("the daemon can't write its records ({FILE}): {why}"),
        retry_after_ms,
    }
}

/// Opens the database, or makes one; tells what is in it, and why what was in it was discarded.
/// `was_there`: whether an earlier daemon has made one.
fn find(
    directory: &Path,
    boot: &str,
    was_there: bool,
) -> rusqlite::Result<(Connection, Records, Option<String>)> {
    let path = directory.join(FILE);
    let (usable, mut why) = match schema::open(&path, boot) {
        Ok((connection, State::Current(records))) => return Ok((connection, *records, None)),
        Ok((connection, State::Empty)) => (Some(connection), None),
        Ok((connection, State::Rebooted)) => {
            remove(directory, SET_ASIDE);
            (Some(connection), Some(REBOOTED.to_owned()))
        }
        Ok((connection, State::Other(version))) => {
            drop(connection);
            set_aside(directory);
            let ours = schema::VERSION;
            let why = format!("its version is {version}, and this daemon's is {ours}");
            (None, Some(why))
        }
        Err(error) if schema::is_damage(&error) => {
            set_aside(directory);
            (None, Some(error.to_string()))
        }
        // A temporary error says nothing about the records.
        Err(error) => return Err(error),
    };
    if let Some(mut connection) = usable {
        let is_lost = why.is_none() && was_there;
        match schema::create(&mut connection, boot, is_lost) {
            // What seemed to be empty, or of another boot, was damaged.
            Err(error) if schema::is_damage(&error) => {
                drop(connection);
                set_aside(directory);
                why = Some(error.to_string());
            }
            made => return made.map(|()| (connection, Records::default(), why)),
        }
    }
    let mut connection = schema::open(&path, boot)?.0;
    schema::create(&mut connection, boot, true)?;
    Ok((connection, Records::default(), why))
}

/// The files of the database, by what is behind its name.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

fn remove(directory: &Path, file: &str) {
    for suffix in SUFFIXES {
        let _ = std::fs::remove_file(directory.join(format!("{file}{suffix}")));
    }
}

/// Puts what can't be used under another name, in the place of what was put there before.
fn set_aside(directory: &Path) {
    for suffix in SUFFIXES {
        let file = directory.join(format!("{FILE}{suffix}"));
        let _ = std::fs::rename(file, directory.join(format!("{SET_ASIDE}{suffix}")));
    }
}

#[cfg(test)]
mod tests;
