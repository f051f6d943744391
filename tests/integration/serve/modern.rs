//! MCP 2026-07-28: requests without a session, whose server survives `serve`.

use mcp_sessiond_tests::{
    Daemon, HttpClient, Raw, Reply, Serve, World, base64, gone, until_written,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{fixture, world};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A server of this era that says what the test tells it.
fn raw(configuration: &str) -> (World, Daemon, Serve, Raw, HttpClient) {
    behind(configuration, &["modern"])
}

/// The same of the era before.
fn older() -> (World, Daemon, Serve, Raw, HttpClient) {
    behind("", &[])
}

fn behind(configuration: &str, options: &[&str]) -> (World, Daemon, Serve, Raw, HttpClient) {
    let world = world(configuration);
    let daemon = world.daemon();
    let mut raw = world.raw("server");
    raw.command.extend(options.iter().map(ToString::to_string));
    let serve = world.serve(&["--name", "test"], &raw.command);
    let client = serve.client();
    (world, daemon, serve, raw, client)
}

/// The lines with this text that the server has heard.
fn heard(raw: &Raw, text: &str) -> Vec<Value> {
    let lines = raw.heard();
    let with = lines
        .iter()
        .filter(|line| String::from_utf8_lossy(line).contains(text));
    with.map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect()
}

/// A request that the server answers when the test says so.
fn hold(client: &HttpClient, raw: &Raw, params: &Value) -> std::thread::JoinHandle<Reply> {
    let before = heard(raw, "\"hold\"").len();
    let (mut client, params) = (client.clone(), params.clone());
    let asking = std::thread::spawn(move || client.modern("hold", &params));
    raw.until("the server hears it", || {
        (heard(raw, "\"hold\"").len() > before).then_some(())
    });
    asking
}

/// A subscription, which the server has acknowledged.
fn listen(client: &mut HttpClient) -> Reply {
    let acknowledged = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":$ID}}}"#;
    let mut reply = client.modern(
        "subscriptions/listen",
        &json!({"notifications": {}, "say": base64(acknowledged)}),
    );
    assert_eq!(
        reply.said().message()["params"]["_meta"][SUBSCRIPTION],
        client.last
    );
    reply
}

fn answer(nth: usize) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":$ID{nth},"result":{{"nth":{nth}}}}}"#)
}

fn progress(nth: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":$TOKEN{nth},"progress":1}}}}"#
    )
}

#[test]
fn each_request_has_its_own_messages_though_the_ids_are_the_same() {
    let (_world, _daemon, _serve, raw, client) = raw("");
    let params = json!({"_meta": {"progressToken": "t"}});
    let (one, two) = (hold(&client, &raw, &params), hold(&client, &raw, &params));
    raw.say(&progress(1));
    let mut two = two.join().expect("a reply");
    assert_eq!(
        (
            two.status,
            two.header("content-type"),
            two.header("mcp-session-id")
        ),
        (200, Some("text/event-stream"), None)
    );
    let said = two.said();
    assert_eq!(
        (said.message()["params"]["progressToken"].as_str(), said.id),
        (Some("t"), None)
    );
    raw.say(&answer(0));
    let mut one = one.join().expect("a reply");
    assert_eq!(
        one.header("content-type"),
        Some("application/json"),
        "nothing came before the answer"
    );
    assert_eq!(
        one.message(),
        json!({"jsonrpc": "2.0", "id": 1, "result": {"nth": 0}})
    );
    raw.say(&answer(1));
    assert_eq!(
        two.answer(),
        json!({"jsonrpc": "2.0", "id": 1, "result": {"nth": 1}})
    );
}

#[test]
fn a_client_that_hangs_up_cancels_its_own_request_and_no_other() {
    let (_world, _daemon, _serve, raw, client) = raw("");
    let (one, two) = (
        hold(&client, &raw, &json!({})),
        hold(&client, &raw, &json!({"_meta": {"progressToken": 1}})),
    );
    raw.say(&progress(1));
    two.join().expect("a reply").hang_up();
    raw.wait_heard("notifications/cancelled");
    let asked = heard(&raw, "\"hold\"");
    assert_eq!(
        heard(&raw, "cancelled")[0]["params"]["requestId"],
        asked[1]["id"]
    );
    raw.say(&answer(1));
    raw.say(&answer(0));
    assert_eq!(one.join().expect("a reply").message()["result"]["nth"], 0);
    assert_eq!(heard(&raw, "cancelled").len(), 1);
}

#[test]
fn a_subscription_gets_what_it_has_asked_for_until_serve_is_killed() {
    let (_world, _daemon, mut serve, raw, mut client) = raw("");
    // The raw server answers at once what it does not know, and that ends a subscription.
    let ended = client
        .modern("subscriptions/listen", &json!({"notifications": {}}))
        .message();
    assert_eq!(ended, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    let mut listening = listen(&mut client);
    let id = heard(&raw, "subscriptions/listen")[1]["id"].clone();
    let changed = |id: &Value| {
        let params = json!({"_meta": {SUBSCRIPTION: id}});
        json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": params})
            .to_string()
    };
    raw.say(&changed(&json!("foreign")));
    raw.say(&changed(&id));
    assert_eq!(
        listening.said().message()["params"]["_meta"][SUBSCRIPTION],
        2
    );
    serve.kill();
    assert_eq!(listening.event(), None);
    serve.start_again();
    assert!(heard(&raw, "cancelled").is_empty());
    client.modern("ping", &json!({})).must_be(200);
    raw.wait_heard("notifications/cancelled");
    assert_eq!(
        heard(&raw, "cancelled")[0]["params"]["requestId"],
        id,
        "nobody listens any more"
    );
}

#[test]
fn a_server_that_dies_leaves_no_request_without_an_answer() {
    let (world, _daemon, serve, raw, mut client) = raw("");
    let call = hold(&client, &raw, &json!({}));
    let streaming = hold(&client, &raw, &json!({"_meta": {"progressToken": 1}}));
    raw.say(&progress(1));
    let mut streaming = streaming.join().expect("a reply");
    streaming.said();
    let mut listening = listen(&mut client);
    let server = world
        .processes()
        .into_iter()
        .find(|pid| *pid != serve.pid())
        .expect("a server");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(server.cast_signed()),
        Signal::SIGKILL,
    )
    .expect("ours");
    let answer = call.join().expect("a reply").message();
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["outcome"]),
        (&json!(1), &json!("unknown")),
        "{answer}"
    );
    assert_eq!(streaming.answer()["error"]["data"]["outcome"], "unknown");
    assert_eq!(listening.event(), None);
    client.modern("ping", &json!({})).must_be(200);
    assert_eq!(
        heard(&raw, "server/discover").len(),
        1,
        "what it speaks is known"
    );
}

#[test]
fn a_server_of_the_era_before_is_asked_once_and_clients_are_told() {
    let (_world, _daemon, _serve, raw, mut client) = older();
    for _ in 0..2 {
        let mut reply = client.modern("server/discover", &json!({}));
        reply.must_be(404);
        let answer = reply.message();
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(-32601), &json!(client.last))
        );
        let mut reply = client.modern("tools/list", &json!({}));
        reply.must_be(400);
        let answer = reply.message();
        let versions = json!(["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]);
        assert_eq!(
            (
                &answer["error"]["code"],
                &answer["error"]["data"]["supported"]
            ),
            (&json!(-32022), &versions)
        );
    }
    assert_eq!(heard(&raw, "server/discover").len(), 1);
    client.initialize("2025-06-18");
    assert_eq!(
        client.request("ping", &json!({})).answer()["result"],
        json!({})
    );
}

/// `serve` asks for the list of tools itself, all pages of it, before the first call.
#[test]
fn arguments_that_a_tool_wants_in_headers_are_compared_with_them() {
    let (_world, _daemon, _serve, raw, mut client) = raw("");
    let params = json!({"name": "query", "arguments": {"region": "us-west1"}});
    let mut ask =
        |headers: &[(&str, &str)]| client.modern_with("tools/call", &params, headers).status;
    assert_eq!(
        (ask(&[]), ask(&[("Mcp-Param-Region", "us-west2")])),
        (400, 400)
    );
    assert_eq!(
        ask(&[
            ("Mcp-Param-Region", "us-west1"),
            ("MCP-Param-Region", "us-west1")
        ]),
        200
    );
    assert_eq!(ask(&[("Mcp-Param-Region", "=?base64?dXMtd2VzdDE=?=")]), 200);
    assert_eq!(
        (
            heard(&raw, "tools/call").len(),
            heard(&raw, "tools/list").len()
        ),
        (2, 2)
    );
}

#[test]
fn clients_that_ask_at_one_time_have_one_server_asked_which_is_gone_before_they_are_told() {
    let (world, daemon, serve, raw, _client) = older();
    let ask = || {
        let mut client = serve.client();
        std::thread::spawn(move || client.modern("server/discover", &json!({})).status)
    };
    let asking: Vec<_> = std::iter::repeat_with(ask).take(4).collect();
    for asking in asking {
        assert_eq!(asking.join().expect("a status"), 404);
    }
    assert_eq!(heard(&raw, "server/discover").len(), 1);
    // Some servers can't be started while another one of them runs.
    let others = world
        .processes()
        .into_iter()
        .filter(|pid| ![serve.pid(), daemon.pid()].contains(pid));
    assert_eq!(others.count(), 0);
}

#[test]
fn a_server_that_is_being_asked_ends_with_serve() {
    let world = world("");
    let daemon = world.daemon();
    let file = world.root().join("heard");
    std::fs::write(&file, "").expect("a file");
    let silent = ["sh", "-c", "cat >\"$0\"", file.to_str().expect("UTF-8")];
    let mut serve = world.serve(&["--name", "test"], &silent.map(String::from));
    let mut client = serve.client();
    let asking = std::thread::spawn(move || {
        drop(std::panic::catch_unwind(move || {
            client.modern("x", &json!({}))
        }));
    });
    let is_asked = || {
        std::fs::read_to_string(&file)
            .ok()?
            .contains("discover")
            .then_some(())
    };
    until_written(&file, "it is asked", is_asked);
    let servers: Vec<_> = world.processes();
    assert!(serve.stop(Signal::SIGINT).success());
    servers
        .into_iter()
        .filter(|pid| *pid != daemon.pid())
        .for_each(gone);
    asking.join().expect("it has ended");
}

#[test]
fn a_request_of_the_era_before_never_reaches_the_server() {
    let (_world, _daemon, _serve, raw, mut client) = raw("");
    let mut reply = client.modern("initialize", &json!({}));
    reply.must_be(404);
    assert_eq!(reply.message()["error"]["code"], -32601);
    let modern = [("MCP-Protocol-Version", "2026-07-28")];
    client
        .ask(
            "POST",
            &modern,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        )
        .must_be(202);
    client.modern("ping", &json!({})).must_be(200);
    assert!(heard(&raw, "initialize").is_empty());
}

/// It has to ask for the log, to be told by nobody else's.
#[test]
fn a_log_message_reaches_the_only_client_that_it_can_be_for() {
    let (_world, _daemon, _serve, raw, mut client) = raw("");
    let log = || {
        raw.say(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#);
    };
    let wants = json!({"_meta": {"io.modelcontextprotocol/logLevel": "info"}});
    let (one, silent) = (hold(&client, &raw, &wants), hold(&client, &raw, &json!({})));
    log();
    let mut one = one.join().expect("a reply");
    assert_eq!(one.said().message()["params"]["data"], 1);
    one.hang_up();
    raw.wait_heard("notifications/cancelled");
    let two = hold(&client, &raw, &wants);
    // It may be of the request that was cancelled.
    log();
    raw.say(&answer(2));
    raw.say(&answer(1));
    assert_eq!(
        two.join().expect("a reply").header("content-type"),
        Some("application/json")
    );
    assert_eq!(
        silent.join().expect("a reply").header("content-type"),
        Some("application/json")
    );
    client.modern("ping", &json!({})).must_be(200);
}

/// Its answers are those of the SDK's own HTTP, and a kill of `serve` loses nothing but what is
/// under way.
#[test]
#[ignore = "needs node"]
fn a_server_that_speaks_http_gets_the_requests_as_they_came() {
    let world = world("http.hold_ms = 500");
    let _daemon = world.daemon();
    let mut upstream = world.upstream(
        &["node".into(), fixture("node/modern.mjs"), "http".into()],
        &[],
    );
    let mut serve = world.serve(&["--name", "test", "--upstream", &upstream.url], &[]);
    let mut client = serve.client();
    let discovered = client.modern("server/discover", &json!({})).message();
    assert_eq!(
        discovered["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    assert_eq!(client.modern("nope", &json!({})).status, 404);
    assert_eq!(
        client.modern_text("test_simple_text"),
        "This is a simple text response for testing."
    );
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = client.modern("subscriptions/listen", &filter);
    let said = listening.said().message();
    assert_eq!(said["method"], "notifications/subscriptions/acknowledged");
    serve.kill();
    serve.start_again();
    assert_eq!(
        client.modern_text("test_simple_text"),
        "This is a simple text response for testing."
    );
    let mut listening = client.modern("subscriptions/listen", &filter);
    listening.said();
    upstream.kill();
    assert_eq!(listening.event(), None, "its stream ends with the server");
    let mut reply = client.modern("ping", &json!({}));
    reply.must_be(502);
    assert_eq!(reply.message()["id"], client.last);
}

#[test]
fn the_server_has_a_place_among_the_sessions_and_ends_when_it_is_idle() {
    let (world, _daemon, mut serve, raw, mut client) = raw("http.sessions = 1");
    let holding = hold(&client, &raw, &json!({}));
    assert_eq!(serve.client().begin("2025-11-25", &[]).status, 503);
    let server = world
        .processes()
        .into_iter()
        .find(|pid| *pid != serve.pid())
        .expect("a server");
    raw.say(&answer(0));
    assert_eq!(holding.join().expect("a reply").status, 200);
    // The next process ends it soon. Its session lives on, however busy the machine is: the first
    // one has said for how long.
    world.configure("http.sessions = 1\nhttp.idle_ms = 2000");
    serve.kill();
    serve.start_again();
    client.modern("ping", &json!({})).must_be(200);
    gone(server);
    client.modern("ping", &json!({})).must_be(200);
}
