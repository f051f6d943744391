//! The rules of the Tasks extension (SEP-2663) for servers, at a server on rmcp, by raw HTTP.
//!
//! `rules` and `lives` run on SQLite and in memory, or on the storage that
//! `MCP_SESSIOND_TEST_STORAGE` names by its URL.

mod client;
mod example;
mod lives;
#[cfg(any(feature = "postgres", feature = "dynamodb"))]
pub(crate) mod machines;
mod races;
mod rules;
mod stdio;

use std::io::Write as _;
use std::path::PathBuf;

use mcp_sessiond_tests::{Daemon, Serve, World};
use serde_json::{Value, json};

use crate::world;
use client::Client;

const TASKS: &str = "io.modelcontextprotocol/tasks";
const INVALID: i64 = -32602;
const NO_METHOD: i64 = -32601;

/// A daemon, and a server of a service that no other place has.
struct Setup {
    world: World,
    daemon: Daemon,
    server: Serve,
    service: String,
    storage: String,
    gates: u32,
}

impl Setup {
    fn new(storage: &str) -> Self {
        Self::with(storage, "", &[])
    }

    /// With more in the daemon's configuration, and these variables of the server's.
    fn with(storage: &str, configuration: &str, variables: &[(&str, &str)]) -> Self {
        let world = world(&format!("[storage]\nurl = \"{storage}\"\n{configuration}"));
        let daemon = world.daemon();
        let service = format!("tasks-{:08x}", fastrand::u32(..));
        let server = world.tasks_server(&[&[("SERVICE", &*service)], variables].concat());
        Self {
            world,
            daemon,
            server,
            service,
            storage: storage.into(),
            gates: 0,
        }
    }

    /// Another worker of the service.
    fn worker(&self) -> Serve {
        self.world.tasks_server(&[("SERVICE", &self.service)])
    }

    fn client(&self) -> Client {
        Client::of(&self.server)
    }

    /// A file that tools wait for.
    fn gate(&mut self) -> Gate {
        self.gates += 1;
        Gate(self.world.root().join(format!("gate-{}", self.gates)))
    }

    /// Nothing that tells a client's task from others is in the server's log.
    #[track_caller]
    fn assert_silent(&self, task: &str) {
        let (session, own) = task.split_once('.').expect("two parts");
        let log = self.server.errors.text();
        assert!(!log.contains(session) && !log.contains(own), "{log}");
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "on {}", self.storage);
        }
    }
}

struct Gate(PathBuf);

impl Gate {
    /// The arguments of a tool that waits for it.
    fn named(&self) -> Value {
        json!({"gate": self.0})
    }

    /// Lets the tools go on that wait.
    fn open(&self) {
        let made = self.0.with_extension("made");
        std::fs::write(&made, "").expect("it is written");
        std::fs::rename(made, &self.0).expect("it is moved");
    }
}

/// The storages in which the rules are tried.
fn storages() -> Vec<String> {
    let given = std::env::var("MCP_SESSIOND_TEST_STORAGE");
    given.map_or_else(
        |_| vec!["sqlite:".into(), "memory:".into()],
        |given| vec![given],
    )
}

/// Tries a case in each storage.
fn each(case: impl Fn(&mut Setup)) {
    for storage in storages() {
        case(&mut Setup::new(&storage));
    }
}

/// Tries a case that kills the daemon: in each storage that outlives it.
fn kept(variables: &[(&str, &str)], case: impl Fn(&mut Setup)) {
    for storage in storages().iter().filter(|storage| *storage != "memory:") {
        case(&mut Setup::with(storage, "", variables));
    }
}

/// What people answer to whoever asks for a name.
fn named(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

#[track_caller]
fn assert_missing(answer: &Value, required: &Value) {
    let error = &answer["error"];
    assert_eq!(
        (&error["code"], &error["data"]["requiredCapabilities"]),
        (&json!(-32021), required),
        "{answer}"
    );
}

/// Whoever has asked must declare the extension.
#[track_caller]
fn assert_undeclared(answer: &Value) {
    assert_missing(answer, &json!({"extensions": {TASKS: {}}}));
    assert_eq!(answer["http"], 400, "{answer}");
}

#[track_caller]
fn assert_error(answer: &Value, code: i64) {
    let error = &answer["error"];
    assert_eq!(error["code"], code, "{answer}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty()),
        "{answer}"
    );
}

/// The task has failed, and nobody knows what became of it.
#[track_caller]
fn assert_unknown(failed: &Value) {
    assert_eq!(
        (
            &failed["status"],
            &failed["error"]["code"],
            &failed["error"]["data"]
        ),
        (
            &json!("failed"),
            &json!(-32603),
            &json!({"outcome": "unknown"})
        ),
        "{failed}"
    );
    assert!(
        failed["statusMessage"]
            .as_str()
            .is_some_and(|text| text.contains("outcome is unknown")),
        "{failed}"
    );
}

/// The text of a result.
#[track_caller]
fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{result}"))
}

/// The keys of what a task asks now.
fn keys(task: &Value) -> Vec<String> {
    task["inputRequests"]
        .as_object()
        .map(|asked| asked.keys().cloned().collect())
        .unwrap_or_default()
}
