//! The host answers what a server has asked that is gone: the one that was started instead has
//! asked something under the same id.

use mcp_sessiond_tests::{Client, Front, gone};
use serde_json::{Value, json};

use super::{able, all, backend, changed, connect, tools, write_down};
use crate::remote::express;
use crate::world;

/// Calls the tool that asks the host. The id of the call, and that of what is asked.
fn ask(client: &mut Client<Front>, prompt: &str) -> (u64, Value) {
    let call = client.begin("ask", json!({"prompt": prompt}));
    let asked = client.said(|message| message["method"] == "sampling/createMessage");
    assert_eq!(asked["params"]["messages"][0]["content"]["text"], prompt);
    (call, asked["id"].clone())
}

/// Answers what the former server has asked, and what its successor asks.
fn successor_gets_its_own(client: &mut Client<Front>, former: &Value) {
    let (call, now) = ask(client, "second");
    for (id, text) in [(former, "for the first"), (&now, "for the second")] {
        let result = json!({"role": "assistant", "content": {"type": "text", "text": text}, "model": "none"});
        client.pipe.send(
            format!(
                "{}\n",
                json!({"jsonrpc": "2.0", "id": id, "result": result})
            )
            .as_bytes(),
        );
    }
    assert_eq!(client.text(call).as_deref(), Ok("for the second"));
}

/// Waits until the tools of a server are gone, and those of another one there.
fn replaced(client: &mut Client<Front>, lost: u64) {
    client.text(lost).expect_err("it is gone");
    while !tools(client).contains(&"ask".to_owned()) {
        changed(client);
    }
}

#[test]
fn after_its_keeper_was_lost() {
    let world = world("");
    let _daemon = world.daemon();
    write_down(&world, &[("a", able(&world))]);
    let mut client = connect(&world);
    let (lost, former) = ask(&mut client, "first");
    backend(&world, "a").kill_keeper();
    client.text(lost).expect_err("it is gone");
    successor_gets_its_own(&mut client, &former);
}

#[test]
fn after_an_edit() {
    let world = world("backends.stop_wait_ms = 100");
    let _daemon = world.daemon();
    let mut entry = able(&world);
    write_down(&world, &[("a", entry.clone())]);
    let mut client = connect(&world);
    let (lost, former) = ask(&mut client, "first");
    let pid = backend(&world, "a").pid();
    entry["env"] = json!({"X": "1"});
    write_down(&world, &[("a", entry)]);
    gone(pid);
    replaced(&mut client, lost);
    successor_gets_its_own(&mut client, &former);
}

#[test]
fn where_nothing_is_kept() {
    let world = world("");
    write_down(&world, &[("a", able(&world))]);
    let mut client = Client::connected(world.front(&all(&world, &["--no-start"])));
    let (lost, former) = ask(&mut client, "first");
    client.begin("die", json!({"code": 1}));
    replaced(&mut client, lost);
    successor_gets_its_own(&mut client, &former);
}

#[test]
#[ignore = "needs node"]
fn of_a_remote_server_where_nothing_is_kept() {
    let world = world("");
    let servers = [express(&world, &[]), express(&world, &[])];
    write_down(&world, &[("far", json!({"url": servers[0].url}))]);
    let mut client = Client::connected(world.front(&all(&world, &["--no-start"])));
    let (lost, former) = ask(&mut client, "first");
    write_down(&world, &[("far", json!({"url": servers[1].url}))]);
    replaced(&mut client, lost);
    successor_gets_its_own(&mut client, &former);
}
