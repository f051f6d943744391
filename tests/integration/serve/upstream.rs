//! Servers that speak Streamable HTTP themselves, behind `serve --upstream`: they are killed, and
//! so is `serve`, in the middle of calls.

use std::time::Duration;

use mcp_sessiond_tests::{
    Daemon, HttpClient, OwnPort, Reply, Serve, Upstream, World, signal, until,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::wrap::{gate, open};
use crate::{fixture, world};

/// An Express server on the official SDK.
fn express() -> Vec<String> {
    vec!["node".into(), fixture("node/express.mjs")]
}

/// A FastMCP server.
fn fastmcp() -> Vec<String> {
    // Where tests/run has installed it.
    vec![
        fixture("../target/fastmcp/bin/python"),
        fixture("python/upstream.py"),
    ]
}

/// A server on the official Rust SDK, which numbers its events.
fn rmcp() -> Vec<String> {
    vec![env!("CARGO_BIN_EXE_rmcp-server").into()]
}

/// However long requests wait for one that restarts.
#[test]
fn a_server_that_was_never_there_is_said_not_to_be_at_once() {
    let world = world("http.hold_ms = 600000\n");
    let _daemon = world.daemon();
    let nobody = OwnPort::take();
    let url = format!("http://127.0.0.1:{}/mcp", nobody.number);
    let serve = world.serve(&["--name", "test", "--upstream", &url], &[]);
    assert_eq!(serve.client().begin("2025-11-25", &[]).status, 502);
}

/// Not the client's; and a secret need not stand on the command line.
#[test]
#[ignore = "needs python3"]
fn its_server_gets_the_headers_that_it_is_given() {
    let world = world("");
    let _daemon = world.daemon();
    let server = crate::remote::pinged(&world);
    let secret = world.root().join("secret");
    std::fs::write(&secret, "hidden\n").expect("written");
    let header = format!("X-Key=a ${{file:{}}}", secret.display());
    let options = ["--name", "test", "--upstream", &server.url];
    let serve = world.serve(
        &[&options[..], &["--upstream-header", &header]].concat(),
        &[],
    );
    let mut client = serve.connected("2025-11-25");
    let answer = client.call("x", &json!({})).answer();
    assert_eq!(answer["result"]["key"], "a hidden");
    for (header, why) in [
        ("X-Key", "a header is NAME=VALUE"),
        ("Mcp-Session-Id=1", "it is set here"),
        ("X-Key=${env:NOT_THERE}", "NOT_THERE"),
    ] {
        let words = [&["serve"], &options[..], &["--upstream-header", header]].concat();
        let refused = world.sessiond(&words).output().expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(64) && said.contains(why),
            "{said}"
        );
    }
}

/// A key of the user's own, say: a session belongs to the key with which it was begun.
#[test]
#[ignore = "needs python3"]
fn a_client_s_own_header_reaches_the_server_and_is_part_of_whose_the_session_is() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = crate::remote::pinged(&world);
    let url = server.url.clone();
    let options = ["--name", "test", "--upstream", &url];
    let mut serve = world.serve(&[&options[..], &["--pass-header", "X-Key"]].concat(), &[]);
    let with = |serve: &Serve, key: &str| {
        let mut client = serve.client();
        client.headers.push(("X-Key".into(), key.into()));
        client
    };
    let key =
        |client: &mut HttpClient| client.call("x", &json!({})).answer()["result"]["key"].clone();
    let mut ann = with(&serve, "ann's");
    ann.initialize("2025-11-25");
    assert_eq!(key(&mut ann), "ann's");
    let mut bob = with(&serve, "bob's");
    bob.initialize("2025-11-25");
    assert_eq!(key(&mut bob), "bob's");
    let ping = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
    // An empty one is left out.
    for other in ["bob's", ""] {
        let refused = ann.ask("POST", &[("X-Key", other)], ping);
        assert_eq!(refused.status, 404, "{other:?}");
    }
    let twice = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nX-Key: a\r\nX-Key: b\r\nContent-Length: 0\r\n\r\n",
        ann.at
    );
    assert_eq!(ann.send(&twice).status, 400);
    // The next `serve` hears it from the client: it is stored nowhere.
    serve.kill();
    serve.start_again();
    assert_eq!(key(&mut ann), "ann's");
    // So does the next server.
    server.kill();
    server.start_again();
    until("the server is back", || {
        (key(&mut ann) == "ann's").then_some(())
    });
    let mut modern = with(&serve, "eve's");
    let mut listed = modern.modern("tools/list", &json!({}));
    assert_eq!(listed.message()["result"]["key"], "eve's");
    for (name, more, why) in [
        ("Cookie", &[][..], "cookies are kept"),
        ("Mcp-Session-Id", &[], "it is set here"),
        ("Authorization", &["--token"], "the token for `serve`"),
        ("X-Key", &["--upstream-header", "x-key=a"], "would get two"),
    ] {
        let words = [&["serve"], &options[..], more, &["--pass-header", name]].concat();
        let refused = world.sessiond(&words).output().expect("it runs");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            refused.status.code() == Some(64) && said.contains(why),
            "{said}"
        );
    }
}

/// A world with a daemon, with an Express server, and with `serve` in front of it.
pub(super) fn behind(configuration: &str, options: &[&str]) -> (World, Daemon, Upstream, Serve) {
    in_front_of(&express(), configuration, options)
}

/// The same with any server.
fn in_front_of(
    server: &[String],
    configuration: &str,
    options: &[&str],
) -> (World, Daemon, Upstream, Serve) {
    let world = world(configuration);
    let daemon = world.daemon();
    let server = world.upstream(server, options);
    let serve = world.serve(&["--name", "test", "--upstream", &server.url], &[]);
    (world, daemon, server, serve)
}

/// Begins a call that waits at a gate. Returns its stream, and the event that it is resumed by.
fn begin(client: &mut HttpClient, tool: &str, gate: &str) -> (Reply, String) {
    let mut call = client.call(tool, &json!({"gate": gate, "n": 3}));
    let event = call.said();
    (call, event.id.expect("an id"))
}

/// Whether all streams of the client's calls are closed, as the daemon says.
fn is_answered(world: &World, client: &HttpClient) -> bool {
    let sub = nix::unistd::geteuid().to_string();
    let caller = json!({"kind": "identity", "iss": "uid", "sub": sub});
    let of = json!({"service": "serve.test", "session": client.session(), "caller": caller});
    let streams = world
        .peer()
        .call("list_streams", json!({"of": of}))
        .expect("a list");
    let mut streams = streams.as_array().expect("a list").iter();
    streams.all(|stream| stream["closed"] == true || stream["stream"] == "_GET_stream")
}

fn outcome(answer: &Value) -> &Value {
    &answer["error"]["data"]["outcome"]
}

#[test]
#[ignore = "needs node"]
fn calls_notifications_and_questions_pass() {
    for options in [&[][..], &["events"], &["json"]] {
        let (world, _daemon, server, serve) = behind("", options);
        for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
            let mut client = serve.connected(version);
            assert_eq!(client.text("increment", &json!({})), "1", "{options:?}");
            let mut stream = client.listen();
            let gate = gate(&world, version);
            assert_eq!(client.text("notify", &json!({"n": 2, "gate": gate})), "2");
            open(&gate);
            for data in 1..=2 {
                assert_eq!(
                    stream.said().message()["params"]["data"],
                    data,
                    "{options:?} {version}"
                );
            }
            if options != ["json"] {
                let mut asking = client.call("ask", &json!({"prompt": "Well?"}));
                let asked = asking.said().message();
                assert_eq!(asked["method"], "sampling/createMessage", "{asked}");
                let content = json!({"type": "text", "text": "Fine."});
                let result = json!({"role": "assistant", "model": "none", "content": content});
                client
                    .post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
                    .must_be(202);
                assert_eq!(asking.answer()["result"]["content"][0]["text"], "Fine.");
            }
            assert_eq!(client.text("increment", &json!({})), "2");
            let before = server.told.len();
            assert_eq!(client.ask("DELETE", &[], "").status, 204);
            server.told.wait_from(before, &["closed"]);
        }
        assert_eq!(server.handshakes(), 3);
    }
}

/// Whenever it is killed. Nobody but `serve` misses it.
#[test]
#[ignore = "needs node"]
fn a_daemon_that_is_killed_during_a_call_is_started_for_what_the_call_needs() {
    let world = world("");
    let server = world.upstream(&express(), &[]);
    let options = ["--name", "test", "--upstream", &server.url];
    let serve = world.serve_with_daemon(&options, &[]);
    let mut client = serve.connected("2025-11-25");
    for nth in 1..=60 {
        // It starts a daemon that was killed behind the last answer.
        let count = client.text("increment", &json!({}));
        assert_eq!(count, (2 * nth - 1).to_string());
        let pid = world.daemon_pid();
        let killing = std::thread::spawn(move || {
            // A call takes some milliseconds.
            std::thread::sleep(Duration::from_micros(nth * 83));
            signal(pid, Signal::SIGKILL);
        });
        let count = client.text("increment", &json!({}));
        assert_eq!(count, (2 * nth).to_string());
        killing.join().expect("it is ours");
    }
}

/// The server counts its requests from 0 after each start.
#[test]
#[ignore = "needs node"]
fn an_answer_to_a_server_that_was_killed_reaches_no_other() {
    let (_world, _daemon, mut server, serve) = behind("", &[]);
    let mut client = serve.connected("2025-11-25");
    let mut ask = || {
        let mut asking = client.call("ask", &json!({"prompt": "Well?"}));
        // A server that was started again may have other lists, which is said first.
        let is_ask = |said: &Value| said["method"] == "sampling/createMessage";
        let asked = std::iter::repeat_with(|| asking.said().message())
            .find(is_ask)
            .expect("it asks");
        (asking, asked["id"].clone())
    };
    let (mut first, former) = ask();
    server.kill();
    server.start_again();
    assert_eq!(first.answer()["error"]["data"]["outcome"], "unknown");
    let (mut second, asked) = ask();
    for (id, text) in [(former, "to the first"), (asked, "to the second")] {
        let content = json!({"type": "text", "text": text});
        let result = json!({"role": "assistant", "model": "none", "content": content});
        client
            .post(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
            .must_be(202);
    }
    assert_eq!(
        second.answer()["result"]["content"][0]["text"],
        "to the second"
    );
}

#[test]
#[ignore = "needs node"]
fn a_server_that_is_killed_in_the_middle_of_a_call_has_it_answered_and_knows_the_session_again() {
    for options in [&[][..], &["events"], &["json"]] {
        let (world, _daemon, mut server, serve) = behind("", options);
        let mut client = serve.connected("2025-11-25");
        assert_eq!(client.text("increment", &json!({})), "1");
        let waits = gate(&world, "gate");
        let mut call = client.call("slow", &json!({"gate": waits}));
        if options == ["json"] {
            call.event().expect("primed");
        } else {
            assert_eq!(call.said().message()["params"]["logger"], "slow");
        }
        server.kill();
        server.start_again();
        let answer = call.answer();
        assert_eq!(
            (&answer["id"], outcome(&answer)),
            (&json!(client.last), &json!("unknown")),
            "{options:?}: {answer}"
        );
        assert_eq!(
            client.text("increment", &json!({})),
            "1",
            "the new server counts anew, in the same session"
        );
        assert_eq!(server.handshakes(), 1, "the recorded handshake, once");
    }
}

#[test]
#[ignore = "needs node"]
fn a_server_that_has_forgotten_its_sessions_is_told_them_again_and_no_call_fails() {
    let (world, _daemon, mut server, serve) = behind("http.hold_ms = 30000", &[]);
    let mut clients: Vec<HttpClient> = (0..3).map(|_| serve.connected("2025-06-18")).collect();
    for client in &mut clients {
        assert_eq!(client.text("increment", &json!({})), "1");
    }
    let mut listener = clients.remove(0);
    let mut stream = listener.listen();
    server.kill();
    // Held until the server is there again.
    let waiting =
        |mut client: HttpClient| std::thread::spawn(move || client.text("increment", &json!({})));
    let waiting: Vec<_> = clients.into_iter().map(waiting).collect();
    server.start_again();
    for waiting in waiting {
        assert_eq!(waiting.join().expect("answered"), "1");
    }
    let said = stream.said().message();
    assert_eq!(
        said["method"], "notifications/tools/list_changed",
        "it may be another server"
    );
    let gate = gate(&world, "gate");
    assert_eq!(listener.text("notify", &json!({"n": 1, "gate": gate})), "1");
    open(&gate);
    assert_eq!(stream.said().message()["params"]["data"], 1);
}

#[test]
#[ignore = "needs node"]
fn the_official_client_keeps_its_session_when_its_server_is_killed() {
    let (world, _daemon, mut server, serve) = behind("http.retry_ms = 50", &[]);
    let mut host = world.node_host();
    host.order(json!({"do": "connect", "as": "main", "url": serve.url()}));
    assert_eq!(host.count("main"), 1);
    let slow = host.begin_slow("main", &gate(&world, "gate"));
    server.kill();
    server.start_again();
    let error = host.answer(slow).expect_err("nobody knows");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|said| said.contains("outcome of this call is unknown")),
        "{error}"
    );
    assert_eq!(
        host.count("main"),
        1,
        "in the same session, without a new handshake of the client's"
    );
    let sessions = world
        .peer()
        .call("list_own_sessions", json!({"service": "serve.test"}))
        .expect("a list");
    assert_eq!(sessions.as_array().map(Vec::len), Some(1));
}

/// `serve` is killed in the middle of a call, of which the server says the rest again, once it is
/// `ready`.
fn the_rest_is_had(program: &[String], options: &[&str], ready: impl Fn(&Upstream)) {
    for version in ["2025-06-18", "2025-11-25"] {
        let (world, _daemon, server, mut serve) = in_front_of(program, "", options);
        let mut client = serve.connected(version);
        let waits = gate(&world, "gate");
        let (_, event) = begin(&mut client, "steps", &waits);
        serve.kill();
        serve.start_again();
        let mut back = client.resume(&event);
        ready(&server);
        open(&waits);
        for step in 2..=3 {
            let said = back.said().message();
            assert_eq!(
                said["params"]["progress"].as_f64(),
                Some(f64::from(step)),
                "{version}: {said}"
            );
        }
        let answer = back.said().message();
        assert_eq!(answer["id"], client.last, "{answer}");
        assert_eq!(answer["result"]["content"][0]["text"], "3", "{answer}");
        assert_eq!(back.event(), None, "it is said to its end");
        assert_eq!(client.text("increment", &json!({})), "1");
        assert_eq!(server.handshakes(), 1, "the same session of the server's");
    }
}

/// `serve` is killed in the middle of a call, and the server says nothing again.
fn the_outcome_is_unknown(program: &[String]) {
    let (world, _daemon, server, mut serve) = in_front_of(program, "", &[]);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    let waits = gate(&world, "gate");
    let (_, event) = begin(&mut client, "slow", &waits);
    serve.kill();
    // It is looked at from outside the session, without a cursor that one could wait at.
    until(
        "the daemon has carried out the last will of the stream",
        || is_answered(&world, &client).then_some(()),
    );
    serve.start_again();
    let mut back = client.resume(&event);
    let answer = back.answer();
    assert_eq!(
        (&answer["id"], outcome(&answer)),
        (&json!(client.last), &json!("unknown")),
        "{answer}"
    );
    assert_eq!(back.event(), None, "it is said to its end");
    open(&waits);
    let count = client.text("increment", &json!({})).parse::<u64>();
    assert!(count.is_ok_and(|count| count > 1), "the same server");
    assert_eq!(server.handshakes(), 1);
}

/// The server is killed in the middle of a call, and then between two.
fn the_session_is_restored(program: &[String], options: &[&str]) {
    let (world, _daemon, mut server, serve) = in_front_of(program, "", options);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    let (mut call, _) = begin(&mut client, "steps", &gate(&world, "gate"));
    for is_open in [true, false] {
        server.kill();
        server.start_again();
        if is_open {
            let answer = call.answer();
            assert_eq!(
                (&answer["id"], outcome(&answer)),
                (&json!(client.last), &json!("unknown")),
                "{answer}"
            );
        }
        assert_eq!(
            client.text("increment", &json!({})),
            "1",
            "another server, in the same session"
        );
        assert_eq!(server.handshakes(), 1, "the recorded handshake, once");
    }
}

/// Both are killed in the middle of a call.
fn both_are_killed(program: &[String], options: &[&str]) {
    let (world, _daemon, mut server, mut serve) = in_front_of(program, "", options);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    let (_, event) = begin(&mut client, "steps", &gate(&world, "gate"));
    serve.kill();
    server.kill();
    server.start_again();
    serve.start_again();
    let answer = client.resume(&event).answer();
    assert_eq!(outcome(&answer), "unknown", "{answer}");
    assert_eq!(client.text("increment", &json!({})), "1");
    assert_eq!(server.handshakes(), 1);
}

#[test]
#[ignore = "needs node"]
fn behind_express_on_the_official_sdk_serve_is_killed_and_the_rest_is_had() {
    the_rest_is_had(&express(), &["events"], |_| ());
}

#[test]
#[ignore = "needs node"]
fn behind_express_without_events_serve_is_killed_and_the_outcome_is_unknown() {
    the_outcome_is_unknown(&express());
}

#[test]
#[ignore = "needs node"]
fn behind_express_both_are_killed() {
    both_are_killed(&express(), &[]);
    both_are_killed(&express(), &["events"]);
}

#[test]
#[ignore = "needs python3"]
fn behind_fastmcp_serve_is_killed_and_the_rest_is_had() {
    the_rest_is_had(&fastmcp(), &["events"], |_| ());
}

#[test]
#[ignore = "needs python3"]
fn behind_fastmcp_without_events_serve_is_killed_and_the_outcome_is_unknown() {
    the_outcome_is_unknown(&fastmcp());
}

#[test]
#[ignore = "needs python3"]
fn fastmcp_is_killed_and_its_session_is_restored() {
    the_session_is_restored(&fastmcp(), &["events"]);
}

#[test]
#[ignore = "needs python3"]
fn behind_fastmcp_both_are_killed() {
    both_are_killed(&fastmcp(), &["events"]);
}

#[test]
fn behind_rmcp_serve_is_killed_and_the_rest_is_had() {
    // The stream of the first call, whose events are 0/0, 1/0 and so on.
    the_rest_is_had(&rmcp(), &[], |server| drop(server.told.wait("/0")));
}

#[test]
fn rmcp_is_killed_and_its_session_is_restored() {
    the_session_is_restored(&rmcp(), &[]);
}

#[test]
fn behind_rmcp_both_are_killed() {
    both_are_killed(&rmcp(), &[]);
}

#[test]
#[ignore = "needs node"]
fn what_belongs_to_no_call_is_heard_after_a_kill_of_serve() {
    let (world, _daemon, _server, mut serve) = behind("", &["events"]);
    let mut client = serve.connected("2025-11-25");
    let mut stream = client.listen();
    let mut last = stream.event().expect("primed").id.expect("an id");
    for round in 0..3 {
        let gate = gate(&world, &format!("gate-{round}"));
        assert_eq!(client.text("notify", &json!({"n": 2, "gate": gate})), "2");
        // While nobody listens, in every other round.
        if round % 2 == 1 {
            serve.kill();
            open(&gate);
            serve.start_again();
            stream = client.resume(&last);
        } else {
            open(&gate);
        }
        for data in 1..=2 {
            let event = stream.said();
            assert_eq!(event.message()["params"]["data"], data, "round {round}");
            last = event.id.expect("an id");
        }
    }
}

#[test]
#[ignore = "needs node"]
fn what_cannot_be_served_is_refused_with_its_reason() {
    let world = world("http.hold_ms = 200");
    let _daemon = world.daemon();
    let server = world.upstream(&express(), &[]);
    let refused = |arguments: &[&str]| {
        let output = world
            .sessiond(&[&["serve", "--no-start"], arguments].concat())
            .output()
            .expect("serve");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, said) = refused(&["--upstream", &server.url, "--", "cat"]);
    assert!(code == Some(64) && said.contains("--upstream"), "{said}");
    let (code, said) = refused(&["--upstream", "https://example.org/mcp"]);
    assert!(code == Some(64) && said.contains("TLS"), "{said}");
    let (code, said) = refused(&[]);
    assert_eq!(code, Some(64), "{said}");

    let elsewhere = server.url.replace("/mcp", "/elsewhere");
    let serve = world.serve(&["--name", "elsewhere", "--upstream", &elsewhere], &[]);
    let answer = serve.client().begin("2025-11-25", &[]).message();
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|said| said.contains("404")),
        "{answer}"
    );
    let url = server.url.clone();
    drop(server);
    let serve = world.serve(&["--name", "nobody", "--upstream", &url], &[]);
    let mut reply = serve.client().begin("2025-11-25", &[]);
    reply.must_be(502);
    assert!(reply.text().contains(&url));
}

#[test]
#[ignore = "needs node"]
fn status_says_where_the_server_is_and_how_many_sessions_it_has() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.upstream(&express(), &[]);
    let secret = format!("{}?key=secret", server.url);
    let mut serve = world.serve(&["--name", "test", "--upstream", &secret], &[]);
    let clients = [serve.connected("2025-11-25"), serve.connected("2025-11-25")];
    assert_eq!(clients[0].ask("DELETE", &[], "").status, 204);
    let said = |options: &[&str]| {
        let said = world
            .sessiond(&[&["status"], options].concat())
            .output()
            .expect("status");
        (
            said.status.code(),
            String::from_utf8_lossy(&said.stdout).into_owned(),
        )
    };
    let (code, json) = said(&["--json"]);
    let known: Value = serde_json::from_str(&json).expect("JSON");
    let expected =
        json!({"url": server.url, "service": "serve.test", "pid": serve.pid(), "sessions": 1});
    let known = known["upstreams"][0]
        .as_object()
        .expect("an upstream")
        .clone();
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&known[name], value, "{name}");
    }
    let (_, text) = said(&["--wide"]);
    let line = text
        .lines()
        .find(|line| line.starts_with(&server.url))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(
        line.contains("serve.test") && line.contains("in use"),
        "{text}"
    );
    assert!(
        code == Some(0) && text.contains("one session") && !text.contains("not kept"),
        "{text}"
    );
    assert!(!text.contains("secret") && !json.contains("secret"));
    serve.kill();
    assert!(!said(&[]).1.contains("http://"));
}
