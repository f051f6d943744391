use std::fs::{self, Permissions};
use std::os::unix::fs::{chown, symlink};

use super::*;
use crate::tests::needs_root;

/// A place for a directory that is not there yet.
fn place() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let path = parent.path().join("runtime");
    (parent, path)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn it_is_made_for_its_owner_alone_and_found_again() {
    let (_parent, path) = place();
    let missing = Directory::open_existing(&path).expect_err("it is not there");
    assert!(
        matches!(missing, DirectoryError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound)
    );

    Directory::open(&path).expect("it is made");
    let mode = fs::symlink_metadata(&path)
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, DIRECTORY_MODE);
    Directory::open(&path).expect("it is found");
    Directory::open_existing(&path).expect("it is found");
}

#[test]
fn what_is_no_directory_is_refused_and_left_alone() {
    let (parent, path) = place();
    let target = parent.path().join("target");
    Directory::open(&target).expect("it is made");
    symlink(&target, &path).expect("a symlink");
    let refused = Directory::open(&path).expect_err("a symlink");
    assert!(
        matches!(refused, DirectoryError::NotADirectory(_)),
        "{refused}"
    );
    assert!(path.is_symlink());

    fs::remove_file(&path).expect("it is ours");
    fs::write(&path, "").expect("a file");
    let refused = Directory::open(&path).expect_err("a file");
    assert!(
        matches!(refused, DirectoryError::NotADirectory(_)),
        "{refused}"
    );
}

#[test]
fn a_wrong_mode_is_refused_and_not_repaired() {
    let (_parent, path) = place();
    Directory::open(&path).expect("it is made");
    for wrong in [0o755, 0o770, 0o701, 0o500] {
        set_mode(&path, wrong);
        let refused = Directory::open(&path).expect_err("a wrong mode");
        assert!(
            matches!(refused, DirectoryError::Mode { mode, .. } if mode == wrong),
            "{refused}"
        );
        let found = fs::symlink_metadata(&path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(found & 0o7777, wrong, "it was repaired");
    }
}

#[test]
fn a_set_id_bit_that_was_inherited_lets_nobody_in() {
    let (parent, path) = place();
    set_mode(parent.path(), 0o2700);
    Directory::open(&path).expect("it is made");
    Directory::open(&path).expect("it is still ours alone");
}

#[test]
#[ignore = "needs root"]
fn somebody_elses_is_refused() {
    needs_root("giving a directory away");
    let (_parent, path) = place();
    Directory::open(&path).expect("it is made");
    chown(&path, Some(4321), None).expect("chown");
    let refused = Directory::open(&path).expect_err("a foreign owner");
    assert!(
        matches!(refused, DirectoryError::Owner { uid: 4321, .. }),
        "{refused}"
    );
}

#[test]
fn one_daemon_has_the_lock() {
    crate::tests::alone(|| {
        let (_parent, path) = place();
        let open = || Directory::open(&path).expect("it is ours");
        let (first, second) = (open(), open());
        let lock = first.try_lock().expect("it is free");
        let refused = second.try_lock().expect_err("it is held");
        assert!(matches!(refused, DirectoryError::Locked(_)), "{refused}");

        let waiting = std::thread::spawn(move || second.wait_for_lock().map(drop));
        drop(lock);
        waiting.join().expect("it ends").expect("it gets the lock");
        first.try_lock().expect("it is free again");
    });
}

#[test]
fn it_is_told_when_the_path_leads_elsewhere() {
    let (parent, path) = place();
    let directory = Directory::open(&path).expect("it is made");
    assert!(directory.is_in_place());

    fs::rename(&path, parent.path().join("elsewhere")).expect("rename");
    assert!(!directory.is_in_place(), "nothing is there");
    let another = Directory::open(&path).expect("it is made anew");
    assert!(!directory.is_in_place(), "another one is there");
    assert!(another.is_in_place());
    symlink(
        parent.path().join("elsewhere"),
        parent.path().join("runtime-2"),
    )
    .expect("a symlink");
    fs::remove_dir(&path).expect("it is empty");
    fs::rename(parent.path().join("runtime-2"), &path).expect("rename");
    assert!(!directory.is_in_place(), "a symlink to it is not it");
}
