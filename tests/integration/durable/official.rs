//! The official clients, and the example.

use serde_json::{Value, json};

use crate::{BINARIES, example, fixture, world};

#[test]
#[ignore = "needs node"]
fn the_official_client_that_begins_with_the_newest_mcp_falls_back_to_a_session() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.durable_server(&[]);
    let mut command = world.command("node");
    let said = command
        .arg(fixture("node/negotiate.mjs"))
        .args([&server.url(), "visit"])
        .output()
        .expect("node");
    let said: Value =
        serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    assert_eq!(
        (&said["era"], &said["text"]),
        (&json!("legacy"), &json!("1")),
        "{said}"
    );
}

/// The example, by the command that its page names.
#[test]
#[ignore = "needs curl"]
fn the_example_counts_on_after_a_kill() {
    let lines = "visit 1\nvisit 2\nkilled in the middle of a call\nvisit 3\nthe outcome of this call is unknown\n";
    assert_eq!(
        example("durable_server.sh", BINARIES.durable_example),
        lines
    );
}
