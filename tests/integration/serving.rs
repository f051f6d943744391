//! Backends of a service's sessions: they outlive the process that serves, and the daemon, and the next process that serves goes on
//! where the former one was killed.

mod leases;
mod lines;
mod lives;

use mcp_sessiond_tests::{Daemon, Raw, Serving, World};

use crate::world;

/// A request, as MCP's clients send it.
fn request(id: u64, method: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{"progressToken":{id}}}}}}}"#
    )
}

fn initialize() -> String {
    let client =
        r#""protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}"#;
    format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{{client}}}}}"#)
}

fn answer(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

fn progress(token: u64, progress: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{progress}}}}}"#
    )
}

/// A session `s` of the service `web`, and a process that has attached to its backend, which says what it is told to.
struct Bench {
    raw: Raw,
    serving: Serving,
    daemon: Daemon,
    world: World,
}

impl Bench {
    fn new(settings: &str) -> Self {
        let world = world(settings);
        let daemon = world.daemon();
        world.create("web", "s");
        let raw = world.raw("server");
        let mut serving = world.serving("web");
        assert_eq!(serving.leased(), 1);
        assert_eq!(serving.attach("s", &raw.command)["is_fresh"], true);
        Self { raw, serving, daemon, world }
    }

    /// The process that serves is killed, and another one goes on. Returns what that finds.
    fn serve_again(&mut self) -> serde_json::Value {
        self.serving.process.kill();
        self.serving = self.world.serving("web");
        self.serving.leased();
        self.serving.attach("s", &self.raw.command)
    }
}
