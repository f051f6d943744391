//! Streams: to which one a message goes, and that a client that resumes one gets the rest, once and
//! in order.

use mcp_sessiond_tests::{HttpClient, Raw, Reply, Serve, World, until};
use serde_json::{Value, json};

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
