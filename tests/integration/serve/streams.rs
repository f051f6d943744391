//! Streams: to which one a message goes, and that a client that resumes one gets the rest, once and
//! in order.

use mcp_sessiond_tests::{HttpClient, Raw, Reply, Serve, World, until};
use serde_json::{Value, json};

use crate::wrap::{counter, gate, open};

pub(super) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"VERSION","capabilities":{},"serverInfo":{"name":"raw","version":"1"}}}"#;

/// A server that says what the test tells it, and a client of this version of MCP.
pub(super) fn raw(
    configuration: &str,
    version: &str,
) -> (World, mcp_sessiond_tests::Daemon, Serve, Raw, HttpClient) {
    let world = crate::world(configuration);
    let daemon = world.daemon();
    let raw = world.raw("server");
    let serve = world.serve(&["--name", "test"], &raw.command);
    let mut client = serve.client();
    client.initialize_saying(version, &INITIALIZED.replace("VERSION", version));
    (world, daemon, serve, raw, client)
}

pub(super) fn notification(data: &str) -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": data}})
        .to_string()
}

fn answer(nth: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":$ID{nth},"result":{{}}}}"#)
}

fn progress(nth: u32, done: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":$TOKEN{nth},"progress":{done}}}}}"#
    )
}

/// A call that the server answers when the test says so.
pub(super) fn hold(client: &mut HttpClient, raw: &Raw) -> Reply {
    let holds = || {
        raw.heard()
            .iter()
            .filter(|line| line.windows(6).any(|word| word == b"\"hold\""))
            .count()
    };
    let before = holds();
    let reply = client.request(
        "hold",
        &json!({"_meta": {"progressToken": format!("t{}", client.last + 1)}}),
    );
    raw.until("the server hears it", || (holds() > before).then_some(()));
    reply
}

pub(super) fn data(reply: &mut Reply) -> Value {
    reply.said().message()["params"]["data"].clone()
}

#[test]
fn with_two_calls_each_message_goes_where_it_belongs() {
    let (_world, _daemon, _serve, raw, mut client) = raw("", "2025-11-25");
    let (mut one, mut two) = (hold(&mut client, &raw), hold(&mut client, &raw));
    raw.say(&progress(0, 1));
    raw.say(&progress(1, 2));
    raw.say(&notification("to the newest"));
    assert_eq!(one.said().message()["params"]["progress"], 1);
    assert_eq!(two.said().message()["params"]["progress"], 2);
    assert_eq!(data(&mut two), "to the newest");
    let mut standalone = client.listen();
    standalone.event().expect("primed");
    raw.say(&notification("to the standalone stream"));
    assert_eq!(data(&mut standalone), "to the standalone stream");
    raw.say(&answer(1));
    assert_eq!(two.answer()["id"], client.last);
    raw.say(&notification("to the only call"));
    assert_eq!(data(&mut one), "to the only call");
    raw.say(&answer(0));
    assert_eq!(one.answer()["id"], client.last - 1);
    raw.say(&notification("to nobody else"));
    assert_eq!(data(&mut standalone), "to nobody else");
}

#[test]
fn the_messages_of_a_call_wait_for_its_reader_and_come_once_and_in_order() {
    let (_world, _daemon, _serve, raw, mut client) = raw("", "2025-11-25");
    let mut call = hold(&mut client, &raw);
    let mut standalone = client.listen();
    standalone.event().expect("primed");
    raw.say(&progress(0, 1));
    let first = call.said();
    call.hang_up();
    for n in 2..=4 {
        raw.say(&progress(0, n));
    }
    raw.say(&notification("waits, too"));
    let mut back = client.resume(first.id.as_deref().expect("an id"));
    let primed = back.event().expect("an event");
    assert_eq!(
        (primed.id, primed.data.as_str()),
        (first.id, ""),
        "it can be resumed here again"
    );
    for n in 2..=4 {
        assert_eq!(back.said().message()["params"]["progress"], n);
    }
    assert_eq!(data(&mut back), "waits, too");
    raw.say(&progress(0, 5));
    let last = back.said();
    assert_eq!(
        last.message()["params"]["progress"],
        5,
        "missed and new messages come on one stream"
    );
    raw.say(&answer(0));
    assert_eq!(back.answer()["id"], client.last);
    let mut again = client.resume(last.id.as_deref().expect("an id"));
    let answered = again.said();
    assert_eq!(
        (answered.message()["id"].clone(), again.event()),
        (client.last.into(), None)
    );
    assert_eq!(
        client.resume(answered.id.as_deref().expect("an id")).status,
        204,
        "the stream is complete"
    );
    raw.say(&notification("the standalone stream had none of it"));
    assert_eq!(
        data(&mut standalone),
        "the standalone stream had none of it"
    );
}

#[test]
fn a_stream_that_can_not_be_resumed_is_redirected_except_for_its_answer() {
    let (_world, _daemon, _serve, raw, mut client) = raw("", "2025-06-18");
    hold(&mut client, &raw).hang_up();
    let mut standalone = client.listen();
    // It is seen that the connection is gone when the next thing is sent on it, or before.
    raw.say(&notification("one"));
    raw.say(&notification("two"));
    let mut said = data(&mut standalone);
    if said == "one" {
        said = data(&mut standalone);
    }
    assert_eq!(said, "two");
    raw.say(&progress(0, 1));
    raw.say(&answer(0));
    raw.say(&notification("next"));
    assert_eq!(
        data(&mut standalone),
        "next",
        "neither progress nor the answer is redirected to the standalone stream"
    );
}

#[test]
fn with_http_redirect_messages_are_redirected_while_the_reader_is_away() {
    let (_world, _daemon, _serve, raw, mut client) = raw("http.redirect = true", "2025-11-25");
    let mut call = hold(&mut client, &raw);
    let first = call.event().expect("primed").id.expect("an id");
    let mut standalone = client.listen();
    standalone.event().expect("primed");
    call.hang_up();
    // It is seen that the connection is gone when the next thing is sent on it, or before.
    for _ in 0..3 {
        raw.say(&notification("where"));
    }
    assert_eq!(data(&mut standalone), "where");
    let mut back = client.resume(&first);
    back.event().expect("primed");
    raw.say(&progress(0, 7));
    while back.said().message()["params"]["progress"] != 7 {}
    raw.say(&answer(0));
    assert_eq!(back.answer()["id"], client.last);
}

#[test]
fn a_new_reader_takes_the_place_of_the_former_one() {
    let (_world, _daemon, _serve, raw, client) = raw("", "2025-11-25");
    let mut one = client.listen();
    one.event().expect("primed");
    raw.say(&notification("1"));
    assert_eq!(data(&mut one), "1");
    let mut two = client.listen();
    two.event().expect("primed");
    assert_eq!(one.event(), None, "each message goes to one of them");
    raw.say(&notification("2"));
    assert_eq!(data(&mut two), "2");
}

#[test]
fn a_reader_that_is_slow_gets_everything() {
    let (world, _daemon, _serve, _raw, mut client) = raw("", "2025-11-25");
    let mut call = client.request("flood", &json!({"lines": 300, "bytes": 20_000}));
    call.event().expect("primed");
    // Whoever waited for the events would read them.
    until(
        "the server has said all of it before the client reads",
        || {
            let listed = world
                .peer()
                .call("list_own_sessions", json!({"service": "serve.test"}))
                .expect("a list");
            (listed[0]["last_number"].as_str()?.parse::<u64>().ok()? >= 302).then_some(())
        },
    );
    for n in 0..300 {
        assert_eq!(call.said().message()["params"]["n"], n);
    }
    assert_eq!(call.answer()["id"], client.last);
}

#[test]
fn comments_keep_a_connection_open() {
    let (_world, _daemon, _serve, _raw, mut client) = raw("http.keep_alive_ms = 20", "2025-11-25");
    let mut call = client.request("hold", &json!({}));
    call.event().expect("primed");
    assert!(call.line().starts_with(": "));
    assert!(client.listen().line().starts_with("id: "));
}

#[test]
fn an_unknown_event_id_and_that_of_another_session_are_refused() {
    let (_world, _daemon, serve, _raw, client) = raw("", "2025-11-25");
    let event = client.listen().event().expect("primed").id.expect("an id");
    let other = {
        let mut other = serve.client();
        other.initialize_saying("2025-11-25", &INITIALIZED.replace("VERSION", "2025-11-25"));
        other
    };
    assert_eq!(other.resume(&event).status, 400);
    assert_eq!(client.resume("made-up").status, 400);
    assert_eq!(client.resume(&event).status, 200);
}

#[test]
fn the_stream_of_a_cancelled_call_ends_and_a_late_answer_is_dropped() {
    let (_world, _daemon, _serve, raw, mut client) = raw("", "2025-11-25");
    let mut call = hold(&mut client, &raw);
    let first = call.event().expect("primed").id.expect("an id");
    client.notify(
        "notifications/cancelled",
        &json!({"requestId": client.last}),
    );
    raw.wait_heard("notifications/cancelled");
    assert_eq!(call.event(), None);
    assert_eq!(client.resume(&first).status, 204);
    raw.say(&answer(0));
    raw.say(&notification("next"));
    assert_eq!(data(&mut client.listen()), "next");
}

#[test]
fn a_client_that_hangs_up_cancels_nothing() {
    let (world, _daemon, serve) = super::serving("", counter);
    let mut client = serve.connected("2025-11-25");
    let gate = gate(&world, "gate");
    let mut call = client.call("slow", &json!({"gate": gate}));
    let begun = call.said();
    call.hang_up();
    open(&gate);
    let mut back = client.resume(begun.id.as_deref().expect("an id"));
    assert_eq!(back.answer()["result"]["content"][0]["text"], "1");
}
