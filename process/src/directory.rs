//! The runtime directory, and the lock on it that makes this process the one daemon of its user.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::geteuid;

/// The mode of every directory of ours. It is checked, and never repaired: a wrong one means that
/// somebody else was here.
pub const DIRECTORY_MODE: u32 = 0o700;

/// Whether no write in this directory waits for a disk: the file system keeps its files in memory,
/// as that of `/run/user/UID` does.
#[cfg(target_os = "linux")]
pub fn is_in_memory(directory: impl AsFd) -> bool {
    let found = nix::sys::statfs::fstatfs(directory);
    found.is_ok_and(|found| found.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC)
}

/// Whether no write in this directory waits for a disk. Only Linux is asked.
#[cfg(not(target_os = "linux"))]
pub fn is_in_memory(_: impl AsFd) -> bool {
    false
}

/// Whether a directory is on this machine: to look at many files elsewhere takes long.
#[cfg(target_os = "linux")]
pub fn is_local(directory: &Path) -> bool {
    // NFS, SMB (three of it), AFS, Coda, Ceph, 9P, and what a process stands behind (FUSE).
    const ELSEWHERE: [i64; 9] = [
        0x6969,
        0x517B,
        0xFF53_4D42,
        0xFE53_4D42,
        0x5346_414F,
        0x7375_7245,
        0x00C3_6400,
        0x0102_1997,
        0x6573_5546,
    ];
    #[allow(
        clippy::unnecessary_cast,
        reason = "the type of the magic number differs between C libraries"
    )]
    let magic = |found: nix::sys::statfs::Statfs| found.filesystem_type().0 as i64;
    let found = nix::sys::statfs::statfs(directory).map(magic);
    // Some C libraries have it as a signed number of 32 bits.
    found.is_ok_and(|magic| !ELSEWHERE.contains(&(magic & 0xFFFF_FFFF)))
}

/// Whether a directory is on this machine: to look at many files elsewhere takes long.
#[cfg(target_vendor = "apple")]
pub fn is_local(directory: &Path) -> bool {
    let found = nix::sys::statfs::statfs(directory);
    found.is_ok_and(|found| found.flags().contains(nix::mount::MntFlags::MNT_LOCAL))
}

/// Whether a directory is on this machine. Nobody knows.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn is_local(_: &Path) -> bool {
    false
}

/// A runtime directory that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It could not be made, opened or read.
    #[error("{path}: {error}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is a symlink, or a file.
    #[error("{0} is not a directory (a symlink is not followed); remove it")]
    NotADirectory(PathBuf),
    /// It belongs to somebody else.
    #[error(
        "{path} belongs to uid {uid}, not to you; remove it, or set MCP_SESSIOND_DIR to a directory that belongs to you"
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Others may enter it.
    #[error(
        "{path} has mode {mode:04o} instead of 0700; check who could write to it, then `chmod 700 {path}`"
    )]
    Mode {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another daemon holds the lock.
    #[error("another daemon holds the lock on {0}")]
    Locked(PathBuf),
}

/// A directory that was found to be ours alone.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    identity: (u64, u64),
}

/// The right to unlink and bind the socket, and to write the files: an exclusive `flock` on the
/// directory itself, which also keeps the cleaners of systemd-tmpfiles off what is in it.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not read")] Flock<OwnedFd>);

impl Directory {
    /// Opens the directory, which is made if it is not there.
    ///
    /// # Errors
    /// [`DirectoryError`], when it is not a directory of ours with mode 0700.
    pub fn open(path: &Path) -> Result<Self, DirectoryError> {
        let io_error = |error: io::Error| DirectoryError::Io {
            path: path.into(),
            error,
        };
        match std::fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(io_error(error)),
            _ => Self::open_existing(path),
        }
    }

    /// Opens the directory, which must be there.
    ///
    /// # Errors
    /// [`DirectoryError`], when it is not a directory of ours with mode 0700.
    pub fn open_existing(path: &Path) -> Result<Self, DirectoryError> {
        let io_error = |error: io::Error| DirectoryError::Io {
            path: path.into(),
            error,
        };
        let found = std::fs::symlink_metadata(path).map_err(io_error)?;
        if !found.is_dir() {
            return Err(DirectoryError::NotADirectory(path.into()));
        }
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = open(path, flags, Mode::empty()).map_err(|errno| io_error(errno.into()))?;
        let opened = fstat(&fd).map_err(|errno| io_error(errno.into()))?;
        if opened.st_uid != geteuid().as_raw() {
            return Err(DirectoryError::Owner {
                path: path.into(),
                uid: opened.st_uid,
            });
        }
        // Set-id and sticky bits let nobody in; some systems inherit them.
        let mode = found.permissions().mode() & 0o777;
        if mode != DIRECTORY_MODE {
            return Err(DirectoryError::Mode {
                path: path.into(),
                mode,
            });
        }
        // The conversions change nothing on Linux; st_dev is an i32 on macOS.
        #[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
        let identity = (opened.st_dev as u64, opened.st_ino as u64);
        if identity != (found.dev(), found.ino()) {
            let error = io::Error::other("it was replaced while it was opened");
            return Err(io_error(error));
        }
        Ok(Self {
            path: path.into(),
            fd,
            identity,
        })
    }

    /// Takes the lock, or says that another daemon has it.
    ///
    /// # Errors
    /// [`DirectoryError::Locked`].
    pub fn try_lock(&self) -> Result<Lock, DirectoryError> {
        self.flock(FlockArg::LockExclusiveNonblock)
    }

    /// Takes the lock, and waits for another daemon to give it up. Blocks the thread.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn wait_for_lock(&self) -> Result<Lock, DirectoryError> {
        self.flock(FlockArg::LockExclusive)
    }

    fn flock(&self, how: FlockArg) -> Result<Lock, DirectoryError> {
        let io_error = |error: io::Error| DirectoryError::Io {
            path: self.path.clone(),
            error,
        };
        let mut fd = self.fd.try_clone().map_err(io_error)?;
        loop {
            match Flock::lock(fd, how) {
                Ok(lock) => return Ok(Lock(lock)),
                Err((back, Errno::EINTR)) => fd = back,
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(DirectoryError::Locked(self.path.clone()));
                }
                Err((_, errno)) => return Err(io_error(errno.into())),
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to the directory that was opened: after a logout, or when it
    /// was cleaned away, it does not, and another daemon may have taken the lock of the same name.
    pub fn is_in_place(&self) -> bool {
        std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
