//! `mcp-sessiond call`: a server's tools from a shell, and never a host's server.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use mcp_sessiond_tests::{Client, Front, World, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::world;
use crate::wrap::tiny;

/// A world whose `servers.json` has these.
fn listing(servers: &Value) -> World {
    let world = world("claim_wait_ms = 50\n");
    let text = json!({"mcpServers": servers}).to_string();
    fs::write(world.root().join("servers.json"), text).expect("written");
    world
}

fn entry(more: &Value) -> Value {
    let mut entry = json!({"command": crate::BINARIES.tiny});
    for (name, value) in more.as_object().expect("an object") {
        entry[name] = value.clone();
    }
    entry
}

fn run(world: &World, words: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = world.sessiond(words).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

fn said(world: &World, words: &[&str]) -> String {
    let (code, said, errors) = run(world, words);
    assert_eq!(code, Some(0), "{words:?}: {said}{errors}");
    said
}

/// What bash offers for each of these command lines, whose last word is unfinished.
fn offered(world: &World, lines: &[&str]) -> Vec<Vec<String>> {
    let folder = world.root().join("bin");
    let path = folder.join("mcp-sessiond");
    if !path.exists() {
        fs::create_dir(&folder).expect("made");
        symlink(world.binaries.daemon, &path).expect("linked");
    }
    let completions = world.root().join("completions");
    fs::write(&completions, said(world, &["completions", "bash"])).expect("written");
    let complete = r#"source "$0"
        for line; do
            IFS=' ' read -r -a COMP_WORDS <<< "$line"
            [[ $line == *' ' ]] && COMP_WORDS+=("")
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9
            _clap_complete_mcp_sessiond mcp-sessiond "${COMP_WORDS[COMP_CWORD]}"
            echo "${COMPREPLY[@]}"
        done"#;
    let mut shell = world.command("bash");
    let usual = std::env::var("PATH").expect("a path");
    shell.env("PATH", format!("{}:{usual}", folder.display()));
    shell.args(["--norc", "-c", complete]);
    let output = shell.arg(&completions).args(lines).output().expect("bash");
    assert_eq!(output.stderr, b"", "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let words = |line: &str| {
        let words = line.split_whitespace();
        words
            .filter(|word| !word.starts_with("--"))
            .map(str::to_owned)
            .collect()
    };
    text.lines().map(words).collect()
}

#[test]
fn a_shell_offers_the_servers_that_are_there_and_the_tools_of_one_that_runs() {
    let far = json!({"url": "http://127.0.0.1:1/mcp"});
    let world = listing(&json!({
        "counter": entry(&json!({})), "far": far, "two words; x": entry(&json!({})),
    }));
    let of_tool = "mcp-sessiond call counter ";
    let lines = [
        "mcp-sessiond call ",
        "mcp-sessiond login ",
        "mcp-sessiond wrap @c",
        of_tool,
    ];
    assert_eq!(
        offered(&world, &lines),
        [&["counter", "far"][..], &["far"], &["@counter"], &[]]
    );
    assert!(!world.socket().exists(), "no daemon was started");
    let _daemon = world.daemon();
    assert_eq!(said(&world, &["call", "counter", "increment"]), "1\n");
    let lines = [
        of_tool,
        "mcp-sessiond call counter incr",
        "mcp-sessiond call counter echo ",
        "mcp-sessiond stop ",
    ];
    let offered = offered(&world, &lines);
    assert!(offered[0].contains(&"get".to_owned()), "{offered:?}");
    assert_eq!(
        offered[1..],
        [&["increment"][..], &["message="], &["@counter"]]
    );
    // It was asked what it has, and was neither called nor begun afresh.
    assert_eq!(said(&world, &["call", "counter", "increment"]), "2\n");
}

#[test]
fn a_server_of_the_list_keeps_its_state_between_calls() {
    let world = listing(&json!({"counter": entry(&json!({}))}));
    let _daemon = world.daemon();
    let (code, first, errors) = run(&world, &["call", "counter", "increment"]);
    assert_eq!((code, &*first), (Some(0), "1\n"), "{errors}");
    assert!(
        errors.contains("@counter runs in a session of your own") && errors.contains("ten minutes"),
        "{errors}"
    );
    let (code, second, errors) = run(&world, &["call", "@counter", "increment", "by=4"]);
    assert_eq!((code, &*second, &*errors), (Some(0), "5\n", ""));
    assert_eq!(said(&world, &["call", "counter", "get", "{}"]), "5\n");
    let result: Value =
        serde_json::from_str(&said(&world, &["call", "counter", "get", "--json"])).expect("JSON");
    assert_eq!(result["content"][0]["text"], "5");

    let tools = said(&world, &["call", "counter"]);
    assert!(tools.starts_with("TOOL"), "{tools}");
    for tool in ["increment", "get", "parent", "echo"] {
        assert!(tools.contains(tool), "{tools}");
    }
    let tools: Value =
        serde_json::from_str(&said(&world, &["call", "counter", "--json"])).expect("JSON");
    assert_eq!(tools[0]["name"], "increment");

    let (code, _, errors) = run(&world, &["call", "counter", "nothing"]);
    assert_eq!(code, Some(66));
    assert!(
        errors.contains("it has increment, get, parent, echo"),
        "{errors}"
    );
    let (code, _, errors) = run(&world, &["call", "other", "get"]);
    assert_eq!(code, Some(66));
    assert!(errors.contains("there are @counter, counter"), "{errors}");

    // A host's `wrap @counter` has a server of its own.
    let mut host = Client::connected(world.front(&world.wrapping(&[], &["@counter".to_owned()])));
    assert_eq!(host.count(), 1);
    assert_eq!(said(&world, &["call", "counter", "get"]), "5\n");
    world
        .sessiond(&["stop", "@counter"])
        .status()
        .expect("it runs");
    assert_eq!(host.count(), 2);
}

#[test]
fn a_server_of_mcp_2026_07_28_is_spoken_to_in_that_version() {
    let command = crate::BINARIES.counter;
    let entry = json!({"command": command, "args": ["--modern"]});
    let world = listing(&json!({"modern": entry}));
    let _daemon = world.daemon();
    for count in ["1\n", "2\n"] {
        assert_eq!(said(&world, &["call", "modern", "increment"]), count);
    }
    assert!(said(&world, &["call", "modern"]).contains("increment"));
    let (code, _, errors) = run(&world, &["call", "modern", "ask"]);
    assert_eq!(code, Some(65), "{errors}");
    assert!(errors.contains("the host can't be asked"), "{errors}");
}

#[test]
fn what_a_server_has_said_before_it_ended_is_why_it_can_t_be_used() {
    let refuses = r#"read -r line; id=${line#*\"id\":}; id=${id%%,*}
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no API key"}}\n' "$id""#;
    let world = listing(&json!({"keyless": {"command": "sh", "args": ["-c", refuses]}}));
    let _daemon = world.daemon();
    let (code, _, errors) = run(&world, &["call", "keyless", "increment"]);
    assert_eq!(code, Some(69), "{errors}");
    assert!(errors.contains("no API key"), "{errors}");
}

#[test]
fn a_shared_server_is_joined() {
    let world = listing(&json!({"counter": entry(&json!({"shared": true}))}));
    let _daemon = world.daemon();
    let mut host = Client::new(world.front(&world.wrapping(&[], &["@counter".to_owned()])));
    let info = json!({"name": "test", "version": "1"});
    let params = json!({
        "protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}, "clientInfo": info,
    });
    let id = host.request("initialize", params);
    host.initialized(id);
    assert_eq!(host.call("increment", json!({})), "1");
    assert_eq!(said(&world, &["call", "counter", "increment"]), "2\n");
    assert_eq!(said(&world, &["call", "counter", "increment"]), "3\n");
    assert_eq!(host.call("increment", json!({})), "4");
}

#[test]
fn a_named_server_is_used_where_it_is_free() {
    let world = world("claim_wait_ms = 50\n");
    let _daemon = world.daemon();
    let words = world.wrapping(&["--name", "mine"], &tiny(&world));
    let mut host = Client::connected(world.front(&words));
    assert_eq!(host.count(), 1);
    let (code, said_, errors) = run(&world, &["call", "mine", "increment"]);
    assert_eq!((code, &*said_), (Some(75), ""), "{errors}");
    let holder = ", and this call was not sent; it is free when that host closes it";
    assert!(
        errors.starts_with("mcp-sessiond: mine is in use by "),
        "{errors}"
    );
    assert!(
        errors.contains(" in /") && errors.contains(holder),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
    lists_tools_beside(&world, "mine", &mut host, 2);
    host.pipe.close();
    host.pipe.wait();
    assert_eq!(said(&world, &["call", "mine", "increment"]), "3\n");
    let mut host = Client::connected(world.front(&words));
    assert_eq!(host.count(), 4);
}

/// `call` without a tool, of a server that a host has, which counts this next.
fn lists_tools_beside(world: &World, server: &str, host: &mut Client<Front>, count: u64) {
    let (code, tools, errors) = run(world, &["call", server]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(tools.contains("increment"), "{tools}");
    let said = format!("somebody else has {server}: a second one is started for this list");
    assert!(errors.contains(&said), "{errors}");
    assert_eq!(world.backends().len(), 1, "the second one has ended");
    assert_eq!(host.count(), count);
}

#[test]
fn a_host_s_server_is_never_called() {
    let world = world("");
    let _daemon = world.daemon();
    let words = world.wrapping(&["--entry", "browser"], &tiny(&world));
    let mut host = Client::connected(world.front(&words));
    assert_eq!(host.count(), 1);
    let (code, _, errors) = run(&world, &["call", "browser", "increment"]);
    assert_eq!(code, Some(69));
    assert!(errors.contains("browser belongs to "), "{errors}");
    assert!(
        errors.contains("To use it from a shell, write `--name browser` behind `wrap`"),
        "{errors}"
    );
    assert_eq!(host.count(), 2);
    lists_tools_beside(&world, "browser", &mut host, 3);
}

/// A server whose tool returns an image, and reports progress.
const SHOT: &str = r#"
import json, sys
def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        say({"id": message["id"], "result": {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}})
    elif method == "tools/list":
        say({"id": message["id"], "result": {"tools": [{"name": "shot", "inputSchema": {"type": "object"}}, {"name": "fail", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call" and message["params"]["name"] == "fail":
        say({"id": message["id"], "result": {"isError": True, "content": [{"type": "text", "text": "no page"}]}})
    elif method == "tools/call":
        token = message["params"]["_meta"]["progressToken"]
        say({"id": "ask", "method": "sampling/createMessage", "params": {}})
        said = json.loads(sys.stdin.readline())
        say({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "total": 2, "message": "half \x1b[31mway"}})
        say({"id": message["id"], "result": {"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}, {"type": "text", "text": "refused: %d" % said["error"]["code"]}]}})
"#;

#[test]
#[ignore = "needs python3"]
fn an_image_is_written_to_a_file() {
    let world = listing(&json!({"browser": {"command": "python3", "args": ["-c", SHOT]}}));
    let _daemon = world.daemon();
    let page = world.root().join("page.png");
    let name = page.to_str().expect("UTF-8");
    let (code, said, errors) = run(&world, &["call", "browser", "shot", "--output", name]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(said, format!("{name}\nrefused: -32601\n"));
    assert_eq!(fs::read(&page).expect("written"), b"hi");
    assert!(errors.contains("1 of 2 half \u{fffd}[31mway"), "{errors}");
    let (code, said, _) = run(&world, &["call", "browser", "fail"]);
    assert_eq!((code, &*said), (Some(2), "no page\n"));
}

/// A server that never answers a call, and writes down what it is told of it.
const MUTE: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "m", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif method in ("tools/call", "notifications/cancelled"):
        with open(sys.argv[1], "a") as file:
            file.write(method + "\n")
"#;

#[test]
#[ignore = "needs python3"]
fn ctrl_c_and_the_time_limit_cancel_the_call() {
    let world = world("");
    let log = world.root().join("told");
    let servers = json!({"mute": {"command": "python3", "args": ["-c", MUTE, log]}});
    fs::write(
        world.root().join("servers.json"),
        json!({"mcpServers": servers}).to_string(),
    )
    .expect("written");
    let _daemon = world.daemon();
    let told = || fs::read_to_string(&log).unwrap_or_default();
    let call = world.sessiond(&["call", "mute", "wait", "{}"]).spawn();
    let mut call = call.expect("it runs");
    until("the call is there", || {
        told().contains("tools/call").then_some(())
    });
    kill(Pid::from_raw(call.id().cast_signed()), Signal::SIGINT).expect("ours");
    assert_eq!(call.wait().expect("it ends").code(), Some(130));
    until("it was cancelled", || {
        told().contains("cancelled").then_some(())
    });
    let (code, _, errors) = run(&world, &["call", "mute", "wait", "{}", "--timeout", "1"]);
    assert_eq!(code, Some(75), "{errors}");
    assert!(errors.contains("no answer in time"), "{errors}");
}
