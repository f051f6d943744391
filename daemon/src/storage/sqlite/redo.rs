//! The redo log: changes that were acknowledged and are not in the database yet. A change is a few
//! hundred bytes at the end of this file, which take a microsecond, where a commit takes twenty and
//! another thread. The database gets them in groups, a few ms later; then the log is emptied. Who
//! opens the database after a SIGKILL finds in the log what the database misses.
//!
//! It is a file beside the database, and there only where both are in the machine's memory (tmpfs),
//! as in `/run/user/UID`: there no write waits for a disk, so the thread that serves everybody can
//! do it itself, and the log survives what the database survives. Elsewhere, and with
//! `storage.durability = "power"`, there is none.
//!
//! The file begins with [`MAGIC`] and the log's id (8 bytes, little-endian), which stands in the
//! database, too. Each entry is its length in bytes (4 bytes, little-endian) and a [`Logged`] as
//! MessagePack. Entries have numbers, which go on for ever, and the database says, in the same
//! commit, up to which it has them. The file is only appended to and cut, so an entry that a
//! SIGKILL interrupted is the last one, and too short.

mod directory_check;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Durability;
use crate::storage::{Change, RecordId, Version};
use directory_check::DirectoryCheck;

/// What the file begins with, with the version of its format.
const MAGIC: &[u8; 8] = b"mcpsred1";

/// The magic and the id.
const HEADER: u64 = 16;

/// The most bytes of values in an entry: larger ones wait for the database, which writes them as
/// fast.
const ENTRY_MAX: usize = 64 * 1024;

/// When the log has so many bytes, in memory that nobody else can use, changes wait until the
/// database has caught up.
const LOG_MAX: u64 = 4 * 1024 * 1024;

/// For so long at most, changes are acknowledged that only the log has. Then they wait for the
/// database, and learn what is wrong with it.
const BEHIND_MAX: Duration = Duration::from_secs(1);

/// An entry as it is read.
#[derive(Debug, Deserialize)]
pub(super) struct Logged {
    pub(super) number: Number,
    pub(super) place: RecordId,
    pub(super) expected: Option<Version>,
    pub(super) next: Version,
    pub(super) change: Change,
}

/// The same, as it is written.
#[derive(Serialize)]
struct Logging<'a> {
    number: Number,
    place: &'a RecordId,
    expected: Option<Version>,
    next: Version,
    change: &'a Change,
}

/// The number of an entry in its log, from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(super) struct Number(pub(super) u64);

/// Tells a log from all others; 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LogId(pub(super) u64);

impl LogId {
    /// # Errors
    /// When the kernel has no randomness.
    pub(super) fn random() -> io::Result<Self> {
        getrandom::u64()
            .map(Self)
            .map_err(|error| io::Error::other(error.to_string()))
    }
}

pub(super) struct Redo {
    path: PathBuf,
    file: File,
    id: LogId,
    /// How many of its bytes are entries, and the header.
    bytes: u64,
    /// Whether it can be appended to: the file has nothing behind these bytes.
    takes: bool,
    /// Whether it is where the next daemon looks for it, and the database's files are, too.
    directory_check: DirectoryCheck,
    last: Number,
    /// The last that the database has.
    committed: Number,
    /// Since when the database may not have something that is in there.
    since: Option<Instant>,
    /// The entry on its way, kept for its room.
    entry: Vec<u8>,
}

// Without the entry, which has people's data.
impl fmt::Debug for Redo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Redo({} bytes, {:?} of {:?})",
            self.bytes, self.committed, self.last
        )
    }
}

/// The log of a database.
pub(super) fn beside(database: &Path) -> PathBuf {
    let mut path = database.to_owned().into_os_string();
    path.push("-redo");
    path.into()
}

fn is_in_memory(directory: &Path) -> bool {
    File::open(directory).is_ok_and(mcp_sessiond_process::directory::is_in_memory)
}

/// Opens what is ours, and no link.
fn open(path: &Path, options: &mut std::fs::OpenOptions) -> io::Result<File> {
    let file = options
        .read(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it does not belong to this user",
        ));
    }
    Ok(file)
}

fn made(path: &Path) -> io::Result<File> {
    open(
        path,
        std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false),
    )
}

/// What a killed daemon has left for a database that names this log and has its entries up to this
/// number.
///
/// # Errors
/// When there is a log that can't be read: what was acknowledged may be in there.
pub(super) fn left(database: &Path, id: LogId, has: Number) -> io::Result<Vec<Logged>> {
    let mut bytes = Vec::new();
    match open(&beside(database), &mut std::fs::OpenOptions::new()) {
        Ok(mut file) => file.read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    Ok(entries(&bytes, id)?
        .into_iter()
        .filter(|entry| entry.number > has)
        .collect())
}

/// The whole entries.
fn entries(mut bytes: &[u8], id: LogId) -> io::Result<Vec<Logged>> {
    let mut entries = Vec::new();
    if bytes.len() as u64 <= HEADER {
        return Ok(entries);
    }
    // A file that is cut while it is written to has zeros up to the next entry.
    if bytes[..MAGIC.len()].iter().all(|byte| *byte == 0) {
        let cut = bytes.iter().take_while(|byte| **byte == 0).count();
        tracing::error!(
            bytes = cut,
            "the redo log was cut by another process while a daemon wrote to it; the changes of the last moments of that daemon are lost"
        );
        return Ok(entries);
    }
    let mut take = |count: usize| bytes.split_off(..count);
    if take(MAGIC.len()) != Some(MAGIC) {
        let sentence = "another version of mcp-sessiond has written it; start that version once, or delete the file and lose what it has";
        return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
    }
    if take(8) != Some(&id.0.to_le_bytes()) {
        tracing::warn!(
            "the redo log beside the database belongs to another database, and is ignored"
        );
        return Ok(entries);
    }
    while let Some(length) = take(4) {
        let length = length
            .try_into()
            .map_or(usize::MAX, |length| u32::from_le_bytes(length) as usize);
        let Some(entry) = take(length) else { break };
        match rmp_serde::from_slice(entry) {
            Ok(entry) => entries.push(entry),
            Err(_) => {
                let after = entries.len();
                tracing::error!(
                    after,
                    "the redo log is damaged; the changes behind these entries are lost"
                );
                break;
            }
        }
    }
    Ok(entries)
}

/// Whether a database can have a log.
pub(super) fn may_be(database: &Path, durability: Durability) -> bool {
    durability == Durability::Process && database.parent().is_some_and(is_in_memory)
}

/// Deletes the log of a database that has everything and can have none.
///
/// # Errors
/// Those of the file system.
pub(super) fn delete(database: &Path) -> io::Result<()> {
    match std::fs::remove_file(beside(database)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Redo {
    /// Begins the log of a database that has everything up to this number.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn begin(database: &Path, id: LogId, has: Number) -> io::Result<Self> {
        let path = beside(database);
        let mut redo = Self {
            file: made(&path)?,
            path,
            id,
            bytes: 0,
            takes: false,
            directory_check: DirectoryCheck::default(),
            last: has,
            committed: has,
            since: None,
            entry: Vec::new(),
        };
        redo.empty();
        Ok(redo)
    }

    /// Empties it: the database has everything. Until that has succeeded, it takes nothing.
    fn empty(&mut self) {
        let header = [&MAGIC[..], &self.id.0.to_le_bytes()].concat();
        let emptied = self
            .file
            .set_len(0)
            .and_then(|()| self.file.write_all_at(&header, 0));
        self.takes = emptied.is_ok();
        self.bytes = HEADER;
        self.since = None;
    }

    /// Whether this file is in place, and so are the `others` that belong to it. If not, nobody
    /// would find what it takes.
    pub(super) fn is_with(&mut self, others: impl FnOnce() -> bool) -> bool {
        let Self {
            path,
            file,
            directory_check,
            ..
        } = self;
        path.parent().is_some_and(|directory| {
            directory_check.is_in_place(directory, || is_at(path, file) && others())
        })
    }

    /// Appends a change. None: it is not in there, and has to wait for the database.
    pub(super) fn append(
        &mut self,
        place: &RecordId,
        expected: Option<Version>,
        next: Version,
        change: &Change,
    ) -> Option<Number> {
        let is_behind = self.since.is_some_and(|since| since.elapsed() > BEHIND_MAX);
        let size: usize = change.puts.iter().map(|item| item.value.len()).sum();
        if !self.takes || self.bytes > LOG_MAX || is_behind || size > ENTRY_MAX {
            return None;
        }
        if self.was_cut() {
            tracing::warn!(
                "the redo log was cut by another process; what was in it goes to the database now, and nothing is lost unless the daemon is killed before that"
            );
            self.takes = false;
            return None;
        }
        self.entry.clear();
        self.entry.extend([0; 4]);
        let number = Number(self.last.0 + 1);
        let logging = Logging {
            number,
            place,
            expected,
            next,
            change,
        };
        rmp_serde::encode::write(&mut self.entry, &logging).ok()?;
        let length = u32::try_from(self.entry.len() - 4).ok()?;
        self.entry[..4].copy_from_slice(&length.to_le_bytes());
        if self.file.write_all_at(&self.entry, self.bytes).is_err() {
            // A part of it may be there.
            self.takes = self.file.set_len(self.bytes).is_ok();
            return None;
        }
        self.bytes += self.entry.len() as u64;
        self.since.get_or_insert_with(Instant::now);
        self.last = number;
        Some(number)
    }

    /// The database has everything up to this entry; None: of what is in there, nothing more. The
    /// log may have been deleted meanwhile: then it is made again, once the database has all that
    /// was in it.
    pub(super) fn committed(&mut self, up_to: Option<Number>) {
        self.committed = up_to.unwrap_or(self.committed);
        if self.committed < self.last {
            // What is left came after those.
            self.since = up_to.map(|_| Instant::now()).or(self.since);
            return;
        }
        if !self.is_in_place() {
            self.takes = false;
            match made(&self.path) {
                Ok(file) => self.file = file,
                Err(error) => {
                    tracing::debug!(%error, "the redo log was deleted, and can't be made again");
                    return;
                }
            }
        }
        if !self.takes || self.bytes > HEADER {
            self.empty();
        }
    }

    /// Whether the file has another length than what was written: an entry behind that would not be
    /// found again.
    fn was_cut(&self) -> bool {
        self.file
            .metadata()
            .is_ok_and(|found| found.len() != self.bytes)
    }

    /// Whether the file is where the next daemon looks for it.
    pub(super) fn is_in_place(&self) -> bool {
        is_at(&self.path, &self.file)
    }
}

fn is_at(path: &Path, file: &File) -> bool {
    let id = |found: &std::fs::Metadata| (found.dev(), found.ino());
    match (std::fs::symlink_metadata(path), file.metadata()) {
        (Ok(found), Ok(own)) => id(&found) == id(&own),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
