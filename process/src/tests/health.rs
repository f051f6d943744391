//! What processes are doing, as two looks find them.

use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::*;
use crate::health::is_stopped;

/// Waits until the system says that a child has stopped.
fn stop(process: &PinnedProcess) {
    process.signal(Signal::SIGSTOP).expect("ours");
    let child = Id::Pid(Pid::from_raw(process.pid().cast_signed()));
    let stopped = waitid(child, WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT);
    assert!(
        matches!(stopped, Ok(WaitStatus::Stopped(..))),
        "{stopped:?}"
    );
}

/// Looks until this is what is found. The system has no event for a process that begins to wait or to
/// compute, so it is asked, without a pause.
fn until_it_is(watch: &mut HealthWatch, health: Health) {
    while watch.look() != health {
        assert!(watch.process().is_alive(), "it has ended");
        std::thread::yield_now();
    }
}

#[test]
fn a_process_that_waits_is_idle_and_one_that_is_stopped_stalled() {
    let mut tree = Tree::shell(STAY);
    let process = tree.pinned();
    let mut watch = HealthWatch::new(process.clone());
    until_it_is(&mut watch, Health::Idle);
    assert!(!is_stopped(&process));
    stop(&process);
    assert_eq!(watch.look(), Health::Stalled);
    assert_eq!(
        watch.look(),
        Health::Stalled,
        "however often it is looked at"
    );
    assert!(is_stopped(&process));
    process.signal(Signal::SIGCONT).expect("ours");
    until_it_is(&mut watch, Health::Idle);
    assert!(!is_stopped(&process));
}

#[test]
fn a_process_that_computes_is_working() {
    let mut tree = Tree::shell("echo $$; while :; do :; done");
    let process = tree.pinned();
    let mut watch = HealthWatch::new(process.clone());
    until_it_is(&mut watch, Health::Working);
    until_it_is(&mut watch, Health::Working);
    process.signal(Signal::SIGKILL).expect("ours");
}

#[test]
fn a_process_that_was_killed_is_gone_also_where_it_was_stopped() {
    let mut tree = Tree::shell(STAY);
    let process = tree.pinned();
    let mut watch = HealthWatch::new(process.clone());
    stop(&process);
    let mut exits = ExitWatch::new().expect("a watch");
    exits.add(process.clone()).expect("watched");
    process.signal(Signal::SIGKILL).expect("ours");
    until_readable(&exits);
    assert_eq!(watch.look(), Health::Gone);
    assert!(!is_stopped(&process));
}
