//! The Tasks extension (SEP-2663) of servers on rmcp, by raw HTTP: what `tests/conformance/tasks`, which
//! has its rules, does not ask of every language.

mod client;
mod example;
mod lives;
pub(crate) mod machines;
mod races;
mod stdio;

use std::io::Write as _;
use std::path::PathBuf;

use mcp_sessiond_tests::{Daemon, Serve, World};
use serde_json::{Value, json};

use crate::world;
use client::Client;

const TASKS: &str = "io.modelcontextprotocol/tasks";

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
        let world = world(&format!("[storage]\nurl = \"{storage}\"\n"));
        let daemon = world.daemon();
        let service = format!("tasks-{:08x}", fastrand::u32(..));
        let server = world.tasks_server(&[("SERVICE", &service)]);
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

/// Tries a case in each storage of one machine.
fn each(case: impl Fn(&mut Setup)) {
    for storage in ["sqlite:", "memory:"] {
        case(&mut Setup::new(storage));
    }
}

/// What people answer to whoever asks for a name.
fn named(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
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
