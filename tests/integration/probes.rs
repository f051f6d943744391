//! Hosts that begin with `server/discover`, and servers of every temper, by every way to a server.

use std::fs;

use mcp_sessiond_tests::{Client, Front, World};
use serde_json::{Value, json};

use crate::world;

/// A way to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Plain,
    Lazy,
    Named,
    AtName,
    Shared,
}

const DOORS: [Door; 5] = [
    Door::Plain,
    Door::Lazy,
    Door::Named,
    Door::AtName,
    Door::Shared,
];

const TEMPERS: [&str; 6] = ["answers", "sticks", "refuses", "late", "exits", "mute"];

impl Door {
    /// The command line of a server of this temper behind it.
    fn wrapping(self, world: &World, temper: &str) -> Vec<String> {
        let root = world.root().to_str().expect("UTF-8").to_owned();
        let words = [world.binaries.tempers, temper, &root].map(str::to_owned);
        let entry =
            json!({"command": words[0], "args": words[1..], "shared": self == Self::Shared});
        let file = json!({"mcpServers": {"t": entry}});
        fs::write(world.root().join("servers.json"), file.to_string()).expect("servers.json");
        let options: &[&str] = match self {
            Self::Lazy => &["--lazy"],
            Self::Named => &["--name", "n"],
            Self::Plain | Self::AtName | Self::Shared => &[],
        };
        match self {
            Self::AtName | Self::Shared => world.wrapping(options, &["@t".to_owned()]),
            _ => world.wrapping(options, &words),
        }
    }
}

/// How often a server was started.
pub(crate) fn starts(world: &World) -> usize {
    let ledger = fs::read_to_string(world.root().join("ledger")).unwrap_or_default();
    ledger
        .lines()
        .filter(|line| line.starts_with("start "))
        .count()
}

fn params() -> Value {
    json!({"_meta": {"io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}}})
}

/// The host probes. Whether the server speaks the new era; a host does not wait for ever.
fn probes(client: &mut Client<Front>, temper: &str, is_known: bool) -> bool {
    let id = client.request("server/discover", params());
    if matches!(temper, "late" | "mute") && !is_known {
        return false;
    }
    client.answer(id).get("result").is_some()
}

/// The host goes on in the era that it has found, and counts.
fn goes_on(client: &mut Client<Front>, is_modern: bool) -> u64 {
    if !is_modern {
        client.initialize();
        return client.count();
    }
    // Each request of this era says who asks.
    let mut call = params();
    call["name"] = json!("increment");
    let id = client.request("tools/call", call);
    client.text(id).expect("a count").parse().expect("a number")
}

/// Nothing is told to have been resumed where the server is a fresh one.
fn check_errors(client: &mut Client<Front>, count: u64) {
    let line = "resumed the server";
    if count > 1 {
        client.pipe.errors.wait(line);
    } else {
        let text = client.pipe.errors.text();
        assert!(!text.contains("resumed"), "{text}");
        assert!(!text.contains("lost"), "{text}");
    }
}

/// How a host probes.
#[derive(Clone, Copy)]
enum Probing {
    /// On the connection that it goes on with.
    InPlace,
    /// On one of its own, which it closes.
    BySibling,
}

/// Four connections, each of which ends by SIGKILL, through each door to a server of each temper.
fn assert_one_server(probing: Probing) {
    for (door, temper) in DOORS
        .into_iter()
        .flat_map(|door| TEMPERS.map(|temper| (door, temper)))
    {
        let world = world("");
        let _daemon = world.daemon();
        let command = door.wrapping(&world, temper);
        for count in 1..=4 {
            let mut client = Client::new(world.front(&command));
            let is_modern = probes(&mut client, temper, door == Door::Shared || count > 1);
            if let Probing::BySibling = probing {
                client.pipe.close();
                assert!(client.pipe.wait().success());
                let told = client.pipe.errors.text();
                assert!(!told.contains("resumed"), "nobody reads that: {told}");
                client = Client::new(world.front(&command));
            }
            let counted = goes_on(&mut client, is_modern);
            assert_eq!(counted, count, "{door:?} {temper}");
            if door != Door::Shared {
                check_errors(&mut client, count);
            }
            client.pipe.kill();
        }
        let probed_to_death = temper == "exits" && door != Door::Shared;
        assert_eq!(
            starts(&world),
            1 + usize::from(probed_to_death),
            "{door:?} {temper}"
        );
    }
}

#[test]
fn a_host_that_probes_in_place_keeps_a_server_of_any_temper() {
    assert_one_server(Probing::InPlace);
}

#[test]
fn a_host_that_probes_by_a_sibling_keeps_a_server_of_any_temper() {
    assert_one_server(Probing::BySibling);
}

/// It may speak MCP 2026-07-28 alone. What is known of the server is forgotten, and the kept one is
/// left alone.
#[test]
fn a_host_that_never_goes_further_gets_a_server_of_its_own() {
    let world = world("");
    let _daemon = world.daemon();
    let command = Door::Plain.wrapping(&world, "refuses");
    let mut client = Client::new(world.front(&command));
    assert!(!probes(&mut client, "refuses", false));
    assert_eq!(goes_on(&mut client, false), 1);
    client.pipe.kill();
    for _ in 0..2 {
        let mut refused = Client::new(world.front(&command));
        assert!(!probes(&mut refused, "refuses", true));
        refused.pipe.close();
        refused.pipe.wait();
    }
    assert_eq!(starts(&world), 1);
    let mut own = Client::new(world.front(&command));
    assert!(!probes(&mut own, "refuses", true));
    own.pipe.errors.wait("three times in a row");
    assert_eq!(starts(&world), 2);
    own.pipe.close();
    own.pipe.wait();
    let mut client = Client::new(world.front(&command));
    assert!(!probes(&mut client, "refuses", true));
    assert_eq!(goes_on(&mut client, false), 2, "the kept one");
}
