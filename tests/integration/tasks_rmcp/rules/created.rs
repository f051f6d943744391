//! `CreateTaskResult`.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::tasks_rmcp::client::without_meta;
use crate::tasks_rmcp::{INVALID, assert_error, each, keys, named, text};

/// Asserts that this is a moment by ISO 8601.
#[track_caller]
fn assert_moment(text: &Value) {
    let text = text.as_str().expect("a moment");
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '9' } else { c })
        .collect();
    assert_eq!(shape, "9999-99-99T99:99:99.999Z", "{text}");
    assert!(text > "2026" && text < "2200", "{text}");
}

/// "Servers MUST set `resultType` to `task` when returning a `CreateTaskResult`." The task is the
/// seed.
#[test]
fn the_result_says_that_it_is_a_task() {
    each(|place| {
        let gate = place.gate();
        let mut task = without_meta(&place.client().call("work", gate.named()));
        assert_moment(&task["createdAt"].take());
        assert_moment(&task["lastUpdatedAt"].take());
        assert!(task["taskId"].take().is_string());
        let seed = json!({
            "resultType": "task", "status": "working", "statusMessage": "begun", "ttlMs": 3_600_000, "pollIntervalMs": 50,
            "createdAt": null, "lastUpdatedAt": null, "taskId": null,
        });
        assert_eq!(task, seed, "nothing of a tool's result");
    });
}

/// "Servers MUST NOT set `resultType` to `task` on result types other than `CreateTaskResult`."
#[test]
fn nothing_else_says_so() {
    each(|place| {
        let gate = place.gate();
        let mut client = place.client();
        let task = client.begin("work", gate.named());
        assert_eq!(client.call("plain", json!({}))["resultType"], "complete");
        assert_eq!(client.get(&task)["resultType"], "complete");
        client.update(&task, &json!({"any": named("Ann")}));
        client.cancel(&task);
    });
}

/// "A server MUST NOT return `CreateTaskResult` until a `tasks/get` for the returned `taskId` would
/// resolve." At another worker, too.
#[test]
fn a_task_is_there_before_its_id_is_told() {
    each(|place| {
        let other = place.worker();
        let (mut client, mut elsewhere) = (place.client(), super::super::Client::of(&other));
        for _ in 0..20 {
            let task = client.begin("work", json!({}));
            assert_eq!(elsewhere.get(&task)["taskId"], *task);
        }
    });
}

/// "Servers MUST generate task IDs with sufficient entropy that a third party cannot enumerate or
/// guess them."
#[test]
fn ids_can_not_be_guessed() {
    each(|place| {
        let mut client = place.client();
        let ids: Vec<_> = (0..10).map(|_| client.begin("work", json!({}))).collect();
        let parts: Vec<_> = ids
            .iter()
            .map(|id| id.split_once('.').expect("two parts"))
            .collect();
        let sessions: HashSet<_> = parts.iter().map(|(session, _)| session).collect();
        let own: HashSet<_> = parts.iter().map(|(_, own)| own).collect();
        assert_eq!((sessions.len(), own.len()), (10, 10));
        // Unpadded base64: six bits each.
        assert!(
            parts
                .iter()
                .all(|(session, own)| session.len() == 22 && own.len() * 6 >= 256),
            "{ids:?}"
        );
        let ((session, secret), (_, another)) = (parts[0], parts[1]);
        let cut = &secret[..secret.len() - 1];
        for id in [
            format!("{session}.{another}"),
            format!("{session}.{cut}"),
            session.to_owned(),
        ] {
            assert_error(&client.ask("tasks/get", json!({"taskId": id})), INVALID);
        }
    });
}

/// "Server implementations that use multi round-trip requests in conjunction with task creation
/// SHOULD resolve all MRTR exchanges synchronously before responding with a `CreateTaskResult`."
#[test]
fn multi_round_trips_come_first() {
    each(|place| {
        let mut client = place.client();
        let asked = client.call("guarded", json!({}));
        assert_eq!(
            (&asked["resultType"], keys(&asked)),
            (&json!("input_required"), vec!["name".to_owned()])
        );
        let again =
            json!({"name": "guarded", "arguments": {}, "inputResponses": {"name": named("Ann")}});
        let created = client.result("tools/call", again);
        assert_eq!(created["resultType"], "task");
        let task = created["taskId"].as_str().expect("an id");
        let now = client.asked(task, 1);
        client.update(task, &json!({&keys(&now)[0]: named("Bob")}));
        assert_eq!(
            text(&client.status(task, "completed")["result"]),
            "Ann and Bob"
        );
    });
}
