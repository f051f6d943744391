//! A client of MCP 2026-07-28 that sends what a test wants to send, and sees every byte of the
//! answer.

use std::time::Instant;

use mcp_sessiond_tests::{HttpClient, PATIENCE, Serve};
use serde_json::{Map, Value, json};

use super::TASKS;

pub(super) const VERSION: &str = "2026-07-28";

/// A client that takes tasks, and can be asked for what people type in.
#[derive(Clone)]
pub(super) struct Client {
    http: HttpClient,
    declared: Value,
}

impl Client {
    pub(super) fn of(server: &Serve) -> Self {
        Self {
            http: server.client(),
            declared: json!({"elicitation": {}, "extensions": {TASKS: {}}}),
        }
    }

    /// The same client, which takes no tasks.
    pub(super) fn plain(&self) -> Self {
        Self {
            declared: json!({"elicitation": {}}),
            ..self.clone()
        }
    }

    fn written(&mut self, method: &str, mut params: Value) -> String {
        self.http.last += 1;
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(VERSION);
        params["_meta"]["io.modelcontextprotocol/clientInfo"] =
            json!({"name": "test", "version": "1"});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.declared.clone();
        json!({"jsonrpc": "2.0", "id": self.http.last, "method": method, "params": params})
            .to_string()
    }

    /// Sends a request, and returns the one message that comes, which answers it.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let name = params["name"]
            .as_str()
            .or(params["taskId"].as_str())
            .unwrap_or_default()
            .to_owned();
        let message = self.written(method, params);
        let mut reply = self.http.ask("POST", &headers(method, &name), &message);
        if reply.header("content-type") != Some("text/event-stream") {
            return reply.message();
        }
        let mut said = Vec::new();
        while let Some(event) = reply.event() {
            said.extend((!event.data.is_empty()).then(|| event.message()));
        }
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// Sends a call, waits for what it brings about, and hangs up.
    pub(super) fn hang_up(&mut self, tool: &str, arguments: &Value, brought: impl FnOnce()) {
        let message = self.written("tools/call", json!({"name": tool, "arguments": arguments}));
        let waiting = self.http.unread(&headers("tools/call", tool), &message);
        brought();
        waiting.hang_up();
    }

    /// What a request comes to.
    #[track_caller]
    fn result(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params);
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].take()
    }

    /// Calls a tool, and returns the result.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments are made for the call"
    )]
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.result("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool, and returns the id of the task.
    #[track_caller]
    pub(super) fn begin(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments);
        assert_eq!(result["resultType"], "task", "{result}");
        result["taskId"].as_str().expect("an id").to_owned()
    }

    #[track_caller]
    pub(super) fn get(&mut self, task: &str) -> Value {
        self.result("tasks/get", json!({"taskId": task}))
    }

    /// Gives answers, which must be acknowledged by an empty result.
    #[track_caller]
    pub(super) fn update(&mut self, task: &str, answers: &Value) {
        let acknowledged = self.result(
            "tasks/update",
            json!({"taskId": task, "inputResponses": answers}),
        );
        assert_eq!(
            without_meta(&acknowledged),
            json!({"resultType": "complete"})
        );
    }

    /// Cancels a task, which must be acknowledged by an empty result.
    #[track_caller]
    pub(super) fn cancel(&mut self, task: &str) {
        let acknowledged = self.result("tasks/cancel", json!({"taskId": task}));
        assert_eq!(
            without_meta(&acknowledged),
            json!({"resultType": "complete"})
        );
    }

    /// Polls, as clients do, until the task is so.
    #[track_caller]
    pub(super) fn until(&mut self, task: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let now = self.get(task);
            if fits(&now) {
                return now;
            }
            assert!(began.elapsed() < PATIENCE, "{now}");
        }
    }

    /// Polls until the task has this status.
    #[track_caller]
    pub(super) fn status(&mut self, task: &str, status: &str) -> Value {
        self.until(task, |task| task["status"] == status)
    }

    /// Polls until the task asks so many questions.
    #[track_caller]
    pub(super) fn asked(&mut self, task: &str, questions: usize) -> Value {
        self.until(task, |task| super::keys(task).len() == questions)
    }
}

/// The headers that a request of this name needs.
fn headers<'a>(method: &'a str, name: &'a str) -> [(&'a str, &'a str); 3] {
    [
        ("MCP-Protocol-Version", VERSION),
        ("Mcp-Method", method),
        ("Mcp-Name", name),
    ]
}

/// A result without what rmcp says of the server beside it.
fn without_meta(result: &Value) -> Value {
    let fields = result
        .as_object()
        .expect("an object")
        .iter()
        .filter(|(name, _)| *name != "_meta");
    Value::Object(
        fields
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect::<Map<_, _>>(),
    )
}
