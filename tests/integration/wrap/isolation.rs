//! Whose server it is: state never goes from one host to another, nor between servers that differ
//! in anything.

use std::collections::HashSet;

use mcp_sessiond_tests::{Client, Server};
use serde_json::json;

use super::{counter, keeping, tiny, wrapped};

#[test]
#[ignore = "needs node"]
fn two_hosts_with_the_same_command_never_share() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut hosts = [world.node_host(), world.node_host()];
    let command = wrapped(&world, &counter(&world));
    for round in 1..=3 {
        for (n, host) in hosts.iter_mut().enumerate() {
            host.connect("main", &command);
            for count in 1..=n as u64 + 1 {
                assert_eq!(host.count("main"), (round - 1) * (n as u64 + 1) + count);
            }
        }
        hosts
            .iter_mut()
            .for_each(|host| host.end("main", "SIGKILL"));
    }
    assert_eq!(world.backends().len(), 2);
}

#[test]
#[ignore = "needs node"]
fn a_host_s_servers_that_differ_in_one_variable_never_share() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut host = world.node_host();
    let command = wrapped(&world, &counter(&world));
    for round in 1..=3 {
        for (n, name) in ["a", "b"].into_iter().enumerate() {
            host.connect_with(name, &command, &json!({"env": {"DATABASE": name}}));
            let environment = host.call(name, "env", json!({}));
            assert!(
                environment.contains(&format!("\"DATABASE\":\"{name}\"")),
                "{environment}"
            );
            for count in 1..=n as u64 + 1 {
                assert_eq!(host.count(name), (round - 1) * (n as u64 + 1) + count);
            }
        }
        ["a", "b"].iter().for_each(|name| host.end(name, "SIGKILL"));
    }
    assert_eq!(world.backends().len(), 2);
}

/// They can't be told apart, so neither gets what the other has left.
#[test]
fn the_same_command_twice_at_once_never_shares() {
    let world = mcp_sessiond_tests::World::new(&crate::BINARIES);
    world.configure("claim_wait_ms = 50\n[backends]\nlinger_ms = 2000\n");
    let _daemon = world.daemon();
    let host = world.host();
    let command = wrapped(&world, &tiny(&world));
    let mut keepers = HashSet::new();
    for _ in 0..5 {
        let mut both: [Client<Server>; 2] =
            [(); 2].map(|()| Client::connected(host.front(&command)));
        for count in 1..=2 {
            for client in &mut both {
                assert_eq!(client.count(), count);
            }
        }
        keepers.extend(world.backends().into_iter().map(|backend| backend.keeper));
        both.iter_mut().for_each(|client| client.pipe.kill());
    }
    assert_eq!(keepers.len(), 10);
}

/// A label is what tells them apart then.
#[test]
fn labels_tell_the_same_command_apart() {
    let world = keeping("");
    let _daemon = world.daemon();
    let host = world.host();
    let start = |label: &str| {
        let command = world.wrapping(&["--instance", label], &tiny(&world));
        Client::connected(host.front(&command))
    };
    for round in 1..=3 {
        let mut both = ["a", "b"].map(start);
        assert_eq!(both[0].count(), round);
        assert_eq!(
            (both[1].count(), both[1].count()),
            (2 * round - 1, 2 * round)
        );
        both.iter_mut().for_each(|client| client.pipe.kill());
    }
}
