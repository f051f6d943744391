//! Whose processes are killed, and whose are not.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use super::*;

/// A process that says its pid when it leads a session of its own, if it is to, and stays until its
/// standard input ends.
struct Stays(Child, PinnedProcess);

impl Stays {
    fn start(setsid: &str) -> Self {
        let script = format!("use POSIX; $| = 1; {setsid}; print qq($$\\n); <STDIN>");
        let mut command = Command::new("perl");
        command
            .args(["-e", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("perl");
        let mut said = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output)
            .read_line(&mut said)
            .expect("it is ready");
        let pid = said.trim().parse().expect("a pid");
        let process = PinnedProcess::open(pid).expect("it stays");
        Self(child, process)
    }

    fn end(mut self) -> ProcessId {
        drop(self.0.stdin.take());
        self.0.wait().expect("ours");
        self.1.id()
    }
}

impl Drop for Stays {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sessions(keeper: ProcessId, backend: Option<ProcessId>, is_seen: bool) -> Vec<u32> {
    sessions_of(keeper, backend, is_seen)
        .expect("known")
        .into_iter()
        .collect()
}

#[test]
#[ignore = "needs perl"]
fn a_number_that_was_given_again_is_nobodys_session() {
    let gone = Stays::start("").end();
    assert_eq!(sessions(gone, None, true), [gone.pid]);
    assert!(
        sessions(gone, None, false).is_empty(),
        "when it went is not known"
    );
    // Another one has its pid, and leads a session.
    let stranger = Stays::start("setsid() or die");
    let former = ProcessId {
        inode: Some(u64::MAX),
        ..stranger.1.id()
    };
    assert!(sessions(former, None, true).is_empty());
    assert_eq!(
        kill_left_over(former, Some(former), true).expect("looked"),
        0
    );
    assert!(stranger.1.is_alive());
}

#[test]
#[ignore = "needs perl"]
fn a_backend_is_known_by_more_than_its_pid() {
    let gone = Stays::start("").end();
    let mut leads = Stays::start("setsid() or die");
    let former = ProcessId {
        inode: Some(u64::MAX),
        ..leads.1.id()
    };
    assert!(sessions(gone, Some(former), false).is_empty());
    assert_eq!(
        sessions(gone, Some(leads.1.id()), false),
        [leads.1.id().pid]
    );
    // One that is in somebody else's session, such as ours, whose leader may be gone. We were there
    // before the keeper, if only in the same tick of the kernel's clock.
    let member = Stays::start("");
    let later = ProcessId {
        start: process::StartTime(gone.start.0 + 1),
        ..gone
    };
    assert!(sessions(later, Some(member.1.id()), false).is_empty());

    assert_eq!(
        kill_left_over(gone, Some(leads.1.id()), false).expect("looked"),
        1
    );
    // It takes its moment to die.
    assert_eq!(
        leads.0.wait().expect("ours").signal(),
        Some(Signal::SIGKILL as i32)
    );
    assert!(member.1.is_alive());
}

/// A server whose launcher led a session, has forked, and is gone.
#[test]
#[ignore = "needs perl"]
fn a_backend_whose_session_has_lost_its_leader_is_killed() {
    let gone = Stays::start("").end();
    let mut forked = Stays::start("setsid() or die; exit if fork");
    let _input = forked.0.stdin.take();
    forked.0.wait().expect("the launcher has ended");
    let backend = forked.1.id();
    let session = process::session_of(&forked.1).expect("known");
    assert_eq!(session, Some(forked.0.id()));
    assert_eq!(
        kill_left_over(gone, Some(backend), true).expect("looked"),
        1
    );
}

/// A shell that has ended leaves a session without a leader to what it started.
#[test]
#[ignore = "needs perl"]
fn a_session_that_was_there_before_the_keeper_is_somebody_elses() {
    let gone = Stays::start("").end();
    // The second one starts in another tick of the kernel's clock.
    let forks = "exit if fork; select undef, undef, undef, 0.05; if (fork) { <STDIN>; exit }";
    let mut shell = Stays::start(&format!("setsid() or die; {forks}"));
    let _input = shell.0.stdin.take();
    shell.0.wait().expect("the shell has ended");
    let (session, younger) = (shell.0.id(), shell.1.id());
    let members = process::session_members(session).expect("known");
    let older = members.iter().map(|member| member.id().start).min();
    let older = older.expect("two members");
    assert!(older < younger.start);

    let keeper = |start| ProcessId { start, ..gone };
    assert_eq!(
        sessions(keeper(older), Some(younger), false),
        [session],
        "all members are younger than the keeper"
    );
    assert!(sessions(keeper(younger.start), Some(younger), false).is_empty());
}

/// Whoever was there before the keeper is not the keeper's.
#[test]
#[ignore = "needs perl"]
fn what_is_older_than_the_keeper_is_left_alone() {
    let older = Stays::start("setsid() or die");
    let gone = Stays::start("").end();
    let later = ProcessId {
        start: process::StartTime(u64::MAX),
        ..gone
    };
    assert_eq!(
        kill_left_over(later, Some(older.1.id()), false).expect("looked"),
        0
    );
    assert!(older.1.is_alive());
}
