//! What is larger than the limits, and clients that go at a bad moment: no session hangs, and
//! nothing is lost without a word.

use mcp_sessiond_tests::HttpClient;
use serde_json::{Value, json};

use super::serving;
use super::streams::{INITIALIZED, data, hold, notification, raw};
use crate::wrap::{counter, tiny};

/// When the quota of the service is used up, `serve` deletes the oldest events of the session, and
/// says so.
#[test]
fn a_session_goes_on_when_there_is_no_room_for_more_events() {
    let (_world, _daemon, serve) = serving("limits.owner_bytes = 400000", counter);
    let mut client = serve.connected("2025-11-25");
    for _ in 0..60 {
        let answer = client.call("big", &json!({"bytes": 20_000})).answer();
        assert!(answer["result"].is_object(), "{answer}");
    }
    serve
        .errors
        .wait("there is no room for the events of session");
    let said = serve.errors.lines("there is no room for the events");
    assert_eq!(said.len(), 1, "it is said once: {said:?}");
}

/// What was delivered in one session long ago must not keep another one from its answers.
#[test]
fn a_session_gets_room_where_others_have_used_it_up() {
    let (_world, _daemon, serve) = serving("limits.owner_bytes = 400000", counter);
    for _ in 0..3 {
        let mut client = serve.connected("2025-11-25");
        for _ in 0..10 {
            let answer = client.call("big", &json!({"bytes": 30_000})).answer();
            assert!(answer["result"].is_object(), "{answer}");
        }
    }
}

/// Its parameters are larger than the metadata of a session may be.
#[test]
fn a_large_handshake_survives_serve() {
    let (_world, _daemon, mut serve) = serving("", tiny);
    let mut client = serve.client();
    let info = json!({"name": "x".repeat(100_000), "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    let reply = client.request("initialize", &params);
    let session = reply
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    client.headers.push(("Mcp-Session-Id".into(), session));
    assert_eq!(client.text("increment", &json!({})), "1");
    serve.kill();
    serve.start_again();
    assert_eq!(client.text("increment", &json!({})), "2");
}

#[test]
fn a_session_whose_client_hangs_up_before_it_has_begun_ends() {
    let world = crate::world("");
    let _daemon = world.daemon();
    let raw = world.raw("server");
    let serve = world.serve(&["--name", "test"], &raw.command);
    let mut client = serve.client();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "say": ""});
    let waiting = client.unanswered("initialize", &params);
    let initialize: Value = serde_json::from_str(&raw.wait_heard("\"initialize\"")).expect("JSON");
    waiting.hang_up();
    let answer = INITIALIZED
        .replace("$ID", &initialize["id"].to_string())
        .replace("VERSION", "2025-11-25");
    raw.say(&answer);
    world.wait_backends(0);
}

#[test]
fn a_session_that_was_ended_elsewhere_is_let_go_of() {
    let (world, _daemon, serve) = serving("http.idle_ms = 2000", tiny);
    let mut client = serve.connected("2025-11-25");
    let mut standalone = client.listen();
    standalone.event().expect("primed");
    let caller =
        json!({"kind": "identity", "iss": "uid", "sub": nix::unistd::geteuid().to_string()});
    let of = json!({"service": "serve.test", "session": client.session(), "caller": caller});
    world
        .peer()
        .call("terminate_session", of)
        .expect("there is one");
    assert_eq!(
        standalone.event(),
        None,
        "the connection of its reader ends"
    );
    assert_eq!(client.request("ping", &json!({})).status, 404);
}

/// A page that was reloaded counts its requests from the beginning again.
#[test]
fn a_client_that_was_restarted_may_use_the_ids_of_calls_that_are_still_open() {
    let (_world, _daemon, mut serve, raw, mut client) = raw("", "2025-11-25");
    let mut first = hold(&mut client, &raw);
    let event = first.event().expect("primed").id.expect("an id");
    let mut reloaded = HttpClient {
        headers: client.headers.clone(),
        last: client.last - 1,
        ..serve.client()
    };
    let mut second = hold(&mut reloaded, &raw);
    assert_eq!(client.last, reloaded.last, "one id");
    raw.say(r#"{"jsonrpc":"2.0","id":$ID1,"result":{"of":"second"}}"#);
    assert_eq!(second.answer()["result"]["of"], "second");
    serve.kill();
    serve.start_again();
    let mut back = client.resume(&event);
    raw.say(r#"{"jsonrpc":"2.0","id":$ID0,"result":{"of":"first"}}"#);
    let answer = back.answer();
    assert_eq!(
        (&answer["id"], &answer["result"]["of"]),
        (&json!(client.last), &json!("first"))
    );
}

#[test]
fn what_nobody_has_read_on_the_standalone_stream_waits_while_serve_is_killed() {
    let (_world, _daemon, mut serve, raw, client) = raw("", "2025-11-25");
    let mut standalone = client.listen();
    standalone.event().expect("primed");
    raw.say(&notification("one"));
    assert_eq!(data(&mut standalone), "one");
    standalone.hang_up();
    raw.say(&notification("two"));
    raw.say(&notification("three"));
    serve.kill();
    serve.start_again();
    let mut standalone = client.listen();
    // The first one comes again if `serve` was killed before it had noted that it was sent.
    let mut said: Vec<Value> = vec![data(&mut standalone), data(&mut standalone)];
    if said[0] == "one" {
        said = vec![said[1].clone(), data(&mut standalone)];
    }
    assert_eq!(said, ["two", "three"]);
}
