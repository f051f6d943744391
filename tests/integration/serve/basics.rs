//! The basic path: a client begins a session, makes calls, reads the standalone stream and ends the
//! session.

use mcp_sessiond_tests::gone;
use nix::sys::signal::Signal;
use serde_json::json;

use super::serving;
use crate::world;
use crate::wrap::{counter, gate, open, tiny};

#[test]
fn a_session_begins_calls_and_ends_in_each_version() {
    let (world, _daemon, serve) = serving("", tiny);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = serve.client();
        assert_eq!(client.initialize(version)["protocolVersion"], version);
        let listed = client.request("tools/list", &json!({})).answer();
        assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(4));
        assert_eq!(
            client.text("increment", &json!({})),
            "1",
            "a server of its own"
        );
        let server: u32 = world
            .processes()
            .into_iter()
            .find(|pid| *pid != serve.pid())
            .expect("a server");
        assert_eq!(client.ask("DELETE", &[], "").status, 204);
        gone(server);
        assert_eq!(
            client
                .post(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}))
                .status,
            404
        );
    }
}

#[test]
fn an_answer_is_a_stream_that_can_be_resumed_from_its_first_event_on() {
    let (_world, _daemon, serve) = serving("http.retry_ms = 1234", tiny);
    // Clients of an older version pass over events that are not called `message`.
    for (version, name) in [("2025-06-18", Some("priming")), ("2025-11-25", None)] {
        let mut client = serve.connected(version);
        let mut reply = client.call("increment", &json!({}));
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, Some("text/event-stream"))
        );
        let first = reply.event().expect("an event");
        assert!(first.id.is_some(), "{first:?}");
        assert_eq!(
            (first.event.as_deref(), first.data.as_str(), first.retry),
            (name, "", Some(1234)),
            "{version}"
        );
        assert_eq!(reply.said().message()["id"], client.last);
        assert_eq!(reply.event(), None, "the stream ends");
    }
}

#[test]
fn the_standalone_stream_carries_what_belongs_to_no_call() {
    let (world, _daemon, serve) = serving("", counter);
    let mut client = serve.connected("2025-11-25");
    let mut stream = client.listen();
    assert!(stream.event().expect("primed").id.is_some());
    let gate = gate(&world, "gate");
    assert_eq!(client.text("notify", &json!({"n": 2, "gate": gate})), "2");
    open(&gate);
    for n in 1..=2 {
        assert_eq!(stream.said().message()["params"]["data"], n);
    }
    // While no client reads it, messages wait for the next reader without `Last-Event-ID`.
    stream.hang_up();
    let gate = self::gate(&world, "later");
    assert_eq!(client.text("notify", &json!({"n": 1, "gate": gate})), "1");
    open(&gate);
    assert_eq!(client.listen().said().message()["params"]["data"], 3);
}

#[test]
fn the_sessions_are_those_of_the_service() {
    let (world, _daemon, mut serve) = serving("", tiny);
    let client = serve.connected("2025-11-25");
    let listed = world
        .peer()
        .call("list_own_sessions", json!({"service": "serve.test"}));
    let listed = listed.expect("a list");
    assert_eq!(
        (&listed[0]["session"], &listed[0]["status"]["is"]),
        (&json!(client.session()), &json!("ready"))
    );
    assert!(serve.stop(Signal::SIGTERM).success());
    assert_eq!(
        world.backends().len(),
        1,
        "its server waits for the next one"
    );
    let status = world.sessiond(&["status"]).output().expect("status");
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.contains("serve.test") && status.contains("waiting"),
        "{status}"
    );
    serve.start_again();
    assert_eq!(
        client
            .post(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}))
            .status,
        200,
        "the session has survived"
    );
    assert!(serve.stop(Signal::SIGINT).success());
    let listed = world
        .peer()
        .call("list_own_sessions", json!({"service": "serve.test"}))
        .expect("a list");
    assert_eq!(listed[0]["status"]["is"], "terminated", "{listed}");
    world.nothing_left();
}

/// No client has come back to it.
#[test]
fn ctrl_c_ends_what_a_killed_serve_has_left() {
    let (world, _daemon, mut serve) = serving("", tiny);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    serve.kill();
    world.wait_backends(1);
    serve.start_again();
    assert!(serve.stop(Signal::SIGINT).success());
    let listed = world
        .peer()
        .call("list_own_sessions", json!({"service": "serve.test"}))
        .expect("a list");
    assert_eq!(listed[0]["status"]["is"], "terminated", "{listed}");
    world.nothing_left();
}

#[test]
fn with_keep_the_sessions_stay_after_ctrl_c() {
    let world = world("");
    let _daemon = world.daemon();
    let mut serve = world.serve(&["--name", "test", "--keep"], &tiny(&world));
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    assert!(serve.stop(Signal::SIGINT).success());
    serve.start_again();
    assert_eq!(client.text("increment", &json!({})), "2", "the same server");
}

#[test]
#[ignore = "needs node"]
fn the_official_client_lists_tools_calls_one_and_answers_the_server() {
    let (world, _daemon, serve) = serving("", counter);
    let mut host = world.node_host();
    let connected = host.order(json!({"do": "connect", "as": "main", "url": serve.url()}));
    assert_eq!(connected["protocol"], "2025-11-25");
    assert!(connected["session"].is_string(), "{connected}");
    let listed = host.order(json!({"do": "request", "as": "main", "method": "tools/list"}));
    assert!(
        listed["tools"]
            .as_array()
            .is_some_and(|tools| tools.len() > 4),
        "{listed}"
    );
    assert_eq!(host.count("main"), 1);
    assert_eq!(
        host.call("main", "ask", json!({"prompt": "Well?"})),
        "a fixed answer"
    );
    let gate = gate(&world, "gate");
    let slow = host.begin_slow("main", &gate);
    assert_eq!(host.count("main"), 2);
    open(&gate);
    assert_eq!(host.text(slow).as_deref(), Ok("3"));
}

#[test]
fn unkept_is_refused_with_what_there_is_instead() {
    let world = world("");
    for arguments in [
        &["serve", "--unkept"][..],
        &["serve", "--unkept", "--all"],
        &["serve", "--name", "x", "--unkept", "--", "true"],
        &[
            "install",
            "--serve",
            "x",
            "--dry-run",
            "--unkept",
            "--",
            "true",
        ],
    ] {
        let output = world.sessiond(arguments).output().expect("the executable");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {said}");
        assert!(
            said.contains("--unkept is no longer supported: set `storage.url = \"memory:\"`")
                && said.lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
    let help = world.sessiond(&["serve", "--help"]).output().expect("help");
    assert!(!String::from_utf8_lossy(&help.stdout).contains("--unkept"));
}
