//! The official clients, and the example.

use mcp_sessiond_tests::HttpClient;
use serde_json::{Value, json};

use super::begun;
use crate::{fixture, world};

#[test]
fn the_official_client_that_begins_with_the_newest_mcp_falls_back_to_a_session() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.durable_server(&[]);
    let mut command = world.command("node");
    let said =
        command.arg(fixture("node/negotiate.mjs")).args([&server.url(), "visit"]).output().expect("node");
    let said: Value =
        serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    assert_eq!((&said["era"], &said["text"]), (&json!("legacy"), &json!("1")), "{said}");
}

/// A kill at every gap of this example, as its page tells it.
#[test]
fn the_example_counts_on_after_a_kill() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = world.own_server(world.binaries.durable_example, &[]);
    let mut client = begun(&server);
    let visit = |client: &mut HttpClient| client.text("visit", &json!({}));
    assert_eq!((visit(&mut client), visit(&mut client)), ("visit 1".into(), "visit 2".into()));
    server.kill();
    server.start_again();
    assert_eq!(visit(&mut client), "visit 3");
    let mut call = client.call("steps", &json!({"n": 600}));
    let first = call.said();
    server.kill();
    server.start_again();
    let mut rest = client.resume(&first.id.expect("an id"));
    assert_eq!(rest.answer()["error"]["data"]["outcome"], "unknown");
    assert_eq!(visit(&mut client), "visit 4");
}
