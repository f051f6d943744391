//! Notes: small files in the runtime directory that one process leaves for another.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::directory::DIRECTORY_MODE;

/// Bytes of a note that are read.
const NOTE_MAX: u64 = 4_096;

/// Leaves a note in a directory of its kind, unless one is there: whoever is first counts.
///
/// # Errors
/// Those of the file.
pub fn leave(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        match std::fs::DirBuilder::new()
            .mode(DIRECTORY_MODE)
            .create(directory)
        {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match file {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        file => file?.write_all(text.as_bytes()),
    }
}

/// Reads a note. None: there is none that can be read.
#[must_use]
pub fn read(path: &Path) -> Option<String> {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
        .ok()?;
    let mut text = String::new();
    file.take(NOTE_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_note_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notes").join("7-9");
        assert_eq!(read(&path), None);
        leave(&path, "first").expect("a note");
        leave(&path, "second").expect("it is there");
        assert_eq!(read(&path).as_deref(), Some("first"));
    }
}
