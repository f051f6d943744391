//! Tasks of a server on stdio, which the next server of the service knows.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};

use mcp_sessiond_tests::{World, until};
use serde_json::{Value, json};

use super::client::VERSION;
use super::{TASKS, assert_unknown, text};
use crate::world;

/// `tasks-server` as a host has it.
struct OnStdio {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    last: u64,
}

impl OnStdio {
    fn start(world: &World) -> Self {
        let mut command = world.command(world.binaries.tasks_server);
        command
            .arg("stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("tasks-server");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            said,
            last: 0,
        }
    }

    /// The result of a request.
    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        self.last += 1;
        let declared = json!({"elicitation": {}, "extensions": {TASKS: {}}});
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": declared,
        });
        let message =
            json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params});
        let stdin = self.child.stdin.as_mut().expect("piped");
        writeln!(stdin, "{message}").expect("it reads");
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it answers");
        let mut answer: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_eq!(answer["id"], self.last, "{answer}");
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].take()
    }

    fn begin(&mut self, tool: &str, arguments: &Value) -> String {
        let result = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        result["taskId"]
            .as_str()
            .unwrap_or_else(|| panic!("{result}"))
            .to_owned()
    }

    fn status(&mut self, task: &str, status: &str) -> Value {
        until(status, || {
            Some(self.ask("tasks/get", json!({"taskId": task})))
                .filter(|task| task["status"] == status)
        })
    }
}

impl Drop for OnStdio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_task_on_stdio_is_known_to_the_next_server() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut server = OnStdio::start(&world);
    assert_eq!(
        server.ask("server/discover", json!({}))["capabilities"]["extensions"][TASKS],
        json!({})
    );
    let (ended, lost) = (
        server.begin("work", &json!({})),
        server.begin("work", &json!({"gate": world.root().join("gate")})),
    );
    let asking = server.begin("greet", &json!({}));
    assert_eq!(
        text(&server.status(&ended, "completed")["result"]),
        "worked"
    );
    server.status(&asking, "input_required");
    drop(server);
    daemon.restart();
    let mut server = OnStdio::start(&world);
    assert_eq!(
        text(&server.status(&ended, "completed")["result"]),
        "worked"
    );
    assert_unknown(&server.status(&lost, "failed"));
    assert_unknown(&server.status(&asking, "failed"));
}
