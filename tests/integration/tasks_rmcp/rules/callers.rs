//! "Servers MUST perform authentication and authorization checks on each task-related request."

use serde_json::json;

use crate::tasks_rmcp::client::Client;
use crate::tasks_rmcp::{Setup, assert_error, each, keys, named, storages};

const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

/// Asserts that this client is told what it is told of a task that is not there.
#[track_caller]
fn assert_nothing(client: &mut Client, task: &str, key: &str) {
    let nowhere = format!("{}.{}", "_".repeat(22), "_".repeat(43));
    for method in METHODS {
        let about = |id: &str| json!({"taskId": id, "inputResponses": {key: named("Eve")}});
        let (told, none) = (
            client.ask(method, about(task)),
            client.ask(method, about(&nowhere)),
        );
        assert_eq!(
            (&told["error"], &told["http"]),
            (&none["error"], &none["http"]),
            "{method}: {told}"
        );
        assert_eq!(told["error"]["code"], -32602);
    }
}

#[test]
fn a_task_is_its_callers() {
    each(|place| {
        let other = place.worker();
        let mut nobody = place.client();
        let (mut alice, mut bob) = (nobody.bearing("alice"), nobody.bearing("bob"));
        let hers = alice.begin("greet", json!({}));
        let key = keys(&alice.asked(&hers, 1)).remove(0);
        let nobodys = nobody.begin("pair", json!({}));
        let elsewhere = Client::of(&other);
        for client in [
            &mut bob,
            &mut nobody,
            &mut elsewhere.clone(),
            &mut elsewhere.bearing("bob"),
        ] {
            assert_nothing(client, &hers, &key);
        }
        assert_nothing(&mut alice, &nobodys, &key);
        assert_eq!(keys(&elsewhere.bearing("alice").get(&hers)), [key]);
        assert_eq!(nobody.asked(&nobodys, 2)["status"], "input_required");
    });
}

#[test]
fn a_task_is_that_of_the_user_whatever_token_he_shows() {
    for storage in storages() {
        let place = Setup::with(&storage, "", &[("AUTH", "1")]);
        let client = place.client();
        let (mut alice, mut bob) = (client.bearing("alice.1"), client.bearing("bob.1"));
        let task = alice.begin("greet", json!({}));
        let key = keys(&client.bearing("alice.2").asked(&task, 1)).remove(0);
        assert_nothing(&mut bob, &task, &key);
        // Whom the server does not know may neither begin a task nor ask for one.
        let mut nobody = client.clone();
        let call = json!({"name": "work", "arguments": {}});
        assert_error(&nobody.ask("tools/call", call), -32600);
        for method in METHODS {
            assert_error(
                &nobody.ask(method, json!({"taskId": task, "inputResponses": {}})),
                -32600,
            );
        }
        client.bearing("alice.3").cancel(&task);
    }
}
