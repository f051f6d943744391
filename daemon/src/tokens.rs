//! The token files. This process is their only writer.
//!
//! Directory 0700, files 0600, owner checked, never repaired, never followed through a symlink. A
//! file is written whole: temporary file, fsync, rename, fsync of the directory.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use mcp_sessiond_process::directory::{self, DIRECTORY_MODE, Directory};
use mcp_sessiond_process::fault;
use mcp_sessiond_proto::Token;
use mcp_sessiond_proto::token::TOKEN_MAX;
use mcp_sessiond_registry::{Digest, TokenFile};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// The name of the directory that the files are in.
const DIRECTORY: &str = "tokens";

/// What a file is called until it is whole.
const TEMPORARY_PREFIX: &str = "new-";

/// The mode of a token file, exactly.
const FILE_MODE: u32 = 0o600;

/// The digest that goes on record for a token.
pub fn digest(token: &Token) -> Digest {
    Sha256::digest(token.expose()).into()
}

/// What was found in the place of a token file.
#[derive(Debug)]
pub enum Found {
    /// Nothing.
    Absent,
    /// A token. Whether it is the right one, its digest tells.
    Token(Token),
    /// Something that is no token, and why.
    Corrupted(Corruption),
}

/// Why a token file can't be trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    /// A symlink, a directory, a device.
    #[error("it is not a regular file")]
    NotAFile,
    /// Somebody else's.
    #[error("it belongs to uid {0}")]
    Owner(u32),
    /// Others could read or write it.
    #[error("it has mode {0:04o} instead of 0600")]
    Mode(u32),
    /// No byte, or too many.
    #[error("it has {0} bytes; a token has 1 to {TOKEN_MAX}")]
    Size(u64),
    /// It could not be read.
    #[error("it could not be read: {0}")]
    Unreadable(Errno),
    /// It is not there, though a token was stored.
    #[error("it is gone")]
    Missing,
    /// It is not what was stored last.
    #[error("it is not the token that was stored")]
    Digest,
}

/// The directory of the token files.
#[derive(Debug)]
pub struct Tokens {
    runtime: OwnedFd,
    is_in_memory: bool,
}

impl Tokens {
    /// Opens the directory inside the runtime directory. It is made if it is not there.
    ///
    /// # Errors
    /// When it is not a directory of ours with mode 0700.
    pub fn open(runtime: &Directory) -> io::Result<Self> {
        let is_in_memory = directory::is_in_memory(runtime);
        let tokens = Self {
            runtime: runtime.as_fd().try_clone_to_owned()?,
            is_in_memory,
        };
        tokens.directory()?;
        Ok(tokens)
    }

    /// Reads a file. It is not changed, whatever is found.
    ///
    /// # Errors
    /// When the directory itself can't be used.
    pub fn read(&self, file: TokenFile) -> io::Result<Found> {
        let directory = self.directory()?;
        read_token(&directory, &file.to_string())
    }

    /// Whether to write one waits for no disk.
    pub fn are_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// Puts a token in the place of a file's former one. Blocks until the disk has it.
    ///
    /// # Errors
    /// When it could not be written; unless only the last step failed, the former token is still
    /// there.
    pub fn write(&self, file: TokenFile, token: &Token) -> io::Result<()> {
        let directory = self.directory()?;
        let name = file.to_string();
        let temporary = format!("{TEMPORARY_PREFIX}{name}");
        let written = write_new(&directory, &temporary, token).and_then(|()| {
            renameat(&directory, temporary.as_str(), &directory, name.as_str()).map_err(Into::into)
        });
        if let Err(error) = written {
            let _ = unlinkat(&directory, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
            return Err(error);
        }
        fault::point("token-renamed");
        File::from(directory).sync_all()
    }

    /// Deletes a file, whatever is in its place. It need not be there.
    ///
    /// # Errors
    /// When it is there and stays.
    pub fn delete(&self, file: TokenFile) -> io::Result<()> {
        remove(&self.directory()?, &file.to_string())
    }

    /// Deletes every token file that is not in `keep`, and every unfinished one. Returns how many.
    ///
    /// # Errors
    /// When the directory itself can't be used.
    pub fn sweep(&self, keep: &HashSet<String>) -> io::Result<usize> {
        let directory = self.directory()?;
        let names = self.names()?;
        let swept = names
            .iter()
            .filter(|name| !keep.contains(*name) && remove(&directory, name).is_ok());
        Ok(swept.count())
    }

    /// The names of all token files, and of those that were being written.
    ///
    /// # Errors
    /// When the directory itself can't be used.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut listing = nix::dir::Dir::from_fd(self.directory()?)?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            if name.starts_with("token-") || name.starts_with(TEMPORARY_PREFIX) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// The directory, made if it is not there, and checked anew each time: it may have been cleaned
    /// away.
    fn directory(&self) -> io::Result<OwnedFd> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let open = || openat(&self.runtime, DIRECTORY, flags, Mode::empty());
        let directory = match open() {
            Err(Errno::ENOENT) => {
                match mkdirat(&self.runtime, DIRECTORY, Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                open()?
            }
            other => other?,
        };
        let found = fstat(&directory)?;
        // As with the runtime directory, set-id and sticky bits let nobody in.
        let mode = found.st_mode as u32 & 0o777;
        if found.st_uid != geteuid().as_raw() {
            return Err(io::Error::other(format!(
                "{DIRECTORY}/ belongs to uid {}",
                found.st_uid
            )));
        }
        if mode != DIRECTORY_MODE {
            return Err(io::Error::other(format!(
                "{DIRECTORY}/ has mode {mode:04o} instead of 0700"
            )));
        }
        Ok(directory)
    }
}

/// Reads the token that version 1 left for a host, in the directory that the configuration names.
/// Version 1 named its files as we do, and one host had one.
///
/// # Errors
/// When the directory or the file can't be trusted.
pub fn read_version_1(directory: &Path, file: TokenFile) -> io::Result<Option<Token>> {
    let directory = Directory::open_existing(directory).map_err(io::Error::other)?;
    match read_token(&directory, &file.to_string())? {
        Found::Absent => Ok(None),
        Found::Token(token) => Ok(Some(token)),
        Found::Corrupted(why) => Err(io::Error::other(why)),
    }
}

/// Deletes what [`read_version_1`] read, once it is kept elsewhere.
pub fn delete_version_1(directory: &Path, file: TokenFile) {
    let deleted = Directory::open_existing(directory)
        .map_err(io::Error::other)
        .and_then(|directory| remove(&directory, &file.to_string()));
    if let Err(error) = deleted {
        tracing::warn!(%file, %error, "could not delete the token file of version 1");
    }
}

/// Whether it is the machine that has no means at the moment, so that nothing is said about the
/// file.
pub fn is_passing(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EINTR | Errno::EIO)
    )
}

fn read_token(directory: impl AsFd, name: &str) -> io::Result<Found> {
    // O_NONBLOCK: a FIFO in its place must not hang the daemon.
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::ENOENT) => return Ok(Found::Absent),
        Err(Errno::ELOOP) => return Ok(Found::Corrupted(Corruption::NotAFile)),
        Err(errno) if is_passing(&errno.into()) => return Err(errno.into()),
        Err(errno) => return Ok(Found::Corrupted(Corruption::Unreadable(errno))),
    };
    match read_checked(file) {
        Ok(token) => Ok(Found::Token(token)),
        Err(Corruption::Unreadable(errno)) if is_passing(&errno.into()) => Err(errno.into()),
        Err(why) => Ok(Found::Corrupted(why)),
    }
}

fn read_checked(file: File) -> Result<Token, Corruption> {
    let unreadable = |error: io::Error| {
        Corruption::Unreadable(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    };
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err(Corruption::NotAFile);
    }
    if found.uid() != geteuid().as_raw() {
        return Err(Corruption::Owner(found.uid()));
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode != FILE_MODE {
        return Err(Corruption::Mode(mode));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(TOKEN_MAX.min(found.len() as usize) + 1));
    file.take(TOKEN_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Token::new(std::mem::take(&mut *bytes)).map_err(|_| Corruption::Size(found.len()))
}

fn write_new(directory: &OwnedFd, name: &str, token: &Token) -> io::Result<()> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let fd = match openat(directory, name, flags, mode) {
        // Left by a daemon that was killed; nobody else writes here.
        Err(Errno::EEXIST) => {
            unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)?;
            openat(directory, name, flags, mode)?
        }
        other => other?,
    };
    let mut file = File::from(fd);
    // The umask may have taken bits away from the owner.
    file.set_permissions(PermissionsExt::from_mode(FILE_MODE))?;
    fault::point("token-created");
    file.write_all(token.expose())?;
    file.sync_all()?;
    fault::point("token-written");
    Ok(())
}

/// Unlinks whatever has this name.
fn remove(directory: impl AsFd, name: &str) -> io::Result<()> {
    let directory = directory.as_fd();
    match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        // Somebody made a directory there; if it is empty, it goes too.
        Err(Errno::EISDIR | Errno::EPERM) => {
            unlinkat(directory, name, UnlinkatFlags::RemoveDir).map_err(Into::into)
        }
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests;
