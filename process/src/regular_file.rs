//! Reading files that somebody else has named: a pipe would wait for ever, and a device has no end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a regular file for reading, without waiting for anybody.
///
/// # Errors
/// Those of the operating system; [`io::ErrorKind::InvalidInput`] where it is a pipe, a device, a
/// socket or a directory.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        let sentence = "it is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    Ok(file)
}

/// Reads a regular file of at most so many bytes.
///
/// # Errors
/// Those of [`open`]; [`io::ErrorKind::FileTooLarge`].
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let sentence = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, sentence));
    }
    Ok(bytes)
}

/// The same, of a file that is text.
///
/// # Errors
/// Those of [`read`]; [`io::ErrorKind::InvalidData`] where it is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        for path in [&pipe, Path::new("/dev/zero"), directory.path()] {
            let refused = read(path, 10).map_err(|error| error.kind());
            assert_eq!(refused, Err(io::ErrorKind::InvalidInput), "{path:?}");
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "0123456789").expect("written");
        assert_eq!(read(&file, 10).expect("read"), b"0123456789");
        let refused = read(&file, 9).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::FileTooLarge));
    }
}
