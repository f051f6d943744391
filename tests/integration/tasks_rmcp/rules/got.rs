//! `tasks/get`: what is told of a task in each status.

use serde_json::{Value, json};

use crate::tasks_rmcp::client::without_meta;
use crate::tasks_rmcp::{INVALID, assert_error, assert_missing, each, keys, text};

/// What `tasks/get` tells only in some statuses.
const OF_A_STATUS: [&str; 3] = ["inputRequests", "result", "error"];

#[track_caller]
fn assert_only(task: &Value, told: &[&str]) {
    let there: Vec<_> = OF_A_STATUS
        .into_iter()
        .filter(|field| task.get(field).is_some())
        .collect();
    assert_eq!(there, told, "{task}");
}

/// "If the status is `working`, the server MUST return a `Task` object with status `working`."
#[test]
fn working() {
    each(|place| {
        let gate = place.gate();
        let mut client = place.client();
        let task = client.begin("work", gate.named());
        let now = client.until(&task, |task| task["statusMessage"] == "half of it is done");
        assert_eq!(
            (&now["taskId"], &now["status"]),
            (&json!(task), &json!("working"))
        );
        assert_only(&now, &[]);
        gate.open();
        assert_only(&client.status(&task, "completed"), &["result"]);
    });
}

/// "The `inputRequests` field MUST contain all outstanding requests."
#[test]
fn input_required() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("pair", json!({}));
        let now = client.asked(&task, 2);
        assert_eq!(now["status"], "input_required");
        assert_only(&now, &["inputRequests"]);
        let mut messages = Vec::new();
        for key in keys(&now) {
            let asked = &now["inputRequests"][key];
            assert_eq!(asked["method"], "elicitation/create", "{asked}");
            assert!(asked["params"]["requestedSchema"].is_object(), "{asked}");
            messages.push(
                asked["params"]["message"]
                    .as_str()
                    .expect("a message")
                    .to_owned(),
            );
        }
        messages.sort();
        assert_eq!(messages, ["first", "second"]);
    });
}

/// "If the status is `completed`, the server MUST return a `result` field": "exactly what the
/// underlying request would have returned".
#[test]
fn completed() {
    each(|place| {
        let mut client = place.client();
        for tool in ["work", "structured"] {
            let task = client.begin(tool, json!({}));
            let now = client.status(&task, "completed");
            assert_only(&now, &["result"]);
            let direct = without_meta(&client.plain().call(tool, json!({})));
            assert_eq!(told(&now["result"]), told(&direct), "{tool}");
        }
        let task = client.begin("structured", json!({}));
        assert_eq!(
            client.status(&task, "completed")["result"]["structuredContent"],
            json!({"n": 7})
        );
    });
}

/// A result without what says of which kind it is, which the task's own says.
fn told(result: &Value) -> Value {
    let mut told = without_meta(result);
    told.as_object_mut()
        .expect("an object")
        .remove("resultType");
    told
}

/// "The `failed` status MUST NOT be used for non-JSON-RPC errors": a result that `isError` is
/// completed.
#[test]
fn an_error_of_the_tool_is_a_result() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("wrong", json!({}));
        let result = client.status(&task, "completed")["result"].clone();
        assert_eq!(result["isError"], true);
        assert_eq!(
            told(&result),
            told(&client.plain().call("wrong", json!({})))
        );
    });
}

/// "The task uses `failed` status and the `error` field MUST contain that JSON-RPC error." "SHOULD
/// include a `statusMessage`".
#[test]
fn failed() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("fail", json!({}));
        let now = client.status(&task, "failed");
        assert_only(&now, &["error"]);
        assert_eq!(
            now["error"],
            json!({"code": -32050, "message": "API rate limit exceeded", "data": {"after": 5}})
        );
        let direct = client
            .plain()
            .ask("tools/call", json!({"name": "fail", "arguments": {}}));
        assert_eq!(now["error"], direct["error"]);
        assert_eq!(now["statusMessage"], "API rate limit exceeded");
    });
}

#[test]
fn a_tool_that_panics_has_failed_and_ends_no_server() {
    each(|place| {
        let mut client = place.client();
        let gate = place.gate();
        let beside = client.begin("work", gate.named());
        let task = client.begin("panic", json!({}));
        let now = client.status(&task, "failed");
        assert_eq!(
            now["error"],
            json!({"code": -32603, "message": "the tool has panicked"})
        );
        gate.open();
        client.status(&beside, "completed");
    });
}

#[test]
fn a_result_that_is_too_large_is_an_error_that_says_so() {
    each(|place| {
        let mut client = place.client();
        let whole = client.begin("big", json!({"bytes": 500_000}));
        assert_eq!(
            text(&client.status(&whole, "completed")["result"]).len(),
            500_000
        );
        let task = client.begin("big", json!({"bytes": 1_100_000}));
        let error = client.status(&task, "failed")["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]),
            (&json!(-32603), &json!({"outcome": "not_kept"})),
            "{error}"
        );
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| text.contains("could not be stored")),
            "{error}"
        );
    });
}

/// "`tasks/get` is a pure, idempotent read."
#[test]
fn polling_changes_nothing() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("pair", json!({}));
        let now = client.asked(&task, 2);
        for _ in 0..5 {
            assert_eq!(client.get(&task), now);
        }
    });
}

/// "`ttlMs` and `pollIntervalMs` MAY change over the lifetime of a task."
#[test]
fn its_times_may_change() {
    each(|place| {
        let gate = place.gate();
        let mut client = place.client();
        let mut given = gate.named();
        given["ttl"] = 100_000.into();
        given["poll"] = 70.into();
        let task = client.begin("report", given);
        let now = client.until(&task, |task| task["statusMessage"] == "half");
        assert_eq!(
            (&now["ttlMs"], &now["pollIntervalMs"]),
            (&json!(100_000), &json!(70))
        );
        gate.open();
        assert_eq!(client.status(&task, "completed")["ttlMs"], 100_000);
    });
}

/// Servers are not required to keep tasks for ever: -32602. The work is dropped.
#[test]
fn a_task_whose_time_is_over_is_gone() {
    each(|place| {
        let gate = place.gate();
        let mut client = place.client();
        let created = client.call("short", gate.named());
        assert_eq!(created["ttlMs"], 300);
        let task = json!({"taskId": created["taskId"]});
        let over = mcp_sessiond_tests::until("its time is over", || {
            Some(client.ask("tasks/get", task.clone())).filter(|answer| answer["error"].is_object())
        });
        assert_error(&over, INVALID);
        place.server.errors.wait("dropped");
        for method in ["tasks/update", "tasks/cancel"] {
            let params = json!({"taskId": created["taskId"], "inputResponses": {}});
            assert_error(&client.ask(method, params), INVALID);
        }
    });
}

/// "`notifications/progress` and `notifications/message` are not supported on tasks." The tool goes
/// on.
#[test]
fn there_is_no_progress_of_a_task() {
    each(|place| {
        let gate = place.gate();
        let mut client = place.client();
        let call = json!({"name": "progress", "arguments": gate.named(), "_meta": {"progressToken": "token"}});
        // It is the one message that comes, and only then does the tool tell anything.
        let created = client.result("tools/call", call);
        gate.open();
        let task = created["taskId"].as_str().expect("an id");
        assert_eq!(text(&client.status(task, "completed")["result"]), "worked");
    });
}

/// A client is asked what it can be asked: SEP-2322.
#[test]
fn a_client_is_not_asked_what_it_has_not_declared() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("sample", json!({}));
        assert_missing(&client.status(&task, "failed"), &json!({"sampling": {}}));
        let declared = json!({"sampling": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
        let mut able = client.declaring(declared);
        let task = able.begin("sample", json!({}));
        let now = able.asked(&task, 1);
        let content = json!({"type": "text", "text": "an answer"});
        let answer = json!({"role": "assistant", "model": "m", "content": content});
        able.update(&task, &json!({&keys(&now)[0]: answer}));
        assert_eq!(
            text(&able.status(&task, "completed")["result"]),
            "an answer"
        );
        // What can't type in a name is not asked for one.
        let task = able.begin("greet", json!({}));
        assert_missing(&able.status(&task, "failed"), &json!({"elicitation": {}}));
    });
}
