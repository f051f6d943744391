//! What can be shown on Linux alone: pids chosen, users and namespaces, command lines overwritten.

use std::os::unix::process::CommandExt;

use super::*;

/// An upgrade replaces the executable of a running server; the next one has the same path.
#[test]
fn a_replaced_executable_is_the_same_program() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("server");
    let start = || {
        std::fs::copy("/bin/sh", &program).expect("copied");
        Tree::spawn(Command::new(&program).args(["-c", STAY]))
    };
    let mut tree = start();
    let process = tree.pinned();
    let before = traits_of(&process, &Table::default()).expect("read");
    std::fs::remove_file(&program).expect("removed");
    assert_eq!(
        traits_of(&process, &Table::default()).expect("read"),
        before
    );
    assert_eq!(before.program, "server");
    let mut upgraded = start();
    assert_eq!(
        traits_of(&upgraded.pinned(), &Table::default()).expect("read"),
        before
    );
}

/// perl overwrites its command line in place when `$0` is set.
#[test]
fn a_title_makes_the_key_doubtful() {
    let stay = r#"$0 = shift; $| = 1; print "$$\n"; <STDIN>"#;
    let mut tree =
        Tree::spawn(Command::new("perl").args(["-e", stay, "my server", "--db", "prod"]));
    let traits = traits_of(&tree.pinned(), &Table::default()).expect("read");
    assert_eq!(
        (traits.core, traits.doubt),
        (None, Some(KeyDoubt::Rewritten))
    );
    assert!(traits.place.is_some());

    let long = "x".repeat(300);
    let mut tree = Tree::spawn(Command::new("perl").args(["-e", stay, &long]));
    let doubt = traits_of(&tree.pinned(), &Table::default())
        .expect("read")
        .doubt;
    assert_eq!(
        doubt,
        Some(KeyDoubt::Rewritten),
        "it has written past the end of its arguments"
    );
}

#[test]
fn who_has_a_pid_later_is_another_process() {
    needs_root("choosing the next pid (CAP_CHECKPOINT_RESTORE)");
    let directory = tempfile::tempdir().expect("a directory");
    let (mut first, socket) = caller(directory.path());
    let before = first.pinned();
    first.end();
    let pid = before.id().pid;
    let mut second = start_with_pid(pid);
    let after = second.pinned();
    assert_eq!(after.id().pid, pid);
    assert_ne!(after.id(), before.id());
    assert!(
        PinnedProcess::reopen(&before.id())
            .expect("readable")
            .is_none()
    );
    assert!(!before.is_alive());
    assert!(after.is_alive());
    assert!(matches!(peer(&socket), Err(PeerError::Gone)));
    if let Some(inode) = after.id().inode {
        assert_ne!(
            Some(inode),
            before.id().inode,
            "it differs even where the start time does not"
        );
    }
}

#[test]
fn another_user_is_no_host() {
    needs_root("starting processes of another user");
    let mut command = Command::new("sh");
    let mut tree = Tree::spawn(
        command
            .args(["-c", &format!("sh -c '{STAY}'; :")])
            .uid(65_534),
    );
    let instance = tree.pinned();
    assert_eq!(
        find_host(&instance, &Table::default()).host.err(),
        Some(HostDoubt::OtherUser)
    );
    assert!(
        ancestor(&instance, tree.child.id())
            .expect("read")
            .is_none()
    );
}

#[test]
fn what_is_in_another_pid_namespace_has_no_host_and_is_no_peer() {
    needs_root("making a pid namespace");
    let mut tree = Tree::spawn(Command::new("unshare").args(["--pid", "--fork", "sh", "-c", STAY]));
    assert_eq!(tree.said(), 1, "that is what it is called in there");
    let unshare = tree.child.id();
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
    let pid = children
        .expect("readable")
        .trim()
        .parse()
        .expect("one child");
    let instance = PinnedProcess::open(pid).expect("it waits for us");
    assert_eq!(
        find_host(&instance, &Table::default()).host.err(),
        Some(HostDoubt::OtherNamespace)
    );

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).expect("bound");
    let mut command = Command::new("unshare");
    let mut tree = Tree::spawn(
        command
            .args(["--pid", "--fork", "perl", "-e", CALL])
            .arg(&path),
    );
    let (socket, _) = listener.accept().expect("it calls");
    assert_eq!(tree.said(), 1);
    assert!(matches!(peer(&socket), Err(PeerError::OtherNamespace)));
}

/// Starts a shell that has this free pid, by saying which pid comes next until nobody else comes
/// first.
fn start_with_pid(pid: u32) -> Tree {
    const ATTEMPTS: usize = 1_000;
    for _ in 0..ATTEMPTS {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).expect("root may");
        let tree = Tree::shell(STAY);
        if tree.child.id() == pid {
            return tree;
        }
    }
    panic!("pid {pid} was not given again in {ATTEMPTS} attempts");
}
