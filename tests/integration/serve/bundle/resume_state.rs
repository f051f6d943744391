//! What a client has said to the servers, and what they have asked it, while `serve` and servers
//! are killed.

use mcp_sessiond_tests::{HttpClient, World};
use serde_json::{Value, json};

use super::{count, of_each, serving, serving_eras};
use crate::several::{backend, next_backend, write_down};
use crate::world;
use crate::wrap::{gate, open};

/// A server that says what it was told.
fn telling(name: &str) -> Value {
    json!({"command": crate::BINARIES.recording, "args": [name]})
}

fn told(client: &mut HttpClient, tool: &str) -> Value {
    serde_json::from_str(&client.text(tool, &json!({}))).expect("JSON")
}

/// By which tools `a` and `b` say what they were told.
fn tools(world: &World, client: &mut HttpClient) -> [String; 2] {
    let listed = super::listed(client);
    assert_eq!(world.listed("list_backends").len(), 2);
    ["a", "b"].map(|name| {
        let prefixed = format!("{name}_told");
        if listed.contains(&prefixed) {
            prefixed
        } else {
            "told".to_owned()
        }
    })
}

#[test]
fn a_fresh_server_is_told_what_the_client_had_said_to_a_former_serve() {
    let world = world("");
    let _daemon = world.daemon();
    write_down(&world, &["a", "b"].map(|name| (name, telling(name))));
    let mut serve = world.serve(&["--name", "test", "a", "b"], &[]);
    let mut client = serve.connected("2025-11-25");
    let [a, b] = tools(&world, &mut client);
    let mut say = |method: &str, params: &Value| {
        let answer = client.request(method, params).answer();
        assert!(answer["result"].is_object(), "{answer}");
    };
    say("logging/setLevel", &json!({"level": "warning"}));
    for name in ["a", "b"] {
        say(
            "resources/subscribe",
            &json!({"uri": format!("told://{name}")}),
        );
    }
    say("resources/unsubscribe", &json!({"uri": "told://b"}));
    let of_a = json!({"level": "warning", "subscribed": ["told://a"]});
    let of_b = json!({"level": "warning", "subscribed": []});
    assert_eq!(
        (told(&mut client, &a), told(&mut client, &b)),
        (of_a.clone(), of_b.clone())
    );

    // While serve is there.
    let former = backend(&world, "a");
    former.kill_keeper();
    // A call that is sent before serve knows of it would be lost with it.
    next_backend(&world, "a", &former);
    assert_eq!(
        (told(&mut client, &a), told(&mut client, &b)),
        (of_a.clone(), of_b.clone())
    );

    // While it is away.
    let all = ["a", "b"].map(|name| backend(&world, name));
    serve.kill();
    all.iter().for_each(|one| one.kill_keeper());
    serve.start_again();
    assert_eq!((told(&mut client, &a), told(&mut client, &b)), (of_a, of_b));
}

#[test]
fn what_a_server_has_asked_before_a_kill_is_answered_after_it() {
    let (_world, _daemon, mut serve) = serving("");
    let mut client = serve.connected("2025-11-25");
    let asking = of_each(&mut client, "ask");
    let mut calls: Vec<_> = asking
        .iter()
        .map(|tool| {
            let mut call = client.call(tool, &json!({"prompt": tool}));
            let mut asked = call.said();
            // Of a server that was slow to start.
            while asked.message()["method"] == "notifications/tools/list_changed" {
                asked = call.said();
            }
            assert_eq!(asked.message()["method"], "sampling/createMessage");
            (client.last, asked)
        })
        .collect();
    serve.kill();
    serve.start_again();
    // In another order than they were asked.
    calls.reverse();
    for (id, asked) in calls {
        let mut back = client.resume(asked.id.as_deref().expect("an id"));
        let text = format!(
            "for {}",
            asked.message()["params"]["messages"][0]["content"]["text"]
        );
        let result = json!({"role": "assistant", "content": {"type": "text", "text": text}, "model": "none"});
        client
            .post(&json!({"jsonrpc": "2.0", "id": asked.message()["id"], "result": result}))
            .must_be(202);
        let answer = back.answer();
        assert_eq!(
            (&answer["id"], super::text(&answer)),
            (&json!(id), text.as_str())
        );
    }
}

/// A server of MCP 2026-07-28 has answered by what it wants to know, and `serve` alone knows of which
/// call: that is lost with it, and told.
#[test]
fn what_a_server_of_the_later_era_has_asked_before_a_kill_is_told_to_be_unknown() {
    let (_world, _daemon, mut serve) = serving_eras("");
    let mut client = serve.connected("2025-11-25");
    let [_, ask, _] = of_each(&mut client, "ask");
    let mut call = client.call(&ask, &json!({"prompt": "Well?"}));
    let mut asked = call.said();
    while asked.message()["method"] == "notifications/tools/list_changed" {
        asked = call.said();
    }
    assert_eq!(asked.message()["method"], "sampling/createMessage");
    serve.kill();
    serve.start_again();
    let mut back = client.resume(asked.id.as_deref().expect("an id"));
    let answer = back.answer();
    assert_eq!(answer["error"]["data"]["outcome"], "unknown", "{answer}");
    let [_, increment, _] = of_each(&mut client, "increment");
    assert_eq!(count(&mut client, &increment), 1);
}

#[test]
#[ignore = "needs node"]
fn the_official_client_keeps_its_sessions_when_serve_is_killed() {
    let (world, _daemon, mut serve) = serving("http.retry_ms = 50");
    let mut host = world.node_host();
    host.order(json!({"do": "connect", "as": "all", "url": serve.url()}));
    let alone = serve.url().replace("/mcp", "/servers/c");
    host.order(json!({"do": "connect", "as": "alone", "url": alone}));
    assert_eq!((host.count("all"), host.count("alone")), (1, 1));
    let gates = ["all", "alone"].map(|name| gate(&world, name));
    let slow = [
        host.begin_slow("all", &gates[0]),
        host.begin_slow("alone", &gates[1]),
    ];
    serve.kill();
    serve.start_again();
    gates.iter().for_each(|gate| open(gate));
    for call in slow {
        host.answer(call).expect("the call goes on");
    }
    assert_eq!((host.count("all"), host.count("alone")), (3, 3));
    for service in ["serve.test", "serve.test/c"] {
        let sessions = world
            .peer()
            .call("list_own_sessions", json!({"service": service}))
            .expect("a list");
        assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{service}");
    }
}

/// A client that lists nothing, and calls at once after the kill.
#[test]
fn names_are_the_same_for_the_next_serve() {
    let (_world, _daemon, mut serve) = serving("");
    let mut client = serve.connected("2025-11-25");
    let counting = of_each(&mut client, "increment");
    for (nth, tool) in (1..).zip(&counting) {
        for _ in 0..nth {
            count(&mut client, tool);
        }
    }
    serve.kill();
    serve.start_again();
    assert_eq!(counting.map(|tool| count(&mut client, &tool)), [2, 3, 4]);
}
