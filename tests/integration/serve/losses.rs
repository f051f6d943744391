//! What is lost behind `serve` is on record with its reason until the client was told, which it is with
//! the answer to a call of a tool.

use std::fs;

use mcp_sessiond_tests::{Daemon, HttpClient, Reply, Serve, World, until};
use serde_json::{Value, json};

use super::{bundle, serving, upstream};
use crate::several;
use crate::wrap::{counter, gate, open};

const KILLED: &str = "this server begins afresh: the process that kept the previous server has ended, and the server with it";
const STOPPED: &str = "this server begins afresh: the previous server was stopped";

/// What `status` says is lost.
fn lost(world: &World) -> Vec<Value> {
    let said = world.sessiond(&["status", "--json"]).output();
    let said: Value = serde_json::from_slice(&said.expect("it runs").stdout).expect("JSON");
    said["lost"].as_array().expect("a list").clone()
}

/// What the client's log is told before the answer.
fn told(reply: &mut Reply) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = reply.event() {
        if event.data.is_empty() {
            continue;
        }
        let message = event.message();
        if message["method"] == "notifications/message" {
            let data = &message["params"]["data"];
            told.push(data.as_str().expect("a sentence").to_owned());
        }
    }
    told
}

fn until_lost(world: &World, count: usize) {
    until("what is on record is as it should be", || {
        (lost(world).len() == count).then_some(())
    });
}

fn increment(client: &mut HttpClient) -> Vec<String> {
    told(&mut client.call("increment", &json!({})))
}

/// `serve` of one server, which a client has used.
fn used(configuration: &str) -> (World, Daemon, Serve, HttpClient) {
    let (world, daemon, serve) = serving(configuration, counter);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    (world, daemon, serve, client)
}

fn kill_keeper(world: &World) {
    world.backend().kill_keeper();
    until_lost(world, 1);
}

#[test]
fn a_loss_is_on_record_until_it_was_told_with_a_call_of_a_tool() {
    let (world, _daemon, _serve, mut client) = used("");
    kill_keeper(&world);
    let record = &lost(&world)[0];
    assert_eq!(
        (&record["because"], &record["host_name"], &record["session"]),
        (
            &json!("killed"),
            &json!("serve.test"),
            &json!(client.session())
        ),
    );
    // A program reads the answers to these.
    for method in ["ping", "tools/list"] {
        assert_eq!(
            told(&mut client.request(method, &json!({}))),
            [""; 0],
            "{method}"
        );
        assert_eq!(lost(&world).len(), 1, "{method}");
    }
    assert_eq!(increment(&mut client), [KILLED]);
    until_lost(&world, 0);
    assert_eq!(increment(&mut client), [""; 0], "it is told once");
}

#[test]
fn a_server_that_was_stopped_is_no_loss_and_its_client_is_told() {
    let (world, _daemon, _serve, mut client) = used("");
    let backend = world.backend();
    let stop = world.sessiond(&["stop", client.session()]).output();
    assert!(stop.expect("it runs").status.success());
    backend.ended();
    assert_eq!(lost(&world), Vec::<Value>::new());
    assert_eq!(increment(&mut client), [STOPPED]);
}

/// As whoever hangs up has read nothing.
#[test]
fn a_loss_is_told_again_to_a_client_that_has_hung_up() {
    let (world, _daemon, _serve, mut client) = used("");
    kill_keeper(&world);
    let gate = gate(&world, "gate");
    let mut slow = client.call("slow", &json!({"gate": gate}));
    slow.said();
    slow.hang_up();
    open(&gate);
    assert_eq!(increment(&mut client), [KILLED]);
    until_lost(&world, 0);
}

#[test]
fn a_loss_is_told_by_the_next_process_if_the_first_is_killed_before_that() {
    let (world, _daemon, mut serve, mut client) = used("");
    kill_keeper(&world);
    assert_eq!(told(&mut client.request("tools/list", &json!({}))), [""; 0]);
    serve.kill();
    serve.start_again();
    assert_eq!(lost(&world).len(), 1);
    assert_eq!(increment(&mut client), [KILLED]);
    until_lost(&world, 0);
    serve.kill();
    serve.start_again();
    assert_eq!(
        increment(&mut client),
        [""; 0],
        "the next one knows that it was told"
    );
}

#[test]
fn a_server_that_has_waited_in_vain_is_lost_for_that_reason() {
    let (world, _daemon, mut serve, mut client) = used("http.linger_ms = 1");
    let backend = world.backend();
    serve.kill();
    backend.ended();
    until_lost(&world, 1);
    assert_eq!(lost(&world)[0]["because"], "lingered");
    serve.start_again();
    let told = increment(&mut client);
    let is_its =
        |told: &&String| told.contains("no host came back for the previous server in time");
    assert_eq!(told.iter().filter(is_its).count(), 1, "{told:?}");
}

#[test]
fn what_a_session_has_lost_is_forgotten_with_it() {
    let (world, _daemon, _serve, client) = used("");
    kill_keeper(&world);
    client.ask("DELETE", &[], "").must_be(204);
    until_lost(&world, 0);
}

#[test]
#[ignore = "needs node"]
fn what_a_server_elsewhere_has_forgotten_is_told() {
    let (_world, _daemon, mut server, serve) = upstream::behind("http.hold_ms = 30000", &[]);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    server.kill();
    server.start_again();
    let told = [increment(&mut client), increment(&mut client)].concat();
    let forgotten = "a new session was begun, since the server has forgotten the previous session: what was in the previous one is lost";
    assert_eq!(told, [forgotten]);
    let said = serve.errors.text();
    assert_eq!(said.matches(forgotten).count(), 1, "{said}");
}

/// It is found by the stream that belongs to no call, so that nobody is told: of one server, and of a member
/// of a list.
#[test]
#[ignore = "needs node"]
fn what_a_server_elsewhere_has_forgotten_is_told_by_the_next_serve() {
    let forgotten = "a new session was begun, since the server has forgotten the previous session: what was in the previous one is lost";
    for is_list in [false, true] {
        let (world, mut daemon, mut server, mut serve) = match is_list {
            false => upstream::behind("http.hold_ms = 30000", &[]),
            true => bundle::with_one_elsewhere("http.hold_ms = 30000"),
        };
        let tool = if is_list {
            "far_increment"
        } else {
            "increment"
        };
        let mut client = serve.connected("2025-11-25");
        assert_eq!(client.text(tool, &json!({})), "1");
        // The lease on the name is lost with the records.
        daemon.kill();
        for end in ["", "-wal", "-shm"] {
            drop(fs::remove_file(
                world.directory().join(format!("sessions.db{end}")),
            ));
        }
        daemon.start_again();
        server.kill();
        server.start_again();
        until_lost(&world, 1);
        let on_record = &lost(&world)[0];
        assert_eq!(on_record["because"], "forgotten", "{on_record}");
        serve.kill();
        serve.start_again();
        let told = told(&mut client.call(tool, &json!({})));
        let of = if is_list { "far: " } else { "" };
        assert_eq!(told, [format!("{of}{forgotten}")]);
        until_lost(&world, 0);
    }
}

/// Also over a daemon that is killed.
#[test]
fn the_loss_of_a_member_of_a_list_is_told_by_its_name() {
    let (world, mut daemon, serve) = bundle::serving("");
    let mut client = serve.connected("2025-11-25");
    let counting = bundle::of_each(&mut client, "increment");
    for tool in &counting {
        assert_eq!(client.text(tool, &json!({})), "1");
    }
    several::backend(&world, "b").kill_keeper();
    until_lost(&world, 1);
    let of = lost(&world)[0]["of"].clone();
    assert!(of.as_str().expect("a name").starts_with("b#"), "{of}");
    daemon.kill();
    daemon = world.daemon();
    assert_eq!(lost(&world).len(), 1);
    let mut call = client.call(&counting[1], &json!({}));
    assert_eq!(told(&mut call), [format!("b: {KILLED}")]);
    until_lost(&world, 0);
    for (tool, count) in counting.iter().zip(["2", "2", "2"]) {
        assert_eq!(client.text(tool, &json!({})), count);
    }
    drop(daemon);
}
