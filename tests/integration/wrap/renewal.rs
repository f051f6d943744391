//! When a host that comes back gets a fresh server, though the former one runs, and when it does
//! not; and which answers it still gets of a server that is taken down.

use std::fs;

use mcp_sessiond_proto::backends::{KeeperReply, KeeperRequest};
use mcp_sessiond_proxy::keeper::dial::dial;
use mcp_sessiond_tests::{Backend, Client, Front, World, lives, signal, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{close, connect, counter, counter_with, gate, keeping, open, root, wrapped};
use crate::fixture;

/// A server that is known to answer pings, by one of its host's, and the host.
fn known_to_answer(world: &World, server: &[String]) -> (Backend, Client<Front>) {
    let mut client = connect(world, server);
    assert_eq!(client.count(), 1);
    client.ping();
    (world.backend(), client)
}

/// Waits until a server has made this file, which can't be watched before.
fn made(file: &str) {
    until(file, || fs::exists(file).ok().filter(|there| *there));
}

#[test]
fn a_server_that_hangs_is_replaced_at_the_next_orderly_reconnect() {
    for busy in [false, true] {
        let world = keeping("ping_wait_ms = 100");
        let _daemon = world.daemon();
        let server = counter(&world);
        let (backend, mut client) = known_to_answer(&world, &server);
        let hanging = backend.pid();
        signal(hanging, Signal::SIGSTOP);
        if busy {
            client.begin("increment", json!({}));
        }
        // Where it waits for an answer, it waits on until the next one takes its place.
        client.pipe.close();
        let mut next = connect(&world, &server);
        next.pipe.errors.wait(
            "the running server did not answer a ping within 100 ms; a fresh server is started",
        );
        assert_eq!(next.count(), 1);
        assert_eq!(
            (lives(hanging), world.backend().keeper),
            (false, backend.keeper)
        );
    }
}

/// Nobody has to have asked before: the keeper does so itself, once, when nothing is under way.
#[test]
fn that_a_server_answers_pings_is_found_out_beforehand() {
    let world = keeping("ping_wait_ms = 100");
    let _daemon = world.daemon();
    let raw = world.raw("server");
    let client = connect(&world, &raw.command);
    let ping = raw.wait_heard(r#""method":"ping""#);
    assert_eq!(
        ping,
        "{\"jsonrpc\":\"2.0\",\"id\":2147483647,\"method\":\"ping\"}\n"
    );
    let backend = world.backend();
    // Its answers to that, and to `initialize`.
    backend.wait("the ping was answered", |status| {
        status.from_backend.messages == 2
    });
    assert_eq!(backend.status().dropped, 0);
    signal(backend.pid(), Signal::SIGSTOP);
    close(client);
    connect(&world, &raw.command)
        .pipe
        .errors
        .wait("did not answer a ping");
}

/// For a minute, as far as this server knows: until it is told to go on.
#[test]
fn a_server_that_computes_is_kept_by_a_host_that_was_cut_off() {
    let world = keeping("ping_wait_ms = 100");
    let _daemon = world.daemon();
    let server = counter(&world);
    let (backend, mut client) = known_to_answer(&world, &server);
    let (begun, gate) = (gate(&world, "begun"), gate(&world, "gate"));
    client.begin("block", json!({"begun": begun, "gate": gate}));
    made(&begun);
    backend.cut_off(&mut client.pipe);
    let mut next = connect(&world, &server);
    open(&gate);
    assert_eq!(next.count(), 3);
    assert_eq!(backend.status().restarts, 0);
}

#[test]
fn a_server_that_answers_no_ping_is_kept() {
    let world = keeping("ping_wait_ms = 50");
    let _daemon = world.daemon();
    let server = counter_with(&world, &["--deaf"]);
    for count in 1..=3 {
        let mut client = connect(&world, &server);
        assert_eq!(client.count(), count);
        close(client);
    }
    assert_eq!(world.backend().status().restarts, 0);
}

#[test]
fn a_server_that_is_still_starting_is_kept() {
    let world = keeping("ping_wait_ms = 50");
    let _daemon = world.daemon();
    let gate = gate(&world, "gate");
    let command = wrapped(&world, &counter_with(&world, &["--gate", &gate]));
    let begin = || {
        let mut client = Client::new(world.front(&command));
        let info = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
        let id = client.request("initialize", params);
        (client, id)
    };
    let (mut first, _) = begin();
    made(&format!("{gate}.begun"));
    let backend = world.backend();
    backend.wait("it is asked", |status| status.to_backend.messages == 1);
    first.pipe.close();
    let (mut second, id) = begin();
    backend.wait("the second one is attached", |status| {
        status.front == Some(second.pipe.pid())
    });
    open(&gate);
    assert_eq!(second.answer(id)["result"]["serverInfo"]["name"], "counter");
    assert_eq!(backend.status().restarts, 0);
}

#[test]
fn who_closes_it_again_and_again_gets_a_fresh_one() {
    let world = keeping("closes = 2");
    let _daemon = world.daemon();
    let server = counter(&world);
    // Between closes that count nothing was answered well.
    for count in [Some(1), Some(2), None] {
        let mut client = connect(&world, &server);
        if let Some(count) = count {
            assert_eq!(client.count(), count);
        }
        close(client);
    }
    let mut client = connect(&world, &server);
    client
        .pipe
        .errors
        .wait("the server was closed 2 times within 60 s; a fresh server is started");
    assert_eq!(client.count(), 1);
    assert!(
        !client.pipe.errors.text().contains("resumed"),
        "{}",
        client.pipe.errors.text()
    );
}

#[test]
#[ignore = "needs python3"]
fn an_edited_script_runs_at_the_next_orderly_reconnect() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (script, data) = (
        format!("{}/server.py", root(&world)),
        format!("{}/data.db", root(&world)),
    );
    let text = fs::read_to_string(fixture("python/tiny.py")).expect("a script");
    fs::write(&script, &text).expect("written");
    fs::write(&data, "").expect("written");
    let server = ["python3", "-I", "-S", &script, &data].map(String::from);
    let mut client = connect(&world, &server);
    assert_eq!(client.count(), 1);
    // What is no program may change.
    fs::write(&data, "something").expect("written");
    close(client);
    let mut client = connect(&world, &server);
    assert_eq!(client.count(), 2);

    fs::write(&script, text.replace("STEP = 1", "STEP = 10")).expect("edited");
    client.pipe.kill();
    let mut client = connect(&world, &server);
    assert_eq!(client.count(), 3, "a cut is no wish for a fresh one");
    client
        .pipe
        .errors
        .wait("server.py has changed since the server was started, which goes on as it is");
    close(client);
    let mut client = connect(&world, &server);
    client
        .pipe
        .errors
        .wait("server.py has changed since the server was started; a fresh server is started");
    assert_eq!(client.count(), 10);
    close(client);
    assert_eq!(connect(&world, &server).count(), 20, "once");
}

/// A host of MCP 2026-07-28.
struct Modern(Client<Front>);

impl Modern {
    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        let info = json!({"name": "test", "version": "1"});
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": info,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let id = self.0.request(method, params);
        self.0.answer(id)
    }

    fn count(&mut self) -> Value {
        let mut answer = self.ask("tools/call", json!({"name": "increment", "arguments": {}}));
        answer["result"]["content"][0]["text"].take()
    }
}

/// The official SDK goes by the first message, and refuses the other era from then on.
#[test]
#[ignore = "needs node"]
fn a_host_of_the_other_era_gets_a_fresh_server() {
    let world = keeping("");
    let _daemon = world.daemon();
    let command = wrapped(
        &world,
        &["node".into(), fixture("node/eras.mjs"), root(&world)],
    );
    let mut old = Client::connected(world.front(&command));
    assert_eq!(old.count(), 1);
    close(old);

    // A server that was initialised is shown no probe, unless it is known to answer both. A host that
    // never gets further is one of the other era.
    for _ in 0..2 {
        let mut host = Modern(Client::new(world.front(&command)));
        let discovered = host.ask("server/discover", json!({}));
        assert_eq!(discovered["error"]["code"], -32601, "{discovered}");
        close(host.0);
    }
    let mut host = Modern(Client::new(world.front(&command)));
    let discovered = host.ask("server/discover", json!({}));
    assert!(discovered["result"].is_object(), "{discovered}");
    host.0
        .pipe
        .errors
        .wait("for the third time in a row; a fresh server is started");
    assert_eq!((host.count(), host.count()), (json!("1"), json!("2")));
    close(host.0);

    // It is of the same era.
    let mut host = Modern(Client::new(world.front(&command)));
    assert!(host.ask("server/discover", json!({}))["result"].is_object());
    assert_eq!(host.count(), json!("3"));
    close(host.0);

    let mut old = Client::connected(world.front(&command));
    old.pipe
        .errors
        .wait("refuses `initialize`; a fresh server is started");
    assert_eq!(old.count(), 1);
    assert_eq!(world.backend().status().restarts, 2);
}

#[test]
fn what_is_answered_in_time_arrives_before_a_stop() {
    let world = keeping("stop_wait_ms = 20000");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    let gate = gate(&world, "gate");
    let slow = client.begin_slow(&gate);
    let backend = world.backend();
    let mut stop = world
        .sessiond(&["stop", &backend.session])
        .spawn()
        .expect("it runs");
    backend.closed();
    let late = client.begin("increment", json!({}));
    let error = client.answer(late)["error"].take();
    assert_eq!(error["data"]["outcome"], "not_sent", "{error}");
    open(&gate);
    assert_eq!(client.text(slow), Ok("1".into()));
    assert!(stop.wait().expect("our child").success());
    backend.ended();
    assert_eq!(client.count(), 1, "it is started again when it is used");
}

/// What its host would take for a parse error may have been done.
#[test]
fn half_an_answer_of_a_server_that_ends_is_an_unknown_outcome() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    let id = client.begin("half", json!({}));
    let error = client.answer(id)["error"].take();
    assert_eq!(error["data"]["outcome"], "unknown", "{error}");
    assert_eq!(client.count(), 1);
}

#[test]
fn what_is_answered_in_time_arrives_before_a_restart() {
    let world = keeping("stop_wait_ms = 60000");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    assert_eq!(client.count(), 1);
    let former = world.backend().pid();
    let restarts = gate(&world, "restarts");
    let slow = client.begin_slow(&restarts);
    let asked = dial(world.backend().socket(), &KeeperRequest::Restart {}).expect("the keeper");
    assert!(
        matches!(asked.reply, KeeperReply::Restarting {}),
        "{:?}",
        asked.reply
    );
    // What is called from now on is the next one's.
    let next = client.begin("increment", json!({}));
    open(&restarts);
    client.text(slow).expect("what the former one said last");
    assert_eq!(client.text(next).expect("an answer"), "1");
    assert_ne!(world.backend().pid(), former);
}
