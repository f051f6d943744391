//! Capability negotiation, and MCP's earlier versions.

use serde_json::{Value, json};

use crate::tasks_rmcp::{
    NO_METHOD, TASKS, assert_error, assert_missing, assert_undeclared, each, text,
};

/// The tools that go on as tasks, and can do without.
const EITHER: [&str; 4] = ["work", "wrong", "structured", "big"];

#[test]
fn the_server_declares_the_extension_and_no_legacy_capability() {
    each(|place| {
        let found = place.client().result("server/discover", json!({}));
        let capabilities = &found["capabilities"];
        assert_eq!(
            (&capabilities["extensions"][TASKS], &capabilities["tasks"]),
            (&json!({}), &Value::Null),
            "{found}"
        );
    });
}

/// "A server MUST NOT return `CreateTaskResult` to a client that did not include the extension
/// capability on its request, regardless of prior declarations."
#[test]
fn a_client_that_has_not_declared_is_given_no_task() {
    each(|place| {
        let mut client = place.client();
        for tool in EITHER {
            assert_eq!(client.call(tool, json!({}))["resultType"], "task", "{tool}");
            let direct = client.plain().call(tool, json!({}));
            assert_eq!(
                (&direct["resultType"], &direct["taskId"]),
                (&json!("complete"), &Value::Null)
            );
        }
        assert_eq!(text(&client.plain().call("work", json!({}))), "worked");
    });
}

/// "If a server is unable to service a request without returning `CreateTaskResult`, the server
/// MUST return an error with the code -32021."
#[test]
fn a_tool_that_needs_a_task_refuses_a_client_that_has_not_declared() {
    each(|place| {
        let mut plain = place.client().plain();
        for tool in ["must", "greet"] {
            assert_undeclared(&plain.ask("tools/call", json!({"name": tool, "arguments": {}})));
        }
        assert_eq!(place.client().call("must", json!({}))["resultType"], "task");
    });
}

/// "Servers MUST treat clients declaring only the legacy capability as non-declaring."
#[test]
fn another_capability_declares_nothing() {
    each(|place| {
        let gate = place.gate();
        let task = place.client().begin("work", gate.named());
        let legacy = json!({"tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}}});
        for declared in [json!({}), legacy, json!({"extensions": {"other": {}}})] {
            let mut other = place.client().declaring(declared);
            assert_eq!(other.call("work", json!({}))["resultType"], "complete");
            for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
                let params = json!({"taskId": task, "inputResponses": {}});
                assert_undeclared(&other.ask(method, params));
            }
        }
        assert_eq!(place.client().get(&task)["status"], "working");
    });
}

/// "A server MAY return `CreateTaskResult` at its own discretion"; "servers MUST ignore the `task`
/// parameter".
#[test]
fn the_server_alone_decides() {
    each(|place| {
        let mut client = place.client();
        let with = |name: &str| json!({"name": name, "arguments": {}, "task": {"ttl": 1}});
        assert_eq!(text(&client.result("tools/call", with("plain"))), "plain");
        assert_eq!(
            client.result("tools/call", with("work"))["ttlMs"],
            3_600_000
        );
        assert_eq!(
            text(&client.plain().result("tools/call", with("work"))),
            "worked"
        );
    });
}

/// "`tasks/result` is removed; clients calling it MUST receive -32601."
#[test]
fn legacy_methods_are_gone() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("work", json!({}));
        for method in ["tasks/result", "tasks/list"] {
            let answer = client.ask(method, json!({"taskId": task}));
            assert_error(&answer, NO_METHOD);
            assert_eq!(answer["http"], 404);
        }
    });
}

/// "Servers MUST NOT treat this capability as enabling tasks under that protocol version."
#[test]
fn the_extension_is_not_there_before_2026() {
    each(|place| {
        let gate = place.gate();
        let task = place.client().begin("work", gate.named());
        let mut old = place.server.client();
        old.headers
            .push(("MCP-Protocol-Version".into(), "2025-11-25".into()));
        let capabilities = json!({"extensions": {TASKS: {}}});
        let info = json!({"name": "old", "version": "1"});
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info});
        assert_eq!(
            old.request("initialize", &hello).answer()["result"]["protocolVersion"],
            "2025-11-25"
        );
        let answer = old
            .request("tools/call", &json!({"name": "work", "arguments": {}}))
            .answer();
        assert_eq!(
            (text(&answer["result"]), &answer["result"]["taskId"]),
            ("worked", &Value::Null)
        );
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            // rmcp knows nothing of what the client has declared in another request.
            let params = json!({"taskId": task, "inputResponses": {}});
            assert_missing(
                &old.request(method, &params).answer(),
                &json!({"extensions": {TASKS: {}}}),
            );
            for id in [json!(task), json!(7)] {
                let meta = json!({"io.modelcontextprotocol/clientCapabilities": capabilities});
                let params = json!({"taskId": id, "inputResponses": {}, "_meta": meta});
                assert_error(&old.request(method, &params).answer(), NO_METHOD);
            }
        }
        assert_eq!(place.client().get(&task)["status"], "working");
    });
}
