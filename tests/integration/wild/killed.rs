//! `setup` and its undo are killed at each system call that changes a file, by strace.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use super::{Linked, Wild};

/// System calls that change a file, or that it is changed. Opening one is not among them: the next
/// of these shows what it has made.
const CALLS: [&str; 14] = [
    "chmod",
    "fchmod",
    "fchmodat",
    "fchown",
    "fsync",
    "link",
    "mkdir",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "unlink",
    "unlinkat",
    "write",
];

/// Runs `setup` with these words, and kills it at the call of this number, before that does
/// anything. Whether there was such a call.
fn is_killed(wild: &Wild, words: &[&str], call: &str, number: usize) -> bool {
    let setup = wild.command(words);
    let mut traced = Command::new("strace");
    traced
        .args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            &format!("trace={call}"),
        ])
        .args(["-e", &format!("inject={call}:signal=KILL:when={number}")])
        .arg(setup.get_program())
        .args(setup.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    for (name, value) in setup.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    let output = traced
        .stderr(Stdio::piped())
        .output()
        .expect("strace, of the package of that name");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.signal() == Some(9) || output.status.success(),
        "{call} {number}: {errors}"
    );
    !output.status.success()
}

#[test]
#[ignore = "needs strace"]
fn a_kill_at_any_system_call_leaves_the_old_file_or_the_new_one() {
    let wild = Wild::new("cursor", "cursor-one-line.json", Linked);
    let before = wild.seen();
    assert_eq!(wild.setup(&["cursor", "--yes"]).0, Some(0));
    let after = wild.seen();
    assert_eq!(wild.setup(&["--undo", "--yes"]).0, Some(0));
    let left = |what: &str| {
        let files = fs::read_dir(wild.path.with_file_name("dotfiles")).expect("it is there");
        let files: Vec<_> = files
            .map(|file| file.expect("a file").file_name())
            .collect();
        assert!(
            files == ["file"] && !wild.copies().exists(),
            "{what}: {files:?}, {}",
            wild.copies().exists()
        );
        assert_eq!(wild.seen(), before, "{what}");
    };
    let is_whole = |what: &str| {
        let seen = wild.seen();
        assert!(seen == before || seen == after, "{what}: {seen:?}");
    };
    let mut kills = 0;
    for call in CALLS {
        for number in 1.. {
            let what = format!("{call} {number}");
            // Finished by hand, or taken back at once.
            let mut was_killed = is_killed(&wild, &["cursor", "--yes"], call, number);
            is_whole(&what);
            assert_eq!(wild.setup(&["--undo", "--yes"]).0, Some(0), "{what}");
            left(&format!("setup, {what}, undo"));
            is_killed(&wild, &["cursor", "--yes"], call, number);
            assert_eq!(wild.setup(&["cursor", "--yes"]).0, Some(0), "{what}");
            assert_eq!(wild.seen(), after, "{what}");

            was_killed |= is_killed(&wild, &["--undo", "--yes"], call, number);
            is_whole(&what);
            assert_eq!(wild.setup(&["cursor", "--yes"]).0, Some(0), "{what}");
            assert_eq!(wild.seen(), after, "{what}");
            is_killed(&wild, &["--undo", "--yes"], call, number);
            assert_eq!(wild.setup(&["--undo", "--yes"]).0, Some(0), "{what}");
            left(&format!("undo, {what}, undo"));
            if !was_killed {
                break;
            }
            kills += 1;
        }
    }
    // Of two files that are written, synced and renamed at least, and of a record that is removed.
    assert!(kills >= 8, "{kills}");
}
