//! Errors.

use mcp_sessiond_tests::base64;
use serde_json::json;

use crate::tasks_rmcp::{INVALID, NO_METHOD, assert_error, each};

const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

/// "Invalid or nonexistent `taskId`: -32602. Servers MUST return this error for `tasks/get`", and
/// SHOULD for the others.
#[test]
fn a_task_that_is_not_there_is_an_invalid_parameter() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("work", json!({}));
        let (session, _) = task.split_once('.').expect("two parts");
        let long = "x".repeat(5_000);
        let nowhere = format!("{}.{}", "_".repeat(22), "_".repeat(43));
        let ids = [
            "none",
            ".",
            "a.b",
            "AAAAAAAAAAAAAAAAAAAAAA.b",
            &nowhere,
            &long,
        ];
        let near = ["", ".none", ".", &format!("{}.x", &task[session.len()..])];
        let near = near.map(|end| format!("{session}{end}"));
        // What a header can't hold is written in Base64 (SEP-2243).
        let other = [
            String::new(),
            "\u{fc}.\u{f6}".into(),
            format!("{task} "),
            format!(" {task}"),
        ];
        let other = other.map(|id| (format!("=?base64?{}?=", base64(&id)), id));
        let plain = ids
            .into_iter()
            .chain(near.iter().map(String::as_str))
            .map(|id| (id, id));
        for (name, id) in plain.chain(other.iter().map(|(name, id)| (&**name, &**id))) {
            for method in METHODS {
                let answer =
                    client.ask_as(name, method, json!({"taskId": id, "inputResponses": {}}));
                assert_error(&answer, INVALID);
            }
        }
    });
}

/// "Invalid `taskId`: -32602", and other parameters that are not as they should be.
#[test]
fn parameters_that_can_not_be_read_are_invalid() {
    each(|place| {
        let mut client = place.client();
        for id in [json!(null), json!(7), json!(["a"]), json!({})] {
            for method in METHODS {
                assert_error(
                    &client.ask(method, json!({"taskId": id, "inputResponses": {}})),
                    INVALID,
                );
            }
        }
        let task = client.begin("work", json!({}));
        for method in METHODS {
            assert_error(&client.ask(method, json!({})), INVALID);
        }
        for answers in [json!(null), json!(7), json!([]), json!("text")] {
            let answer = client.ask(
                "tasks/update",
                json!({"taskId": task, "inputResponses": answers}),
            );
            assert_error(&answer, INVALID);
        }
        assert_error(
            &client.ask("tasks/update", json!({"taskId": task})),
            INVALID,
        );
        assert_error(&client.ask("nothing/like/it", json!({})), NO_METHOD);
    });
}

/// "The server MUST reject a request whose headers are not those of its body" (SEP-2243), and the
/// header of these is the task's id.
#[test]
fn a_header_that_names_another_task_is_refused() {
    each(|place| {
        let gate = place.gate();
        let mut client = place.client();
        let task = client.begin("work", gate.named());
        for method in METHODS {
            let answer = client.ask_as(
                "another",
                method,
                json!({"taskId": task, "inputResponses": {}}),
            );
            assert_eq!(
                (&answer["http"], &answer["error"]["code"]),
                (&json!(400), &json!(-32020)),
                "{answer}"
            );
        }
        assert_eq!(client.get(&task)["status"], "working");
    });
}

/// rmcp has no way to tell that a subscription is about tasks, and a server without subscriptions
/// has none of tasks either.
#[test]
fn there_are_no_notifications_of_tasks() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("work", json!({}));
        let listen = json!({"notifications": {"taskIds": [task]}});
        for client in [&mut client.plain(), &mut client] {
            assert_error(
                &client.ask("subscriptions/listen", listen.clone()),
                NO_METHOD,
            );
        }
    });
}
