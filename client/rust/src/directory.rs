//! The runtime directory, and what must hold of it before a word is said.

use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::{io, os::unix::fs::MetadataExt as _};

use mcp_sessiond_proto::paths;

use crate::error::ConnectError;

/// The permission bits that the directory must have. Set-id bits give nobody access, and some
/// systems inherit them.
#[cfg(unix)]
const MODE: u32 = 0o700;
#[cfg(unix)]
const PERMISSIONS: u32 = 0o777;

/// The path of a runtime directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory(PathBuf);

impl Directory {
    /// The directory of this user: `MCP_SESSIOND_DIR`, else the one derived from the uid.
    ///
    /// # Errors
    /// [`ConnectError::Directory`] when there is none that can be used.
    #[cfg(unix)]
    pub fn of_user() -> Result<Self, ConnectError> {
        Ok(Self(paths::directory()?))
    }

    /// There is none.
    ///
    /// # Errors
    /// [`ConnectError::Unsupported`]
    #[cfg(not(unix))]
    pub fn of_user() -> Result<Self, ConnectError> {
        Err(ConnectError::Unsupported)
    }

    /// A directory elsewhere.
    ///
    /// # Errors
    /// [`ConnectError::Directory`] when the path is relative, or too long for a socket in it.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self, ConnectError> {
        Ok(Self(paths::usable(path.into())?))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the daemon's socket in it.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        paths::socket(&self.0)
    }

    /// Whether the directory itself, not something that a link points to, is ours and closed to
    /// everybody else. Then nobody else can put a socket into it, or another directory in its
    /// place.
    ///
    /// # Errors
    /// [`ConnectError::NotRunning`] when it isn't there; else what is wrong with it.
    #[cfg(unix)]
    pub fn check(&self) -> Result<(), ConnectError> {
        let path = || self.0.clone();
        let found = match std::fs::symlink_metadata(&self.0) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ConnectError::NotRunning {
                    socket: self.socket(),
                });
            }
            Err(error) => {
                return Err(ConnectError::Io {
                    socket: self.socket(),
                    error,
                });
            }
        };
        let ours = nix::unistd::geteuid().as_raw();
        let mode = found.mode() & PERMISSIONS;
        if found.is_symlink() {
            Err(ConnectError::Symlink { path: path() })
        } else if !found.is_dir() {
            Err(ConnectError::NotADirectory { path: path() })
        } else if found.uid() != ours {
            Err(ConnectError::WrongOwner {
                path: path(),
                owner: found.uid(),
                ours,
            })
        } else if mode != MODE {
            Err(ConnectError::WrongMode { path: path(), mode })
        } else {
            Ok(())
        }
    }
}
