//! Everything is killed in turn, with calls under way at every server.

use std::fs;

use mcp_sessiond_tests::{Client, Daemon, Front, World};
use serde_json::json;

use super::{able, backend, changed, connect, count, modern, tools, write_down};
use crate::world;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three servers, one of them of the later era, each of which has counted to one, and by which tool of
/// theirs they count.
fn three() -> (World, Daemon, Client<Front>, [String; 3]) {
    let world = world("");
    let daemon = world.daemon();
    let servers = [able(&world), modern(&world), able(&world)];
    let servers: Vec<_> = NAMES.into_iter().zip(servers).collect();
    write_down(&world, &servers);
    let mut client = connect(&world);
    let mut listed = tools(&mut client);
    // On a busy machine some come later.
    while listed
        .iter()
        .filter(|name| name.ends_with("increment"))
        .count()
        < NAMES.len()
    {
        changed(&mut client);
        listed = tools(&mut client);
    }
    let own = |name: &str| {
        let prefixed = format!("{name}_increment");
        if listed.contains(&prefixed) {
            prefixed
        } else {
            "increment".to_owned()
        }
    };
    let counting = NAMES.map(own);
    for tool in &counting {
        assert_eq!(count(&mut client, tool), 1);
    }
    (world, daemon, client, counting)
}

/// The tool that waits at a gate, of the server that counts by this one.
fn slow(counting: &str) -> String {
    counting.replace("increment", "slow")
}

/// A call under way at each server. Returns their ids.
fn under_way(world: &World, client: &mut Client<Front>, counting: &[String; 3]) -> Vec<u64> {
    let begun = counting.iter().zip(NAMES).map(|(tool, name)| {
        let gate = world.root().join(format!("gate-{name}"));
        let gate = gate.to_str().expect("UTF-8");
        let id = client.begin(&slow(tool), json!({"gate": gate}));
        client.said(|message| message["params"]["data"] == format!("begun {gate}"));
        id
    });
    begun.collect()
}

fn open_all(world: &World) {
    for name in NAMES {
        fs::write(world.root().join(format!("gate-{name}")), "").expect("a gate");
    }
}

#[test]
fn the_front() {
    let (world, _daemon, mut client, counting) = three();
    let pids = NAMES.map(|name| backend(&world, name).pid());
    under_way(&world, &mut client, &counting);
    client.pipe.kill();
    for name in NAMES {
        backend(&world, name).wait_alone();
    }
    open_all(&world);
    let mut client = connect(&world);
    assert_eq!(NAMES.map(|name| backend(&world, name).pid()), pids);
    for tool in &counting {
        // What was under way went on.
        let now = count(&mut client, tool);
        assert!((2..=3).contains(&now), "{tool}: {now}");
    }
}

#[test]
fn the_daemon() {
    let (world, mut daemon, mut client, counting) = three();
    let pids = NAMES.map(|name| backend(&world, name).pid());
    let ids = under_way(&world, &mut client, &counting);
    daemon.kill();
    open_all(&world);
    for id in ids {
        assert_eq!(client.text(id).expect("an answer"), "2");
    }
    daemon.start_again();
    for tool in &counting {
        assert_eq!(count(&mut client, tool), 3);
    }
    assert_eq!(NAMES.map(|name| backend(&world, name).pid()), pids);
}

#[test]
fn each_keeper() {
    let (world, _daemon, mut client, counting) = three();
    for (at, name) in NAMES.into_iter().enumerate() {
        let others: Vec<&String> = counting
            .iter()
            .filter(|tool| **tool != counting[at])
            .collect();
        let former = others
            .iter()
            .map(|tool| count(&mut client, tool))
            .collect::<Vec<_>>();
        let gate = world.root().join(format!("gate-{name}"));
        let gate = gate.to_str().expect("UTF-8").to_owned();
        let lost = client.begin(&slow(&counting[at]), json!({"gate": gate}));
        client.said(|message| message["params"]["data"] == format!("begun {gate}"));
        backend(&world, name).kill_keeper();
        let error = client.text(lost).expect_err("lost");
        assert_eq!(
            (&error["code"], &error["data"]["outcome"]),
            (&json!(-32000), &json!("unknown"))
        );
        // A fresh one, and the others are as they were.
        assert_eq!(count(&mut client, &counting[at]), 1);
        let now = others
            .iter()
            .map(|tool| count(&mut client, tool))
            .collect::<Vec<_>>();
        assert_eq!(
            now,
            former.iter().map(|count| count + 1).collect::<Vec<_>>()
        );
    }
}

#[test]
fn one_is_restarted_or_stopped_by_its_name() {
    let (world, _daemon, mut client, counting) = three();
    let pids = NAMES.map(|name| backend(&world, name).pid());
    for (verb, name) in [("restart", "a"), ("stop", "b")] {
        let output = world.sessiond(&[verb, name]).output().expect("it runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    // A server that was stopped stays so until it is used.
    assert_eq!(
        counting.clone().map(|tool| count(&mut client, &tool)),
        [1, 1, 2]
    );
    let now = NAMES.map(|name| backend(&world, name).pid());
    assert!(
        now[0] != pids[0] && now[1] != pids[1] && now[2] == pids[2],
        "{pids:?} {now:?}"
    );
}
