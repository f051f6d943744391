//! Servers that belong to the user, by a name: whatever becomes of the host.

use mcp_sessiond_tests::{Client, Front, Host, Server, World, gone, until};
use serde_json::json;

use super::{keeping, tiny};

fn command(world: &World, options: &[&str]) -> Vec<String> {
    world.wrapping(&[&["--name", "page"], options].concat(), &tiny(world))
}

fn here(world: &World, options: &[&str]) -> Client<Front> {
    Client::connected(world.front(&command(world, options)))
}

/// As VS Code's "Reload Window" does: the process that starts servers is another one from then on.
#[test]
fn it_survives_the_end_of_its_host() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut former = world.host();
    let mut server: Client<Server> = Client::connected(former.front(&command(&world, &[])));
    assert_eq!((server.count(), server.count()), (1, 2));
    former.kill();
    world.backend().wait_alone();
    let next = world.host();
    let mut server: Client<Server> = Client::connected(next.front(&command(&world, &[])));
    assert_eq!(server.count(), 3);
    server.pipe.kill();
    // And this test is another host.
    let mut server = here(&world, &[]);
    assert_eq!(server.count(), 4);
    server.pipe.errors.wait("resumed the server");
}

/// It keeps the environment of its first start. Whoever comes with another one is told which
/// variables, and never their values.
#[test]
fn variables_that_differ_are_named() {
    let world = keeping("");
    let _daemon = world.daemon();
    let with = |value: &str| {
        let variables = [("API_KEY", value), ("SHLVL", value)];
        Client::connected(world.front_with(&command(&world, &[]), &variables))
    };
    let mut first = with("secret-1");
    assert_eq!(first.count(), 1);
    first.pipe.kill();
    world.backend().wait_alone();
    let mut same = with("secret-1");
    assert_eq!(same.count(), 2);
    same.pipe.errors.wait("resumed the server");
    assert!(
        !same.pipe.errors.text().contains("variables"),
        "{}",
        same.pipe.errors.text()
    );
    same.pipe.kill();
    world.backend().wait_alone();
    let mut other = with("secret-2");
    assert_eq!(other.count(), 3);
    let said = other.pipe.errors.wait("these variables differ: API_KEY; ");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn it_is_found_again_when_the_daemon_was_killed() {
    let world = keeping("");
    let mut daemon = world.daemon();
    let mut server = here(&world, &[]);
    assert_eq!(server.count(), 1);
    daemon.kill();
    server.pipe.kill();
    daemon.start_again();
    assert_eq!(here(&world, &[]).count(), 2);
}

#[test]
fn one_host_at_a_time_has_it_and_another_may_take_it() {
    let world = World::new(&crate::BINARIES);
    world.configure("claim_wait_ms = 50");
    let _daemon = world.daemon();
    let mut first = here(&world, &[]);
    assert_eq!(first.count(), 1);
    // Whoever comes second hears who has it, and gets it when that goes.
    let mut second = Client::new(world.front(&command(&world, &["--exclusive"])));
    let refused = second.initialize();
    let why = refused["error"]["message"]
        .as_str()
        .expect("an error")
        .to_owned();
    assert!(
        why.contains("`page` is in use by ") && why.contains(" in /") && why.contains("--take"),
        "{why}"
    );
    first.pipe.close();
    first.pipe.wait();
    // The first one's lease ends after its process, and the front of the second asks the daemon
    // once for each `initialize`.
    until("the second one gets it", || {
        second.initialize().get("result").map(drop)
    });
    assert_eq!(second.count(), 2);
    // The third takes it; the second loses it, and never takes it back.
    let mut third = here(&world, &["--take"]);
    assert_eq!(third.count(), 3);
    second.pipe.errors.wait("taken: ");
    let error = second.try_call("increment", json!({})).expect_err("taken");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| message.contains("taken: ")),
        "{error}"
    );
    third.pipe.kill();
    world.backend().wait_alone();
    assert!(
        second.try_call("increment", json!({})).is_err(),
        "it does not come back"
    );
    assert_eq!(here(&world, &[]).count(), 4);
}

#[test]
fn another_command_under_the_name_is_refused() {
    let world = World::new(&crate::BINARIES);
    world.configure("claim_wait_ms = 50");
    let _daemon = world.daemon();
    let mut first = here(&world, &[]);
    assert_eq!(first.count(), 1);
    let former = world.backend().pid();
    first.pipe.close();
    first.pipe.wait();
    let mut other = tiny(&world);
    other.push("--other".into());
    let start = |options: &[&str]| {
        Client::new(world.front(&world.wrapping(&[&["--name", "page"], options].concat(), &other)))
    };
    let refused = start(&[]).initialize();
    let why = refused["error"]["message"]
        .as_str()
        .expect("an error")
        .to_owned();
    assert!(
        why.contains("another command line") && why.contains("tiny"),
        "{why}"
    );
    let mut taken = start(&["--take"]);
    taken.initialize();
    assert_eq!(taken.count(), 1);
    gone(former);
}

#[test]
fn it_ends_when_it_is_told_or_when_nobody_has_come_for_its_time() {
    let world = keeping(
        "named_linger_ms = 200\nlinger_ms = 600000\nclosed_linger_ms = 600000\nstop_wait_ms = 300",
    );
    let _daemon = world.daemon();
    let mut server = here(&world, &[]);
    assert_eq!(server.count(), 1);
    let told = world.sessiond(&["stop", "page"]).output().expect("it runs");
    assert_eq!(
        told.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&told.stderr)
    );
    assert_eq!(server.count(), 1, "it is started again when it is used");
    let backend = world.backend();
    server.pipe.close();
    server.pipe.wait();
    backend.ended();
    let mut server = here(&world, &[]);
    assert_eq!(server.count(), 1);
    server
        .pipe
        .errors
        .wait("the host had closed the previous server, and did not come back for it in time");
}

/// A front of the second host, and the line that says whose the name is.
#[track_caller]
fn own_of(world: &World, host: &Host) -> Client<Server> {
    let server: Client<Server> = Client::connected(host.front(&command(world, &[])));
    let line = host.log.wait("gets a server of its own");
    let named = "the server named `page` is in use by ";
    assert!(line.contains(named) && line.contains(" in /"), "{line}");
    server
}

/// As the second window of an editor.
#[test]
fn a_host_that_comes_while_another_has_the_name_gets_a_server_of_its_own() {
    let world = World::new(&crate::BINARIES);
    world.configure("claim_wait_ms = 50");
    let mut daemon = world.daemon();
    let mut first = here(&world, &[]);
    assert_eq!((first.count(), first.count()), (1, 2));
    let second = world.host();
    let mut own = own_of(&world, &second);
    assert_eq!(own.count(), 1);
    let status = world.sessiond(&["status"]).output().expect("it runs");
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("page (own)"), "{status}");
    // It is led to its own, also when the name is free, and over a restart of the daemon.
    let named = world
        .backends()
        .into_iter()
        .map(|known| known.pid())
        .collect::<Vec<_>>();
    assert_eq!(named.len(), 2);
    own.pipe.kill();
    first.pipe.close();
    first.pipe.wait();
    daemon.kill();
    daemon.start_again();
    let mut own: Client<Server> = Client::connected(second.front(&command(&world, &[])));
    assert_eq!(own.count(), 2);
    second
        .log
        .wait("so this host has a server of its own until it exits");
    // The name is another host's, whose state is as it was.
    let third = world.host();
    let mut named: Client<Server> = Client::connected(third.front(&command(&world, &[])));
    assert_eq!(named.count(), 3);
    // What is told by the name is the name's.
    let stopped = world.sessiond(&["stop", "page"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert_eq!(stopped.status.code(), Some(0), "{said}");
    assert_eq!((named.count(), own.count()), (1, 3));
}

/// Which of two fronts of one host had the name's can't be told once both have gone.
#[test]
fn the_own_server_of_a_host_that_has_the_name_ends_with_its_front() {
    let world = World::new(&crate::BINARIES);
    world.configure("claim_wait_ms = 50");
    let _daemon = world.daemon();
    let host = world.host();
    let start = || -> Client<Server> { Client::connected(host.front(&command(&world, &[]))) };
    let mut first = start();
    assert_eq!((first.count(), first.count()), (1, 2));
    let former = world.backend().pid();
    let mut own = own_of(&world, &host);
    assert_eq!(own.count(), 1);
    let backends = world.backends();
    let servers = backends.iter().map(mcp_sessiond_tests::Backend::pid);
    let server = servers
        .into_iter()
        .find(|pid| *pid != former)
        .expect("its own");
    own.pipe.kill();
    gone(server);
    let mut another = own_of(&world, &host);
    assert_eq!(another.count(), 1);
    another.pipe.kill();
    first.pipe.kill();
    until("both are gone", || {
        (world.stat("leases") == 0).then_some(())
    });
    assert_eq!(start().count(), 3);
}

#[test]
fn a_host_may_wait_for_a_name() {
    let world = World::new(&crate::BINARIES);
    world.configure("claim_wait_ms = 50");
    let _daemon = world.daemon();
    let mut first = here(&world, &[]);
    assert_eq!(first.count(), 1);
    let mut second = Client::new(world.front(&command(&world, &["--wait"])));
    let asked = second.begin_initialize("test");
    second.pipe.errors.wait("waiting for it");
    first.pipe.close();
    first.pipe.wait();
    second.initialized(asked);
    assert_eq!(second.count(), 2);
}
