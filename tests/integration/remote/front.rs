//! `wrap` before a server with a URL: the session with the server outlives the front, and nobody
//! else gets it.

use mcp_sessiond_tests::{Client, Front, World};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::login::Guarded;
use super::{express, resumable};
use crate::several::all;
use crate::told_to_models::wrapping;
use crate::world;
use crate::wrap::{gate, open, wrapped};

/// This test as host of the server at this URL.
fn connect(world: &World, url: &str) -> Client<Front> {
    Client::connected(world.front(&wrapped(world, &[url.to_owned()])))
}

/// How far the server's session is.
fn count(client: &mut Client<Front>) -> String {
    client.call("increment", json!({}))
}

/// Begins a call that tells its progress, and waits until it does.
fn begin_steps(client: &mut Client<Front>, gate: &str) -> u64 {
    let params = json!({"name": "steps", "arguments": {"n": 3, "gate": gate}, "_meta": {"progressToken": "p"}});
    let id = client.request("tools/call", params);
    let is_first =
        |params: &Value| params["progressToken"] == "p" && params["progress"].as_f64() == Some(1.0);
    client.said(|message| is_first(&message["params"]));
    id
}

/// A host that was seen to start a killed server again.
const CUT: &str = "[{ executable = \"*\", resume = \"cut\" }]";

#[test]
#[ignore = "needs node"]
fn a_used_session_of_an_unknown_host_ends_with_its_connection() {
    let world = world("").with_hosts("[]");
    let _daemon = world.daemon();
    let servers = resumable(&world);
    let (_, server) = &servers[0];
    let mut client = connect(&world, &server.url);
    assert_eq!(count(&mut client), "1");
    client.pipe.kill();
    let mut client = connect(&world, &server.url);
    assert_eq!(count(&mut client), "1", "after a cut");
    client.pipe.errors.wait("`--resume cut` keeps it");
}

#[test]
#[ignore = "needs node"]
fn a_close_ends_the_session_and_a_cut_does_not() {
    let world = world("").with_hosts(CUT);
    let mut daemon = world.daemon();
    let servers = resumable(&world);
    let (_, server) = &servers[0];
    let mut client = connect(&world, &server.url);
    assert_eq!(count(&mut client), "1");
    client.pipe.kill();
    let mut client = connect(&world, &server.url);
    assert_eq!(count(&mut client), "2", "after a cut");
    client.pipe.close();
    // At once: the former front may not have read its end yet.
    let mut client = connect(&world, &server.url);
    assert_eq!(count(&mut client), "1", "after a close");
    client.pipe.errors.wait("`--resume always` keeps it");
    // There is no keeper that could say it, and no daemon that could be told.
    daemon.kill();
    client.pipe.signal(Signal::SIGTERM);
    client.pipe.wait();
    // A front starts the next one.
    let mut client = connect(&world, &server.url);
    assert_eq!(count(&mut client), "1", "closed without a daemon");
}

/// There is no keeper that waits for the host: the daemon has the time of the close, and of the start.
#[test]
#[ignore = "needs node"]
fn a_host_that_names_the_conversation_has_its_session_again_only_if_it_reconnects_at_once() {
    for (again, next) in [(1, "1"), (60_000, "2")] {
        let world = world(&format!("[backends]\nclosed_again_ms = {again}\n"))
            .with_hosts("[{ executable = \"*\", conversation = \"CHAT\" }]");
        let _daemon = world.daemon();
        let servers = resumable(&world);
        let words = wrapped(&world, std::slice::from_ref(&servers[0].1.url));
        let connect = || Client::connected(world.front_with(&words, &[("CHAT", "one")]));
        let mut client = connect();
        assert_eq!(count(&mut client), "1", "{again}");
        client.pipe.close();
        client.pipe.wait();
        assert_eq!(count(&mut connect()), next, "{again}");
    }
}

/// Its host has begun no conversation that the signal could close.
#[test]
#[ignore = "needs node"]
fn a_signal_to_a_front_that_was_only_probed_closes_nothing() {
    for is_listed in [false, true] {
        let world = world("").with_hosts(CUT);
        let _daemon = world.daemon();
        let servers = resumable(&world);
        let words = if is_listed {
            wrapping(&world, (&["--all"], true))
        } else {
            wrapped(&world, std::slice::from_ref(&servers[0].1.url))
        };
        let mut client = Client::connected(world.front(&words));
        assert_eq!(count(&mut client), "1", "{is_listed}");
        client.pipe.kill();
        let mut probing = Client::new(world.front(&words));
        let meta = json!({"io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
        let probe = probing.request("server/discover", json!({"_meta": meta}));
        assert!(probing.answer(probe)["error"].is_object(), "{is_listed}");
        probing.pipe.signal(Signal::SIGTERM);
        probing.pipe.wait();
        let mut client = Client::connected(world.front(&words));
        assert_eq!(count(&mut client), "2", "{is_listed}");
    }
}

#[test]
#[ignore = "needs node"]
fn a_killed_front_leaves_the_session_and_its_call_is_taken_up() {
    let world = world("");
    let _daemon = world.daemon();
    for (sdk, server) in resumable(&world) {
        let mut client = connect(&world, &server.url);
        assert_eq!(count(&mut client), "1", "{sdk}");
        let waits = gate(&world, sdk);
        let id = begin_steps(&mut client, &waits);
        client.pipe.kill();
        let mut client = connect(&world, &server.url);
        client
            .pipe
            .errors
            .wait("the session that an earlier connection had with the server goes on");
        if sdk == "Rust" {
            // What such a server says on a stream that has no connection is lost. This is the
            // second call's.
            server.told.wait_from(0, &["resumed 0/1", "resumed 1/1"]);
        }
        open(&waits);
        client
            .pipe
            .errors
            .wait("the answer to a call of an earlier connection was dropped");
        // The same id is another call by now, and gets its own answer.
        client.last = id - 1;
        assert_eq!(client.request("ping", json!({})), id, "{sdk}");
        assert_eq!(client.answer(id)["result"], json!({}), "{sdk}");
        assert_eq!(count(&mut client), "2", "{sdk}: the same session");
        assert_eq!(server.handshakes(), 1, "{sdk}");
        // Closed by the host, it stays, too.
        client.pipe.close();
        assert!(client.pipe.wait().success(), "{sdk}");
        let mut client = connect(&world, &server.url);
        assert_eq!(count(&mut client), "3", "{sdk}: the same session");
    }
}

#[test]
#[ignore = "needs node"]
fn a_call_that_can_not_be_resumed_is_told_and_the_session_stays() {
    let world = world("");
    let _daemon = world.daemon();
    let server = express(&world, &[]);
    let mut client = connect(&world, &server.url);
    let waits = gate(&world, "gate");
    client.begin_slow(&waits);
    client.pipe.kill();
    let mut client = connect(&world, &server.url);
    client
        .pipe
        .errors
        .wait("the outcome of a call of an earlier connection is unknown");
    open(&waits);
    assert_ne!(count(&mut client), "", "it listens");
    assert_eq!(server.handshakes(), 1);
}

#[test]
#[ignore = "needs node"]
fn a_server_that_was_deployed_anew_gets_another_session_and_the_user_is_told() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = express(&world, &["events"]);
    let mut client = connect(&world, &server.url);
    assert_eq!(count(&mut client), "1");
    server.kill();
    server.start_again();
    assert_eq!(count(&mut client), "1", "while the front runs");
    client.pipe.errors.wait(
        "the server has forgotten the previous session: what was in the previous one is lost",
    );
    client.said(|message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(
        (count(&mut client), server.handshakes()),
        ("2".to_owned(), 1)
    );
    client.pipe.kill();
    server.kill();
    server.start_again();
    let mut client = connect(&world, &server.url);
    client.pipe.errors.wait(
        "the server has forgotten the previous session: what was in the previous one is lost",
    );
    assert_eq!(
        (count(&mut client), server.handshakes()),
        ("1".to_owned(), 1),
        "between two fronts"
    );
    client.pipe.kill();
    let mut client = connect(&world, &server.url);
    assert_eq!(
        (count(&mut client), server.handshakes()),
        ("2".to_owned(), 1),
        "that one is kept"
    );
}

#[test]
#[ignore = "needs node"]
fn a_killed_daemon_is_not_noticed() {
    // A daemon that the wrapper starts has what is in the file alone.
    let world = world("[[hosts]]\nexecutable = \"*\"\nresume = \"always\"\n");
    let mut daemon = world.daemon();
    let server = express(&world, &["events"]);
    let mut client = connect(&world, &server.url);
    let waits = gate(&world, "gate");
    let slow = client.begin_slow(&waits);
    daemon.kill();
    open(&waits);
    assert_eq!(client.text(slow), Ok("1".to_owned()));
    // The wrapper may have started one already: then this one finds the directory taken, and exits.
    daemon.start_with(&[]);
    let _ = daemon.ready_or_ended();
    assert_eq!(count(&mut client), "2");
    client.pipe.kill();
    let mut client = connect(&world, &server.url);
    assert_eq!(
        (count(&mut client), server.handshakes()),
        ("3".to_owned(), 1),
        "the same session"
    );
}

#[test]
#[ignore = "needs node"]
fn without_a_daemon_calls_go_on_and_nothing_is_kept() {
    let world = world("");
    let server = express(&world, &["events"]);
    let words = world.wrapping(&["--no-start"], std::slice::from_ref(&server.url));
    for handshakes in 1..=2 {
        let mut client = Client::connected(world.front(&words));
        client.pipe.errors.wait("will not survive a reconnect");
        assert_eq!(
            (count(&mut client), server.handshakes()),
            ("1".to_owned(), handshakes)
        );
        client.pipe.kill();
    }
    // It goes while a front runs, and calls go on.
    let mut daemon = world.daemon();
    let mut client = Client::connected(world.front(&words));
    assert_eq!(count(&mut client), "1");
    daemon.kill();
    assert_eq!(count(&mut client), "2");
    client
        .pipe
        .errors
        .wait("can't be stored now, and calls go on without it");
}

#[test]
#[ignore = "needs node"]
fn each_message_of_a_batch_is_answered_once_and_what_is_none_is_refused() {
    let world = world("");
    let _daemon = world.daemon();
    let server = express(&world, &["events"]);
    let mut client = connect(&world, &server.url);
    let call = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "increment"}});
    let batch = json!([call("a"), {"id": "b"}, call("c")]);
    client.pipe.send(format!("{batch}\nnonsense\n").as_bytes());
    let mut answers = std::collections::BTreeMap::new();
    for _ in 0..4 {
        let answer = client.said(|message| message.get("method").is_none());
        let outcome = answer["error"]["code"]
            .as_i64()
            .or(answer["result"].is_object().then_some(0));
        assert_eq!(
            answers.insert(answer["id"].to_string(), outcome),
            None,
            "{answer}"
        );
    }
    let expected = [
        (r#""a""#, 0),
        (r#""b""#, -32600),
        (r#""c""#, 0),
        ("null", -32700),
    ];
    assert_eq!(
        answers,
        expected
            .map(|(id, outcome)| (id.to_owned(), Some(outcome)))
            .into()
    );
    assert_eq!(count(&mut client), "3", "and nothing else was said");
}

#[test]
#[ignore = "needs node"]
fn two_fronts_of_a_host_at_once_have_a_session_each() {
    let world = world("claim_wait_ms = 100");
    let _daemon = world.daemon();
    let server = express(&world, &["events"]);
    let (mut first, mut second) = (connect(&world, &server.url), connect(&world, &server.url));
    assert_eq!(
        (count(&mut first), count(&mut first), count(&mut second)),
        ("1".into(), "2".into(), "1".into())
    );
    assert_eq!(server.handshakes(), 2);
    // Another host's is another one's, and one that introduces itself in another way has another
    // one.
    first.pipe.kill();
    second.pipe.kill();
    let mut other = Client::connected_as(
        "other",
        world.front(&wrapped(&world, std::slice::from_ref(&server.url))),
    );
    assert_eq!(count(&mut other), "1");
}

/// The text that `whoami` answers, through a front of `wrap @test`.
fn at_name(guarded: &Guarded) -> Client<Front> {
    Client::connected(
        guarded
            .world
            .front(&wrapped(&guarded.world, &["@test".to_owned()])),
    )
}

#[test]
#[ignore = "needs python3"]
fn with_another_login_a_session_is_begun_anew_and_never_resumed() {
    let guarded = Guarded::new();
    let _daemon = guarded.world.daemon();
    guarded.login();
    let mut client = at_name(&guarded);
    client.call("whoami", json!({}));
    client.pipe.kill();
    let mut client = at_name(&guarded);
    client.call("whoami", json!({}));
    assert_eq!(
        guarded.count("handshakes"),
        1,
        "the same login, the same session"
    );
    // A token that was refreshed is of the same login.
    guarded.control("refuse=1");
    client.call("whoami", json!({}));
    assert_eq!(
        (guarded.count("handshakes"), guarded.count("refreshes")),
        (1, 1)
    );
    guarded.login();
    client.call("whoami", json!({}));
    client
        .pipe
        .errors
        .wait("the previous session belongs to another login");
    assert_eq!(guarded.count("handshakes"), 2, "while the front runs");
    client.pipe.kill();
    guarded.login();
    let mut client = at_name(&guarded);
    client
        .pipe
        .errors
        .wait("the previous session belongs to another login");
    client.call("whoami", json!({}));
    assert_eq!(guarded.count("handshakes"), 3, "between two fronts");
    client.pipe.kill();
    let logout = guarded
        .world
        .sessiond(&["logout", "test"])
        .output()
        .expect("logout");
    assert!(logout.status.success());
    let mut client = Client::new(
        guarded
            .world
            .front(&wrapped(&guarded.world, &["@test".to_owned()])),
    );
    let answer = client.initialize();
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|said| said.contains("login test")),
        "{answer}"
    );
    assert_eq!(guarded.count("handshakes"), 3);
}

#[test]
#[ignore = "needs node"]
fn with_another_header_a_session_is_begun_anew_and_never_resumed() {
    let world = world("");
    let _daemon = world.daemon();
    let server = express(&world, &["events"]);
    let key = world.root().join("key");
    let entry =
        json!({"url": server.url, "headers": {"X-Key": format!("${{file:{}}}", key.display())}});
    let entries = json!({"mcpServers": {"test": entry}}).to_string();
    std::fs::write(world.root().join("servers.json"), entries).expect("a file");
    let front = || Client::connected(world.front(&wrapped(&world, &["@test".to_owned()])));
    for (value, counts) in [("a", ["1", "2"]), ("b", ["1", "2"])] {
        std::fs::write(&key, value).expect("a file");
        for expected in counts {
            let mut client = front();
            assert_eq!(count(&mut client), expected, "{value}");
            client.pipe.kill();
        }
    }
    assert_eq!(server.handshakes(), 2);
    // Nobody is told what the header or the server's id of the session is.
    let mut client = front();
    assert_eq!(count(&mut client), "3");
    let said = [
        client.pipe.errors.text(),
        world
            .listed("list_sessions")
            .iter()
            .map(ToString::to_string)
            .collect(),
    ];
    assert!(said.iter().all(|said| !said.contains("X-Key")), "{said:?}");
}

#[test]
#[ignore = "needs node"]
fn one_of_several_servers_keeps_its_session_too() {
    let world = world("");
    let _daemon = world.daemon();
    let server = express(&world, &["events"]);
    let entries = json!({"mcpServers": {"far": {"url": server.url}}}).to_string();
    std::fs::write(world.root().join("servers.json"), entries).expect("a file");
    let mut client = Client::connected(world.front(&all(&world, &[])));
    let waits = gate(&world, "gate");
    client.begin_slow(&waits);
    client.pipe.kill();
    let mut client = Client::connected(world.front(&all(&world, &[])));
    open(&waits);
    client
        .pipe
        .errors
        .wait("far: the answer to a call of an earlier connection was dropped");
    assert_eq!(
        (count(&mut client), server.handshakes()),
        ("2".to_owned(), 1)
    );
}

#[test]
#[ignore = "needs node"]
fn the_official_client_finds_its_session_again() {
    let world = world("");
    let _daemon = world.daemon();
    let server = express(&world, &["events"]);
    let mut host = world.node_host();
    for round in 1..=3 {
        let mut words = wrapped(&world, std::slice::from_ref(&server.url));
        words.insert(words.len() - 2, "--header".to_owned());
        words.insert(words.len() - 2, "X-Key: 1".to_owned());
        host.connect("main", &words);
        assert_eq!(host.call("main", "increment", json!({})), round.to_string());
        host.end("main", if round == 1 { "SIGKILL" } else { "SIGTERM" });
    }
    assert_eq!(server.handshakes(), 1);
}

#[test]
fn what_can_not_be_is_refused_with_a_sentence() {
    let world = world("");
    for (options, command, said) in [
        (
            &["--name", "x"][..],
            "http://127.0.0.1:1/mcp",
            "`--name` is for servers with a command",
        ),
        (
            &["--header", "X"],
            "http://127.0.0.1:1/mcp",
            "`NAME: VALUE`",
        ),
        (
            &["--header", "Host: x"],
            "http://127.0.0.1:1/mcp",
            "it is set here",
        ),
        (
            &["--header", "X: ${env:NOBODY_HAS_SET_THIS}"],
            "http://127.0.0.1:1/mcp",
            "NOBODY_HAS_SET_THIS",
        ),
        (
            &["--header", "X: y"],
            "true",
            "`--header` is for a server that is given by its URL",
        ),
        (
            &[],
            "http://user:secret@127.0.0.1/",
            "put them into `headers`",
        ),
    ] {
        let words = world.wrapping(options, &[command.to_owned()]);
        let output = world
            .command(&words[0])
            .args(&words[1..])
            .output()
            .expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            matches!(output.status.code(), Some(64 | 65)) && error.contains(said),
            "{options:?}: {error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
}
