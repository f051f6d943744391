//! The official client, which tries MCP 2026-07-28 first and falls back to `initialize`, in front
//! of servers of either era.

use mcp_sessiond_tests::World;
use serde_json::{Value, json};

use super::serving;
use crate::fixture;
use crate::wrap::counter;

/// What the client has found out, and what the tool has answered.
fn negotiated(server: impl FnOnce(&World) -> Vec<String>) -> Value {
    let (world, _daemon, serve) = serving("", server);
    let mut client = world.command("node");
    let output = client
        .args([
            fixture("node/negotiate.mjs"),
            serve.url(),
            "increment".into(),
        ])
        .output();
    let output = output.expect("node");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
#[ignore = "needs node"]
fn it_falls_back_in_front_of_a_server_of_the_older_era() {
    let found = negotiated(counter);
    assert_eq!(
        found,
        json!({"era": "legacy", "version": "2025-11-25", "text": "1"})
    );
}

#[test]
#[ignore = "needs node"]
fn it_stays_with_2026_in_front_of_a_server_that_speaks_it() {
    let found = negotiated(|_| vec!["node".into(), fixture("node/eras.mjs")]);
    assert_eq!(
        found,
        json!({"era": "modern", "version": "2026-07-28", "text": "1"})
    );
}
