//! The end of a file that others write, such as a log.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

/// Its text from the beginning of a line, at most so many bytes, and where the file ends.
pub(crate) fn end_of(file: &File, bytes_max: u64) -> io::Result<(String, u64)> {
    let size = file.metadata()?.len();
    let from = size.saturating_sub(bytes_max);
    let bytes = read_from(file, from)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = match from {
        0 => &*text,
        _ => text.split_once('\n').map_or("", |(_, whole)| whole),
    };
    Ok((whole.to_owned(), from + bytes.len() as u64))
}

/// All that stands there from this byte on.
pub(crate) fn read_from(mut file: &File, at: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
