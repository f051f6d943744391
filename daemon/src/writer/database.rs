//! An SQLite database and its files. SQLite goes on writing into a deleted file, so the data is
//! lost, and a truncated `-shm` kills it (SIGBUS). So the daemon checks the files before each
//! commit and when they change.

use std::fs::Metadata;
use std::io::ErrorKind::{QuotaExceeded, StorageFull};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use mcp_sessiond_proto::Lock as _;
use nix::fcntl::{Flock, FlockArg};
use rusqlite::{Connection, OpenFlags};

use super::Failure;

/// How many pages are freed at a time, so that no write waits for more: with pages of 4 KiB, 16
/// MiB.
const PAGES_AT_ONCE: u32 = 4_096;

/// How many free pages make the file shrink, if they are most of it: with pages of 4 KiB, 4 MiB.
const FREE_PAGES: i64 = 1_024;

/// The suffix of the copy that replaces a database.
const COPY: &str = "-mcp-sessiond";

/// A lock on the file of a database. It moves to the new file when the database is made again.
pub type FileLock = Mutex<Flock<std::fs::File>>;

/// The function that sets a connection up.
type SetUp = Box<dyn Fn(&Connection) -> rusqlite::Result<()> + Send>;

/// The connection, and the files behind it.
pub struct Database {
    /// None: the database could not be opened again so far.
    connection: Option<Connection>,
    set_up: SetUp,
    files: Arc<Files>,
    lock: Weak<FileLock>,
}

/// The files, as they were when they were seen last.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    /// The directory that they are in.
    directory: Option<Id>,
    ids: Mutex<FileIds>,
}

#[derive(Debug, Clone, Copy, Default)]
struct FileIds {
    database: Option<Id>,
    log: Option<Id>,
    index: Option<(Id, u64)>,
}

/// Device and inode.
type Id = (u64, u64);

/// How the files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InPlace,
    /// The `-shm` had so many bytes, and has fewer.
    Short(u64),
    /// One of them is gone.
    Gone,
    /// There is another database in the place of this one.
    Replaced,
    /// Their directory is another one, or none: what is there now belongs to another daemon.
    Elsewhere,
}

fn found(path: &Path) -> Option<Metadata> {
    std::fs::symlink_metadata(path).ok()
}

fn id(found: &Metadata) -> Id {
    (found.dev(), found.ino())
}

impl Files {
    /// The database itself. The others are beside it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    fn ids(&self) -> FileIds {
        *self.ids.locked()
    }

    /// Notes which files these are, if not yet known: each is made once.
    fn note(&self) {
        let mut seen = self.ids.locked();
        if seen.database.is_none() {
            seen.database = found(&self.path).as_ref().map(id);
        }
        if seen.log.is_none() {
            seen.log = found(&self.beside("-wal")).as_ref().map(id);
        }
        if seen.index.is_none() {
            seen.index = found(&self.beside("-shm")).map(|found| (id(&found), found.len()));
        }
    }

    /// The index has grown.
    fn note_len(&self, len: u64) {
        let mut seen = self.ids.locked();
        seen.index = seen.index.map(|(known, former)| (known, former.max(len)));
    }

    fn directory_now(&self) -> Option<Id> {
        self.path.parent().and_then(found).as_ref().map(id)
    }

    fn state(&self) -> State {
        if self.directory_now() != self.directory {
            return State::Elsewhere;
        }
        let FileIds {
            database,
            log,
            index,
        } = self.ids();
        let is_other = |seen: Option<Id>, found: Option<Metadata>| {
            seen.is_some_and(|seen| found.as_ref().map(id) != Some(seen))
        };
        match (database, found(&self.path)) {
            (Some(seen), Some(found)) if id(&found) != seen => return State::Replaced,
            (Some(_), None) => return State::Gone,
            _ => {}
        }
        let now = found(&self.beside("-shm"));
        if let Some(now) = &now
            && index.is_some_and(|(seen, len)| id(now) == seen && now.len() > len)
        {
            self.note_len(now.len());
        }
        match index {
            Some((seen, len))
                if now
                    .as_ref()
                    .is_some_and(|now| id(now) == seen && now.len() < len) =>
            {
                State::Short(len)
            }
            _ if is_other(log, found(&self.beside("-wal"))) => State::Gone,
            _ if is_other(index.map(|(seen, _)| seen), now) => State::Gone,
            _ => State::InPlace,
        }
    }

    /// Whether they are as they should be.
    pub fn are_in_place(&self) -> bool {
        self.state() == State::InPlace
    }
}

impl Database {
    /// Looks after a database that was opened and set up, as it will be again by `set_up`.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn new(
        path: &Path,
        connection: Connection,
        set_up: impl Fn(&Connection) -> rusqlite::Result<()> + Send + 'static,
    ) -> rusqlite::Result<Self> {
        // All of its files are there once it has been read.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        // SQLite puts its files beside the database, not beside a symlink to it.
        let path = path.canonicalize().unwrap_or_else(|_| path.into());
        let mut files = Files {
            path,
            directory: None,
            ids: Mutex::default(),
        };
        files.directory = files.directory_now();
        files.note();
        let files = Arc::new(files);
        // Where a former daemon was killed while it made them again.
        let _ = std::fs::remove_file(files.beside(COPY));
        Ok(Self {
            connection: Some(connection),
            set_up: Box::new(set_up),
            files,
            lock: Weak::new(),
        })
    }

    /// The same, with a lock on the file.
    pub fn locked_by(mut self, lock: Option<&Arc<FileLock>>) -> Self {
        self.lock = lock.map(Arc::downgrade).unwrap_or_default();
        self
    }

    /// The files, for a check while nothing is written.
    pub fn files(&self) -> Arc<Files> {
        self.files.clone()
    }

    /// The connection, after the missing files were restored.
    ///
    /// # Errors
    /// [`Failure`], when that can't be done.
    pub fn ready(&mut self) -> Result<&mut Connection, Failure> {
        let path = self.files.path.display();
        let sentence = match self.files.state() {
            State::InPlace => None,
            State::Short(len) => {
                self.lengthen(len)?;
                None
            }
            State::Gone => {
                self.make_again()?;
                None
            }
            State::Replaced => Some(format!(
                "another file has replaced {path}; restart the daemon to go on with that one"
            )),
            State::Elsewhere => Some(format!(
                "the directory of {path} was removed or replaced; restart the daemon to go on with what is there now"
            )),
        };
        if let Some(sentence) = sentence {
            return Err(Failure {
                sentence,
                is_full: false,
            });
        }
        if self.connection.is_none() {
            self.open()?;
        }
        self.connection.as_mut().ok_or_else(|| Failure {
            sentence: format!("{} is not open", self.files.path.display()),
            is_full: false,
        })
    }

    /// A transaction was committed.
    pub fn committed(&self) {
        self.files.note();
    }

    fn failed(&self, error: &rusqlite::Error) -> Failure {
        Failure::of(error, self.files.path.parent().unwrap_or(&self.files.path))
    }

    fn open(&mut self) -> Result<(), Failure> {
        // The file was there a moment ago. If it is gone, don't let SQLite make an empty one.
        let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_CREATE;
        let opened = Connection::open_with_flags(&self.files.path, flags).and_then(|connection| {
            (self.set_up)(&connection)?;
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            Ok(connection)
        });
        self.connection = Some(opened.map_err(|error| self.failed(&error))?);
        self.files.note();
        Ok(())
    }

    /// SQLite rebuilds an index (`-shm`) that begins with zeros. It would trust one with zeros
    /// further on, and lose what that leaves out: so nothing of the index stays. Truncates by path,
    /// since closing a file that SQLite has locked unlocks it.
    fn lengthen(&self, len: u64) -> Result<(), Failure> {
        let path = self.files.beside("-shm");
        tracing::warn!(file = %path.display(), "a file of a database was cut short; it is made again");
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let cut = nix::unistd::truncate(&path, 0).and_then(|()| nix::unistd::truncate(&path, len));
        cut.map_err(|error| Failure {
            sentence: format!("{}: {error}", path.display()),
            is_full: false,
        })
    }

    /// Makes the files again from what SQLite still has open. If the daemon is killed meanwhile,
    /// either the old or the new files are complete.
    fn make_again(&mut self) -> Result<(), Failure> {
        let Some(connection) = &self.connection else {
            return self.open();
        };
        let path = self.files.path.clone();
        let copy = self.files.beside(COPY);
        let refused = |error: std::io::Error| Failure {
            sentence: format!("{}: {error}", path.display()),
            is_full: matches!(error.kind(), StorageFull | QuotaExceeded),
        };
        tracing::warn!(file = %path.display(), "a file of a database was deleted while the daemon runs; it is made again");
        let _ = std::fs::remove_file(&copy);
        let made = std::fs::OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&copy);
        drop(made.map_err(refused)?);
        if let Err(error) = connection.execute("VACUUM INTO ?1", [copy.to_string_lossy()]) {
            let _ = std::fs::remove_file(&copy);
            return Err(self.failed(&error));
        }
        // If the database file still exists, move the log into it before the log goes.
        let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            row.get::<_, i64>(0)
        });
        let is_there = found(&path).is_some();
        // That took a while. Leave a file alone that another program has put there meanwhile.
        let is_others = matches!(self.files.state(), State::Replaced | State::Elsewhere);
        if is_others || (is_there && busy.is_ok_and(|busy| busy != 0)) {
            let _ = std::fs::remove_file(&copy);
            return Err(refused(std::io::ErrorKind::ResourceBusy.into()));
        }
        let lock = locked(&copy).map_err(refused)?;
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(self.files.beside(suffix));
        }
        if is_there {
            std::fs::rename(&copy, &path).map_err(refused)?;
        } else {
            // It fails where there is one by now.
            std::fs::hard_link(&copy, &path).map_err(refused)?;
            std::fs::remove_file(&copy).map_err(refused)?;
        }
        // Before SQLite opens it: closing any descriptor of a file drops SQLite's locks on it.
        match self.lock.upgrade() {
            Some(held) => *held.locked() = lock,
            None => drop(lock),
        }
        // Closing it deletes log and index, which must not be those of the next one.
        self.connection = None;
        *self.files.ids.locked() = FileIds::default();
        self.open()
    }

    /// Gives some free pages back to the file system, if they are most of the file. Returns whether
    /// there may be more.
    pub fn shrink(&self) -> bool {
        let Some(connection) = &self.connection else {
            return false;
        };
        shrink(connection).unwrap_or_else(|error| {
            tracing::debug!(%error, "could not make a database smaller");
            false
        })
    }
}

impl Drop for Database {
    /// Moves the log into the database file, after which no deleted data is in any file.
    fn drop(&mut self) {
        let _ = self.ready();
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.files.are_in_place() {
            let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        } else {
            // Closing it would delete the files of the database that is in its place now.
            std::mem::forget(connection);
        }
    }
}

fn locked(path: &Path) -> std::io::Result<Flock<std::fs::File>> {
    let file = std::fs::OpenOptions::new().write(true).open(path)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
}

fn shrink(connection: &Connection) -> rusqlite::Result<bool> {
    let count =
        |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let free = count("freelist_count")?;
    if free < FREE_PAGES || free * 2 < count("page_count")? {
        return Ok(false);
    }
    // A row for each page.
    let mut freeing = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"))?;
    let mut pages = freeing.query([])?;
    while pages.next()?.is_some() {}
    drop(pages);
    drop(freeing);
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(count("freelist_count")? < free)
}

fn damaged(what: String) -> rusqlite::Result<()> {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Err(rusqlite::Error::SqliteFailure(code, Some(what)))
}

/// Looks whether the database, of which something was read, has a format that SQLite can only read,
/// though the file may be written.
///
/// # Errors
/// `SQLITE_CORRUPT` if it has; else those of SQLite.
pub fn check_format(connection: &Connection, path: &Path) -> rusqlite::Result<()> {
    let may_be_written = || std::fs::OpenOptions::new().write(true).open(path).is_ok();
    if connection.is_readonly("main")? && may_be_written() {
        return damaged("it is damaged: its format can't be written".into());
    }
    Ok(())
}

/// Looks for damage that reads don't notice, but that breaks writes or gives one session another's
/// rows: an index that disagrees with its table, a page that belongs to two tables.
///
/// # Errors
/// `SQLITE_CORRUPT` if it is damaged; else those of SQLite.
pub fn check(connection: &Connection) -> rusqlite::Result<()> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return damaged(format!("it is damaged: {}", found.replace('\n', " ")));
    }
    // It takes an empty page of the wrong kind for an empty table or index, which nothing can be
    // put into.
    let every = "SELECT tbl_name, iif(type = 'index', 'INDEXED BY \"' || replace(name, '\"', '\"\"') || '\"', 'NOT INDEXED')
        FROM sqlite_schema WHERE rootpage > 0";
    let mut every = connection.prepare(every)?;
    let mut rows = every.query([])?;
    while let Some(row) = rows.next()? {
        let (table, by): (String, String) = (row.get(0)?, row.get(1)?);
        let count = format!(
            "SELECT count(*) FROM \"{}\" {by}",
            table.replace('"', "\"\"")
        );
        connection.query_row(&count, [], |_| Ok(()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A daemon whose directory was replaced ends, and another one may have the new directory by then.
    #[test]
    fn nothing_is_made_again_in_another_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let place = root.path().join("place");
        fs::create_dir(&place).expect("made");
        let path = place.join("some.db");
        let connection = Connection::open(&path).expect("opened");
        let mut database = Database::new(&path, connection, |_| Ok(())).expect("set up");
        assert!(database.ready().is_ok());
        fs::rename(&place, root.path().join("elsewhere")).expect("moved");
        let gone = database.ready().expect_err("it is nowhere");
        assert!(gone.sentence.contains("removed or replaced"), "{gone:?}");
        fs::create_dir(&place).expect("made");
        database.ready().expect_err("it is another one's");
        drop(database);
        assert_eq!(fs::read_dir(&place).expect("read").count(), 0);
    }
}
