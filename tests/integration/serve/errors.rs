//! What `serve` refuses, and with which status.

use mcp_sessiond_tests::copy_program;
use serde_json::json;

use super::serving;
use crate::wrap::tiny;

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
        copy_program("/bin/true", &script);
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
