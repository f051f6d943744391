//! Leases on a service's name.

use mcp_sessiond_tests::gone;

use super::Bench;
use crate::world;

#[test]
fn a_second_process_is_told_who_serves_the_name() {
    let bench = Bench::new("");
    let mut second = bench.world.serving("web");
    let taken = second.wait("taken");
    assert_eq!(taken["taken"]["pid"], bench.serving.process.pid());
    assert!(
        taken["taken"]["since_ms"]
            .as_u64()
            .is_some_and(|since| since > 0),
        "{taken}"
    );
    assert_eq!(second.process.wait().code(), Some(75));
    let mut other = bench.world.serving("another-name");
    assert_eq!(other.leased(), 1);
}

#[test]
fn a_name_is_free_when_its_process_has_exited_and_the_daemon_restarts_in_between() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut first = world.serving("web");
    assert_eq!(first.leased(), 1);
    daemon.restart();
    let mut second = world.serving("web");
    assert_eq!(
        second.wait("taken")["taken"]["pid"],
        first.process.pid(),
        "the restarted daemon knows the lease"
    );
    daemon.kill();
    first.process.kill();
    gone(first.process.pid());
    daemon.start_again();
    let mut third = world.serving("web");
    third.leased();
}
