//! The example server of the official TypeScript SDK, with its example authorization server, which
//! gives no refresh tokens.

use std::net::TcpListener;
use std::process::{Child, Stdio};

use mcp_sessiond_tests::{World, get, until};
use serde_json::json;

use super::login::log_in;
use crate::{fixture, world};

/// The server, which is killed when this is dropped.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn example(world: &World) -> (Example, u16) {
    let (first, second) = (
        TcpListener::bind("127.0.0.1:0"),
        TcpListener::bind("127.0.0.1:0"),
    );
    let port = |listener: &std::io::Result<TcpListener>| {
        listener
            .as_ref()
            .map(|listener| listener.local_addr().expect("bound").port())
            .expect("a port")
    };
    let (mcp, auth) = (port(&first), port(&second));
    drop((first, second));
    let module = "node/node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js";
    let mut command = world.command("node");
    command.args([&fixture(module), "--oauth", "--oauth-strict"]);
    command
        .env("MCP_PORT", mcp.to_string())
        .env("MCP_AUTH_PORT", auth.to_string());
    let server = Example(command.stdout(Stdio::null()).spawn().expect("node"));
    for port in [mcp, auth] {
        until("it listens", || {
            std::net::TcpStream::connect(("localhost", port)).ok()
        });
    }
    (server, mcp)
}

#[test]
#[ignore = "needs node"]
fn the_sdks_example_server_takes_the_login() {
    let world = world("");
    let (_server, port) = example(&world);
    let url = format!("http://localhost:{port}/mcp");
    let entries = json!({"mcpServers": {"test": {"url": url}}});
    std::fs::write(world.root().join("servers.json"), entries.to_string()).expect("written");
    let file = world.root().join("kept.json");
    let (mut connected, _) = world.connected(&url, &file);
    let answer = connected.initialize();
    let said = answer["error"]["message"].as_str().expect("a sentence");
    assert!(said.contains("run `mcp-sessiond login test`"), "{said}");
    log_in(&world, "test", |page| get(page).1.expect("a redirect"));
    assert!(connected.initialize()["result"].is_object());
    let said = connected.text(1, "greet", &json!({"name": "you"}));
    assert_eq!(said, "Hello, you!");
}
