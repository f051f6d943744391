//! The redo log: changes that were acknowledged and are not in the database yet. A change is a few hundred bytes at
//! the end of this file, which take a microsecond, where a commit takes twenty and another thread. The database gets
//! them in groups, a few ms later; then the log is emptied. Who opens the database after a SIGKILL finds in the log
//! what the database misses.
//!
//! It is a file beside the database, and there only where both are in the machine's memory (tmpfs), as in
//! `/run/user/UID`: there no write waits for a disk, so the thread that serves everybody can do it itself, and the log
//! survives what the database survives. Elsewhere, and with `storage.durability = "power"`, there is none.
//!
//! The file begins with [`MAGIC`] and the log's id (8 bytes, little-endian), which is drawn at every start and stands in
//! the database, too. Each entry is its length in bytes (4 bytes, little-endian) and a [`Logged`] as MessagePack. Entries
//! have numbers, and the database says, in the same commit, up to which it has them. The file is only appended to and
//! cut, so an entry that a SIGKILL interrupted is the last one, and too short.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Durability;
use crate::storage::{Change, Place, Version};

/// What the file begins with, with the version of its format.
const MAGIC: &[u8; 8] = b"mcpsred1";

/// The magic and the id.
const HEADER: u64 = 16;

/// The largest entry in bytes: larger ones wait for the database, which writes them as fast.
const ENTRY_MAX: usize = 64 * 1024;

/// As many bytes at most, in memory that nobody else can use. Then changes wait until the database has caught up.
const LOG_MAX: u64 = 4 * 1024 * 1024;

/// As long at most nothing is acknowledged that only the log has. Then changes wait for the database, and learn what
/// is wrong with it.
const BEHIND_MAX: Duration = Duration::from_secs(1);

/// An entry as it is read.
#[derive(Debug, Deserialize)]
pub(super) struct Logged {
    pub(super) number: Number,
    pub(super) place: Place,
    pub(super) expected: Option<Version>,
    pub(super) next: Version,
    pub(super) change: Change,
}

/// The same, as it is written.
#[derive(Serialize)]
struct Logging<'a> {
    number: Number,
    place: &'a Place,
    expected: Option<Version>,
    next: Version,
    change: &'a Change,
}

/// The number of an entry in its log, from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(super) struct Number(pub(super) u64);

/// Tells a log from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogId(pub(super) u64);

#[derive(Debug)]
pub(super) struct Redo {
    path: PathBuf,
    file: File,
    id: LogId,
    /// How far it is whole: at least the [`HEADER`] where it can be appended to.
    bytes: u64,
    /// Whether there may be more behind that, which could not be cut off.
    has_litter: bool,
    last: Number,
    /// When the first entry came that is in there.
    since: Option<Instant>,
    /// The entry on its way, kept for its room.
    entry: Vec<u8>,
}

/// The log of a database.
fn beside(database: &Path) -> PathBuf {
    let mut path = database.to_owned().into_os_string();
    path.push("-redo");
    path.into()
}

/// Whether no write in this directory waits for a disk.
#[cfg(target_os = "linux")]
fn is_in_memory(directory: &Path) -> bool {
    let found = nix::sys::statfs::statfs(directory);
    found.is_ok_and(|found| found.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC)
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_: &Path) -> bool {
    false
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(nix::libc::O_NOFOLLOW).open(path)
}

/// What a killed daemon has left for a database that names this log and has its entries up to this number.
///
/// # Errors
/// When there is a log that can't be read: what was acknowledged may be in there.
pub(super) fn left(database: &Path, id: LogId, has: Number) -> io::Result<Vec<Logged>> {
    match std::fs::read(beside(database)) {
        Ok(bytes) => Ok(entries(&bytes, id).into_iter().filter(|entry| entry.number > has).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The whole entries.
fn entries(mut bytes: &[u8], id: LogId) -> Vec<Logged> {
    let mut entries = Vec::new();
    let mut take = |count: usize| bytes.split_off(..count);
    match (take(MAGIC.len()), take(8)) {
        (Some(magic), Some(of)) if magic == MAGIC && of == id.0.to_le_bytes() => {}
        (None, _) | (_, None) => return entries,
        _ => {
            tracing::warn!("the redo log beside the database is that of another one; it is left out");
            return entries;
        }
    }
    while let Some(length) = take(4) {
        let length = length.try_into().map_or(usize::MAX, |length| u32::from_le_bytes(length) as usize);
        let Some(entry) = take(length) else { break };
        match rmp_serde::from_slice(entry) {
            Ok(entry) => entries.push(entry),
            Err(_) => {
                tracing::error!(
                    after = entries.len(),
                    "the redo log is damaged; the changes behind these entries are lost"
                );
                break;
            }
        }
    }
    entries
}

impl Redo {
    /// Begins the log of a database that names it. None: it can have none, and one that there was is deleted.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn begin(database: &Path, id: LogId, durability: Durability) -> io::Result<Option<Self>> {
        let path = beside(database);
        if durability != Durability::Process || !path.parent().is_some_and(is_in_memory) {
            return match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(None),
            };
        }
        let mut redo = Self {
            file: open(&path)?,
            path,
            id,
            bytes: 0,
            has_litter: false,
            last: Number::default(),
            since: None,
            entry: Vec::new(),
        };
        redo.empty();
        Ok(Some(redo))
    }

    /// Empties it: the database has everything. Until that has succeeded, it takes nothing.
    pub(super) fn empty(&mut self) {
        let header = [&MAGIC[..], &self.id.0.to_le_bytes()].concat();
        self.bytes = 0;
        self.since = None;
        match self.file.set_len(0).and_then(|()| self.file.write_all_at(&header, 0)) {
            Ok(()) => (self.bytes, self.has_litter) = (HEADER, false),
            Err(error) => tracing::debug!(%error, "the redo log can't be emptied"),
        }
    }

    /// Appends a change. None: it is not in there, and has to wait for the database.
    pub(super) fn append(
        &mut self,
        place: &Place,
        expected: Option<Version>,
        next: Version,
        change: &Change,
    ) -> Option<Number> {
        let is_open = (HEADER..LOG_MAX).contains(&self.bytes) && !self.has_litter;
        let is_behind = self.since.is_some_and(|since| since.elapsed() > BEHIND_MAX);
        let size: usize = change.puts.iter().map(|item| item.value.len()).sum();
        if !is_open || is_behind || size > ENTRY_MAX {
            return None;
        }
        self.entry.clear();
        self.entry.extend([0; 4]);
        let number = Number(self.last.0 + 1);
        let logging = Logging { number, place, expected, next, change };
        rmp_serde::encode::write(&mut self.entry, &logging).ok()?;
        let length = u32::try_from(self.entry.len() - 4).ok()?;
        self.entry[..4].copy_from_slice(&length.to_le_bytes());
        if self.file.write_all_at(&self.entry, self.bytes).is_err() {
            // A part of it may be there.
            self.has_litter = self.file.set_len(self.bytes).is_err();
            return None;
        }
        self.bytes += self.entry.len() as u64;
        self.since.get_or_insert_with(Instant::now);
        self.last = number;
        Some(number)
    }

    /// The database has everything up to this entry. The log may have been deleted meanwhile: then it is made again.
    pub(super) fn committed(&mut self, up_to: Option<Number>) {
        if !self.is_in_place() {
            match open(&self.path) {
                // What only the former one had is in the database within some ms.
                Ok(file) => (self.file, self.bytes) = (file, 0),
                Err(error) => tracing::warn!(%error, "the redo log was deleted, and can't be made again"),
            }
        }
        let is_empty = self.bytes == HEADER && !self.has_litter;
        if self.bytes == 0 || !is_empty && up_to.is_some_and(|up_to| up_to == self.last) {
            self.empty();
        }
    }

    /// Whether the file is where the next daemon looks for it.
    pub(super) fn is_in_place(&self) -> bool {
        let id = |found: &std::fs::Metadata| (found.dev(), found.ino());
        match (std::fs::symlink_metadata(&self.path), self.file.metadata()) {
            (Ok(found), Ok(own)) => id(&found) == id(&own),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
