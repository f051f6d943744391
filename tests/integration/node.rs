//! The official TypeScript client as host, over stdio, of the example server and a real broker.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use mcp_sessiond_tests::{BrokerProcess, Daemon, World, copy_program};
use serde_json::{Value, json};

use crate::{BINARIES, fixture, needs_root, world};

/// `host.mjs`.
struct NodeHost {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl NodeHost {
    fn spawn(world: &World, broker: &BrokerProcess) -> Self {
        let mut command = Command::new("node");
        command.env("MCP_SESSIOND_DIR", world.directory());
        Self::spawn_by(command, BINARIES.example_server, broker)
    }

    fn spawn_by(mut command: Command, server: &str, broker: &BrokerProcess) -> Self {
        let sdk = fixture("node/node_modules/@modelcontextprotocol/sdk/package.json");
        let installed: Value =
            serde_json::from_str(&fs::read_to_string(&sdk).unwrap_or_default()).unwrap_or_default();
        assert_eq!(
            installed["version"], "1.32.2",
            "the official TypeScript client is not installed: run `npm ci` in tests/node, or tests/run, which does"
        );
        let script = fixture("node/host.mjs");
        command.arg(script).arg(server).arg(&broker.socket);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node");
        let orders = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            orders,
            answers,
        }
    }

    fn order(&mut self, order: &Value) -> Value {
        self.orders
            .write_all(format!("{order}\n").as_bytes())
            .expect("node takes orders");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{order}: {error}: {answer:?}"))
    }

    /// Starts these, all at once, or restarts them. Returns the broker session of each, and how it
    /// came there.
    fn all(&mut self, verb: &str, servers: &[Value]) -> Vec<(String, String)> {
        let answer = self.order(&json!({ verb: servers }));
        let pair = |session: &Value| {
            let text = |name: &str| {
                session[name]
                    .as_str()
                    .unwrap_or_else(|| panic!("{session}"))
                    .to_owned()
            };
            (text("broker_session"), text("began"))
        };
        answer
            .as_array()
            .expect("a list")
            .iter()
            .map(pair)
            .collect()
    }
}

impl Drop for NodeHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A world with this configuration, its daemon, a broker and a host.
fn started(configuration: &str) -> (World, Daemon, BrokerProcess, NodeHost) {
    let world = world(configuration);
    let (daemon, broker) = (world.daemon(), world.broker());
    let host = NodeHost::spawn(&world, &broker);
    (world, daemon, broker, host)
}

fn differing(count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| json!({"name": format!("s{n}"), "args": ["--db", format!("db{n}")]}))
        .collect()
}

fn sessions(began: &[(String, String)]) -> HashSet<&str> {
    began.iter().map(|(session, _)| session.as_str()).collect()
}

#[test]
#[ignore = "needs node"]
fn a_server_that_is_killed_and_started_again_is_in_the_same_broker_session() {
    let (_world, _daemon, broker, mut host) = started("");
    let one = [json!({"name": "s", "args": []})];
    assert_eq!(
        host.all("start", &one),
        [("session-1".into(), "fresh".into())]
    );
    for _ in 0..5 {
        assert_eq!(
            host.order(&json!({"call": "s", "tool": "rotate"}))["stored"],
            true
        );
        assert_eq!(host.order(&json!({"kill": ["s"]})), true);
        assert_eq!(
            host.all("start", &one),
            [("session-1".into(), "resumed".into())]
        );
    }
    assert_eq!(broker.refused(), 0);
}

/// Nothing is handed to the servers but what the SDK passes by default. For that the test has a
/// /run of its own, in which nobody else is met; and no daemon, which the server starts.
#[test]
#[ignore = "needs root"]
fn the_environment_that_the_sdk_passes_by_default_is_enough() {
    needs_root("for a mount namespace of its own");
    let world = World::within(&BINARIES, Path::new(env!("CARGO_TARGET_TMPDIR")));
    let broker = world.broker();
    // Where a client looks for the daemon's program: beside its own.
    for (program, name) in [
        (BINARIES.example_server, "server"),
        (BINARIES.daemon, "mcp-sessiond"),
    ] {
        copy_program(program, world.root().join(name));
    }
    let config = world.root().join(".config/mcp-sessiond");
    fs::create_dir_all(&config).expect("made");
    fs::write(config.join("config.toml"), "idle_exit_ms = 1").expect("written");
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs tmpfs /run && mkdir -p /run/user && mkdir -m 700 /run/user/$(id -u) && exec node \"$@\"";
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .env_clear();
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", world.root());
    let server = world.root().join("server");
    let mut host = NodeHost::spawn_by(command, server.to_str().expect("UTF-8"), &broker);
    let servers = differing(2);
    let began = host.all("start", &servers);
    assert_eq!(sessions(&began).len(), 2);
    for _ in 0..3 {
        for (before, now) in began.iter().zip(host.all("restart", &servers)) {
            assert_eq!((&before.0, "resumed"), (&now.0, now.1.as_str()));
        }
    }
    // The daemon goes with its last host, and its directory with the namespace.
    drop(host);
}
