//! Which process listens on a socket, by the kernel's word, also where that process is stopped.
//!
//! Since Linux 6.5 the socket is enough (`SO_PEERPIDFD`). Before, the kernel knows the listener by a
//! pid that may be another process's by now. So whoever listens also locks a byte of a file
//! (`F_SETLK`, fcntl(2)). The kernel says which process holds a lock, and drops it with the process.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};

use super::peer::claimed;
use super::peer_error::PeerError;
use super::pinned::PinnedProcess;

/// A byte of a file that this process holds. It is given up if the process closes any descriptor of
/// that file, so it is opened here and nowhere else.
#[derive(Debug)]
#[must_use = "it is given up when it is dropped"]
pub struct ListenerLock(File);

impl ListenerLock {
    /// Takes the byte, for as long as this process lives. The file is made where it is not there.
    ///
    /// # Errors
    /// `EAGAIN` or `EACCES` where another process holds it, and those of open(2).
    pub fn take(file: &Path, byte: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(file)?;
        fcntl(&file, FcntlArg::F_SETLK(&range(byte.into())))?;
        Ok(Self(file))
    }

    /// The pids of the other processes that hold a byte of this file.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn others(&self) -> io::Result<BTreeSet<u32>> {
        let mut pids = BTreeSet::new();
        // The kernel names one holder for a question, and not the first.
        let mut unknown = vec![(0, i64::from(u32::MAX) + 1)];
        while let Some((from, to)) = unknown.pop() {
            if from == to {
                continue;
            }
            let found = held(&self.0, from, to)?;
            if let Some((pid, from_there, to_there)) = found {
                pids.insert(pid);
                unknown.extend([(from, from_there.max(from)), (to_there.min(to), to)]);
            }
        }
        Ok(pids)
    }
}

/// The process at the listening end of `socket`, which is connected. Before Linux 6.5 it has to hold
/// that byte of that file.
///
/// # Errors
/// [`PeerError`], among them [`PeerError::NoLock`].
pub fn listener(socket: &impl AsFd, file: &Path, byte: u32) -> Result<PinnedProcess, PeerError> {
    let (process, is_certain) = claimed(socket)?;
    // The process was held before this, and nobody else could have its pid while it lives.
    if is_certain || (holder(file, byte)? == Some(process.pid()) && process.is_alive()) {
        Ok(process)
    } else {
        Err(PeerError::NoLock(process.pid()))
    }
}

/// The pid of the process that holds a byte, unless it is this process.
///
/// # Errors
/// Those of open(2) and fcntl(2).
pub fn holder(file: &Path, byte: u32) -> io::Result<Option<u32>> {
    let file = match OpenOptions::new().read(true).write(true).open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let from = i64::from(byte);
    Ok(held(&file, from, from + 1)?.map(|(pid, ..)| pid))
}

/// Another process that holds some of these bytes, the first of those that it holds in one piece, and the
/// first behind them.
fn held(file: &File, from: i64, to: i64) -> io::Result<Option<(u32, i64, i64)>> {
    let mut found = libc::flock {
        l_len: (to - from) as _,
        ..range(from)
    };
    fcntl(file, FcntlArg::F_GETLK(&mut found)).map_err(io::Error::from)?;
    let is_held = libc::c_int::from(found.l_type) != libc::c_int::from(libc::F_UNLCK);
    let holder = u32::try_from(found.l_pid).ok().filter(|_| is_held);
    let (from, length) = (found.l_start as i64, found.l_len as i64);
    // Length 0: to the end of all files.
    let to = if length == 0 { i64::MAX } else { from + length };
    Ok(holder.map(|pid| (pid, from, to)))
}

/// One byte of a file, to be written to.
fn range(byte: i64) -> libc::flock {
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_possible_truncation,
        reason = "the types differ between systems, and the values are small"
    )]
    libc::flock {
        l_type: libc::F_WRLCK as _,
        l_whence: libc::SEEK_SET as _,
        l_start: byte as _,
        l_len: 1,
        l_pid: 0,
    }
}
