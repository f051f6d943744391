//! What a keeper does first, and what it does then.

use std::fs;

use mcp_sessiond_proto::backends::KeeperRequest;
use mcp_sessiond_proxy::keeper::dial::dial;
use mcp_sessiond_tests::{Client, copy_program, gone, signal, stat, suspend, until, write_program};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::wrap::{connect, gate, keeping, tiny, wrapped};

/// The front has written its last lines, and is gone, when the keeper goes on.
#[test]
fn what_a_front_has_sent_is_read_before_its_exit_counts() {
    let world = keeping("");
    let _daemon = world.daemon();
    let raw = world.raw("server");
    let mut client = connect(&world, &raw.command);
    client.ping();
    let backend = world.backend();
    suspend(backend.keeper);
    for number in 1..=50 {
        client.notify("notifications/number", json!({"number": number}));
    }
    client.pipe.close();
    client.pipe.wait();
    signal(backend.keeper, Signal::SIGCONT);
    raw.wait_heard("\"number\":50}");
    let heard = raw.heard();
    let numbers = heard
        .iter()
        .filter(|line| String::from_utf8_lossy(line).contains("notifications/number"));
    assert_eq!(numbers.count(), 50);
}

/// Answers everything; what is called `last` at SIGUSR1, after a word on its standard error, and exits then.
const LAST: &str = r#"
import json, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "last", "version": "1"}}
    last = message["method"] == "last"
    if last:
        open(sys.argv[1], "w").close()
        signal.sigwait([signal.SIGUSR1])
        print("the last words", file=sys.stderr, flush=True)
        info = {"said": "last"}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": info}), flush=True)
    if last:
        os._exit(7)
"#;

/// The keeper is stopped, and sees all of it at once: that the server has exited, and what it has said
/// before.
#[test]
#[ignore = "needs python3"]
fn what_a_server_has_said_is_passed_on_before_its_end() {
    let world = keeping("");
    let _daemon = world.daemon();
    let begun = gate(&world, "begun");
    let server = ["python3", "-I", "-S", "-c", LAST, &begun].map(str::to_owned);
    let mut client = connect(&world, &server);
    let backend = world.backend();
    let last = client.request("last", json!({}));
    until("it has begun", || {
        fs::exists(&begun).ok().filter(|there| *there)
    });
    let pid = backend.pid();
    suspend(backend.keeper);
    signal(pid, Signal::SIGUSR1);
    gone(pid);
    signal(backend.keeper, Signal::SIGCONT);
    let answer = client.answer(last);
    assert_eq!(answer["result"]["said"], "last", "{answer}");
    let errors = &client.pipe.errors;
    errors.wait("the server has ended (exit status 7)");
    let said = errors.text();
    let at = |text: &str| said.find(text).expect(text);
    assert!(at("the last words") < at("the server has ended"), "{said}");
}

/// Writes down at each start whether a former one has the lock still, answers all requests, and takes its
/// time to end.
const LOCKING: &str = r#"
import fcntl, json, sys, time
lock = open(sys.argv[1], "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    how = "free"
except OSError:
    how = "taken"
open(sys.argv[2], "a").write(how + "\n")
for line in sys.stdin:
    if not line.startswith("{"):
        print(line, end="", flush=True)
        continue
    message = json.loads(line)
    if "id" in message:
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "lock", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": info}), flush=True)
time.sleep(0.3)
"#;

fn locking(world: &mcp_sessiond_tests::World) -> (Vec<String>, String) {
    let starts = gate(world, "starts");
    let server = [
        "python3",
        "-I",
        "-S",
        "-c",
        LOCKING,
        &gate(world, "lock"),
        &starts,
    ];
    (server.map(str::to_owned).to_vec(), starts)
}

/// It may hold a port, or the lock on a profile.
#[test]
#[ignore = "needs python3"]
fn a_server_that_is_replaced_is_gone_before_the_next_one_is_started() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (server, starts) = locking(&world);
    let mut client = connect(&world, &server);
    for number in 2..=3 {
        dial(world.backend().socket(), &KeeperRequest::Restart {}).expect("the keeper");
        until("the next one has started", || {
            let starts = fs::read_to_string(&starts).ok()?;
            (starts.lines().count() == number).then_some(())
        });
        client.ping();
    }
    let how = fs::read_to_string(starts).expect("written");
    assert_eq!(how, "free\n".repeat(3));
}

/// A front whose keeper is lost without a word starts the next one at once.
#[test]
#[ignore = "needs python3"]
fn a_keeper_says_that_it_ends_on_purpose_before_its_connection_ends() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (server, starts) = locking(&world);
    let mut client = connect(&world, &server);
    client.ping();
    let backend = world.backend();
    let mut stop = world.sessiond(&["stop", &backend.session]);
    assert!(stop.output().expect("it runs").status.success());
    backend.ended();
    // Another server is started, and used, meanwhile.
    let words = world.wrapping(&["--instance", "other"], &tiny(&world));
    assert_eq!(Client::connected(world.front(&words)).count(), 1);
    let how = fs::read_to_string(&starts).expect("written");
    assert_eq!(how, "free\n");
    // Nothing is lost by the next use.
    let list = client.request("tools/list", json!({}));
    assert!(client.answer(list)["result"].is_object());
    let how = fs::read_to_string(&starts).expect("written");
    assert_eq!(how, "free\n".repeat(2));
}

#[test]
#[ignore = "needs python3"]
fn a_kept_server_is_gone_before_its_command_is_run_as_it_is() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (server, starts) = locking(&world);
    let at_once = [("MCP_SESSIOND_WRAP_FIRST_LINE_WAIT_MS", "20")];
    let mut front = world.front_with(&wrapped(&world, &server), &at_once);
    world.wait_backends(1);
    until("it has started", || fs::read_to_string(&starts).ok());
    front.send(b"no JSON\n");
    assert_eq!(front.line().as_deref(), Some(&b"no JSON"[..]));
    let how = fs::read_to_string(starts).expect("written");
    assert_eq!(how, "free\n".repeat(2));
}

/// The keeper finds no daemon, and starts one, before it makes what has lost its parent its own.
#[test]
fn a_daemon_that_a_keeper_has_started_is_not_its_child() {
    let world = keeping("");
    let daemon = world.daemon();
    let mut words = wrapped(&world, &tiny(&world));
    let (copy, ends) = (world.root().join("mcp-sessiond"), world.root().join("ends"));
    copy_program(&words[0], &copy);
    let script = format!(
        "#!/bin/sh\nkill -KILL {}\nexec {} \"$@\"\n",
        daemon.pid(),
        words[0]
    );
    write_program(&ends, &script);
    words[0] = copy.to_str().expect("UTF-8").to_owned();
    let front = world.front(&words);
    // The front starts its keeper with what is there by then.
    fs::rename(&ends, &copy).expect("replaced");
    let mut client = Client::connected(front);
    assert_eq!(client.count(), 1);
    let (backend, next) = (world.backend(), world.daemon_pid());
    assert_ne!(next, daemon.pid());
    let parent = &stat(next)[1];
    assert_ne!(*parent, backend.keeper.to_string());
}
