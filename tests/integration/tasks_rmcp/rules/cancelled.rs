//! `tasks/cancel`.

use serde_json::{Value, json};

use crate::tasks_rmcp::client::Client;
use crate::tasks_rmcp::{each, keys, named};

/// "The server MUST acknowledge the request with an empty result." The work is dropped, whichever
/// worker heard of it.
#[test]
fn cancelling_ends_the_work() {
    each(|place| {
        let other = place.worker();
        let (mut client, mut elsewhere) = (place.client(), Client::of(&other));
        for through in [&mut client.clone(), &mut elsewhere] {
            let gate = place.gate();
            let before = place.server.errors.len();
            let task = client.begin("work", gate.named());
            client.until(&task, |task| task["statusMessage"] == "half of it is done");
            through.cancel(&task);
            place.server.errors.wait_from(before, &["dropped"]);
            let now = client.get(&task);
            assert_eq!(
                (&now["status"], &now["result"]),
                (&json!("cancelled"), &Value::Null)
            );
            through.cancel(&task);
            assert_eq!(client.get(&task), now, "it is acknowledged again");
        }
    });
}

/// "MAY ultimately reach a terminal status other than `cancelled` if the work finished before".
#[test]
fn cancelling_what_has_ended_changes_nothing() {
    each(|place| {
        let mut client = place.client();
        for (tool, status) in [("work", "completed"), ("fail", "failed")] {
            let task = client.begin(tool, json!({}));
            let ended = client.status(&task, status);
            client.cancel(&task);
            assert_eq!(client.get(&task), ended);
        }
    });
}

#[test]
fn what_a_cancelled_task_has_asked_is_asked_no_more() {
    each(|place| {
        let mut client = place.client();
        let task = client.begin("pair", json!({}));
        let asked = keys(&client.asked(&task, 2));
        client.cancel(&task);
        let now = client.get(&task);
        assert_eq!(
            (&now["status"], now.get("inputRequests")),
            (&json!("cancelled"), None)
        );
        client.update(
            &task,
            &json!({&asked[0]: named("Ann"), &asked[1]: named("Bob")}),
        );
        assert_eq!(client.get(&task), now);
    });
}
