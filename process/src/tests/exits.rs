//! Exits are seen, and reported once.

use super::*;

#[test]
fn an_exit_is_seen_and_reported_once() {
    let mut tree = Tree::shell(STAY);
    let process = tree.pinned();
    let mut watch = ExitWatch::new().expect("a watch");
    watch.add(process.clone()).expect("watched");
    watch.add(process.clone()).expect("already watched");
    assert!(process.is_alive());
    assert!(!is_readable(&watch));
    assert!(watch.drain().is_empty());
    tree.child.kill().expect("ours to kill");
    until_readable(&watch);
    assert!(!process.is_alive(), "a zombie has exited");
    assert!(
        PinnedProcess::reopen(&process.id())
            .expect("readable")
            .is_none(),
        "also by its identity"
    );
    assert_eq!(PinnedProcess::open(process.id().pid).err(), Some(Gone));
    assert_eq!(watch.drain(), [process.id()]);
    assert!(watch.drain().is_empty());
    assert!(!is_readable(&watch));
}

#[test]
fn many_exits_are_drained_at_once() {
    let mut trees: Vec<Tree> = (0..100).map(|_| Tree::shell(STAY)).collect();
    let mut watch = ExitWatch::new().expect("a watch");
    let mut expected: Vec<ProcessId> = Vec::new();
    for tree in &mut trees {
        let process = tree.pinned();
        expected.push(process.id());
        watch.add(process).expect("watched");
    }
    trees.into_iter().for_each(Tree::end);
    let mut exited = watch.drain();
    exited.sort();
    expected.sort();
    assert_eq!(exited, expected);
}

#[test]
fn what_has_exited_before_it_is_watched_is_reported_too() {
    let mut tree = Tree::shell(STAY);
    let process = tree.pinned();
    tree.end();
    let mut watch = ExitWatch::new().expect("a watch");
    watch.add(process.clone()).expect("watched");
    until_readable(&watch);
    assert_eq!(watch.drain(), [process.id()]);
}

#[test]
fn what_is_removed_is_not_reported() {
    let (mut kept, mut removed) = (Tree::shell(STAY), Tree::shell(STAY));
    let (kept_process, removed_process) = (kept.pinned(), removed.pinned());
    let mut watch = ExitWatch::new().expect("a watch");
    watch.add(removed_process.clone()).expect("watched");
    watch.add(kept_process.clone()).expect("watched");
    removed.end();
    watch.remove(&removed_process.id());
    watch.remove(&removed_process.id());
    assert!(!is_readable(&watch));
    kept.end();
    assert_eq!(watch.drain(), [kept_process.id()]);
}

fn is_readable(watch: &ExitWatch) -> bool {
    let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).expect("poll") == 1
}
