//! Servers that run without a keeper, and those that could not be started, each noted in a file of
//! its own, so that `mcp-sessiond status` can say so: there may be no daemon that could be told.
//!
//! The files are `unkept/PID-START` in the runtime directory, and `unkept/PID-START.failed` of those
//! that could not be started, one line of JSON each, mode 0600. Whoever looks deletes those of
//! processes that are gone.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use mcp_sessiond_process::directory::{DIRECTORY_MODE, Directory};
use mcp_sessiond_process::{PinnedProcess, ProcessId, StartTime};
use mcp_sessiond_proto::backends::ProcessRef;
use mcp_sessiond_proto::{ServiceName, paths};
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

/// The name of the directory of these files in the runtime directory.
pub const UNKEPT_NAME: &str = paths::UNKEPT;

/// Bytes of a file that are read.
const RECORD_MAX: u64 = 16 * 1024;

/// Characters of a reason that are noted.
const WHY_MAX: usize = 1000;

/// What the file of a server ends with that could not be started.
const FAILED_SUFFIX: &str = ".failed";

/// A server that runs without being kept, or could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unkept {
    /// The server's process, or that of a front which carries for it.
    pub process: ProcessRef,
    /// The server's [display name](crate::program::display_name).
    pub program: String,
    /// Why it is not kept, or could not be started, in a sentence.
    pub why: String,
    /// Since when, in ms since the Unix epoch.
    pub since_ms: u64,
    /// The service whose sessions are with this server, which speaks HTTP itself, or with one that is
    /// started for each: the process is `serve`, and the daemon keeps the sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Whether it could not be started. The process is its front, which tries again when its host
    /// says something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_failed: bool,
}

/// A note of a server that could not be started, which goes when this is dropped.
#[derive(Debug)]
pub struct FailedNote(PathBuf);

impl Drop for FailedNote {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Unkept {
    /// One that runs from now on.
    pub fn now(process: &PinnedProcess, program: String, why: &dyn std::fmt::Display) -> Self {
        let ProcessId { pid, start, inode } = process.id();
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            process: ProcessRef {
                pid,
                start: start.0,
                inode,
            },
            program,
            why: why.to_string().chars().take(WHY_MAX).collect(),
            since_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            service: None,
            has_failed: false,
        }
    }

    fn file_name(&self) -> String {
        let ProcessId { pid, start, .. } = self.process();
        let suffix = if self.has_failed { FAILED_SUFFIX } else { "" };
        format!("{pid}-{start}{suffix}")
    }

    fn process(&self) -> ProcessId {
        let ProcessRef { pid, start, inode } = self.process;
        ProcessId {
            pid,
            start: StartTime(start),
            inode,
        }
    }
}

/// Notes a server that runs unkept in a runtime directory, which is made if it is not there. Where
/// that can't be done nobody is told: the server comes first.
pub fn note(directory: &Path, unkept: &Unkept) {
    let _ = try_note(directory, unkept);
}

/// Notes a server that could not be started, in the same way, for as long as what it returns lives.
pub fn note_failed(directory: &Path, unkept: Unkept) -> Option<FailedNote> {
    let failed = Unkept {
        has_failed: true,
        ..unkept
    };
    try_note(directory, &failed).ok()?;
    let path = directory.join(UNKEPT_NAME).join(failed.file_name());
    Some(FailedNote(path))
}

fn try_note(directory: &Path, unkept: &Unkept) -> io::Result<()> {
    // Not into a directory that anybody else could have made.
    Directory::open(directory).map_err(io::Error::other)?;
    let notes = directory.join(UNKEPT_NAME);
    match std::fs::DirBuilder::new()
        .mode(DIRECTORY_MODE)
        .create(&notes)
    {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut line = serde_json::to_vec(unkept)?;
    line.push(b'\n');
    let path = notes.join(unkept.file_name());
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits());
    options.open(path)?.write_all(&line)
}

/// The servers that run unkept or could not be started, in order of their pids. The notes of
/// processes that are gone are deleted.
pub fn list(directory: &Path) -> Vec<Unkept> {
    if Directory::open_existing(directory).is_err() {
        return Vec::new();
    }
    let found = std::fs::read_dir(directory.join(UNKEPT_NAME))
        .into_iter()
        .flatten()
        .flatten();
    let mut unkept: Vec<Unkept> = found.filter_map(|entry| read_live(&entry.path())).collect();
    unkept.sort_by_key(|unkept| unkept.process.pid);
    unkept
}

/// What a file says, if its process lives.
fn read_live(path: &Path) -> Option<Unkept> {
    let unkept = read(path).filter(|unkept| path.ends_with(unkept.file_name()));
    let lives = match &unkept {
        // Where that can't be found out it may well be alive.
        Some(unkept) => !matches!(PinnedProcess::reopen(&unkept.process()), Ok(None)),
        // It may be in the middle of being written.
        None => named(path).is_some_and(|named| {
            PinnedProcess::open(named.0).is_ok_and(|found| found.id().start == named.1)
        }),
    };
    if !lives {
        let _ = std::fs::remove_file(path);
    }
    unkept.filter(|_| lives)
}

fn read(path: &Path) -> Option<Unkept> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
        .ok()?;
    let mut text = String::new();
    file.take(RECORD_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// The process that a file is named by.
fn named(path: &Path) -> Option<(u32, StartTime)> {
    let name = path.file_name()?.to_str()?;
    let (pid, start) = name.trim_end_matches(FAILED_SUFFIX).split_once('-')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

#[cfg(test)]
mod tests;
