//! What `serve` refuses, and with which status.

use mcp_sessiond_tests::until;
use serde_json::json;

use super::serving;
use crate::wrap::{counter, tiny};

#[test]
fn a_malformed_request_gets_the_status_that_says_what_is_wrong() {
    let (_world, _daemon, serve) = serving("", tiny);
    let mut client = serve.connected("2025-11-25");
    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}).to_string();
    let asked = |headers: &[(&str, &str)], body: &str| client.ask("POST", headers, body).status;
    assert_eq!(asked(&[("Mcp-Session-Id", "")], &ping), 400, "missing");
    assert_eq!(asked(&[("Mcp-Session-Id", "nobodys")], &ping), 404);
    assert_eq!(asked(&[("Accept", "text/html")], &ping), 406);
    assert_eq!(asked(&[("Accept", "")], &ping), 200, "both are meant");
    assert_eq!(asked(&[("Content-Type", "text/plain")], &ping), 415);
    assert_eq!(asked(&[("MCP-Protocol-Version", "1999-01-01")], &ping), 400);
    assert_eq!(
        asked(&[("MCP-Protocol-Version", "")], &ping),
        200,
        "2025-03-26 is meant"
    );
    assert_eq!(asked(&[], "{"), 400);
    assert_eq!(asked(&[], "[]"), 400);
    assert_eq!(
        asked(&[], &format!("[{ping}]")),
        400,
        "no batches since 2025-06-18"
    );
    assert_eq!(
        client
            .ask("GET", &[("Accept", "application/json")], "")
            .status,
        406
    );
    assert_eq!(client.ask("PUT", &[], "").status, 405);
    assert_eq!(client.ask_at("POST", "/other", &[], &ping).status, 404);
    assert_eq!(
        client.ask("DELETE", &[("Mcp-Session-Id", "")], "").status,
        400
    );
    let mut refused = client.ask("POST", &[("Mcp-Session-Id", "nobodys")], &ping);
    assert_eq!(
        refused.message()["jsonrpc"],
        "2.0",
        "the body is an error of JSON-RPC"
    );
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    assert_eq!(
        client.post(&json!([initialize, initialize])).status,
        400,
        "`initialize` can't be part of a batch"
    );
    assert_eq!(
        client.text("increment", &json!({})),
        "1",
        "`serve` has carried out none of these"
    );
}

#[test]
fn a_body_is_bounded() {
    let (_world, _daemon, serve) = serving("", tiny);
    let client = serve.connected("2025-11-25");
    let body = "x".repeat(4 * 1024 * 1024 + 1);
    assert_eq!(client.ask("POST", &[], &body).status, 413);
}

#[test]
fn an_answer_that_is_too_large_to_be_kept_reaches_who_waits_for_it() {
    let (_world, _daemon, serve) = serving("limits.message_bytes = 10000", counter);
    let mut client = serve.connected("2025-11-25");
    let mut reply = client.call("big", &json!({"bytes": 20_000}));
    let primed = reply.event().expect("a priming event").id.expect("an id");
    let answer = reply.answer();
    let text = answer["result"]["content"][0]["text"].as_str();
    assert_eq!(text.map(str::len), Some(20_000));
    let stored = client.resume(&primed).answer();
    assert_eq!(stored["error"]["data"]["outcome"], "not_kept", "{stored}");
}

#[test]
fn a_batch_of_the_version_that_has_them_is_answered_on_one_stream() {
    let (_world, _daemon, serve) = serving("", tiny);
    let client = serve.connected("2025-03-26");
    let ping = |id: u32| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    let mut reply = client.post(&json!([ping(7), note, ping(8)]));
    let mut ids = [
        reply.said().message()["id"].clone(),
        reply.said().message()["id"].clone(),
    ];
    ids.sort_by_key(serde_json::Value::as_u64);
    assert_eq!((ids, reply.event()), ([json!(7), json!(8)], None));
    assert_eq!(client.post(&json!([note, note])).status, 202);
    let mut refused = client.post(&json!([ping(7), ping(7)]));
    let errors = refused.message();
    assert_eq!(
        errors[1]["error"]["data"]["outcome"], "not_sent",
        "one id in one batch: {errors}"
    );
}

#[test]
fn there_are_no_more_sessions_than_are_allowed() {
    let (_world, _daemon, serve) = serving("http.sessions = 2", tiny);
    let (one, _two) = (serve.connected("2025-11-25"), serve.connected("2025-11-25"));
    let reply = serve.client().begin("2025-11-25", &[]);
    assert_eq!(
        (reply.status, reply.header("retry-after").is_some()),
        (503, true)
    );
    assert_eq!(one.ask("DELETE", &[], "").status, 204);
    assert_eq!(serve.client().begin("2025-11-25", &[]).status, 200);
}

/// Many clients end without DELETE: the command line of the inspector, mcporter, Claude Code.
#[test]
fn a_new_session_takes_the_place_of_one_that_nobody_uses() {
    let (world, _daemon, serve) = serving("http.sessions = 2\nhttp.unused_ms = 1", tiny);
    let (read, left) = (serve.connected("2025-11-25"), serve.connected("2025-11-25"));
    let mut reading = read.listen();
    reading.event().expect("primed");
    // Sessions become old by the clock of `serve` alone.
    let new = until("there is room", || {
        let mut new = serve.client();
        let reply = new.begin("2025-11-25", &[]);
        if reply.status == 503 {
            return None;
        }
        new.begun("2025-11-25", reply);
        Some(new)
    });
    let ping = json!({"jsonrpc": "2.0", "id": 9, "method": "ping"});
    assert_eq!(left.post(&ping).status, 404);
    assert_eq!(read.post(&ping).status, 200);
    world.wait_backends(2);
    let mut second = new.listen();
    second.event().expect("primed");
    assert_eq!(
        serve.client().begin("2025-11-25", &[]).status,
        503,
        "both are read"
    );
}

#[test]
fn a_command_that_there_is_not_is_refused_at_the_start() {
    let world = crate::world("");
    for command in ["no-such-server", "/nowhere/server"] {
        let words = ["serve", "--listen", "127.0.0.1:0", "--", command];
        let run = world.sessiond(&words).output().expect("the executable");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(127), "{said}");
        assert!(said.contains(&format!("{command} can't be run")), "{said}");
    }
}

#[test]
fn a_server_that_can_not_be_started_is_an_error_and_no_session_is_left() {
    let (world, _daemon, serve) = serving("", |world| {
        let script = world.root().join("server");
        std::fs::copy("/bin/true", &script).expect("a file");
        vec![script.to_str().expect("UTF-8").to_owned()]
    });
    std::fs::remove_file(world.root().join("server")).expect("it was there");
    assert_eq!(serve.client().begin("2025-11-25", &[]).status, 502);
    let listed = world
        .peer()
        .call("list_own_sessions", json!({"service": "serve.test"}))
        .expect("a list");
    assert_eq!(listed[0]["status"]["is"], "terminated", "{listed}");
}
