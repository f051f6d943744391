//! A host's file on disk: it is read as it is, and replaced in one step by a file of the same owner
//! and mode.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use mcp_sessiond_process::fault;

/// A host's file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostFile {
    /// Where it is, without symbolic links.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    mode: u32,
    group: u32,
}

/// Why a host's file is not edited: a clause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// It can't be read, or is none that we edit.
    #[error("{0}")]
    Unfit(String),
    /// It could not be replaced, and is as it was.
    #[error("it could not be written, and is as it was: {0}")]
    Unwritten(#[source] io::Error),
}

impl HostFile {
    /// Reads it. None: there is no such file.
    ///
    /// # Errors
    /// When it can't be read.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, FileError> {
        let unfit = |error: io::Error| FileError::Unfit(error.to_string());
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
                return Err(FileError::Unfit(
                    "it is a symbolic link to a file that is not there".into(),
                ));
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(unfit(error)),
        };
        let meta = real.metadata().map_err(unfit)?;
        if !meta.is_file() {
            return Err(FileError::Unfit("it is not a file".into()));
        }
        let text = String::from_utf8(std::fs::read(&real).map_err(unfit)?)
            .map_err(|_| FileError::Unfit("it is not UTF-8".into()))?;
        Ok(Some(Self {
            path: real,
            text,
            mode: meta.mode() & 0o7777,
            group: meta.gid(),
        }))
    }

    /// Why it must not be edited, where that is so.
    pub(crate) fn hindrance(&self) -> Option<String> {
        let Ok(meta) = self.path.metadata() else {
            return Some("it is gone".into());
        };
        let path = self.path.display();
        if meta.uid() != nix::unistd::geteuid().as_raw() {
            return Some(format!("{path} belongs to another user"));
        }
        if meta.mode() & 0o200 == 0 {
            return Some(format!(
                "{path} is read-only; if it is yours to edit: chmod u+w {path}"
            ));
        }
        if meta.nlink() > 1 {
            return Some(format!(
                "{path} has several names (hard links), and only one of them would change; edit it by hand"
            ));
        }
        None
    }

    /// Removes what a kill may have left beside it.
    pub(crate) fn sweep(&self) {
        let _ = std::fs::remove_file(beside(&self.path));
    }

    /// Puts a text in its place, if it still has what was read.
    ///
    /// # Errors
    /// When it was edited meanwhile, or can't be written. Then it is as it was.
    pub(crate) fn replace(&self, text: &str) -> Result<(), FileError> {
        let checked = || {
            if std::fs::read(&self.path)? == self.text.as_bytes() {
                return Ok(());
            }
            Err(io::Error::other(
                "its host has changed it meanwhile; run this again",
            ))
        };
        write(
            &self.path,
            text.as_bytes(),
            self.mode,
            Some(self.group),
            checked,
        )
        .map_err(FileError::Unwritten)
    }
}

/// Writes a file in one step: whole or not at all. `is_time` is asked just before.
pub(crate) fn write(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    group: Option<u32>,
    is_time: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let new = beside(path);
    let _ = std::fs::remove_file(&new);
    let written = || {
        // Nobody else reads it before it has its mode.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        fault::point("file-created");
        file.write_all(bytes)?;
        // Before the mode: a change of the group takes bits of it away.
        if let Some(group) =
            group.filter(|group| file.metadata().is_ok_and(|meta| meta.gid() != *group))
        {
            std::os::unix::fs::fchown(&file, None, Some(group))?;
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fault::point("file-written");
        is_time()?;
        std::fs::rename(&new, path)?;
        fault::point("file-renamed");
        File::open(directory)?.sync_all()
    };
    written().inspect_err(|_| drop(std::fs::remove_file(&new)))
}

/// What a file is called before it is in its place. Always the same, so that what a kill has left
/// is gone after the next run.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{UNFINISHED}"))
}

/// How the name of a file ends that is not in its place yet.
pub(crate) const UNFINISHED: &str = ".mcp-sessiond";
