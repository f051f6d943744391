//! Requests that are refused, and sessions that end.

use mcp_sessiond_tests::Reply;
use serde_json::{Value, json};

use super::{VERSION, begun};
use crate::world;

/// Asserts that a request was refused. Returns the code of JSON-RPC.
#[track_caller]
fn refused(mut reply: Reply, status: u16) -> Value {
    reply.must_be(status);
    reply.message()["error"]["code"].clone()
}

const VISIT: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"visit","arguments":{}}}"#;

#[test]
fn requests_that_a_page_of_another_host_makes_are_not_let_in() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = world.durable_server(&[]);
    let mut client = begun(&server);
    let evil = ("Host", "evil.example");
    for again in [false, true] {
        if again {
            server.kill();
            server.start_again();
        }
        client.ask("POST", &[evil], VISIT).must_be(403);
        client.ask("GET", &[evil], "").must_be(403);
        client.ask("DELETE", &[evil], "").must_be(403);
    }
    assert_eq!(client.text("visit", &json!({})), "1");
    server.client().begin(VERSION, &[evil]).must_be(403);
}

#[test]
fn a_session_that_is_deleted_has_ended_everywhere() {
    let world = world("");
    let _daemon = world.daemon();
    let (one, other) = (world.durable_server(&[]), world.durable_server(&[]));
    let mut client = begun(&one);
    client.text("visit", &json!({}));
    let mut elsewhere = client.clone();
    elsewhere.at.clone_from(&other.at);
    elsewhere.text("visit", &json!({}));
    let (mut here, mut there) = (client.listen(), elsewhere.listen());
    here.event();
    there.event();
    let mut deleted = client.ask("DELETE", &[], "");
    deleted.must_be(202);
    deleted.text();
    assert_eq!((here.event(), there.event()), (None, None));
    for client in [&client, &elsewhere] {
        assert_eq!(refused(client.ask("POST", &[], VISIT), 404), -32001);
        assert_eq!(refused(client.listen(), 404), -32001);
        assert_eq!(refused(client.ask("DELETE", &[], ""), 404), -32001);
    }
}

#[test]
fn a_session_whose_initialize_was_refused_is_not_there() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.durable_server(&[]);
    server
        .client()
        .begin(VERSION, &[("Accept", "text/plain")])
        .must_be(406);
    let listed = world
        .peer()
        .call("list_own_sessions", json!({"service": "durable"}))
        .expect("listed");
    let listed = listed.as_array().expect("a list");
    assert!(
        listed
            .iter()
            .all(|session| session["status"]["is"] == "terminated"),
        "{listed:?}"
    );
}

#[test]
fn a_server_that_panics_when_it_is_made_is_made_again_for_the_next_request() {
    let world = world("");
    let _daemon = world.daemon();
    let broken = world.root().join("broken");
    let mut server =
        world.durable_server(&[("DURABLE_SERVER_BROKEN", broken.to_str().expect("UTF-8"))]);
    let mut client = begun(&server);
    assert_eq!(client.text("visit", &json!({})), "1");
    server.kill();
    server.start_again();
    std::fs::write(&broken, "").expect("it is written");
    assert_eq!(refused(client.call("visit", &json!({})), 500), -32000);
    std::fs::remove_file(&broken).expect("it was there");
    assert_eq!(client.text("visit", &json!({})), "2");
}
