//! Clients of MCP 2026-07-28 that ask first what a server speaks, in front of servers that do not
//! speak that version: what a server does with the question is found out once.

use mcp_sessiond_tests::{Daemon, Serve, World};
use serde_json::json;

use crate::probes::starts;

fn serving(temper: &str) -> (World, Daemon, Serve) {
    super::serving("", |world| {
        let root = world.root().to_str().expect("UTF-8");
        [world.binaries.tempers, temper, root]
            .map(str::to_owned)
            .to_vec()
    })
}

/// A client of 2026-07-28 connects. It is told to go on with `initialize`.
fn is_led_on(serve: &Serve) {
    let mut client = serve.client();
    let mut reply = client.modern("server/discover", &json!({}));
    reply.must_be(404);
    assert_eq!(reply.message()["error"]["code"], -32601);
}

/// It does so.
fn goes_on(serve: &Serve) {
    let mut client = serve.client();
    client.initialize("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
}

/// The first of its clients may have to wait for it; no later one starts a server in vain.
fn assert_asked_once(temper: &str) {
    let (world, mut daemon, mut serve) = serving(temper);
    is_led_on(&serve);
    let asked = starts(&world);
    assert!(asked > 0, "{temper}");
    goes_on(&serve);
    is_led_on(&serve);
    assert_eq!(starts(&world), asked + 1, "{temper}: a client's own server");
    serve.kill();
    serve.start_again();
    is_led_on(&serve);
    // What a server does is put on record in the background; a daemon that stops has done so.
    daemon.stop();
    daemon.start_again();
    daemon.kill();
    daemon.start_again();
    serve.kill();
    serve.start_again();
    is_led_on(&serve);
    assert_eq!(starts(&world), asked + 1, "{temper}: it is known");
    goes_on(&serve);
    assert_eq!(starts(&world), asked + 2, "{temper}: a client's own server");
}

#[test]
fn a_server_that_refuses_the_question_gets_it_once() {
    assert_asked_once("refuses");
}

#[test]
fn a_server_that_exits_on_the_question_gets_it_once() {
    assert_asked_once("exits");
}

#[test]
fn a_server_that_is_silent_before_initialize_gets_the_question_once() {
    assert_asked_once("mute");
}

/// What is known may be wrong, and a client that speaks 2026-07-28 alone gets no further by it.
#[test]
fn after_clients_that_never_go_further_the_server_is_asked_once_more() {
    let (world, _daemon, mut serve) = serving("refuses");
    for starts_by_then in [1, 1, 1, 2] {
        is_led_on(&serve);
        assert_eq!(starts(&world), starts_by_then);
        serve.kill();
        serve.start_again();
    }
}
