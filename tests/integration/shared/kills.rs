//! Everything is killed in turn.

use std::os::unix::net::UnixStream;

use mcp_sessiond_tests::{Client, Front, Pipe as _, gone, signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{
    able, begin_slow, connect, connect_as, gate, greet, mark, open, pid, sharing, wait_hosts,
};

#[test]
fn a_front_that_is_killed_leaves_the_others_alone_and_comes_back_to_the_same_server() {
    let world = sharing();
    let _daemon = world.daemon();
    let (mut one, mut other) = (connect(&world), connect(&world));
    let gates = ["one", "other"].map(|name| gate(&world, name));
    begin_slow(&mut one, "one", &gates[0]);
    let id = begin_slow(&mut other, "other", &gates[1]);
    let server = pid(&mut other);
    assert_eq!(one.call("increment", json!({})), "1");
    one.pipe.kill();
    wait_hosts(&world, 1);
    // The call of the one that is gone goes on, and nobody hears of it.
    open(&gates[0]);
    assert_eq!(other.call("increment", json!({})), "2");
    open(&gates[1]);
    assert_eq!(other.text(id).as_deref(), Ok("other"));
    let mut again = connect(&world);
    assert_eq!(pid(&mut again), server);
    assert_eq!(again.call("increment", json!({})), "3");
    for client in [&mut again, &mut other] {
        client.ping();
        assert_eq!(client.rest(), Vec::<serde_json::Value>::new());
    }
}

#[test]
fn the_daemon_is_killed_and_no_call_notices() {
    let world = sharing();
    let mut daemon = world.daemon();
    let (mut one, mut other) = (connect(&world), connect(&world));
    let gates = ["one", "other"].map(|name| gate(&world, name));
    let ids = [
        begin_slow(&mut one, "one", &gates[0]),
        begin_slow(&mut other, "other", &gates[1]),
    ];
    daemon.kill();
    gates.iter().for_each(|gate| open(gate));
    assert_eq!(one.text(ids[0]).as_deref(), Ok("one"));
    assert_eq!(other.text(ids[1]).as_deref(), Ok("other"));
    let _daemon = world.daemon();
    assert_eq!(connect(&world).call("increment", json!({})), "1");
    assert_eq!(one.call("increment", json!({})), "2");
}

#[test]
fn the_server_dies_and_every_host_is_told() {
    let world = sharing();
    let _daemon = world.daemon();
    let (mut one, mut other) = (connect(&world), connect(&world));
    let first = pid(&mut one);
    let id = begin_slow(&mut other, "other", &gate(&world, "gate"));
    let error = one.try_call("die", json!({})).expect_err("it dies");
    assert_eq!(error["data"]["outcome"], "unknown", "{error}");
    let error = other.text(id).expect_err("it has died");
    assert_eq!(error["data"]["outcome"], "unknown", "{error}");
    for client in [&mut one, &mut other] {
        assert_ne!(pid(client), first);
        client.said(|message| message["method"] == "notifications/tools/list_changed");
        client.pipe.errors.wait("the server has ended (exit");
    }
    assert_eq!(pid(&mut one), pid(&mut other));
}

#[test]
fn the_keeper_is_killed_and_a_fresh_server_is_shared() {
    let world = sharing();
    let _daemon = world.daemon();
    let (mut one, mut other) = (connect(&world), connect(&world));
    let first = pid(&mut one);
    let id = begin_slow(&mut other, "other", &gate(&world, "gate"));
    world.backend().kill_keeper();
    let error = other.text(id).expect_err("the server ends with its keeper");
    assert_eq!(error["data"]["outcome"], "unknown", "{error}");
    let second = pid(&mut other);
    assert_ne!(first, second);
    assert_eq!(pid(&mut one), second);
    for client in [&one, &other] {
        client.pipe.errors.wait(BEGINS_AFRESH);
    }
    gone(first);
}

/// What a host reads that was not there when its server ended.
const BEGINS_AFRESH: &str =
    "this server begins afresh, and what the previous one had in memory is lost";

/// The front that was there knew of it, and has told nobody. The host that is there anyhow was told
/// already.
#[test]
fn a_host_whose_front_was_killed_with_the_server_or_its_keeper_is_told_by_the_next_front() {
    for with_keeper in [false, true] {
        let world = sharing();
        let _daemon = world.daemon();
        let (mut one, mut other) = (connect(&world), connect(&world));
        let first = pid(&mut one);
        one.pipe.kill();
        wait_hosts(&world, 1);
        let backend = world.backend();
        if with_keeper {
            backend.kill_keeper();
        } else {
            signal(backend.pid(), Signal::SIGKILL);
        }
        gone(first);
        let mut again = connect(&world);
        assert_ne!(pid(&mut again), first);
        assert_eq!(pid(&mut again), pid(&mut other));
        let words = if with_keeper {
            "process that kept"
        } else {
            "SIGKILL"
        };
        again.pipe.errors.wait(BEGINS_AFRESH);
        assert!(again.pipe.errors.text().contains(words));
    }
}

/// The next server asks under the same id.
#[test]
fn what_the_host_answers_to_a_lost_server_reaches_no_other_one() {
    let world = sharing();
    let _daemon = world.daemon();
    let mut client = connect(&world);
    let ask = |client: &mut Client<Front>| {
        let id = client.begin("ask", json!({"tag": "which"}));
        (
            id,
            client.said(|message| message["method"] == "elicitation/create")["id"].clone(),
        )
    };
    let (lost, former) = ask(&mut client);
    world.backend().kill_keeper();
    client
        .text(lost)
        .expect_err("the server ends with its keeper");
    let (call, now) = ask(&mut client);
    for (id, tag) in [(former, "late"), (now, "in time")] {
        let result = json!({"action": "accept", "content": {"tag": tag}});
        client
            .pipe
            .write(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string());
    }
    assert_eq!(client.text(call).as_deref(), Ok("in time"));
}

#[test]
fn a_server_that_refuses_to_be_initialised_once_is_shared_after_it() {
    let world = sharing();
    let _daemon = world.daemon();
    let (mut one, mut other) = (connect(&world), connect(&world));
    let first = pid(&mut one);
    let refuse = mark(&world, "refuse");
    world.backend().kill_keeper();
    for client in [&one, &other] {
        client.pipe.errors.wait(BEGINS_AFRESH);
    }
    assert!(!refuse.exists());
    let second = pid(&mut one);
    assert_ne!(first, second);
    assert_eq!(pid(&mut other), second);
    wait_hosts(&world, 2);
}

#[test]
fn a_stop_while_a_host_arrives_gives_it_no_server_of_its_own() {
    let world = sharing();
    let _daemon = world.daemon();
    let hold = mark(&world, "hold");
    let held = world.root().join("held");
    let until_held = || until("initialize", || std::fs::remove_file(&held).ok());
    let words = world.wrapping(&[], &["@crowd".to_owned()]);
    let mut one = Client::new(world.front(&words));
    let id = one.begin_initialize("test");
    until_held();
    let output = world
        .sessiond(&["stop", "crowd"])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    // It still wants the server, as a host that comes after the stop does.
    until_held();
    std::fs::remove_file(hold).expect("it is there");
    one.initialized(id);
    let mut other = connect_as(&world, "crowd", &json!({"sampling": {}}), "2025-06-18").0;
    assert_eq!(pid(&mut one), pid(&mut other));
    wait_hosts(&world, 2);
}

#[test]
fn where_no_daemon_runs_one_is_started() {
    let world = sharing();
    let words = world.wrapping(&["--no-start"], &["@crowd".to_owned()]);
    let mut alone = Client::new(world.front(&words));
    greet(&mut alone, &able(), "2025-06-18");
    alone
        .pipe
        .errors
        .wait("is run without being kept: it will not survive a reconnect");
    let own = pid(&mut alone);
    let (mut one, mut other) = (connect(&world), connect(&world));
    assert_eq!(pid(&mut one), pid(&mut other));
    assert_ne!(pid(&mut one), own);
    wait_hosts(&world, 2);
}

/// What a host says first that can answer an ask.
fn initialize() -> serde_json::Value {
    let info = json!({"name": "test", "version": "1"});
    json!({"protocolVersion": "2025-06-18", "capabilities": able(), "clientInfo": info})
}

/// It is waited for, and whoever waits is told which process it is.
#[test]
fn the_keeper_of_a_shared_server_is_waited_for() {
    let world = sharing();
    let _daemon = world.daemon();
    let mut first = connect(&world);
    assert_eq!(first.call("increment", json!({})), "1");
    let backend = world.backend();
    let server = backend.pid();
    signal(backend.keeper, Signal::SIGSTOP);
    let words = world.wrapping(&[], &["@crowd".to_owned()]);
    let mut next = Client::new(world.front(&words));
    let asked = next.request("initialize", initialize());
    next.pipe.errors.wait(&format!(
        "(pid {}) is stopped; waiting for it; `mcp-sessiond restart",
        backend.keeper
    ));
    signal(backend.keeper, Signal::SIGCONT);
    next.initialized(asked);
    assert_eq!(next.call("increment", json!({})), "2");
    assert_eq!(world.backend().pid(), server);
}

/// The first host may start it, too.
#[test]
#[cfg(target_os = "linux")]
fn a_front_that_is_suspended_keeps_nobody_waiting() {
    let world = sharing();
    let _daemon = world.daemon();
    let first = connect(&world);
    first.pipe.signal(Signal::SIGSTOP);
    world.backend().kill_keeper();
    let mut second = connect(&world);
    assert_eq!(second.call("increment", json!({})), "1");
}

/// It could answer and does not, since more connections than it deals with at once say nothing.
#[test]
fn a_keeper_that_hangs_is_ended_and_a_fresh_server_is_shared() {
    let world = sharing();
    let _daemon = world.daemon();
    let mut one = connect(&world);
    let backend = world.backend();
    let first = backend.pid();
    let connect_mute = |_| UnixStream::connect(backend.socket()).expect("it listens");
    let _mute: Vec<UnixStream> = (0..64).map(connect_mute).collect();
    let mut other = connect(&world);
    let second = pid(&mut other);
    assert_ne!(second, first);
    assert_eq!(pid(&mut one), second);
    for client in [&one, &other] {
        client.pipe.errors.wait(BEGINS_AFRESH);
    }
}

/// Its keeper can't be found by its socket any more, and has the session.
#[test]
fn a_keeper_whose_socket_is_gone_is_ended_for_the_next_host() {
    let world = sharing();
    let _daemon = world.daemon();
    let mut one = connect(&world);
    let backend = world.backend();
    let first = pid(&mut one);
    std::fs::remove_file(backend.socket()).expect("it is ours");
    let words = world.wrapping(&[], &["@crowd".to_owned()]);
    let wait = [("MCP_SESSIOND_WRAP_KEEPER_WAIT_MS", "1000")];
    let mut other = Client::new(world.front_with(&words, &wait));
    greet(&mut other, &able(), "2025-06-18");
    let second = pid(&mut other);
    assert_ne!(second, first);
    gone(backend.keeper);
    assert_eq!(pid(&mut one), second);
    let said = other.pipe.errors.text();
    assert!(!said.contains("--take"), "{said}");
}
