//! What can happen to a token file.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::sys::stat::Mode;

/// What can happen to a file, each with a name.
pub(super) type Mishap = (&'static str, fn(&Path));

pub(super) const MISHAPS: [Mishap; 14] = [
    ("other content", |file| overwrite(file, b"hunter4")),
    ("a token of its past", |file| overwrite(file, b"hunter1")),
    ("cut off", |file| overwrite(file, b"hunter")),
    ("more behind it", |file| overwrite(file, b"hunter2\n")),
    ("empty", |file| overwrite(file, b"")),
    ("one byte too large", |file| {
        overwrite(file, &[b'x'; 65_537]);
    }),
    ("huge", |file| {
        let file = fs::File::options().write(true).open(file);
        file.and_then(|file| file.set_len(1 << 40)).expect("sparse");
    }),
    ("readable by the group", |file| mode(file, 0o640)),
    ("writable by all", |file| mode(file, 0o622)),
    ("set-uid", |file| mode(file, 0o4600)),
    ("not writable", |file| mode(file, 0o400)),
    ("a symlink to the very token", |file| {
        let elsewhere = file.with_extension("elsewhere");
        fs::rename(file, &elsewhere).expect("moved");
        symlink(&elsewhere, file).expect("a link");
    }),
    ("a directory", |file| {
        fs::remove_file(file).expect("removed");
        fs::create_dir(file).expect("made");
    }),
    ("a pipe that nobody writes to", |file| {
        fs::remove_file(file).expect("removed");
        nix::unistd::mkfifo(file, Mode::S_IRUSR | Mode::S_IWUSR).expect("made");
    }),
];

fn overwrite(file: &Path, content: &[u8]) {
    fs::write(file, content).expect("written");
}

pub(super) fn mode(file: &Path, mode: u32) {
    fs::set_permissions(file, Permissions::from_mode(mode)).expect("changed");
}
