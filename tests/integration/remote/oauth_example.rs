//! The example server of the official TypeScript SDK, with its example authorization server, which
//! gives no refresh tokens.

use std::process::{Child, Stdio};

use mcp_sessiond_tests::{OwnPort, World, get, until};
use serde_json::json;

use super::login::log_in;
use crate::{fixture, world};

/// The server, which is killed when this is dropped, with the ports of it and of its authorization server.
struct Example {
    server: Child,
    mcp: OwnPort,
    auth: OwnPort,
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn example(world: &World) -> Example {
    let (mcp, auth) = (OwnPort::take(), OwnPort::take());
    let module = "node/node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js";
    let mut command = world.command("node");
    command.args([&fixture(module), "--oauth", "--oauth-strict"]);
    command
        .env("MCP_PORT", mcp.number.to_string())
        .env("MCP_AUTH_PORT", auth.number.to_string());
    let server = command.stdout(Stdio::null()).spawn().expect("node");
    let example = Example { server, mcp, auth };
    for port in [example.mcp.number, example.auth.number] {
        until("it listens", || {
            std::net::TcpStream::connect(("localhost", port)).ok()
        });
    }
    example
}

#[test]
#[ignore = "needs node"]
fn the_sdks_example_server_takes_the_login() {
    let world = world("");
    let example = example(&world);
    let url = format!("http://localhost:{}/mcp", example.mcp.number);
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
