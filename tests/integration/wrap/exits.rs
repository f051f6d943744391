//! Nothing outlives its owner: servers end with their host, or when nobody has come for them.

use mcp_sessiond_tests::{Backend, NodeHost, World, gone, lives};
use serde_json::json;

use super::{connect, connect_official, counter, gate, keeping, tiny};

/// What a server has started: a child in its process group, and one that has left it.
fn spawned(host: &mut NodeHost) -> Vec<u32> {
    let mut spawn = |detached: bool| {
        host.call("main", "spawn", json!({"detached": detached}))
            .parse()
            .expect("a pid")
    };
    vec![spawn(false), spawn(true)]
}

/// Waits until the keeper is gone with its socket, and every process of the world.
fn nothing_left(world: &World, backend: &Backend) {
    backend.ended();
    world.nothing_left();
}

#[test]
#[ignore = "needs node"]
fn server_keeper_and_grandchildren_end_with_their_host() {
    let world = keeping("stop_wait_ms = 300");
    let _daemon = world.daemon();
    let mut host = connect_official(&world, &counter(&world));
    let children = spawned(&mut host);
    let backend = world.backend();
    assert!(children.iter().all(|pid| lives(*pid)));
    host.kill();
    nothing_left(&world, &backend);
    children.into_iter().for_each(gone);
    world.wait_backends(0);
}

/// The same, where the front was killed before, and the server takes no notice of the end of its
/// input, nor of SIGTERM.
#[test]
#[ignore = "needs node"]
fn a_server_that_ignores_everything_ends_with_its_host() {
    let world = keeping("stop_wait_ms = 300");
    let _daemon = world.daemon();
    let mut host = connect_official(&world, &counter(&world));
    host.call("main", "ignore", json!({}));
    let children = spawned(&mut host);
    host.end("main", "SIGKILL");
    let backend = world.backend();
    backend.wait_alone();
    host.kill();
    nothing_left(&world, &backend);
    children.into_iter().for_each(gone);
}

#[test]
#[ignore = "needs node"]
fn a_host_that_dies_while_there_is_no_daemon_takes_its_servers_with_it() {
    let world = keeping("stop_wait_ms = 300");
    let mut daemon = world.daemon();
    let mut host = connect_official(&world, &counter(&world));
    let backend = world.backend();
    daemon.kill();
    host.kill();
    nothing_left(&world, &backend);
}

#[test]
fn a_server_that_nobody_comes_for_ends_after_its_time() {
    let world = keeping("linger_ms = 100\nclosed_linger_ms = 100\nstop_wait_ms = 300");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    client.pipe.close();
    assert!(client.pipe.wait().success());
    nothing_left(&world, &backend);
    world.wait_backends(0);
    assert_eq!(connect(&world, &tiny(&world)).count(), 1);
}

/// As long as somebody is attached, it stays.
#[test]
fn a_server_stays_as_long_as_it_is_attached() {
    let world = keeping("linger_ms = 500");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    let backend = world.backend();
    backend.wait("several times its time", |status| status.since_ms >= 1500);
    assert_eq!(client.count(), 1);
    assert_eq!(client.count(), 2);
}

#[test]
fn stop_ends_a_server_and_leaves_its_front_and_its_session() {
    let world = keeping("stop_wait_ms = 300");
    let mut daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    client.count();
    client.call("ignore", json!({}));
    let slow = client.begin_slow(&gate(&world, "never"));
    let backend = world.backend();
    let server = backend.pid();
    let stop = |session: &str| {
        world
            .sessiond(&["stop", session])
            .output()
            .expect("it runs")
            .status
            .code()
    };
    assert_eq!(stop(&backend.session), Some(0));
    assert_eq!((lives(server), lives(backend.keeper)), (false, false));
    assert_eq!(client.answer(slow)["error"]["data"]["outcome"], "unknown");
    assert_eq!(client.count(), 1);
    assert_eq!(world.backend().session, backend.session);
    assert_ne!(world.backend().keeper, backend.keeper);

    assert_eq!(stop("no-such-session"), Some(66));
    daemon.kill();
    assert_eq!(stop(&backend.session), Some(0), "its keeper is told itself");
    assert_eq!(client.count(), 1);
}

#[test]
fn a_server_that_nobody_can_find_any_more_ends_with_its_front() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    client.count();
    let keeper = world.backend().keeper;
    std::fs::remove_dir_all(world.directory()).expect("removed");
    assert_eq!(client.count(), 2);
    client.pipe.kill();
    gone(keeper);
}
