//! `serve --unkept` where no daemon can be had: all requests are served, and nothing is kept.

use mcp_sessiond_tests::{Raw, Serve, World, gone, until};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::wrap::{counter, gate, open, tiny};
use crate::{fixture, world};

const PING: &str = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
const STANDALONE: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;

/// `serve --unkept` in front of this server, in a world without a daemon.
fn alone(configuration: &str, server: impl FnOnce(&World) -> Vec<String>) -> (World, Serve) {
    let world = world(&format!("http.hold_ms = 200\n{configuration}"));
    let server = server(&world);
    let serve = world.serve(&["--name", "test", "--unkept"], &server);
    (world, serve)
}

/// The same in front of a server that says what the test tells it.
fn raw(configuration: &str, options: &[&str]) -> (World, Serve, Raw) {
    let world = world(&format!("http.hold_ms = 200\n{configuration}"));
    let mut raw = world.raw("server");
    raw.command.extend(options.iter().map(ToString::to_string));
    let serve = world.serve(&["--name", "test", "--unkept"], &raw.command);
    (world, serve, raw)
}

fn server(world: &World, serve: &Serve) -> u32 {
    world
        .processes()
        .into_iter()
        .find(|pid| *pid != serve.pid())
        .expect("a server")
}

#[test]
fn a_session_begins_calls_and_ends_in_each_version_and_says_that_nothing_is_kept() {
    let (world, serve) = alone("", tiny);
    let said = serve.errors.wait("--unkept");
    assert!(
        said.contains("no daemon") && said.contains("Nothing is kept") && said.contains("install"),
        "{said}"
    );
    let status = world.sessiond(&["status"]).output().expect("status");
    let shown = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        shown.contains("tiny.py") && shown.contains("not kept") && shown.contains("--unkept"),
        "{shown}"
    );
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = serve.client();
        let result = client.initialize(version);
        assert_eq!(
            result["_meta"],
            json!({"io.github.mcp-sessiond/kept": false})
        );
        assert_eq!(
            (&result["protocolVersion"], &result["serverInfo"]["name"]),
            (&json!(version), &json!("tiny"))
        );
        assert_eq!(
            client.text("increment", &json!({})),
            "1",
            "a server of its own"
        );
        assert_eq!(client.text("increment", &json!({})), "2");
        let server = server(&world, &serve);
        assert_eq!(client.ask("DELETE", &[], "").status, 204);
        gone(server);
        assert_eq!(client.ask("POST", &[], PING).status, 404);
    }
    assert!(!world.root().join("daemon.sock").exists() && !world.root().join("keepers").exists());
}

#[test]
fn no_event_has_an_id_and_nothing_can_be_resumed() {
    let (_world, serve, raw) = raw("", &[]);
    let mut client = serve.connected("2025-11-25");
    // Said before anybody reads the standalone stream. While a call was open it would be said on
    // that call's stream.
    raw.say(STANDALONE);
    let first = client.listen().event().expect("an event");
    assert_eq!(
        (first.id.as_deref(), &first.message()["params"]["data"]),
        (None, &json!(1))
    );
    let mut reply = client.request("ping", &json!({}));
    let answer = reply.event().expect("the answer");
    assert_eq!(
        (answer.id.as_deref(), answer.retry, reply.event()),
        (None, None, None)
    );
    let mut refused = client.resume("1");
    refused.must_be(400);
    let message = refused.message()["error"]["message"].to_string();
    assert!(
        message.contains("--unkept") && message.contains("no events"),
        "{message}"
    );
}

#[test]
fn the_official_client_lists_tools_calls_one_and_answers_the_server() {
    let (world, serve) = alone("", counter);
    let mut host = world.node_host();
    let connected = host.order(json!({"do": "connect", "as": "main", "url": serve.url()}));
    assert!(
        connected["protocol"] == "2025-11-25" && connected["session"].is_string(),
        "{connected}"
    );
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
fn the_official_client_of_the_former_transport_calls_and_its_server_ends_with_its_stream() {
    let (world, serve) = alone("", counter);
    let mut host = world.node_host();
    host.order(json!({"do": "connect", "as": "main", "url": format!("http://{}/sse", serve.at)}));
    assert_eq!(host.count("main"), 1);
    assert_eq!(
        host.call("main", "ask", json!({"prompt": "Well?"})),
        "a fixed answer"
    );
    let gate = gate(&world, "gate");
    assert_eq!(
        host.call("main", "notify", json!({"n": 1, "gate": gate})),
        "1"
    );
    open(&gate);
    host.told.wait("\"data\":1");
    let others = [serve.pid(), host.pid()];
    let server = world
        .processes()
        .into_iter()
        .find(|pid| !others.contains(pid))
        .expect("a server");
    host.close("main");
    gone(server);
}

#[test]
fn mcp_2026_07_28_goes_to_one_server_of_its_caller() {
    let (world, mut serve) = alone("", |world| {
        vec![
            "node".into(),
            fixture("node/eras.mjs"),
            gate(world, "unused"),
        ]
    });
    let mut client = serve.client();
    let discovered = client.modern("server/discover", &json!({})).message();
    assert_eq!(
        discovered["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    assert_eq!(
        (
            client.modern_text("increment"),
            client.modern_text("increment")
        ),
        ("1".into(), "2".into())
    );
    let before = server(&world, &serve);
    serve.kill();
    gone(before);
    serve.start_again();
    assert_eq!(client.modern_text("increment"), "1");
    let mut older = serve.connected("2025-11-25");
    assert_eq!(
        (
            older.text("increment", &json!({})),
            client.modern_text("increment")
        ),
        ("1".into(), "2".into())
    );
}

#[test]
fn a_server_that_dies_leaves_no_call_without_an_answer_and_its_session_has_ended() {
    let (world, serve, raw) = raw("", &[]);
    let mut client = serve.connected("2025-11-25");
    let mut call = client.request("hold", &json!({}));
    let mut stream = client.listen();
    raw.wait_heard("\"hold\"");
    let server = server(&world, &serve);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(server.cast_signed()),
        Signal::SIGKILL,
    )
    .expect("ours");
    assert_eq!(call.answer()["error"]["data"]["outcome"], "unknown");
    assert_eq!((call.event(), stream.event()), (None, None));
    // `serve` ends it after the streams have ended.
    until("the session has ended", || {
        (client.ask("POST", &[], PING).status == 404).then_some(())
    });
}

#[test]
fn a_call_that_is_cancelled_ends_and_the_server_knows() {
    let (_world, serve, raw) = raw("", &[]);
    let mut client = serve.connected("2025-11-25");
    let mut call = client.request("hold", &json!({}));
    raw.wait_heard("\"hold\"");
    client.notify(
        "notifications/cancelled",
        &json!({"requestId": client.last}),
    );
    assert_eq!(call.event(), None);
    let heard = raw.wait_heard("notifications/cancelled");
    assert!(
        heard.contains(&format!("/{}", client.last)),
        "by the id that the server has got: {heard}"
    );
}

#[test]
fn sessions_and_servers_end_with_serve_whatever_ends_it() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL] {
        let (world, mut serve) = alone("", tiny);
        let client = serve.connected("2025-11-25");
        let server = server(&world, &serve);
        assert_eq!(serve.stop(signal).success(), signal != Signal::SIGKILL);
        gone(server);
        serve.start_again();
        assert_eq!(client.ask("POST", &[], PING).status, 404, "{signal}");
    }
}

#[test]
fn who_may_connect_and_how_much_there_may_be_is_as_with_a_daemon() {
    let world = world("http.hold_ms = 200\nhttp.sessions = 1\nhttp.idle_ms = 400");
    let serve = world.serve(&["--unkept", "--token"], &tiny(&world));
    let token = std::fs::read_to_string(world.root().join("serve.token")).expect("a token");
    assert_eq!(serve.client().begin("2025-11-25", &[]).status, 401);
    let mut client = serve.client();
    client.headers.push((
        "Authorization".into(),
        format!("Bearer {}", token.trim_end()),
    ));
    assert_eq!(
        client
            .begin("2025-11-25", &[("Host", "evil.example")])
            .status,
        403
    );
    assert_eq!(
        client
            .begin("2025-11-25", &[("Origin", "https://evil.example")])
            .status,
        403
    );
    let mut first = client.clone();
    first.initialize("2025-11-25");
    let server = server(&world, &serve);
    // While a client reads, the session is in use.
    let stream = first.listen();
    assert_eq!(client.begin("2025-11-25", &[]).status, 503);
    assert_eq!(first.ask("POST", &[], "[]").status, 400);
    assert_eq!(
        first
            .ask("POST", &[], &"x".repeat(4 * 1024 * 1024 + 1))
            .status,
        413
    );
    drop(stream);
    gone(server);
    client.initialize("2025-11-25");
}

#[test]
fn where_a_daemon_runs_sessions_are_kept() {
    let world = world("");
    let _daemon = world.daemon();
    let mut serve = world.serve(&["--name", "test", "--unkept"], &tiny(&world));
    let mut client = serve.client();
    assert_eq!(client.initialize("2025-11-25").get("_meta"), None);
    assert_eq!(client.text("increment", &json!({})), "1");
    serve.kill();
    serve.start_again();
    assert_eq!(client.text("increment", &json!({})), "2");
    assert!(!serve.errors.text().contains("unkept"));
}

#[test]
fn without_a_daemon_requests_to_a_server_that_speaks_http_are_passed_on() {
    let world = world("http.hold_ms = 200\nhttp.sessions = 1");
    let mut upstream = world.upstream(&["node".into(), fixture("node/express.mjs")], &["events"]);
    let serve = world.serve(&["--unkept", "--upstream", &upstream.url], &[]);
    let mut host = world.node_host();
    let connected = host.order(json!({"do": "connect", "as": "main", "url": serve.url()}));
    assert!(connected["session"].is_string(), "{connected}");
    assert_eq!(host.count("main"), 1);
    assert_eq!(
        host.call("main", "ask", json!({"prompt": "Well?"})),
        "a fixed answer"
    );
    let mut client = serve.client();
    assert_eq!(
        client.begin("2025-11-25", &[]).status,
        503,
        "there is room for one session"
    );
    let session = connected["session"].as_str().expect("an id").to_owned();
    client.headers.push(("Mcp-Session-Id".into(), session));
    // The server has an event store of its own.
    client
        .headers
        .push(("MCP-Protocol-Version".into(), "2025-11-25".into()));
    let mut call = client.call("increment", &json!({}));
    let first = call
        .event()
        .and_then(|event| event.id)
        .expect("the server's id");
    call.answer();
    assert_eq!(
        client.resume(&first).said().message()["result"]["content"][0]["text"],
        "2"
    );
    assert_eq!(client.ask("DELETE", &[], "").status, 200);
    assert_eq!(client.ask("POST", &[], PING).status, 404);
    client.headers.clear();
    let begun = client.begin("2025-11-25", &[]);
    let session = begun
        .header("mcp-session-id")
        .expect("there is room again")
        .to_owned();
    client.headers.push(("Mcp-Session-Id".into(), session));
    upstream.kill();
    let mut refused = client.request("ping", &json!({}));
    refused.must_be(502);
}
