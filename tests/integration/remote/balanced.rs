//! Servers of several nodes: behind a balancer that knows by a cookie which of them has a session, and
//! behind one that doesn't. And what else may mean that a session is gone.

use std::fs;

use mcp_sessiond_tests::{Client, Front};
use serde_json::{Value, json};

use super::{front, pinged};
use crate::world;

#[test]
#[ignore = "needs python3"]
fn a_sessions_cookie_goes_with_it_also_into_the_next_process() {
    let world = world("");
    let _daemon = world.daemon();
    let server = pinged(&world);
    fs::write(world.root().join("sticky"), "").expect("a file");
    fs::write(world.root().join("ping"), "result").expect("a file");
    let session = || {
        let mut client = front(&world, &server);
        client.initialize();
        let within: Vec<Value> = (0..5)
            .map(|_| {
                let id = client.request("tools/list", json!({}));
                client.answer(id)["result"]["within"].take()
            })
            .collect();
        client.pipe.kill();
        within
    };
    let first = session();
    assert!(first[0].is_string(), "{first:?}");
    assert!(first.iter().all(|within| *within == first[0]), "{first:?}");
    assert_eq!(session(), first, "the next front goes on");
    // Two clients' sessions are two, and so are their cookies.
    let serve = world.serve(&["--name", "sticky", "--upstream", &server.url], &[]);
    let mut clients = [serve.connected("2025-11-25"), serve.connected("2025-11-25")];
    let mut within = || -> [Value; 2] {
        clients
            .each_mut()
            .map(|client| client.call("x", &json!({})).answer()["result"]["within"].take())
    };
    let first = within();
    assert!(first[0] != first[1] && first[0].is_string(), "{first:?}");
    assert!((0..4).all(|_| within() == first));
}

const NO_SESSION: &str =
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
const INVALID: &str =
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}"#;
const OWN: &str =
    r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"no session of this name"}}"#;

/// A node that does not know a session has not begun the call, so it is made once more, whoever has
/// answered our ping.
#[test]
#[ignore = "needs python3"]
fn a_call_that_another_node_refuses_is_made_once_more() {
    let world = world("");
    let _daemon = world.daemon();
    let server = pinged(&world);
    fs::write(world.root().join("ping"), "result").expect("a file");
    let refused = format!("404 {NO_SESSION}");
    fs::write(world.root().join("nodes"), &refused).expect("a file");
    let within = |client: &mut Client<Front>| {
        let id = client.request("tools/list", json!({}));
        client.answer(id)["result"]["within"].take()
    };
    let mut client = front(&world, &server);
    client.initialize();
    for _ in 0..3 {
        assert_eq!(within(&mut client), "session-1");
    }
    // Where both nodes say so, there is no other way than a new session.
    fs::remove_file(world.root().join("nodes")).expect("it was there");
    fs::write(world.root().join("refused"), &refused).expect("a file");
    assert_eq!(within(&mut client), "session-2");
    client.pipe.errors.wait("the server has several nodes");
}

/// What says in another way that the session is gone begins the next one, if the ping says so, too;
/// and the call, which may have begun, is not made again.
#[test]
#[ignore = "needs python3"]
fn other_refusals_are_doubted_where_the_ping_is_refused_too() {
    for (refused, is_gone) in [
        (format!("400 {INVALID}"), true),
        (format!("403 {NO_SESSION}"), true),
        (format!("500 {NO_SESSION}"), true),
        (format!("200 {INVALID}"), true),
        (format!("404 {OWN}"), false),
        (format!("500 {OWN}"), false),
        (format!("403 {INVALID}"), false),
    ] {
        let world = world("");
        let _daemon = world.daemon();
        let server = pinged(&world);
        let ping = if is_gone { "lost-404" } else { "result" };
        fs::write(world.root().join("ping"), ping).expect("a file");
        fs::write(world.root().join("refused"), &refused).expect("a file");
        let mut client = front(&world, &server);
        client.initialize();
        let id = client.request("tools/list", json!({}));
        let answer = client.answer(id);
        assert!(answer["error"].is_object(), "{refused}: {answer}");
        let id = client.request("tools/list", json!({}));
        let next = client.answer(id);
        if is_gone {
            assert_eq!(next["result"]["within"], "session-2", "{refused}: {next}");
        } else {
            assert!(next["error"].is_object(), "{refused}: {next}");
        }
    }
}
