//! Whom a process has started.

use nix::sys::signal::Signal;

use super::*;

/// A process that leads a session, and a child of it that leads a process group; both say their
/// pids.
const LEADER: &str = r#"use POSIX; $| = 1; setsid() or die; print "$$\n";
    if (!fork) { setpgid(0, 0); print "$$\n"; <STDIN>; exit } <STDIN>; wait"#;

#[test]
#[ignore = "needs perl"]
fn a_session_has_those_that_its_leader_has_started() {
    let mut tree = Tree::spawn(Command::new("perl").args(["-e", LEADER]));
    let (leader, child) = (tree.pinned(), tree.pinned());
    assert!(leads_session(&leader).expect("read") && !leads_session(&child).expect("read"));
    let session = leader.id().pid;
    assert_eq!(session_of(&child).expect("read"), Some(session));
    let members = || {
        let members = session_members(session).expect("listed");
        let mut members: Vec<ProcessId> = members.iter().map(PinnedProcess::id).collect();
        members.sort_by_key(|member| *member != leader.id());
        members
    };
    assert_eq!(members(), [leader.id(), child.id()]);
    assert_eq!(started_by(session).expect("listed"), [child.id().pid]);
    assert!(
        started_by(std::process::id())
            .expect("listed")
            .starts_with(&[session]),
        "children come first"
    );
    assert!(
        started_by(std::process::id())
            .expect("listed")
            .contains(&child.id().pid),
        "and then theirs"
    );

    assert_eq!(
        child_of(&leader, child.id().pid)
            .expect("read")
            .map(|found| found.id()),
        Some(child.id())
    );
    let myself = PinnedProcess::myself().expect("alive");
    assert!(
        child_of(&myself, session).expect("read").is_some()
            && child_of(&myself, child.id().pid).expect("read").is_none()
    );
    assert!(
        child_of(&leader, session).expect("read").is_none()
            && child_of(&leader, myself.id().pid).expect("read").is_none()
    );

    child.signal(Signal::SIGKILL).expect("ours to kill");
    let mut watch = ExitWatch::new().expect("a watch");
    watch.add(child.clone()).expect("watched");
    until_readable(&watch);
    assert_eq!(members(), [leader.id()], "a zombie is no member");
    assert!(
        child_of(&leader, child.id().pid).expect("read").is_none()
            && session_of(&child).expect("read").is_none()
    );
    assert!(child.signal(Signal::SIGTERM).is_err() || !child.is_alive());
    assert!(is_taken(session).expect("known"));
    tree.end();
    assert!(!is_taken(session).expect("known"));
    assert_eq!(members(), []);
}

#[test]
#[ignore = "needs perl"]
fn what_a_leader_that_is_gone_has_left_behind_is_still_what_it_has_started() {
    let mut tree = Tree::spawn(Command::new("perl").args(["-e", LEADER]));
    let (leader, child) = (tree.pinned(), tree.pinned());
    leader.signal(Signal::SIGKILL).expect("ours to kill");
    tree.child.wait().expect("our child");
    // The system lists no children of it any more; its session is still there.
    assert_eq!(
        started_by(leader.id().pid).expect("listed"),
        [child.id().pid]
    );
}
