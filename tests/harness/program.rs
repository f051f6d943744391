//! Programs that a test writes and runs. Another process writes them: one that another test starts has
//! all descriptors of this one until it has become another program, and Linux runs no file that
//! somebody has open for writing (ETXTBSY).

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable text, in the place of what is there.
///
/// # Panics
/// When it can't be written.
pub fn write_program(path: impl AsRef<Path>, text: &str) {
    let mut draft = tempfile::tempfile().expect("a file");
    draft.write_all(text.as_bytes()).expect("written");
    std::io::Seek::rewind(&mut draft).expect("from its start");
    install(Path::new("/dev/stdin"), path.as_ref(), draft);
}

/// Copies an executable, in the place of what is there.
///
/// # Panics
/// When it can't be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let nothing = File::open("/dev/null").expect("it is there");
    install(from.as_ref(), to.as_ref(), nothing);
}

fn install(from: &Path, to: &Path, input: File) {
    let ended = Command::new("install")
        .args(["-m", "755"])
        .args([from, to])
        .stdin(Stdio::from(input))
        .status()
        .expect("install(1) runs");
    assert!(ended.success(), "{} is not written", to.display());
}
