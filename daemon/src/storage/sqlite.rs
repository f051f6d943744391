//! SQLite: everything is in memory for who reads, and every change goes through one thread that
//! writes, which commits in groups. The file is this daemon's alone.
//!
//! A change is in memory before it is kept. So whoever reads it waits for that too, before it tells
//! anybody ([`Storage::settled`]): no crash can undo what was told. It is kept once it is in the
//! file, or in the redo log where there is one.

mod redo;
mod schema;

use std::collections::HashMap;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt as _;
use futures::future::{self, BoxFuture};
use mcp_sessiond_process::fault;
use mcp_sessiond_proto::Lock as _;
use nix::fcntl::{Flock, FlockArg};
use rusqlite::Connection;

use super::{
    Answer, Change, Durable, Item, Key, Listed, Memory, MemoryUsage, Record, RecordId, Scan,
    Storage, StorageError, Version,
};
use crate::writer::{
    Database, Failure, FileLock, Files, Mark, Rest, Stalled, Urgency, Waiter, Writer,
};
use redo::{LogId, Number, Redo};

/// What an acknowledged change survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The death of the daemon, at any moment.
    #[default]
    Process,
    /// The loss of power too: every commit is synced to the disk.
    Power,
}

/// A database that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// SQLite refused.
    #[error("{path}: {error}")]
    Database {
        /// The database.
        path: PathBuf,
        /// Why.
        error: rusqlite::Error,
    },
    /// A newer daemon has written it.
    #[error(
        "{path}: it is of version {found}, and this daemon knows {known}; upgrade the daemon, or move the file away"
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// It is another program's.
    #[error("{path}: this database is another program's; name a file that is not there yet")]
    Foreign {
        /// The database.
        path: PathBuf,
    },
    /// Another daemon has it.
    #[error(
        "{path}: another daemon keeps its sessions in there; a file is one daemon's, and PostgreSQL is for several"
    )]
    Locked {
        /// The database.
        path: PathBuf,
    },
    /// It can't be opened at all, or its thread could not be started.
    #[error("{path}: {error}")]
    Thread {
        /// The database.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// Records in memory, and in a file.
#[derive(Debug)]
pub struct Sqlite {
    memory: Memory,
    journal: Mutex<Journal>,
    files: Arc<Files>,
    _lock: Option<Arc<FileLock>>,
}

/// One change on its way to the file.
#[derive(Debug)]
struct Entry {
    place: RecordId,
    next: Version,
    change: Change,
    /// Where it is in the redo log, if it is.
    redo: Option<Number>,
}

#[derive(Debug)]
struct Journal {
    writer: Writer<Entry>,
    redo: Option<SharedRedo>,
    /// The last change of each record that may not be kept yet.
    marks: HashMap<RecordId, Mark>,
}

/// The thread empties it, and everybody else appends to it.
type SharedRedo = Arc<Mutex<Redo>>;

impl Journal {
    /// Whether the last change of a record waits for the file.
    fn waits(&self, place: &RecordId) -> bool {
        self.marks
            .get(place)
            .is_some_and(|mark| !self.writer.has_kept(*mark))
    }

    /// Puts a change into the redo log, if there is one that takes it. It must not follow one that
    /// is not in there.
    fn redone(
        &self,
        files: &Files,
        place: &RecordId,
        expected: Option<Version>,
        next: Version,
        change: &Change,
    ) -> Option<Number> {
        let redo = self
            .redo
            .as_ref()
            .filter(|_| !self.waits(place) && self.writer.check().is_ok())?;
        let mut redo = redo.locked();
        // What was deleted or replaced is the thread's to put back, or to refuse.
        if !redo.is_with(|| files.are_in_place()) {
            return None;
        }
        let number = redo.append(place, expected, next, change)?;
        drop(redo);
        fault::point(fault::REDO_WRITTEN);
        Some(number)
    }
}

impl Sqlite {
    /// Opens a database, or makes one, and reads all of it.
    ///
    /// # Errors
    /// [`SqliteError`].
    pub fn open(path: &Path, durability: Durability) -> Result<Self, SqliteError> {
        Self::open_with(path, durability, None)
    }

    /// Brings the database up to what its redo log has, and goes on with the log, if it can have
    /// one.
    fn redo(
        path: &Path,
        connection: &mut Connection,
        memory: &Memory,
        durability: Durability,
    ) -> Result<Option<Redo>, SqliteError> {
        let failed = |error| SqliteError::Database {
            path: path.into(),
            error,
        };
        // Where SQLite's own files are, too.
        let file = path.canonicalize().map_err(|error| SqliteError::Thread {
            path: path.into(),
            error,
        })?;
        let (id, mut has) = schema::redone(connection)
            .map_err(failed)?
            .unwrap_or_default();
        let left = redo::left(&file, id, has);
        let left = left.map_err(|error| SqliteError::Thread {
            path: redo::beside(&file),
            error,
        })?;
        if let Some(last) = left.last() {
            has = last.number;
            let (mut missed, found) = (Vec::new(), left.len());
            for redo::Logged {
                place,
                expected,
                next,
                change,
                ..
            } in left
            {
                if memory
                    .lock()
                    .commit(&place, expected, next, change.clone())
                    .is_ok()
                {
                    missed.push(Entry {
                        place,
                        next,
                        change,
                        redo: None,
                    });
                }
            }
            schema::commit(connection, &missed, Some(has)).map_err(failed)?;
            fault::point(fault::REDO_COMMITTED);
            tracing::info!(
                changes = missed.len(),
                "the database got what its redo log had for it"
            );
            if missed.len() < found {
                let changes = found - missed.len();
                tracing::error!(
                    changes,
                    "changes of the redo log don't fit the database, and are lost: is the database an older copy?"
                );
            }
        }
        Ok(Self::begun(&file, connection, (id, has), durability).unwrap_or_else(|error| {
            let log = redo::beside(&file);
            tracing::warn!(%error, log = %log.display(), "no redo log can be written; each change waits for the database");
            None
        }))
    }

    /// The log of a database that has everything.
    fn begun(
        file: &Path,
        connection: &mut Connection,
        (mut id, has): (LogId, Number),
        durability: Durability,
    ) -> Result<Option<Redo>, Box<dyn std::error::Error>> {
        if !redo::may_be(file, durability) {
            redo::delete(file)?;
            return Ok(None);
        }
        if id == LogId::default() {
            id = LogId::random()?;
            schema::name_redo(connection, id)?;
        }
        Ok(Some(Redo::begin(file, id, has)?))
    }

    fn open_with(
        path: &Path,
        durability: Durability,
        lock: Option<Arc<FileLock>>,
    ) -> Result<Self, SqliteError> {
        let failed = |error| SqliteError::Database {
            path: path.into(),
            error,
        };
        let mut connection = match schema::open(path, durability).map_err(failed)? {
            schema::Opened::Ready(connection) => connection,
            schema::Opened::Newer(found) => {
                return Err(SqliteError::Newer {
                    path: path.into(),
                    found,
                    known: schema::VERSION,
                });
            }
            schema::Opened::Foreign => return Err(SqliteError::Foreign { path: path.into() }),
        };
        let memory = Memory::default();
        schema::load(&connection, &memory)
            .and_then(|()| schema::loaded(&connection))
            .map_err(failed)?;
        // What has no lock may be open twice, and then neither knows what the other appends.
        let redo = match lock {
            Some(_) => Self::redo(path, &mut connection, &memory, durability)?,
            None => None,
        };
        let redo = redo.map(|redo| Arc::new(Mutex::new(redo)));
        if let Err(error) = schema::may_shrink(&connection) {
            tracing::debug!(%error, "could not make the database smaller");
        }
        let set_up = move |connection: &_| schema::set_up(connection, durability);
        let database = Database::new(path, connection, set_up).map_err(failed)?;
        // The lock is held until the thread has ended, and the database is closed.
        let mut database = (database.locked_by(lock.as_ref()), lock.clone());
        let files = database.0.files();
        let directory = path.parent().unwrap_or(path).to_owned();
        let emptied = redo.clone();
        // A daemon that was killed may have left free pages.
        let mut may_shrink = true;
        let commit = move |entries: &[Entry]| -> Result<Rest, Failure> {
            let connection = database.0.ready()?;
            if entries.is_empty() {
                emptied
                    .iter()
                    .for_each(|redo| redo.locked().committed(None));
                may_shrink = may_shrink && database.0.shrink();
                return Ok(Rest::when(may_shrink));
            }
            let redone = entries.iter().rev().find_map(|entry| entry.redo);
            schema::commit(connection, entries, redone)
                .map_err(|error| Failure::of(&error, &directory))?;
            database.0.committed();
            fault::point(fault::CONTENTS_COMMIT);
            emptied
                .iter()
                .for_each(|redo| redo.locked().committed(redone));
            may_shrink |= entries.iter().any(|entry| entry.change.frees());
            Ok(Rest::when(may_shrink))
        };
        let writer = Writer::start("the sessions' contents", commit).map_err(|error| {
            SqliteError::Thread {
                path: path.into(),
                error,
            }
        })?;
        writer.look();
        let journal = Mutex::new(Journal {
            writer,
            redo,
            marks: HashMap::new(),
        });
        Ok(Self {
            memory,
            journal,
            files,
            _lock: lock,
        })
    }

    /// The same, for this handle alone: nobody else who asks so has it at the same time, in
    /// whatever process.
    ///
    /// # Errors
    /// [`SqliteError::Locked`], and the others.
    pub fn open_alone(path: &Path, durability: Durability) -> Result<Self, SqliteError> {
        let refused = |error: std::io::Error| SqliteError::Thread {
            path: path.into(),
            error,
        };
        let file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path);
        // On the file itself, which SQLite locks in another way. It ends with this process at the
        // latest.
        let lock = Flock::lock(file.map_err(refused)?, FlockArg::LockExclusiveNonblock)
            .map_err(|_| SqliteError::Locked { path: path.into() })?;
        Self::open_with(path, durability, Some(Arc::new(Mutex::new(lock))))
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.locked()
    }

    /// The same, for who has it alone.
    #[cfg(test)]
    pub(crate) async fn closed(self) {
        let journal = self
            .journal
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        journal.writer.close().await;
    }
}

fn stalled(Stalled(failure): Stalled) -> StorageError {
    let why = format!("the database can't be written: {failure}");
    StorageError::Unusable {
        why,
        passes: !failure.is_full,
    }
}

fn later(waiter: Waiter, failed: impl FnOnce(Stalled) -> StorageError + Send + 'static) -> Durable {
    Durable::Later(async move { waiter.kept().await.map_err(failed) }.boxed())
}

impl Storage for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), StorageError> {
        let journal = self.journal();
        if !journal.writer.is_alive() {
            return Err(StorageError::Unavailable(
                "the thread that writes the database has ended".into(),
            ));
        }
        journal.writer.check().map_err(stalled)
    }

    fn look_after(&self) {
        let journal = self.journal();
        if !self.files.are_in_place()
            || journal
                .redo
                .as_ref()
                .is_some_and(|redo| !redo.locked().is_in_place())
        {
            journal.writer.look();
        }
    }

    fn file(&self) -> Option<PathBuf> {
        Some(self.files.path().into())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let mut journal = self.journal();
        // Nobody would empty it any more.
        journal.redo = None;
        journal.writer.end().boxed()
    }

    fn read<'a>(&'a self, place: &'a RecordId, keys: &'a [Key]) -> Answer<'a, Option<Record>> {
        self.memory.read(place, keys)
    }

    fn scan<'a>(&'a self, place: &'a RecordId, scan: &'a Scan) -> Answer<'a, Vec<Item>> {
        self.memory.scan(place, scan)
    }

    fn commit<'a>(
        &'a self,
        place: &'a RecordId,
        expected: Option<Version>,
        next: Version,
        change: Change,
    ) -> Answer<'a, Durable> {
        // One lock over both: the file gets the changes in the order in which the memory got them.
        let mut journal = self.journal();
        let applied = self
            .memory
            .lock()
            .commit(place, expected, next, change.clone());
        let durable = applied.map(|()| {
            let redo = journal.redone(&self.files, place, expected, next, &change);
            let entry = Entry {
                place: place.clone(),
                next,
                change,
                redo,
            };
            if redo.is_some() {
                journal.writer.record(entry, Urgency::Kept);
                return Durable::Now;
            }
            let mark = journal.writer.record(entry, Urgency::Awaited);
            if journal.marks.len().is_power_of_two() {
                let Journal { writer, marks, .. } = &mut *journal;
                marks.retain(|_, mark| !writer.has_kept(*mark));
            }
            journal.marks.insert(place.clone(), mark);
            // It is on its way, and stays so: the thread tries until it can be written, or the
            // daemon ends.
            later(journal.writer.waiter_for(mark), |failure| {
                stalled(failure).unknown()
            })
        });
        future::ready(durable).boxed()
    }

    fn settled(&self, place: &RecordId) -> Durable {
        let journal = self.journal();
        match journal.marks.get(place) {
            Some(mark) if !journal.writer.has_kept(*mark) => {
                later(journal.writer.waiter_for(*mark), stalled)
            }
            _ => Durable::Now,
        }
    }

    fn list<'a>(&'a self, owner: &'a str, after: &'a str, most: usize) -> Answer<'a, Vec<Listed>> {
        self.memory.list(owner, after, most)
    }

    fn list_all<'a>(&'a self, after: Option<&'a RecordId>, most: usize) -> Answer<'a, Vec<Listed>> {
        self.memory.list_all(after, most)
    }

    fn due<'a>(&'a self, now_ms: u64, most: usize) -> Answer<'a, Vec<Listed>> {
        self.memory.due(now_ms, most)
    }

    fn count<'a>(&'a self, owner: &'a str, most: usize) -> Answer<'a, usize> {
        self.memory.count(owner, most)
    }

    fn usage(&self, owner: &str) -> Option<MemoryUsage> {
        self.memory.usage(owner)
    }
}

#[cfg(test)]
mod tests;
