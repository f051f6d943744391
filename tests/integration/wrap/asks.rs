//! What a server has asked, and what its host answers: late, or too much.

use mcp_sessiond_proto::backends::RELAYED_MAX;
use mcp_sessiond_tests::{Client, Front, Pipe as _, World, gone};
use serde_json::{Value, json};

use super::keeping;

/// The id under which the server always asks. The host's first calls have smaller ones.
const ASKED: u64 = 1000;

/// Has the server ask under the same id as always. The id by which the host gets that.
fn asked(raw: &mcp_sessiond_tests::Raw, client: &mut Client<Front>, method: &str) -> Value {
    raw.say(&json!({"jsonrpc": "2.0", "id": ASKED, "method": method}).to_string());
    client.said(|message| message["method"] == method)["id"].clone()
}

/// An answer to what was asked by this id.
fn answer(id: &Value, what: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"is": what}})
}

fn a_late_answer_to_a_lost_server_reaches_no_other_one(options: &[&str]) {
    let world: World = keeping("");
    let _daemon = world.daemon();
    let raw = world.raw("server");
    let mut client = Client::connected(world.front(&world.wrapping(options, &raw.command)));
    let former = asked(&raw, &mut client, "x/first");
    assert_eq!(former, ASKED, "as the server has it");
    let backend = world.backend();
    let server = backend.pid();
    backend.kill_keeper();
    gone(server);
    client.pipe.errors.wait(
        "the keeper of the server had ended, and the server with it; a fresh one was started",
    );
    let now = asked(&raw, &mut client, "x/second");
    let late = answer(&former, "late");
    client.pipe.write(&late.to_string());
    // In a batch; and as nobody can read it.
    client.pipe.write(&json!([late, late]).to_string());
    client
        .pipe
        .write(&late.to_string().replacen('{', r#"{"result":{},"#, 1));
    client.pipe.write(&answer(&now, "in time").to_string());
    let heard = raw.wait_heard("in time");
    let heard: Value = serde_json::from_str(&heard).expect("JSON");
    assert_eq!(heard, answer(&json!(ASKED), "in time"));
    let answers = raw
        .heard()
        .into_iter()
        .map(|line| String::from_utf8_lossy(&line).into_owned());
    let answers: Vec<String> = answers
        .filter(|line| !line.contains("\"method\""))
        .collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[test]
fn a_late_answer_to_what_a_lost_server_has_asked_reaches_no_other_one() {
    a_late_answer_to_a_lost_server_reaches_no_other_one(&[]);
}

#[test]
fn nor_does_it_with_lazy() {
    a_late_answer_to_a_lost_server_reaches_no_other_one(&["--lazy"]);
}

/// The host's calls have ids of their own, which may be the same.
fn an_answer_that_is_too_large_is_an_error_for_whoever_waits_for_it(options: &[&str]) {
    let world = keeping("");
    let _daemon = world.daemon();
    let raw = world.raw("server");
    let mut client = Client::connected(world.front(&world.wrapping(options, &raw.command)));
    let id = asked(&raw, &mut client, "x/large");
    client.last = id.as_u64().expect("a number") - 1;
    let call = client.request("hold", json!({}));
    raw.wait_heard("hold");
    assert_eq!(call, id);
    client
        .pipe
        .write(&answer(&id, &"x".repeat(RELAYED_MAX)).to_string());
    let told: Value = serde_json::from_str(&raw.wait_heard("message_max_mib")).expect("JSON");
    assert_eq!(
        (&told["id"], &told["error"]["code"]),
        (&json!(ASKED), &json!(-32000)),
        "{told}"
    );
    // It is asked once.
    client.pipe.write(&answer(&id, "again").to_string());
    client.ping();
    raw.say(r#"{"jsonrpc":"2.0","id":$ID0,"result":{"is":"the call's"}}"#);
    assert_eq!(client.answer(call)["result"]["is"], "the call's");
    assert!(
        !raw.heard()
            .iter()
            .any(|line| String::from_utf8_lossy(line).contains("again"))
    );
}

#[test]
fn an_answer_that_is_too_large_is_an_error_for_the_server() {
    an_answer_that_is_too_large_is_an_error_for_whoever_waits_for_it(&[]);
}

#[test]
fn and_so_it_is_with_lazy() {
    an_answer_that_is_too_large_is_an_error_for_whoever_waits_for_it(&["--lazy"]);
}
