//! Which process listens on a socket, by the kernel's word, also where that process is stopped.
//!
//! Since Linux 6.5 the socket is enough (`SO_PEERPIDFD`). Before, the kernel knows the listener by a
//! pid that may be another process's by now. So whoever listens also locks a byte of a file
//! (`F_SETLK`, fcntl(2)). The kernel says which process holds a lock, and drops it with the process.

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
pub struct ListenerLock(#[expect(dead_code, reason = "it is held, and not used")] File);

impl ListenerLock {
    /// Takes the byte, for as long as this process lives. The file is made where it is not there.
    ///
    /// # Errors
    /// `EAGAIN` or `EACCES` where another process holds it, and those of open(2).
    pub fn take(file: &Path, byte: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(file)?;
        fcntl(&file, FcntlArg::F_SETLK(&range(byte)))?;
        Ok(Self(file))
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
    let mut found = range(byte);
    fcntl(&file, FcntlArg::F_GETLK(&mut found)).map_err(io::Error::from)?;
    let is_held = libc::c_int::from(found.l_type) != libc::c_int::from(libc::F_UNLCK);
    Ok(u32::try_from(found.l_pid).ok().filter(|_| is_held))
}

/// One byte of a file, to be written to.
fn range(byte: u32) -> libc::flock {
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_possible_truncation,
        reason = "the types differ between systems, and the values are small"
    )]
    libc::flock {
        l_type: libc::F_WRLCK as _,
        l_whence: libc::SEEK_SET as _,
        l_start: i64::from(byte) as _,
        l_len: 1,
        l_pid: 0,
    }
}
