//! Backends of a service's sessions: they survive the front and the daemon. When the front is
//! killed, the next one continues where it stopped.

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
    let client = r#""protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}"#;
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

/// A session `s` of the service `web`, a front that has attached to its backend, and a backend that
/// says what the test tells it.
struct Bench {
    raw: Raw,
    serving: Serving,
    daemon: Daemon,
    world: World,
    /// Of the first keeper.
    incarnation: serde_json::Value,
}

impl Bench {
    fn new(settings: &str) -> Self {
        let world = world(settings);
        let daemon = world.daemon();
        world.create("web", "s");
        let raw = world.raw("server");
        let mut serving = world.serving("web");
        assert_eq!(serving.leased(), 1);
        let attached = serving.attach("s", &raw.command);
        assert_eq!(attached["is_initialized"], false);
        Self {
            raw,
            serving,
            daemon,
            world,
            incarnation: attached["incarnation"].clone(),
        }
    }

    /// Kills the front, and has another one attach. Returns what the second one finds.
    fn serve_again(&mut self) -> serde_json::Value {
        self.serving.process.kill();
        self.serving = self.world.serving("web");
        self.serving.leased();
        self.serving.attach("s", &self.raw.command)
    }
}
