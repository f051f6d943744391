//! `wrap --lazy -- CMD`.

use std::fs;
use std::path::Path;
use std::process::Command;

use mcp_sessiond_tests::{Client, Front, gone, until, write_program};
use serde_json::{Value, json};

use super::{ask_all, heard, introduced, lazy, listed, says, starts, told, tool, usual};
use crate::world;

pub(super) const QUICK: &str = "backends.closed_linger_ms = 100\nbackends.stop_wait_ms = 100";

#[test]
fn it_is_started_at_its_first_call_and_what_was_told_is_what_it_says() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let server = told(&world);
    says(&world, &usual());
    let (first, lists) = introduced(&world, &server);
    assert_eq!(
        (starts(&world), first["instructions"].as_str()),
        (1, Some("Ask me."))
    );

    let mut client = Client::new(world.front(&lazy(&world, &server)));
    let mut answer = client.initialize();
    let capabilities = answer["result"]["capabilities"].take();
    // What was told may have to be corrected.
    let can = json!({
        "tools": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "prompts": {"listChanged": true},
        "logging": {},
    });
    assert_eq!(capabilities, can);
    answer["result"]["capabilities"] = first["capabilities"].clone();
    assert_eq!(answer["result"], first);
    assert_eq!(ask_all(&mut client), lists);
    client.ping();
    let level = client.request("logging/setLevel", json!({"level": "error"}));
    assert_eq!(client.answer(level)["result"], json!({}));
    // Nothing was started for that.
    assert_eq!(starts(&world), 1);

    let pid = client.call("a", json!({}));
    assert_eq!(starts(&world), 2);
    let since = heard(&world);
    let at = since
        .iter()
        .rposition(|line| line.get("pid").is_some())
        .expect("it was started");
    assert_eq!(since[at]["pid"].to_string(), pid);
    let got: Vec<&str> = since[at + 1..]
        .iter()
        .filter_map(|line| line["method"].as_str())
        .collect();
    assert_eq!(
        got[..4],
        [
            "initialize",
            "notifications/initialized",
            "logging/setLevel",
            "tools/call"
        ]
    );
    assert_eq!(since[at + 1]["params"]["clientInfo"]["name"], "test");
    assert_eq!(since[at + 3]["params"]["level"], "error");
    // It is the same from now on, also for the next front.
    client.pipe.kill();
    let mut client = Client::connected(world.front(&lazy(&world, &server)));
    assert_eq!((client.call("a", json!({})), starts(&world)), (pid, 2));
}

/// A pipe that a server waits at before it does anything else.
pub(super) fn gate(root: &Path) -> std::path::PathBuf {
    let gate = root.join("gate");
    assert!(
        Command::new("mkfifo")
            .arg(&gate)
            .status()
            .expect("mkfifo")
            .success()
    );
    gate
}

#[test]
fn a_host_is_answered_however_long_the_server_takes_to_start() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let server = told(&world);
    says(&world, &usual());
    let (_, lists) = introduced(&world, &server);
    let gate = gate(world.root());
    let mut client = Client::connected(world.front(&lazy(&world, &server)));
    assert_eq!(ask_all(&mut client), lists);
    let call = client.begin("a", json!({}));
    until("it is started", || (starts(&world) == 2).then_some(()));
    // It waits, and so does the call, but nothing else.
    assert_eq!(ask_all(&mut client), lists);
    client.ping();
    fs::write(gate, "").expect("it is opened");
    client.text(call).expect("an answer");
    client.ping();
    assert_eq!(client.rest(), Vec::<Value>::new(), "no list has changed");
}

#[test]
fn what_was_told_and_is_no_longer_right_is_mended() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let server = told(&world);
    says(&world, &usual());
    let (_, lists) = introduced(&world, &server);
    let mut now = usual();
    now["tools/list"] = json!([{"tools": [tool("b"), tool("d")]}]);
    now["resources/templates/list"] =
        json!([{"resourceTemplates": [{"name": "t", "uriTemplate": "x://{t}"}]}]);
    // Only in another order, and otherwise written.
    now["prompts/list"] = json!([{"prompts": []}, {"_meta": {}, "prompts": [{"name": "p"}]}]);
    says(&world, &now);
    let mut client = Client::connected(world.front(&lazy(&world, &server)));
    assert_eq!(ask_all(&mut client), lists);
    client.call("a", json!({}));
    let changed = |client: &mut Client<Front>, what: &str| {
        client.said(|message| message["method"] == format!("notifications/{what}/list_changed"));
    };
    changed(&mut client, "tools");
    changed(&mut client, "resources");
    client.ping();
    assert_eq!(client.rest(), Vec::<Value>::new());
    let tools = listed(&mut client, "tools/list", "tools");
    assert_eq!(tools, [tool("b"), tool("d")]);
    client.pipe.close();
    assert!(client.pipe.wait().success());
    gone(super::pid(&world));

    // It is remembered as it is now.
    let mut client = Client::connected(world.front(&lazy(&world, &server)));
    assert_eq!(listed(&mut client, "tools/list", "tools"), tools);
    assert_eq!(starts(&world), 2);
}

#[test]
fn a_server_that_had_nothing_to_call_is_started_with_its_host() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let server = told(&world);
    let mut empty = usual();
    for list in ["tools/list", "resources/list", "prompts/list"] {
        empty.as_object_mut().expect("an object").remove(list);
    }
    empty["tools/list"] = json!([{"tools": []}]);
    says(&world, &empty);
    let ask = || {
        let mut client = Client::connected(world.front(&lazy(&world, &server)));
        let tools = listed(&mut client, "tools/list", "tools");
        for method in ["resources/list", "prompts/list"] {
            let id = client.request(method, json!({}));
            client.answer(id);
        }
        client.pipe.close();
        assert!(client.pipe.wait().success());
        (tools, starts(&world))
    };
    assert_eq!(ask(), (Vec::new(), 1));
    // The user has logged in to it.
    gone(super::pid(&world));
    let mut now = empty.clone();
    now["tools/list"] = json!([{"tools": [tool("a")]}]);
    says(&world, &now);
    assert_eq!(ask(), (vec![tool("a")], 2));
    gone(super::pid(&world));
    assert_eq!(ask(), (vec![tool("a")], 2), "now it has");
}

#[test]
fn a_server_that_can_not_be_started_is_told_at_the_call_and_tried_again_at_the_next() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let program = world.root().join("program");
    let text = format!("#!/bin/sh\nexec {}\n", told(&world).join(" "));
    let install = || write_program(&program, &text);
    install();
    let server = [program.to_str().expect("UTF-8").to_owned()];
    says(&world, &usual());
    let (_, lists) = introduced(&world, &server);
    fs::remove_file(&program).expect("removed");
    let mut client = Client::connected(world.front(&lazy(&world, &server)));
    assert_eq!(ask_all(&mut client), lists);
    let error = client
        .try_call("a", json!({}))
        .expect_err("there is no program");
    let message = error["message"].as_str().expect("text");
    assert!(
        message.contains("program can't be run") && message.contains("install it"),
        "{message}"
    );
    assert!(
        message.ends_with("; this call was not sent. The next call tries again"),
        "{message}"
    );
    assert_eq!(
        (&error["code"], &error["data"]["outcome"]),
        (&json!(-32000), &json!("not_sent"))
    );
    install();
    // It refuses a host that it has accepted before.
    says(&world, &json!({}));
    let error = client.try_call("a", json!({})).expect_err("it refuses");
    let message = error["message"].as_str().expect("text");
    assert!(
        message.contains("it refused to be initialised: not today"),
        "{message}"
    );
    says(&world, &usual());
    client.call("a", json!({}));
    client.ping();
    assert_eq!(client.rest(), Vec::<Value>::new());
}

#[test]
fn a_host_that_introduces_itself_otherwise_gets_the_answers_of_the_server() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let server = told(&world);
    says(&world, &usual());
    introduced(&world, &server);
    let host = |params: Value| {
        let mut client = Client::new(world.front(&lazy(&world, &server)));
        let id = client.request("initialize", params);
        let answer = client.initialized(id);
        listed(&mut client, "tools/list", "tools");
        client.pipe.close();
        assert!(client.pipe.wait().success());
        // One that still runs is initialised anew by a host with other words.
        gone(super::pid(&world));
        answer
    };
    let words = |name: &str, version: &str, capabilities: &Value| {
        json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": name, "version": "2"},
        })
    };
    let can = json!({"sampling": {}, "roots": {}});
    host(words("test", "2025-06-18", &can));
    assert_eq!(
        starts(&world),
        1,
        "only the version of the host is another one"
    );
    let answer = host(words("test", "2025-11-25", &can));
    assert_eq!(
        (&answer["result"]["protocolVersion"], starts(&world)),
        (&json!("2025-11-25"), 2)
    );
    host(words("test", "2025-06-18", &json!({})));
    host(words("another", "2025-06-18", &can));
    assert_eq!(starts(&world), 4);
    // Each is known now.
    host(words("test", "2025-11-25", &can));
    host(words("another", "2025-06-18", &can));
    assert_eq!(starts(&world), 4);
}

#[test]
fn a_host_that_asks_for_the_era_first_is_answered_from_memory_too() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let server = told(&world);
    says(&world, &usual());
    let begin = || {
        let mut client = Client::new(world.front(&lazy(&world, &server)));
        let meta = json!({"io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
        let id = client.request("server/discover", json!({"_meta": meta}));
        assert_eq!(client.answer(id)["error"]["code"], -32601);
        client.initialize();
        listed(&mut client, "tools/list", "tools");
        client
    };
    let mut client = begin();
    client.pipe.close();
    assert!(client.pipe.wait().success());
    gone(super::pid(&world));
    let mut client = begin();
    assert_eq!(starts(&world), 1);
    let pid = client.call("a", json!({}));
    // The server has heard all that its host has said, so it need not be another one for the next
    // front.
    client.pipe.kill();
    let mut client = begin();
    assert_eq!((client.call("a", json!({})), starts(&world)), (pid, 2));
    client.pipe.close();
    assert!(client.pipe.wait().success());
    gone(super::pid(&world));

    // The same of a host that goes on with other words than before.
    let begin = || {
        let mut client = Client::new(world.front(&lazy(&world, &server)));
        let meta = json!({"io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
        let id = client.request("server/discover", json!({"_meta": meta}));
        assert_eq!(client.answer(id)["error"]["code"], -32601);
        let words = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "test"}});
        let id = client.request("initialize", words);
        client.initialized(id);
        client
    };
    let mut client = begin();
    let pid = client.call("a", json!({}));
    client.pipe.kill();
    let mut client = begin();
    assert_eq!((client.call("a", json!({})), starts(&world)), (pid, 3));
}

#[test]
fn a_server_learns_each_time_that_its_host_has_closed_its_end() {
    // If it did not, it would be ended at once.
    let world = world("backends.linger_ms = 1\nbackends.closes = 1000");
    let _daemon = world.daemon();
    let server = told(&world);
    says(&world, &usual());
    for _ in 0..20 {
        let mut client = Client::connected(world.front(&lazy(&world, &server)));
        ask_all(&mut client);
        client.call("a", json!({}));
        client.pipe.close();
        assert!(client.pipe.wait().success());
    }
    assert_eq!(starts(&world), 1);
}

#[test]
fn whatever_is_killed_the_server_is_started_when_it_is_called() {
    let world = world(QUICK);
    let mut daemon = world.daemon();
    let server = told(&world);
    says(&world, &usual());
    let (_, lists) = introduced(&world, &server);
    // Whatever it still has to write down, no front starts a daemon in the place of ours.
    let mut words = lazy(&world, &server);
    words.insert(2, "--no-start".to_owned());
    // A front that has started nothing.
    let mut client = Client::connected(world.front(&words));
    client.pipe.kill();
    let mut client = Client::connected(world.front(&words));
    assert_eq!(ask_all(&mut client), lists);
    daemon.kill();
    assert_eq!(ask_all(&mut client), lists);
    daemon.start_again();
    let pid = client.call("a", json!({}));
    daemon.restart();
    assert_eq!(
        (client.call("a", json!({})), starts(&world)),
        (pid.clone(), 2)
    );
    // From now on it is a server as any other.
    world.backend().kill_keeper();
    assert_ne!(client.call("a", json!({})), pid);
    client.pipe.close();
    assert!(client.pipe.wait().success());
    gone(super::pid(&world));
    let mut client = Client::connected(world.front(&words));
    assert_eq!((ask_all(&mut client), starts(&world)), (lists, 3));
}

#[test]
fn without_a_daemon_or_the_program_it_is_as_without_the_option() {
    let world = world("");
    says(&world, &usual());
    let mut words = lazy(&world, &told(&world));
    words.insert(2, "--no-start".to_owned());
    let mut client = Client::connected(world.front(&words));
    client.call("a", json!({}));
    client.pipe.errors.wait("is run without being kept");
    client.pipe.close();
    assert!(client.pipe.wait().success());

    let _daemon = world.daemon();
    let mut front = world.front(&lazy(&world, &["no-such-program".to_owned()]));
    front.send(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}\n");
    front.errors.wait("no-such-program can't be run");
    front.close();
    assert_eq!(front.wait().code(), Some(127));
}

#[test]
fn a_variable_of_the_launch_does_not_count_and_whatever_does_is_said() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let server = told(&world);
    says(&world, &usual());
    let connected = |variables: &[(&str, &str)]| {
        Client::connected(world.front_with(&lazy(&world, &server), variables))
    };
    let ended = |mut client: Client<Front>| {
        // It has its lists then, and they are stored.
        ask_all(&mut client);
        client.pipe.close();
        assert!(client.pipe.wait().success());
    };
    let not_lazy = "the server is started now, and the host waits: ";
    let first = connected(&[("CLAUDE_CODE_MESSAGING_TOKEN", "1")]);
    let why = "nothing is remembered of it yet";
    first.pipe.errors.wait(&format!("{not_lazy}{why}"));
    ended(first);
    let second = connected(&[("CLAUDE_CODE_MESSAGING_TOKEN", "2")]);
    assert_eq!(starts(&world), 1);
    assert!(!second.pipe.errors.text().contains(not_lazy));
    ended(second);
    let other = connected(&[("API_KEY", "an open secret")]);
    let why = "these variables differ from the last time: API_KEY";
    let line = other.pipe.errors.wait(&format!("{not_lazy}{why}"));
    assert!(!line.contains("an open secret"), "{line}");
    assert_eq!(starts(&world), 2);
    ended(other);
    // The same host, which calls itself otherwise now.
    let words = lazy(&world, &server);
    let mut other = Client::new(world.front_with(&words, &[("API_KEY", "an open secret")]));
    other.initialize_as("another");
    let why = "the host introduces itself in another way than that of the last time";
    other.pipe.errors.wait(&format!("{not_lazy}{why}"));
    ended(other);
}

#[test]
fn a_server_of_the_file_is_started_so_if_its_entry_says_so() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let server = told(&world);
    says(&world, &usual());
    let entry = json!({"command": server[0], "args": &server[1..], "lazy": true});
    let file = json!({"mcpServers": {"one": entry}});
    fs::write(world.root().join("servers.json"), file.to_string()).expect("servers.json");
    let mut words = world.wrapping(&["@one"], &[]);
    words.pop();
    for starts_then in [1, 1] {
        let mut client = Client::connected(world.front(&words));
        ask_all(&mut client);
        assert_eq!(starts(&world), starts_then);
        client.pipe.close();
        assert!(client.pipe.wait().success());
        // While it ends, the next host could find it, and lose it.
        gone(super::pid(&world));
    }
}
