//! Ballast: a file beside `sessions.db` that reserves space. When the disk is full, the writer
//! frees it bit by bit, so that the daemon can go on recording for a while; it is refilled when
//! there is room.
//!
//! A file, not a table: to delete rows SQLite first writes to its log, for which there is no room.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use mcp_sessiond_proto::Lock as _;
use nix::fcntl::OFlag;

/// The name of the file in the runtime directory.
const FILE: &str = "ballast";

/// Its full size in bytes.
pub(super) const WHOLE: u64 = 1024 * 1024;

/// How many bytes are freed at a time: enough for a commit, so that other programs that fill the
/// disk don't get all of it.
const STEP: u64 = 64 * 1024;

/// How many bytes must stay free when it is made: it must not fill the disk itself.
const MARGIN: u64 = 1024 * 1024;

/// The first and the longest pause before the next check for room; each is twice the one before.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The file. If it can't be made, there is nothing to free.
#[derive(Debug, Clone)]
pub(super) struct Ballast(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Its size in bytes.
    bytes: u64,
    /// Whether a thread looks for room.
    is_filling: bool,
}

impl Ballast {
    /// Whether a daemon has made one in this directory.
    pub(super) fn is_in(directory: &Path) -> bool {
        std::fs::symlink_metadata(directory.join(FILE)).is_ok()
    }

    /// Opens what exists of it, and fills it up as far as there is room.
    pub(super) fn of(directory: &Path) -> Self {
        let path = directory.join(FILE);
        let found = std::fs::symlink_metadata(&path)
            .ok()
            .filter(std::fs::Metadata::is_file);
        let bytes = found.map_or(0, |found| found.len());
        let ballast = Self(Arc::new(Mutex::new(Inner {
            path,
            bytes,
            is_filling: false,
        })));
        ballast.refill();
        ballast
    }

    /// Frees some of it. False: nothing is left.
    pub(super) fn free(&self) -> bool {
        let mut inner = self.0.locked();
        let was_whole = inner.bytes >= WHOLE;
        let left = inner.bytes.saturating_sub(STEP);
        let freed = inner.bytes > 0 && inner.cut(left).is_ok();
        drop(inner);
        if freed && was_whole {
            tracing::warn!(
                "the disk of sessions.db is full; the daemon goes on for a while with space that it had reserved"
            );
        }
        if freed {
            self.refill_later();
        }
        freed
    }

    /// Fills it up now, or else as soon as there is room.
    fn refill(&self) {
        let is_whole = self.0.locked().fill();
        if !is_whole {
            self.refill_later();
        }
    }

    /// Refills it after a pause, once there is room. Not at once: the writer frees ballast until
    /// none is left and then gives up, and has to get there whatever the cause of its failure.
    fn refill_later(&self) {
        let mut inner = self.0.locked();
        if inner.is_filling {
            return;
        }
        let waiting = Arc::downgrade(&self.0);
        let looking = std::thread::Builder::new()
            .name("ballast".into())
            .spawn(move || look_for_room(&waiting));
        inner.is_filling = looking.is_ok();
    }
}

/// Goes on until it has its full size, or is no longer needed.
fn look_for_room(ballast: &Weak<Mutex<Inner>>) {
    let mut pause = PAUSE;
    loop {
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
        let Some(inner) = ballast.upgrade() else {
            return;
        };
        let mut inner = inner.locked();
        if inner.fill() {
            inner.is_filling = false;
            return;
        }
    }
}

impl Inner {
    fn open(&self) -> io::Result<File> {
        let flags = OFlag::O_NOFOLLOW.bits();
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(&self.path)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.open()?.set_len(bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Fills it up if there is room. Returns whether it has its full size.
    fn fill(&mut self) -> bool {
        if self.bytes < WHOLE && self.has_room() && self.write().is_err() {
            // Other programs took the room first.
            let bytes = self.bytes;
            let _ = self.cut(bytes);
        }
        self.bytes >= WHOLE
    }

    fn has_room(&self) -> bool {
        let directory = self.path.parent().unwrap_or(&self.path);
        nix::sys::statvfs::statvfs(directory).is_ok_and(|found| {
            let free = u128::from(found.blocks_available()) * u128::from(found.fragment_size());
            free >= u128::from(WHOLE - self.bytes + MARGIN)
        })
    }

    fn write(&mut self) -> io::Result<()> {
        // Not zeros: some file systems use no space for these.
        let mut block = vec![0; STEP as usize];
        getrandom::fill(&mut block).map_err(io::Error::other)?;
        let mut file = self.open()?;
        let mut at = file.seek(SeekFrom::Start(self.bytes))?;
        while at < WHOLE {
            let length = block.len().min((WHOLE - at) as usize);
            file.write_all(&block[..length])?;
            at += length as u64;
        }
        self.bytes = at;
        Ok(())
    }
}
