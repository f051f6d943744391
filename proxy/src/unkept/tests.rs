//! Notes of servers that run unkept, in a directory of their own.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Command, Stdio};

use super::*;

/// A process that goes when the test ends.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let mut cat = Command::new("cat");
        Self(
            cat.stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .expect("cat"),
        )
    }

    fn unkept(&self) -> Unkept {
        Unkept::now(
            &PinnedProcess::open(self.0.id()).expect("it runs"),
            "npx some-mcp".into(),
            &"no daemon",
        )
    }

    fn end(&mut self) {
        self.0.kill().expect("it is our child");
        self.0.wait().expect("it is our child");
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn notes(directory: &Path) -> Vec<String> {
    let found = std::fs::read_dir(directory.join(UNKEPT_NAME))
        .into_iter()
        .flatten()
        .flatten();
    found
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn a_note_is_there_as_long_as_its_process() {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("d");
    assert_eq!(list(&directory), []);
    let (mut first, second) = (Sleeper::start(), Sleeper::start());
    let (one, other) = (first.unkept(), second.unkept());
    note(&directory, &one);
    note(&directory, &other);
    note(&directory, &other);
    let mut both = vec![one.clone(), other.clone()];
    both.sort_by_key(|unkept| unkept.process.pid);
    assert_eq!(list(&directory), both);
    let path = directory.join(UNKEPT_NAME).join(one.file_name());
    assert_eq!((mode(&directory), mode(&path)), (0o700, 0o600));
    assert_eq!(
        std::fs::read_to_string(&path)
            .expect("a note")
            .lines()
            .count(),
        1
    );
    first.end();
    assert_eq!(list(&directory), [other]);
    assert_eq!(notes(&directory).len(), 1);
}

#[test]
fn a_note_of_a_failure_goes_with_what_it_was_made_for() {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("d");
    let mut front = Sleeper::start();
    let unkept = front.unkept();
    note(&directory, &unkept);
    let noted = note_failed(&directory, unkept.clone()).expect("a note");
    let mut failures: Vec<bool> = list(&directory).iter().map(|one| one.has_failed).collect();
    failures.sort_unstable();
    assert_eq!(failures, [false, true]);
    drop(noted);
    assert_eq!(list(&directory), std::slice::from_ref(&unkept));
    std::mem::forget(note_failed(&directory, unkept));
    front.end();
    assert_eq!(list(&directory), []);
    assert_eq!(notes(&directory), [""; 0]);
}

#[test]
fn the_next_process_of_the_same_pid_is_another_one() {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("d");
    let sleeper = Sleeper::start();
    let mut former = sleeper.unkept();
    former.process.start -= 1;
    note(&directory, &former);
    assert_eq!(list(&directory), []);
    assert_eq!(notes(&directory), [""; 0]);
}

#[test]
fn what_can_t_be_read_is_left_to_whoever_writes_it() {
    let root = tempfile::tempdir().expect("a directory");
    let directory = root.path().join("d");
    let sleeper = Sleeper::start();
    let unkept = sleeper.unkept();
    note(&directory, &unkept);
    let own = directory.join(UNKEPT_NAME).join(unkept.file_name());
    std::fs::write(&own, "{").expect("written");
    // Nobody writes these.
    std::fs::write(directory.join(UNKEPT_NAME).join("notes"), "x").expect("written");
    std::fs::write(directory.join(UNKEPT_NAME).join("4194305-1"), "{").expect("written");
    assert_eq!(list(&directory), []);
    assert_eq!(notes(&directory), [unkept.file_name()]);
    note(&directory, &unkept);
    assert_eq!(list(&directory), [unkept]);
}

#[test]
fn nothing_is_written_where_others_could_have_been() {
    let root = tempfile::tempdir().expect("a directory");
    let unkept = Sleeper::start().unkept();
    let open = root.path().join("open");
    std::fs::create_dir(&open).expect("made");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).expect("opened");
    let link = root.path().join("link");
    symlink(&open, &link).expect("a link");
    for directory in [
        open,
        link,
        root.path().join("no/such"),
        "/proc/nobody".into(),
    ] {
        note(&directory, &unkept);
        assert_eq!(
            (list(&directory), notes(&directory)),
            (vec![], vec![]),
            "{directory:?}"
        );
    }
}

#[test]
fn a_reason_is_not_told_without_end() {
    let myself = PinnedProcess::myself().expect("it runs");
    let unkept = Unkept::now(&myself, "x".into(), &"é".repeat(100_000));
    assert_eq!(unkept.why, "é".repeat(WHY_MAX));
}
