//! What a front says of the server that it finds, by every way to a server that one host has: it is
//! the one that the host had, or another one, and why.

use mcp_sessiond_tests::{Client, Front, World, signal};
use nix::sys::signal::Signal;

use crate::told_to_models::{DOORS, Door, wrapping};
use crate::{shared, world};

/// Runs a command that has to succeed.
#[track_caller]
fn runs(world: &World, words: &[&str]) {
    let done = world.sessiond(words).output().expect("it runs");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words:?}: {errors}");
}

/// A server that was used, and whose front was killed.
fn left_behind(world: &World, door: Door) -> Vec<String> {
    let words = wrapping(world, door);
    let mut client = Client::connected(world.front(&words));
    assert_eq!([client.count(), client.count()], [1, 2], "{door:?}");
    world.backend().cut_off(&mut client.pipe);
    words
}

/// The next front has a fresh server, and says this.
#[track_caller]
fn begins(world: &World, words: &[String], said: &str) -> Client<Front> {
    let mut next = Client::connected(world.front(words));
    assert_eq!(next.count(), 1, "{words:?}");
    next.pipe.errors.wait(said);
    let errors = next.pipe.errors.text();
    assert!(!errors.contains("resumed"), "{words:?}: {errors}");
    assert_eq!(errors.matches("fresh").count(), 1, "{words:?}: {errors}");
    next
}

#[test]
fn a_restart_between_two_connections_is_said_by_the_next_front() {
    for door in DOORS {
        let world = world("");
        let _daemon = world.daemon();
        let words = left_behind(&world, door);
        let backend = world.backend();
        runs(&world, &["restart", &backend.keeper.to_string()]);
        backend.wait("it is restarted", |status| status.restarts == 1);
        let said =
            "this is a fresh server: the previous one was restarted by `mcp-sessiond restart`";
        let mut next = begins(&world, &words, said);
        assert!(!next.pipe.errors.text().contains("lost"), "{door:?}");
        world.backend().cut_off(&mut next.pipe);
        // It is said once.
        let mut third = Client::connected(world.front(&words));
        third.pipe.errors.wait("resumed the server");
        assert_eq!(third.count(), 2, "{door:?}");
        assert!(!third.pipe.errors.text().contains("restarted"), "{door:?}");
    }
}

#[test]
fn so_is_a_stop() {
    for door in DOORS {
        let world = world("");
        let _daemon = world.daemon();
        let words = left_behind(&world, door);
        runs(&world, &["stop", &world.backend().keeper.to_string()]);
        let mut next = Client::connected(world.front(&words));
        assert_eq!(next.count(), 1, "{door:?}");
        next.pipe.errors.wait("the previous server was stopped");
        assert!(!next.pipe.errors.text().contains("resumed"), "{door:?}");
    }
}

/// The daemon hangs while a user stops the server, and learns later that its keeper is gone.
#[test]
fn so_is_a_stop_of_which_a_daemon_that_hung_has_heard_nothing() {
    for door in DOORS {
        let world = world("");
        let daemon = world.daemon();
        let words = left_behind(&world, door);
        let backend = world.backend();
        daemon.signal(Signal::SIGSTOP);
        let stopped = world
            .sessiond(&["stop", &backend.keeper.to_string()])
            .output()
            .expect("it runs");
        assert!(stopped.status.success(), "{door:?}: {stopped:?}");
        daemon.signal(Signal::SIGCONT);
        backend.ended();
        let mut next = Client::connected(world.front(&words));
        assert_eq!(next.count(), 1, "{door:?}");
        next.pipe.errors.wait("the previous server was stopped");
        let log = daemon.log();
        log.wait("`mcp-sessiond stop` has ended it");
        let told = [next.pipe.errors.text(), log.text()].concat();
        for guess in ["its keeper was killed", "the process that kept", "a signal"] {
            assert!(!told.contains(guess), "{door:?}: {guess}: {told}");
        }
    }
}

#[test]
fn a_signal_to_the_keeper_is_what_it_is() {
    let world = world("");
    let daemon = world.daemon();
    let words = left_behind(&world, DOORS[0]);
    let backend = world.backend();
    signal(backend.keeper, Signal::SIGTERM);
    backend.ended();
    daemon.log().wait("somebody has sent SIGTERM to its keeper");
    let mut next = Client::connected(world.front(&words));
    assert_eq!(next.count(), 1);
    next.pipe.errors.wait("the previous server was stopped");
}

#[test]
fn a_server_that_is_resumed_is_said_by_its_name() {
    let names = [(DOORS[2], "n"), (DOORS[3], "t"), (DOORS[4], "t")];
    for (door, name) in names {
        let world = world("");
        let _daemon = world.daemon();
        let words = left_behind(&world, door);
        let mut next = Client::connected(world.front(&words));
        assert_eq!(next.count(), 3, "{door:?}");
        next.pipe
            .errors
            .wait(&format!("`mcp-sessiond restart {name}` gives"));
        runs(&world, &["restart", name]);
    }
}

#[test]
fn hosts_that_share_a_server_are_told_of_a_restart_each_once() {
    let world = world("");
    let _daemon = world.daemon();
    shared::write_down(&world, &serde_json::json!({"crowd": shared::entry(&world)}));
    let mut there = shared::connect(&world);
    let mut away = shared::connect(&world);
    assert_eq!((there.count(), away.count()), (1, 2));
    let backend = world.backend();
    away.pipe.kill();
    runs(&world, &["restart", "crowd"]);
    backend.wait("it is restarted", |status| status.restarts == 1);
    let said = "the server is restarted by `mcp-sessiond restart`";
    there.pipe.errors.wait(said);
    let mut again = shared::connect(&world);
    assert_eq!((there.count(), again.count()), (1, 2));
    assert_eq!(there.pipe.errors.text().matches(said).count(), 1);
}
