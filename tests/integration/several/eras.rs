//! Servers of both eras of MCP: those of 2026-07-28 have no `initialize`, and what they ask the host is
//! the result of a call.

use std::fs;

use mcp_sessiond_tests::{Client, Front, World};
use serde_json::{Value, json};

use super::{able, all, backend, changed, connect, count, modern, next_backend, tools, write_down};
use crate::world;

/// Which tool of `b`'s a name of `a`'s is: both have the same tools.
fn of_b(tool: &str) -> String {
    format!("b_{tool}")
}

/// A server of each era, `a` and `b`, and a host of the former.
fn both(world: &World) -> Client<Front> {
    write_down(world, &[("a", able(world)), ("b", modern(world))]);
    let mut client = connect(world);
    while tools(&mut client).len() < 16 + 17 {
        changed(&mut client);
    }
    client
}

/// Calls the tool that asks, and returns what the host is asked by.
fn ask(client: &mut Client<Front>, tool: &str) -> (u64, Value) {
    let call = client.begin(tool, json!({"prompt": "Well?"}));
    let asked = client.said(|message| message["method"] == "sampling/createMessage");
    let content = &asked["params"]["messages"][0]["content"];
    assert_eq!(content["text"], "Well?");
    (call, asked["id"].clone())
}

fn says(client: &mut Client<Front>, asked: &Value, text: &str) {
    let content = json!({"type": "text", "text": text});
    let result = json!({"role": "assistant", "content": content, "model": "none"});
    let answer = json!({"jsonrpc": "2.0", "id": asked, "result": result});
    client.pipe.send(format!("{answer}\n").as_bytes());
}

#[test]
fn a_host_of_the_former_era_gets_both() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = both(&world);
    for tool in ["increment", &of_b("increment")] {
        assert_eq!(count(&mut client, tool), 1);
    }
    for tool in ["ask", &of_b("ask")] {
        let (call, asked) = ask(&mut client, tool);
        says(&mut client, &asked, "it is");
        assert_eq!(client.text(call).as_deref(), Ok("it is"));
    }
    client.call("change", json!({}));
    changed(&mut client);
    let level = client.request("logging/setLevel", json!({"level": "info"}));
    assert_eq!(client.answer(level)["result"], json!({}));
    let call = json!({"n": 2, "gates": {}});
    let id = client.request(
        "tools/call",
        json!({"name": of_b("progress"), "arguments": call, "_meta": {"progressToken": "mine"}}),
    );
    for step in 1..=2 {
        let told = client.said(|message| message["method"] == "notifications/progress");
        let params = &told["params"];
        assert_eq!(
            (&params["progressToken"], &params["progress"]),
            (&json!("mine"), &json!(step))
        );
    }
    assert_eq!(client.text(id).as_deref(), Ok("2"));
}

#[test]
fn what_the_host_refuses_or_cancels_ends_the_call() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = both(&world);
    let (call, asked) = ask(&mut client, &of_b("ask"));
    let error = json!({"code": -1, "message": "not now"});
    let refusal = json!({"jsonrpc": "2.0", "id": asked, "error": error});
    client.pipe.send(format!("{refusal}\n").as_bytes());
    assert_eq!(client.text(call), Err(error));

    let (call, asked) = ask(&mut client, &of_b("ask"));
    client.notify("notifications/cancelled", json!({"requestId": call}));
    let cancelled = client.said(|message| message["method"] == "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], asked);

    // One that the server has: it counts nothing.
    let gate = world.root().join("gate");
    let gate = gate.to_str().expect("UTF-8").to_owned();
    let slow = client.begin(&of_b("slow"), json!({"gate": gate}));
    client.said(|message| message["params"]["logger"] == "slow");
    client.notify("notifications/cancelled", json!({"requestId": slow}));
    assert_eq!(client.call(&of_b("get"), json!({})), "0");
    fs::write(gate, "").expect("a file");
    assert_eq!(count(&mut client, &of_b("increment")), 1);
}

#[test]
fn it_is_still_there_when_its_host_comes_back() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = both(&world);
    for round in 1..=3 {
        assert_eq!(count(&mut client, "increment"), round);
        assert_eq!(count(&mut client, &of_b("increment")), round);
        let pid = backend(&world, "b").pid();
        client.pipe.kill();
        backend(&world, "b").wait_alone();
        client = both(&world);
        assert_eq!(backend(&world, "b").pid(), pid);
    }
    // A subscription is the new host's.
    client.call("change", json!({}));
    changed(&mut client);
}

#[test]
fn one_that_is_started_again_tells_what_has_changed() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = both(&world);
    assert_eq!(count(&mut client, &of_b("increment")), 1);
    let lost = client.begin(&of_b("die"), json!({"code": 1}));
    let error = client.text(lost).expect_err("lost");
    assert_eq!(error["data"]["outcome"], "unknown");
    assert_eq!(count(&mut client, &of_b("increment")), 1);
    // It is subscribed to again a second later.
    loop {
        client.call("change", json!({}));
        let ping = client.request("ping", json!({}));
        let said = client.said(|message| {
            message["method"] == "notifications/tools/list_changed" || message["id"] == ping
        });
        if said["id"] != ping {
            break;
        }
    }
}

#[test]
fn one_that_is_lost_with_its_keeper_is_followed_by_another() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = both(&world);
    let (lost, _) = ask(&mut client, &of_b("ask"));
    let former = backend(&world, "b");
    former.kill_keeper();
    next_backend(&world, "b", &former);
    // The server has answered, and the host is asked: there is nothing that could be lost.
    client.notify("notifications/cancelled", json!({"requestId": lost}));
    let (call, asked) = ask(&mut client, &of_b("ask"));
    says(&mut client, &asked, "it is");
    assert_eq!(client.text(call).as_deref(), Ok("it is"));
}

#[test]
fn one_is_started_at_its_first_call() {
    let world = world("");
    let _daemon = world.daemon();
    let mut entry = modern(&world);
    entry["lazy"] = json!(true);
    write_down(&world, &[("a", able(&world)), ("b", entry)]);
    let mut client = connect(&world);
    let first = tools(&mut client);
    assert_eq!(first.len(), 16 + 17);
    client.pipe.close();
    assert!(client.pipe.wait().success());
    let running = |world: &World| world.listed("list_backends").len();
    mcp_sessiond_tests::until("all are gone", || (running(&world) == 0).then_some(()));

    let mut client = connect(&world);
    assert_eq!(tools(&mut client), first);
    assert_eq!(running(&world), 1);
    assert_eq!(count(&mut client, &of_b("increment")), 1);
    let (call, asked) = ask(&mut client, &of_b("ask"));
    says(&mut client, &asked, "it is");
    assert_eq!(client.text(call).as_deref(), Ok("it is"));
}

#[test]
fn where_nothing_is_kept() {
    let world = world("");
    write_down(&world, &[("b", modern(&world))]);
    let mut client = Client::connected(world.front(&all(&world, &["--no-start"])));
    assert_eq!(count(&mut client, "increment"), 1);
    let (call, asked) = ask(&mut client, "ask");
    says(&mut client, &asked, "it is");
    assert_eq!(client.text(call).as_deref(), Ok("it is"));
}
