//! A server of `servers.json` with `"shared": true`: one for all hosts, each of which is a process
//! of its own here.

mod kills;
mod many_hosts;
mod own;
mod surroundings;

use std::fs;

use mcp_sessiond_tests::{Client, Front, Pipe as _, World, until};
use serde_json::{Value, json};

use crate::world;

/// The entry of a server that many hosts can use at once.
pub(crate) fn entry(world: &World) -> Value {
    let handshakes = world.root().join("handshakes");
    json!({
        "command": world.binaries.shared_server,
        "args": [world.root()],
        "env": {"SHARED_HANDSHAKES": handshakes},
        "shared": true,
    })
}

/// Writes `servers.json`.
pub(crate) fn write_down(world: &World, servers: &Value) {
    let path = world.root().join("servers.json");
    fs::write(
        path.with_extension("new"),
        json!({"mcpServers": servers}).to_string(),
    )
    .expect("a file");
    fs::rename(path.with_extension("new"), path).expect("a file");
}

/// A file that tells the server something: see `shared-server`.
fn mark(world: &World, name: &str) -> std::path::PathBuf {
    let path = world.root().join(name);
    fs::write(&path, "").expect("a file");
    path
}

/// A world in which `crowd` is shared.
fn sharing() -> World {
    let world = world("");
    write_down(&world, &json!({"crowd": entry(&world)}));
    world
}

/// What a host says of itself that can answer an ask.
fn able() -> Value {
    json!({"elicitation": {}})
}

/// A host of the server of this name that has said this of itself and the version of its protocol.
/// Returns what it was answered, too.
fn connect_as(
    world: &World,
    name: &str,
    capabilities: &Value,
    version: &str,
) -> (Client<Front>, Value) {
    let mut client = Client::new(world.front(&world.wrapping(&[], &[format!("@{name}")])));
    let answer = greet(&mut client, capabilities, version);
    (client, answer)
}

fn greet(client: &mut Client<Front>, capabilities: &Value, version: &str) -> Value {
    let info = json!({"name": "test", "version": "1"});
    let params =
        json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": info});
    let id = client.request("initialize", params);
    client.initialized(id)
}

/// A host that can answer an ask.
pub(crate) fn connect(world: &World) -> Client<Front> {
    connect_as(world, "crowd", &able(), "2025-06-18").0
}

/// Which process this host has for its server.
fn pid(client: &mut Client<Front>) -> u32 {
    client.call("pid", json!({})).parse().expect("a pid")
}

/// Begins a call that waits at a gate, and waits until it does. Returns its id.
fn begin_slow(client: &mut Client<Front>, tag: &str, gate: &str) -> u64 {
    let id = client.last + 1;
    let arguments = json!({"tag": tag, "gate": gate});
    let params = json!({"name": "slow", "arguments": arguments, "_meta": {"progressToken": tag}});
    client.request("tools/call", params);
    let progress = client.said(|message| message["method"] == "notifications/progress");
    assert_eq!(
        (
            &progress["params"]["progressToken"],
            &progress["params"]["message"]
        ),
        (&json!(tag), &json!(tag))
    );
    id
}

fn gate(world: &World, name: &str) -> String {
    world.root().join(name).to_str().expect("UTF-8").to_owned()
}

fn open(gate: &str) {
    fs::write(gate, "").expect("a gate");
}

/// Calls this tool, which asks, and answers what it asks. None: it was refused, since the server is
/// or was at work for another host.
fn try_ask(client: &mut Client<Front>, tool: &str, tag: &str) -> Option<()> {
    let params = json!({"name": tool, "arguments": {"tag": tag}});
    let id = client.request("tools/call", params);
    let next = client.said(|said| {
        said["id"] == id && said.get("method").is_none() || said["method"] == "elicitation/create"
    });
    if next["method"].is_null() {
        assert_eq!(next["result"]["content"][0]["text"], "refused", "{next}");
        return None;
    }
    assert_eq!(next["params"]["message"], tag, "{next}");
    let result = json!({"action": "accept", "content": {"tag": tag}});
    client
        .pipe
        .write(&json!({"jsonrpc": "2.0", "id": next["id"], "result": result}).to_string());
    assert_eq!(client.text(id).as_deref(), Ok(tag));
    Some(())
}

/// The same until it was not refused.
fn ask(client: &mut Client<Front>, tool: &str, tag: &str) {
    until("an ask that is handed out", || try_ask(client, tool, tag));
}

/// How many places there are at the shared servers, by `status`.
fn hosts(world: &World) -> Vec<u64> {
    let output = world
        .sessiond(&["status", "--json"])
        .output()
        .expect("it runs");
    let status: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let servers = status["servers"].as_array().expect("a list");
    servers
        .iter()
        .filter_map(|server| server["hosts"].as_u64())
        .collect()
}

/// The only shared server, by `status`.
fn status(world: &World) -> Value {
    let output = world
        .sessiond(&["status", "--json"])
        .output()
        .expect("it runs");
    let mut status: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let servers = status["servers"].as_array_mut().expect("a list");
    servers.retain(|server| server.get("hosts").is_some());
    assert_eq!(servers.len(), 1, "{servers:?}");
    servers.remove(0)
}

fn wait_hosts(world: &World, count: u64) {
    until(&format!("{count} hosts"), || {
        (hosts(world) == [count]).then_some(())
    });
}

#[test]
fn two_hosts_have_one_server_and_each_gets_its_own_answers() {
    let world = sharing();
    let _daemon = world.daemon();
    let (mut one, mut other) = (connect(&world), connect(&world));
    assert_eq!(pid(&mut one), pid(&mut other));
    assert_eq!(one.call("increment", json!({})), "1");
    assert_eq!(other.call("increment", json!({})), "2");
    // Their ids and their tokens are the same.
    let gates = ["one", "other"].map(|name| gate(&world, name));
    let ids = [
        begin_slow(&mut one, "mine", &gates[0]),
        begin_slow(&mut other, "mine", &gates[1]),
    ];
    assert_eq!(ids[0], ids[1]);
    open(&gates[1]);
    assert_eq!(other.text(ids[1]).as_deref(), Ok("mine"));
    let id = one.begin("echo", json!({"tag": "quick"}));
    assert_eq!(one.text(id).as_deref(), Ok("quick"));
    open(&gates[0]);
    assert_eq!(one.text(ids[0]).as_deref(), Ok("mine"));
    assert_eq!(hosts(&world), [2]);
    // It was initialised once.
    let handshakes = fs::read_to_string(world.root().join("handshakes")).expect("handshakes");
    assert_eq!(handshakes.lines().count(), 1, "{handshakes}");
}

#[test]
fn nobody_is_told_what_may_be_another_s_and_everybody_of_lists() {
    let world = sharing();
    let _daemon = world.daemon();
    let mut one = connect(&world);
    let log = json!({"level": "error", "tag": "one's"});
    assert_eq!(one.call("log", log.clone()), "one's");
    let logged = one.said(|message| message["method"] == "notifications/message");
    assert_eq!(logged["params"]["data"], "one's", "there is nobody else");
    let mut other = connect(&world);
    assert_eq!(one.call("log", log), "one's");
    assert_eq!(one.call("changed", json!({"tag": ""})), "");
    for client in [&mut one, &mut other] {
        client.said(|message| message["method"] == "notifications/tools/list_changed");
        client.ping();
        assert_eq!(client.rest(), Vec::<Value>::new());
    }
    assert_eq!(status(&world)["withheld"], 1);
}

#[test]
fn a_shared_server_is_stopped_and_restarted_by_its_name_and_ends_with_its_last_host() {
    let world = world("[backends]\nclosed_linger_ms = 1\n");
    write_down(&world, &json!({"crowd": entry(&world)}));
    let _daemon = world.daemon();
    let (mut one, mut other) = (connect(&world), connect(&world));
    let first = pid(&mut one);
    let by_hand = |verb: &str| {
        let output = world.sessiond(&[verb, "crowd"]).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
    };
    by_hand("restart");
    for client in [&mut one, &mut other] {
        client.said(|message| message["method"] == "notifications/tools/list_changed");
    }
    let second = pid(&mut one);
    assert_ne!(first, second);
    assert_eq!(pid(&mut other), second);

    by_hand("stop");
    world.wait_backends(0);
    let third = pid(&mut other);
    assert!(third != first && third != second);
    assert_eq!(pid(&mut one), third);
    for client in [&one, &other] {
        let line = "the connection to the shared server had ended; there is a new one";
        client.pipe.errors.wait(line);
    }

    one.pipe.close();
    one.pipe.wait();
    assert_eq!(pid(&mut other), third);
    other.pipe.close();
    other.pipe.wait();
    mcp_sessiond_tests::gone(third);
    world.nothing_left();
}

#[test]
fn only_an_entry_of_the_file_can_be_shared() {
    let world = world("");
    let output = world
        .sessiond(&["wrap", "--share", "--", "true"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(64));
    assert!(
        said.contains("so that no host's secrets reach another"),
        "{said}"
    );
}
