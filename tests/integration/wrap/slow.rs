//! Keepers that do not answer. One that can't, since it is stopped, is waited for as long as its
//! host waits. One that could, and does not, is ended.

use std::os::unix::net::UnixStream;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use mcp_sessiond_tests::{Backend, Client, Front, World, gone, leave_descriptors, lives, signal};
use nix::sys::signal::Signal;

use super::by_hand::say;
use super::{connect, keeping, tiny, wrapped};
use crate::several;

/// What the user is told of a keeper that is stopped.
fn notice(backend: &Backend) -> String {
    let pid = backend.keeper;
    format!("(pid {pid}) is stopped; waiting for it; `mcp-sessiond restart {pid}` ends it")
}

/// Has a process go on after this time. How long a process is stopped is what these tests are
/// about.
fn goes_on_after(pid: u32, time: Duration) -> JoinHandle<()> {
    spawn(move || {
        sleep(time);
        signal(pid, Signal::SIGCONT);
    })
}

/// A front leaves, its keeper is stopped for a time, and the next front begins meanwhile.
#[track_caller]
fn assert_counts_on(world: &World, words: &[String], tool: &str, stopped_ms: u64) {
    let mut first = Client::connected(world.front(words));
    assert_eq!(first.call(tool, serde_json::json!({})), "1");
    let backend = world.backend();
    let server = backend.pid();
    signal(backend.keeper, Signal::SIGSTOP);
    first.pipe.kill();
    let goes_on = goes_on_after(backend.keeper, Duration::from_millis(stopped_ms));
    let mut second = Client::connected(world.front(words));
    assert_eq!(
        second.call(tool, serde_json::json!({})),
        "2",
        "{stopped_ms} ms"
    );
    goes_on.join().expect("it went on");
    assert_eq!(
        (world.backend().keeper, world.backend().pid()),
        (backend.keeper, server)
    );
    let is_told = second.pipe.errors.text().contains(&notice(&backend));
    assert_eq!(is_told, stopped_ms > 2_500, "{}", second.pipe.errors.text());
    second.pipe.kill();
    world.backend().wait_alone();
}

#[test]
fn a_keeper_that_is_stopped_is_waited_for() {
    for stopped_ms in [500, 1_900, 5_000] {
        let world = keeping("");
        let _daemon = world.daemon();
        assert_counts_on(
            &world,
            &wrapped(&world, &tiny(&world)),
            "increment",
            stopped_ms,
        );
    }
}

#[test]
fn a_keeper_that_is_stopped_for_half_a_minute_is_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    assert_counts_on(&world, &wrapped(&world, &tiny(&world)), "increment", 30_000);
}

#[test]
fn the_keeper_of_a_named_server_is_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    let words = world.wrapping(&["--name", "page"], &tiny(&world));
    assert_counts_on(&world, &words, "increment", 5_000);
}

#[test]
fn the_keeper_of_a_server_that_is_started_at_its_first_call_is_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    let words = world.wrapping(&["--lazy"], &tiny(&world));
    assert_counts_on(&world, &words, "increment", 5_000);
}

#[test]
fn the_keepers_of_several_servers_are_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    several::write_down(&world, &[("one", several::small(&world))]);
    assert_counts_on(&world, &several::all(&world, &[]), "increment", 5_000);
}

/// A client that is held, since the keeper of its server is stopped; and the server.
fn waiting(world: &World) -> (Client<Front>, Backend, u32) {
    let mut first = connect(world, &tiny(world));
    assert_eq!(first.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    signal(backend.keeper, Signal::SIGSTOP);
    first.pipe.kill();
    let mut next = Client::new(world.front(&wrapped(world, &tiny(world))));
    next.begin_initialize("test");
    next.pipe.errors.wait(&notice(&backend));
    (next, backend, server)
}

#[test]
fn restart_ends_a_keeper_that_is_stopped() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (mut next, backend, server) = waiting(&world);
    let said = say(&world, &["restart", &backend.keeper.to_string()]);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    gone(backend.keeper);
    gone(server);
    next.answer(1);
    assert_eq!(next.count(), 1);
}

#[test]
fn stop_ends_a_keeper_that_is_stopped_at_once() {
    let world = keeping("stop_wait_ms = 60000");
    let _daemon = world.daemon();
    let (_next, backend, _) = waiting(&world);
    let said = say(&world, &["stop", &backend.keeper.to_string()]);
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert!(!lives(backend.keeper));
}

/// Its host waits for an answer, and the front finds out why none comes.
#[test]
fn whoever_waits_for_a_keeper_that_is_stopped_meanwhile_is_told() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    signal(backend.keeper, Signal::SIGSTOP);
    let call = client.begin("increment", serde_json::json!({}));
    client.pipe.errors.wait(&notice(&backend));
    signal(backend.keeper, Signal::SIGCONT);
    assert_eq!(client.text(call).as_deref(), Ok("2"));
}

/// The same for one of several servers.
#[test]
fn whoever_waits_for_one_of_several_keepers_is_told() {
    let world = keeping("");
    let _daemon = world.daemon();
    several::write_down(&world, &[("one", several::small(&world))]);
    let mut client = Client::connected(world.front(&several::all(&world, &[])));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    signal(backend.keeper, Signal::SIGSTOP);
    let call = client.begin("increment", serde_json::json!({}));
    client.pipe.errors.wait(&notice(&backend));
    signal(backend.keeper, Signal::SIGCONT);
    assert_eq!(client.text(call).as_deref(), Ok("2"));
}

/// Nothing outlives its owner, also where it can't end by itself.
#[test]
fn a_keeper_that_is_stopped_is_killed_with_its_host() {
    let world = keeping("stop_wait_ms = 60000");
    let _daemon = world.daemon();
    let host = world.host();
    let words = wrapped(&world, &tiny(&world));
    let mut client = Client::connected(host.front(&words));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    signal(backend.keeper, Signal::SIGSTOP);
    drop(host);
    gone(backend.keeper);
    gone(server);
}

/// A keeper that serves as many connections as it does at a time, each of which says nothing, does
/// not answer the next one, although it could.
#[test]
fn a_keeper_that_hangs_is_ended_and_a_fresh_one_is_started() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut first = connect(&world, &tiny(&world));
    assert_eq!(first.count(), 1);
    let backend = world.backend();
    let _mute: Vec<UnixStream> = (0..64)
        .map(|_| UnixStream::connect(backend.socket()).expect("it listens"))
        .collect();
    first.pipe.kill();
    let mut second = connect(&world, &tiny(&world));
    assert_eq!(second.count(), 1);
    gone(backend.keeper);
    world.log.wait("its keeper did not answer");
}

/// It says that it is busy, and is alive by that.
#[test]
#[cfg(target_os = "linux")]
fn a_keeper_without_descriptors_is_waited_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut first = connect(&world, &tiny(&world));
    assert_eq!(first.count(), 1);
    let backend = world.backend();
    first.pipe.kill();
    backend.wait_alone();
    leave_descriptors(backend.keeper, Some(0));
    let mut second = Client::new(world.front(&wrapped(&world, &tiny(&world))));
    let asked = second.begin_initialize("test");
    // Longer than a keeper may be silent.
    sleep(Duration::from_secs(7));
    assert!(lives(backend.keeper));
    leave_descriptors(backend.keeper, None);
    second.initialized(asked);
    assert_eq!(second.count(), 2);
    assert_eq!(world.backend().keeper, backend.keeper);
}
