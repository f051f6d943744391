//! Files of the service manager's: what writing them changes.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::ServiceError;

/// A file of the service.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// What writing a file did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    New,
    /// What went and what came, line by line.
    Changed(String),
    Unchanged,
}

/// What there was before. Where there is nothing to write, it is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Former {
    Absent,
    Different,
    Same,
}

pub(super) fn former(found: &[Change]) -> Former {
    if found.iter().all(|one| *one == Change::Unchanged) {
        Former::Same
    } else if found.iter().all(|one| *one == Change::New) {
        Former::Absent
    } else {
        Former::Different
    }
}

/// What writing the file will do.
pub(super) fn compare(file: &File) -> Result<Change, ServiceError> {
    match std::fs::symlink_metadata(&file.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Change::New),
        Err(error) => return Err(ServiceError::file(&file.path, &error)),
        Ok(found) if !found.is_file() => {
            let path = file.path.display();
            return Err(ServiceError::Failed(format!(
                "{path} is not our file but a symlink (was it masked, or does something else manage it?); remove it first"
            )));
        }
        Ok(_) => {}
    }
    let former = std::fs::read_to_string(&file.path)
        .map_err(|error| ServiceError::file(&file.path, &error))?;
    Ok(if former == file.text {
        Change::Unchanged
    } else {
        Change::Changed(difference(&former, &file.text))
    })
}

/// The lines that are in one text only; comments don't matter.
fn difference(former: &str, text: &str) -> String {
    let mut lines = String::new();
    for (mark, of, other) in [('-', former, text), ('+', text, former)] {
        let only = of
            .lines()
            .filter(|line| !line.starts_with('#') && !other.lines().any(|known| known == *line));
        for line in only {
            let _ = writeln!(lines, "  {mark} {}", line.trim());
        }
    }
    lines
}

/// Writes a file whole.
pub(super) fn write(file: &File) -> io::Result<()> {
    let directory = file.path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory)?;
    let temporary = file.path.with_extension("new");
    std::fs::write(&temporary, &file.text)?;
    std::fs::rename(&temporary, &file.path)
}
