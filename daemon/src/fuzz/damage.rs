//! Database files with flipped, cut or misplaced bytes.

use std::fs;
use std::path::{Path, PathBuf};

/// The suffixes of a database's files that hold data. SQLite makes the third file, `-shm`, anew at
/// each opening.
const SUFFIXES: [&str; 2] = ["", "-wal"];

/// The files of a database.
pub(super) struct Files([Option<Vec<u8>>; 2]);

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

impl Files {
    /// Reads those that exist.
    pub(super) fn of(path: &Path) -> Self {
        Self(SUFFIXES.map(|suffix| fs::read(beside(path, suffix)).ok()))
    }

    /// Writes damaged copies over whatever is at `path`. Five bytes of `mishaps` describe one
    /// damage: its kind, its place (three bytes) and its extent.
    pub(super) fn put(&self, path: &Path, mishaps: &[u8]) {
        for suffix in ["-shm", "-journal", "-mcp-sessiond"] {
            let _ = fs::remove_file(beside(path, suffix));
        }
        let mut files = self.0.clone();
        for mishap in mishaps.as_chunks::<5>().0 {
            let [what, at @ .., much] = *mishap;
            let at = usize::from(at[0]) << 16 | usize::from(at[1]) << 8 | usize::from(at[2]);
            let is_log = what & 0x80 != 0;
            if let Some(bytes) = files[usize::from(is_log)]
                .as_mut()
                .filter(|bytes| !bytes.is_empty())
            {
                damage(bytes, what & 0x7f, at, usize::from(much));
            }
        }
        for (suffix, bytes) in SUFFIXES.into_iter().zip(files) {
            match bytes {
                Some(bytes) => fs::write(beside(path, suffix), bytes).expect("written"),
                None => drop(fs::remove_file(beside(path, suffix))),
            }
        }
    }
}

fn damage(bytes: &mut Vec<u8>, what: u8, at: usize, much: usize) {
    const PAGE: usize = 4096;
    let at = at % bytes.len();
    let end = (at + much).min(bytes.len());
    match what % 6 {
        0 => bytes[at] ^= 1 << (much % 8),
        1 => bytes[at] = much as u8,
        2 => bytes.truncate(at),
        3 => bytes[at..end].fill(0),
        // A page overwrites another one.
        4 => {
            let from = much * PAGE % bytes.len() / PAGE * PAGE;
            let page = bytes[from..(from + PAGE).min(bytes.len())].to_vec();
            let to = at / PAGE * PAGE;
            let len = page.len().min(bytes.len() - to);
            bytes[to..to + len].copy_from_slice(&page[..len]);
        }
        // Bytes are written at a wrong place nearby.
        _ => {
            let to = (at + 7).min(bytes.len() - (end - at));
            bytes.copy_within(at..end, to);
        }
    }
}
