//! `serve`, its server and the daemon are killed: clients keep their sessions, and every call is
//! answered.

use mcp_sessiond_tests::{HttpClient, signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::serving;
use crate::wrap::{counter, gate, open, tiny};

fn begin_slow(client: &mut HttpClient, gate: &str) -> String {
    let mut call = client.call("slow", &json!({"gate": gate}));
    call.said().id.expect("an id")
}

#[test]
fn a_call_goes_on_when_serve_is_killed() {
    let (world, _daemon, mut serve) = serving("", counter);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    let gated = gate(&world, "gate");
    let event = begin_slow(&mut client, &gated);
    let (id, standalone) = (
        client.last,
        client.listen().event().expect("primed").id.expect("an id"),
    );
    serve.kill();
    serve.start_again();
    let mut back = client.resume(&event);
    open(&gated);
    let answered = back.said();
    let answer = answered.message();
    assert_eq!(
        (&answer["id"], &answer["result"]["content"][0]["text"]),
        (&json!(id), &json!("2")),
        "{answer}"
    );
    assert_eq!(back.event(), None, "the stream is complete");
    assert_eq!(
        client.resume(answered.id.as_deref().expect("an id")).status,
        204
    );
    assert_eq!(client.text("increment", &json!({})), "3", "the same server");
    let gate = gate(&world, "later");
    let mut stream = client.resume(&standalone);
    assert_eq!(client.text("notify", &json!({"n": 1, "gate": gate})), "1");
    open(&gate);
    assert_eq!(
        stream.said().message()["params"]["data"],
        1,
        "the standalone stream goes on"
    );
}

/// Codex speaks 2025-06-18. Most servers say nothing before they answer.
#[test]
fn a_call_of_an_older_client_that_has_heard_nothing_goes_on_when_serve_is_killed() {
    let (world, _daemon, mut serve) = serving("", counter);
    let mut client = serve.connected("2025-06-18");
    let gate = gate(&world, "gate");
    let first = client
        .call("steps", &json!({"n": 1, "gates": {"1": gate}}))
        .event()
        .expect("an event");
    assert_eq!(first.data, "", "it has heard nothing");
    serve.kill();
    serve.start_again();
    let mut back = client.resume(first.id.as_deref().expect("an id"));
    open(&gate);
    assert_eq!(back.answer()["id"], client.last);
}

#[test]
fn a_client_that_only_listens_hears_the_server_after_serve_was_killed() {
    let (world, _daemon, mut serve) = serving("", counter);
    let mut client = serve.connected("2025-11-25");
    let gate = gate(&world, "gate");
    assert_eq!(client.text("notify", &json!({"n": 1, "gate": gate})), "1");
    let standalone = client.listen().event().expect("primed").id.expect("an id");
    serve.kill();
    serve.start_again();
    let mut stream = client.resume(&standalone);
    open(&gate);
    assert_eq!(stream.said().message()["params"]["data"], 1);
}

/// `serve` and the server are killed, so nothing continues the call.
#[test]
fn a_call_whose_server_is_killed_has_an_unknown_outcome() {
    let (world, _daemon, mut serve) = serving("", counter);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    let event = begin_slow(&mut client, &gate(&world, "gate"));
    let server = world.backend();
    serve.kill();
    server.kill_keeper();
    serve.start_again();
    let mut back = client.resume(&event);
    let answer = back.answer();
    assert_eq!(answer["error"]["data"]["outcome"], "unknown", "{answer}");
    assert_eq!(back.event(), None, "the stream is complete");
    assert_eq!(
        client.text("increment", &json!({})),
        "1",
        "a new server, which got the recorded handshake"
    );
}

#[test]
fn while_the_daemon_is_away_nothing_is_lost_and_requests_are_held_for_a_while() {
    let (world, daemon, serve) = serving("http.hold_ms = 300", counter);
    let mut client = serve.connected("2025-11-25");
    let gate = gate(&world, "gate");
    let mut slow = client.call("slow", &json!({"gate": gate}));
    slow.said();
    // Stopped, not killed: the first client that misses a killed daemon would start it again.
    daemon.signal(Signal::SIGSTOP);
    let mut refused = client.call("increment", &json!({}));
    refused.must_be(503);
    assert!(refused.header("retry-after").is_some());
    open(&gate);
    daemon.signal(Signal::SIGCONT);
    assert_eq!(
        slow.answer()["result"]["content"][0]["text"],
        "1",
        "the answer has waited for the daemon"
    );
    assert_eq!(
        client.text("increment", &json!({})),
        "2",
        "the refused call was not carried out"
    );
}

/// It is waited for, and whoever reads the standard error of `serve` is told.
#[test]
fn a_keeper_that_is_stopped_is_waited_for() {
    for is_killed in [false, true] {
        let (world, _daemon, mut serve) = serving("", tiny);
        let mut client = serve.connected("2025-11-25");
        assert_eq!(client.text("increment", &json!({})), "1");
        let keeper = world.backend().keeper;
        signal(keeper, Signal::SIGSTOP);
        if is_killed {
            serve.kill();
            serve.start_again();
        }
        let calling = std::thread::spawn(move || client.text("increment", &json!({})));
        serve
            .errors
            .wait(&format!("(pid {keeper}) is stopped; waiting for it"));
        signal(keeper, Signal::SIGCONT);
        assert_eq!(calling.join().expect("answered"), "2");
        assert_eq!(world.backend().keeper, keeper);
    }
}

#[test]
fn a_request_is_held_until_the_daemon_is_back() {
    let (_world, mut daemon, serve) = serving("http.hold_ms = 30000", tiny);
    let mut client = serve.connected("2025-11-25");
    daemon.kill();
    let calling = std::thread::spawn(move || client.text("increment", &json!({})));
    daemon.start_again();
    assert_eq!(calling.join().expect("answered"), "1");
}

#[test]
#[ignore = "needs node"]
fn the_official_client_keeps_its_session_when_serve_is_killed() {
    let (world, _daemon, mut serve) = serving("http.retry_ms = 50", counter);
    let mut host = world.node_host();
    host.order(json!({"do": "connect", "as": "main", "url": serve.url()}));
    assert_eq!(host.count("main"), 1);
    let gate = gate(&world, "gate");
    let slow = host.begin_slow("main", &gate);
    serve.kill();
    serve.start_again();
    open(&gate);
    host.answer(slow).expect("the call goes on");
    assert_eq!(
        host.count("main"),
        3,
        "the same server in the same session, without a new handshake"
    );
    let sessions = world
        .peer()
        .call("list_own_sessions", json!({"service": "serve.test"}))
        .expect("a list");
    assert_eq!(sessions.as_array().map(Vec::len), Some(1));
}

/// The keeper asks the daemon whether the name is served, by a later lease than the one that it
/// knows.
#[test]
fn a_server_waits_for_its_client_for_as_long_as_the_name_is_served() {
    let (world, _daemon, mut serve) = serving("http.linger_ms = 2000", counter);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    serve.kill();
    serve.start_again();
    let asked = || world.stat("refused_stale_epoch_total") > 0;
    // The daemon tells nobody of what it has refused.
    until("the linger time is over", || asked().then_some(()));
    assert_eq!(client.text("increment", &json!({})), "2", "the same server");
}

#[test]
fn a_session_that_is_idle_ends_with_its_server_and_one_that_is_read_does_not() {
    let (world, _daemon, serve) = serving("http.idle_ms = 3000\nhttp.sessions = 3", counter);
    let mut idle = serve.connected("2025-11-25");
    let mut dead = serve.connected("2025-11-25");
    dead.call("die", &json!({})).answer();
    assert_eq!(idle.text("increment", &json!({})), "1");
    let read = serve.connected("2025-11-25");
    let mut stream = read.listen();
    stream.event().expect("primed");
    world.wait_backends(1);
    assert_eq!(
        idle.post(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}))
            .status,
        404
    );
    assert_eq!(
        read.post(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}))
            .status,
        200
    );
    for _ in 0..2 {
        // `serve` tells nobody that it has let go of a session.
        until(
            "there is room for another session, also in place of the one whose server had died",
            || (serve.client().begin("2025-11-25", &[]).status == 200).then_some(()),
        );
    }
}
