//! `tasks/update`.

use serde_json::{Map, Value, json};

use crate::tasks_rmcp::client::Client;
use crate::tasks_rmcp::{each, keys, named, text};

/// The key of the one question that a task asks now.
#[track_caller]
fn the_key(client: &mut Client, task: &str) -> String {
    keys(&client.asked(task, 1)).remove(0)
}

/// The key of the question that a task asks after this one.
#[track_caller]
fn the_next(client: &mut Client, task: &str, former: &str) -> String {
    keys(&client.until(task, |task| {
        keys(task).first().is_some_and(|key| key != former)
    }))
    .remove(0)
}

/// "Each request key in `inputRequests` MUST be unique over the lifetime of a single task." Any
/// worker takes answers.
#[test]
fn answers_reach_the_tool_through_any_worker() {
    each(|place| {
        let other = place.worker();
        let (mut client, mut elsewhere) = (place.client(), Client::of(&other));
        let task = client.begin("greet", json!({}));
        let name = the_key(&mut elsewhere, &task);
        elsewhere.update(&task, &json!({&name: named("Ann")}));
        let colour = the_next(&mut elsewhere, &task, &name);
        elsewhere.update(&task, &json!({&colour: named("red")}));
        let ended = client.status(&task, "completed");
        assert_eq!(
            (text(&ended["result"]), keys(&ended).len()),
            ("Hello, Ann in red!", 0)
        );
    });
}

/// "A server SHOULD ignore any `inputResponses` mapped to a key that is not currently outstanding -
/// including keys that were never issued, keys that have already been answered".
#[test]
fn answers_to_what_is_not_open_are_ignored() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("greet", json!({}));
        let name = the_key(&mut client, &task);
        let mut never: Map<String, Value> = (0..100)
            .map(|n| (format!("never-{n}"), named("Eve")))
            .collect();
        client.update(&task, &json!({}));
        client.update(&task, &never.clone().into());
        assert_eq!(keys(&client.get(&task)), [&*name]);
        never.insert(name.clone(), named("Ann"));
        client.update(&task, &never.clone().into());
        client.update(&task, &json!({&name: named("Eve")}));
        let colour = the_next(&mut client, &task, &name);
        client.update(&task, &json!({&name: named("Eve"), &colour: named("red")}));
        assert_eq!(
            text(&client.status(&task, "completed")["result"]),
            "Hello, Ann in red!"
        );
        client.update(&task, &never.into());
        assert_eq!(text(&client.get(&task)["result"]), "Hello, Ann in red!");
    });
}

/// "A server MAY accept a partial set of responses."
#[test]
fn a_part_of_the_answers_may_come_alone() {
    each(|place| {
        let gate = place.gate();
        let mut client = place.client();
        let task = client.begin("pair", gate.named());
        let asked = client.asked(&task, 2)["inputRequests"].clone();
        let by_message = |message: &str| {
            let asked = asked.as_object().expect("requests").iter();
            let mut keys = asked
                .filter(|(_, one)| one["params"]["message"] == message)
                .map(|(key, _)| key);
            keys.next().expect("it is asked").clone()
        };
        client.update(&task, &json!({by_message("second"): named("Bob")}));
        let now = client.get(&task);
        assert_eq!(
            (&now["status"], keys(&now)),
            (&json!("input_required"), vec![by_message("first")])
        );
        client.update(&task, &json!({by_message("first"): named("Ann")}));
        client.status(&task, "working");
        gate.open();
        assert_eq!(
            text(&client.status(&task, "completed")["result"]),
            "Ann and Bob"
        );
    });
}

/// A client may answer what it likes: the tool gets it as it is.
#[test]
fn an_answer_is_not_looked_into() {
    each(|place| {
        let mut client = place.client();
        for answer in [
            json!({"action": "decline"}),
            json!({}),
            json!(null),
            json!([1]),
            json!("text"),
        ] {
            let task = client.begin("greet", json!({}));
            let name = the_key(&mut client, &task);
            client.update(&task, &json!({&name: answer}));
            let colour = the_next(&mut client, &task, &name);
            client.update(&task, &json!({&colour: named("red")}));
            assert_eq!(
                text(&client.status(&task, "completed")["result"]),
                "Hello, nobody in red!"
            );
        }
    });
}

/// 64 requests: the one that is too many is an error to the tool, which says so here.
#[test]
fn a_task_asks_no_more_than_its_limit() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("many", json!({}));
        let asked = client.asked(&task, 64);
        let answers: Map<_, _> = keys(&asked)
            .into_iter()
            .map(|key| (key, named("Ann")))
            .collect();
        client.update(&task, &answers.into());
        let failed = client.status(&task, "failed");
        assert_eq!(failed["error"]["code"], -32602, "{failed}");
    });
}

#[test]
fn work_that_does_not_wait_for_its_answer_is_done() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("impatient", json!({}));
        let ended = client.status(&task, "completed");
        assert_eq!(
            (text(&ended["result"]), keys(&ended).len()),
            ("impatient", 0)
        );
        assert_eq!(text(&client.call("plain", json!({}))), "plain");
    });
}
