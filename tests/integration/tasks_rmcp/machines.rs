//! Workers on two machines with one database.

use mcp_sessiond_tests::World;
use serde_json::json;

use super::client::Client;
use super::{Gate, assert_unknown, keys, named, text};
use crate::fleet::signs::machines;

fn gate(world: &World, name: &str) -> Gate {
    Gate(world.root().join(name))
}

pub(crate) fn workers_on_two_machines_share_their_tasks(url: &str) {
    let [(here, mut daemon), (there, _daemon)] = machines(url);
    let (mut first, second) = (here.tasks_server(&[]), there.tasks_server(&[]));
    let (mut client, mut elsewhere) = (Client::of(&first), Client::of(&second));

    let task = client.begin("greet", json!({}));
    let name = keys(&elsewhere.asked(&task, 1)).remove(0);
    elsewhere.update(&task, &json!({&name: named("Ann")}));
    let next = elsewhere.until(&task, |task| {
        keys(task).first().is_some_and(|key| *key != name)
    });
    elsewhere.update(&task, &json!({&keys(&next)[0]: named("red")}));
    let ended = client.status(&task, "completed");
    assert_eq!(text(&ended["result"]), "Hello, Ann in red!");
    assert_eq!(elsewhere.get(&task), ended);

    let never = gate(&here, "never").named();
    let task = client.begin("work", never.clone());
    client.until(&task, |task| task["statusMessage"] == "half of it is done");
    elsewhere.cancel(&task);
    first.errors.wait("dropped");
    assert_eq!(client.get(&task)["status"], "cancelled");

    // A worker is killed.
    let task = client.begin("work", never.clone());
    assert_eq!(elsewhere.get(&task)["status"], "working");
    first.kill();
    assert_unknown(&elsewhere.status(&task, "failed"));

    // The machine is gone, with the worker.
    first.start_again();
    let task = client.begin("work", never);
    assert_eq!(elsewhere.get(&task)["status"], "working");
    daemon.kill();
    first.kill();
    let failed = elsewhere.status(&task, "failed");
    assert_unknown(&failed);
    daemon.start_again();
    first.start_again();
    assert_eq!(client.get(&task), failed);
}
