//! Where hosts find us tomorrow.

use std::path::{Path, PathBuf};

use mcp_sessiond_proto::paths;

use super::file::write;

/// Directories that `npx`, `uvx` and the like clean up: what is in them is gone one day.
const CACHES: [&str; 5] = ["_npx", "archive-v0", "builds-v0", "environments-v2", "dlx"];

/// The executable that a host's file will name.
#[derive(Debug)]
pub(crate) struct Executable {
    pub(crate) path: String,
    /// From where it has to be copied first.
    copy: Option<PathBuf>,
}

impl Executable {
    /// This executable, by a path that stays: the one that the shell finds where that is the same
    /// file, since it outlives an upgrade.
    ///
    /// # Errors
    /// When there is none that could be written into a file: a sentence.
    pub(crate) fn that_stays() -> Result<Self, String> {
        let own = std::env::current_exe()
            .map_err(|error| format!("the path of this executable can't be read: {error}"))?;
        let real = own
            .canonicalize()
            .map_err(|error| format!("{}: {error}", own.display()))?;
        let (path, copy) = if passes(&real) {
            let user = paths::user_directories()
                .ok_or("there is no home directory to copy this executable to")?;
            let lasting = user.home.join(".local/bin/mcp-sessiond");
            // A link was put there by a package manager, which keeps it up to date.
            let is_managed = lasting.is_symlink() && lasting.exists();
            (lasting, (!is_managed).then_some(real))
        } else {
            (found_by_shells(&real).unwrap_or(own), None)
        };
        match path
            .to_str()
            .filter(|path| !path.contains(char::is_control))
        {
            Some(path) => Ok(Self {
                path: path.to_owned(),
                copy,
            }),
            None => Err(format!(
                "{path:?} can't be written into a host's file; put mcp-sessiond elsewhere"
            )),
        }
    }

    /// What will be copied, for people.
    pub(crate) fn copied(&self) -> Option<String> {
        let from = self.copy.as_ref()?;
        let to = Path::new(&self.path);
        let there = std::fs::read(to).ok();
        if there.is_some() && there == std::fs::read(from).ok() {
            return None;
        }
        let instead = if there.is_some() {
            ", in place of the one that is there"
        } else {
            ""
        };
        Some(format!(
            "This executable is in a place that is cleaned up. It will be copied to {}{instead}.",
            self.path
        ))
    }

    /// Copies it where it stays, if need be.
    ///
    /// # Errors
    /// When it can't be: a sentence.
    pub(crate) fn settle(&self) -> Result<(), String> {
        let Some(from) = &self.copy else {
            return Ok(());
        };
        let to = Path::new(&self.path);
        let copy = || {
            let bytes = std::fs::read(from)?;
            if std::fs::read(to).is_ok_and(|there| there == bytes) {
                return Ok(());
            }
            std::fs::create_dir_all(to.parent().unwrap_or(Path::new("/")))?;
            write(to, &bytes, 0o755, None, || Ok(()))
        };
        copy().map_err(|error: std::io::Error| {
            format!(
                "could not copy this executable to {}: {error}",
                to.display()
            )
        })
    }
}

/// Whether a path is in a cache, or among temporary files.
fn passes(path: &Path) -> bool {
    let temporary = std::env::temp_dir();
    let temporary = temporary.canonicalize().unwrap_or(temporary);
    if [&*temporary, Path::new("/tmp"), Path::new("/var/tmp")]
        .iter()
        .any(|place| path.starts_with(place))
    {
        return true;
    }
    path.components().any(|part| {
        part.as_os_str()
            .to_str()
            .is_some_and(|part| CACHES.contains(&part))
    })
}

/// The path by which shells find this file.
fn found_by_shells(real: &Path) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    let mut places =
        std::env::split_paths(&paths).filter(|place| place.is_absolute() && !passes(place));
    places.find_map(|place| {
        let path = place.join("mcp-sessiond");
        path.canonicalize()
            .is_ok_and(|found| found == *real)
            .then_some(path)
    })
}
