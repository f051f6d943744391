//! The rules of the Tasks extension (SEP-2663) for servers, at a server on rmcp: each case is named by its rule, and tried on SQLite and in
//! memory.

use std::time::{Duration, Instant};

use mcp_sessiond_tests::{Daemon, HttpClient, Serve, World};
use serde_json::{Value, json};

use crate::world;

const TASKS: &str = "io.modelcontextprotocol/tasks";
/// The largest time that any of this takes.
const LONG: Duration = Duration::from_secs(20);

struct Place {
    world: World,
    daemon: Daemon,
    server: Serve,
}

impl Place {
    fn new(storage: &str) -> Self {
        let world = world(&format!("[storage]\nurl = \"{storage}\"\n"));
        let daemon = world.daemon();
        let server = start(&world);
        Self { world, daemon, server }
    }

    /// Lets the tools go on that wait.
    fn open(&self) {
        let made = self.world.root().join("made");
        std::fs::write(&made, "").expect("it is written");
        std::fs::rename(made, self.world.root().join("gate")).expect("it is moved");
    }
}

fn start(world: &World) -> Serve {
    let gate = world.root().join("gate");
    world.tasks_server(&[("GATE", gate.to_str().expect("UTF-8"))])
}

fn each(case: impl Fn(&mut Place)) {
    for storage in ["sqlite:", "memory:"] {
        case(&mut Place::new(storage));
    }
}

/// Sends a request of a client that declares these capabilities. Returns the answer.
fn ask(client: &mut HttpClient, declared: &Value, method: &str, mut params: Value) -> Value {
    client.last += 1;
    let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap_or_default().to_owned();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": declared,
    });
    let message = json!({"jsonrpc": "2.0", "id": client.last, "method": method, "params": params});
    let own = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", &name)];
    client.ask("POST", &own, &message.to_string()).message()
}

fn said(client: &mut HttpClient, method: &str, params: Value) -> Value {
    ask(client, &json!({"elicitation": {}, "extensions": {TASKS: {}}}), method, params)
}

fn plain(client: &mut HttpClient, method: &str, params: Value) -> Value {
    ask(client, &json!({"elicitation": {}}), method, params)
}

/// Begins a task, and returns its id.
fn begin(client: &mut HttpClient, tool: &str) -> String {
    let answer = said(client, "tools/call", json!({"name": tool, "arguments": {}}));
    assert_eq!(answer["result"]["resultType"], "task", "{answer}");
    answer["result"]["taskId"].as_str().expect("an id").to_owned()
}

fn get(client: &mut HttpClient, task: &str) -> Value {
    said(client, "tasks/get", json!({"taskId": task}))
}

/// Polls, as clients do, until the task has this status.
fn until(client: &mut HttpClient, task: &str, status: &str) -> Value {
    let began = Instant::now();
    loop {
        let answer = get(client, task);
        if answer["result"]["status"] == status {
            return answer["result"].clone();
        }
        assert!(began.elapsed() < LONG, "{answer}");
    }
}

fn assert_missing(answer: &Value) {
    let required = &answer["error"]["data"]["requiredCapabilities"]["extensions"][TASKS];
    assert_eq!((&answer["error"]["code"], required), (&json!(-32021), &json!({})), "{answer}");
}

#[test]
fn a_worker_that_is_killed_leaves_a_task_whose_outcome_is_unknown() {
    each(|place| {
        let other = start(&place.world);
        let (mut client, mut elsewhere) = (place.server.client(), other.client());
        let task = begin(&mut client, "work");
        assert_eq!(get(&mut elsewhere, &task)["result"]["status"], "working");
        place.server.kill();
        let killed = Instant::now();
        let failed = until(&mut elsewhere, &task, "failed");
        assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
        assert_eq!(
            (&failed["error"]["code"], &failed["error"]["data"]["outcome"]),
            (&json!(-32603), &json!("unknown"))
        );
        assert!(
            failed["statusMessage"].as_str().is_some_and(|text| text.contains("outcome is unknown")),
            "{failed}"
        );
    });
}

#[test]
fn a_task_is_kept_before_its_id_is_told_and_survives_the_daemon() {
    let mut place = Place::new("sqlite:");
    let mut client = place.server.client();
    let task = begin(&mut client, "work");
    let (session, own) = task.split_once('.').expect("two parts");
    assert_eq!((session.len(), own.len() >= 22), (22, true), "{task}");
    place.daemon.kill();
    place.daemon.start_again();
    assert_eq!(get(&mut client, &task)["result"]["status"], "working");
    place.open();
    let done = until(&mut client, &task, "completed");
    assert_eq!(done["result"]["content"][0]["text"], "worked");
}

#[test]
fn the_server_declares_the_extension_and_no_legacy_capability() {
    each(|place| {
        let answer = said(&mut place.server.client(), "server/discover", json!({}));
        let capabilities = &answer["result"]["capabilities"];
        assert_eq!(
            (&capabilities["extensions"][TASKS], &capabilities["tasks"]),
            (&json!({}), &Value::Null),
            "{answer}"
        );
    });
}

#[test]
fn a_client_that_has_not_declared_is_given_no_task() {
    each(|place| {
        let mut client = place.server.client();
        let task = begin(&mut client, "work");
        place.open();
        let direct =
            plain(&mut client, "tools/call", json!({"name": "work", "arguments": {}, "task": {"ttl": 1}}));
        assert_eq!(direct["result"]["content"][0]["text"], "worked", "{direct}");
        assert_ne!(direct["result"]["resultType"], "task");
        assert_missing(&plain(&mut client, "tools/call", json!({"name": "must", "arguments": {}})));
        assert_missing(&plain(&mut client, "tools/call", json!({"name": "greet", "arguments": {}})));
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            assert_missing(&plain(&mut client, method, json!({"taskId": task, "inputResponses": {}})));
        }
        let direct = said(&mut client, "tools/call", json!({"name": "plain", "arguments": {}}));
        assert_eq!(direct["result"]["content"][0]["text"], "plain", "the server alone decides");
    });
}

#[test]
fn an_answer_of_tasks_get_has_what_the_status_needs() {
    each(|place| {
        let mut client = place.server.client();
        let task = begin(&mut client, "work");
        let working = get(&mut client, &task)["result"].clone();
        assert_eq!(
            (
                &working["resultType"],
                &working["status"],
                &working["taskId"],
                &working["ttlMs"],
                &working["pollIntervalMs"]
            ),
            (&json!("complete"), &json!("working"), &json!(task), &json!(3_600_000), &json!(50))
        );
        let created = working["createdAt"].as_str().expect("a moment");
        assert!(created.len() == 24 && created.ends_with('Z') && created.starts_with("20"), "{created}");
        let failed = begin(&mut client, "fail");
        let error = until(&mut client, &failed, "failed")["error"].clone();
        assert_eq!(
            error,
            json!({"code": -32050, "message": "API rate limit exceeded", "data": {"after": 5}})
        );
        let wrong = begin(&mut client, "wrong");
        assert_eq!(until(&mut client, &wrong, "completed")["result"]["isError"], true);
    });
}

#[test]
fn input_is_asked_for_and_may_be_given_to_any_worker() {
    each(|place| {
        let other = start(&place.world);
        let (mut client, mut elsewhere) = (place.server.client(), other.client());
        let task = begin(&mut client, "greet");
        let asked = until(&mut elsewhere, &task, "input_required");
        assert_eq!(asked["inputRequests"]["input-1"]["method"], "elicitation/create", "{asked}");
        let answer = json!({"action": "accept", "content": {"name": "Ann"}});
        let unknown =
            said(&mut elsewhere, "tasks/update", json!({"taskId": task, "inputResponses": {"none": answer}}));
        assert_eq!(unknown["result"]["resultType"], "complete", "{unknown}");
        assert_eq!(get(&mut client, &task)["result"]["status"], "input_required", "such a key is ignored");
        let update = json!({"taskId": task, "inputResponses": {"input-1": answer}});
        assert_eq!(said(&mut elsewhere, "tasks/update", update.clone())["result"]["resultType"], "complete");
        let done = until(&mut client, &task, "completed");
        assert_eq!(done["result"]["content"][0]["text"], "Hello, Ann!");
        assert_eq!(
            said(&mut client, "tasks/update", update)["result"]["resultType"],
            "complete",
            "it is ignored"
        );
    });
}

#[test]
fn a_cancelled_task_stays_cancelled() {
    each(|place| {
        let mut client = place.server.client();
        let task = begin(&mut client, "work");
        for _ in 0..2 {
            let answer = said(&mut client, "tasks/cancel", json!({"taskId": task}));
            assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        }
        place.open();
        let next = begin(&mut client, "work");
        until(&mut client, &next, "completed");
        assert_eq!(get(&mut client, &task)["result"]["status"], "cancelled");
    });
}

#[test]
fn a_task_that_is_not_there_is_an_invalid_parameter() {
    each(|place| {
        let mut client = place.server.client();
        for id in ["none", "a.b", "AAAAAAAAAAAAAAAAAAAAAA.b"] {
            for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
                let answer = said(&mut client, method, json!({"taskId": id, "inputResponses": {}}));
                assert_eq!(answer["error"]["code"], -32602, "{answer}");
            }
        }
        let task = begin(&mut client, "short");
        let began = Instant::now();
        let over = loop {
            let answer = get(&mut client, &task);
            if answer["error"].is_object() {
                break answer;
            }
            assert!(began.elapsed() < LONG, "{answer}");
        };
        assert_eq!(over["error"]["code"], -32602, "its time is over: {over}");
        assert_eq!(said(&mut client, "tasks/result", json!({"taskId": task}))["error"]["code"], -32601);
    });
}

#[test]
fn a_task_is_its_callers() {
    each(|place| {
        let named = |token: &str| {
            let mut client = place.server.client();
            client.headers.push(("Authorization".into(), format!("Bearer {token}")));
            client
        };
        let (mut alice, mut bob, mut nobody) = (named("alice"), named("bob"), place.server.client());
        let (hers, nobodys) = (begin(&mut alice, "work"), begin(&mut nobody, "work"));
        let none = get(&mut bob, "none")["error"].clone();
        for other in [&mut bob, &mut nobody] {
            for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
                let answer = said(other, method, json!({"taskId": hers, "inputResponses": {"input-1": {}}}));
                assert_eq!(answer["error"], none, "{method}: {answer}");
            }
        }
        assert_eq!(get(&mut alice, &nobodys)["error"], none);
        assert_eq!(get(&mut alice, &hers)["result"]["status"], "working");
    });
}
