//! Servers of both eras of MCP: those of 2026-07-28 have no `initialize`, and what they ask the host is
//! the result of a call.

use std::fs;

use mcp_sessiond_tests::{Client, Front, World};
use serde_json::{Value, json};

use super::{able, all, backend, changed, connect, count, modern, next_backend, tools, write_down};
use crate::world;
use crate::wrap::{counter_with, wrapped};

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
    let world = world("backends.closed_linger_ms = 100\nbackends.stop_wait_ms = 100");
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

/// A host that speaks MCP 2026-07-28 alone.
struct Modern(Client<Front>);

impl Modern {
    /// The host of all servers.
    fn new(world: &World) -> Self {
        Self::of(world, &all(world, &[]))
    }

    fn of(world: &World, words: &[String]) -> Self {
        Self(Client::new(world.front(words)))
    }

    fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"sampling": {}});
        params["_meta"]["io.modelcontextprotocol/clientInfo"] =
            json!({"name": "modern", "version": "1"});
        self.0.request(method, params)
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.0.answer(id)
    }

    /// The result of a call.
    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    fn count(&mut self, tool: &str) -> String {
        let said = self.call(tool, &json!({}));
        assert_eq!(said["resultType"], "complete");
        said["content"][0]["text"].as_str().expect("a text").into()
    }

    /// Calls a tool that asks, and makes the call again with the answers.
    fn is_asked(&mut self, tool: &str, prompt: &str) -> String {
        let mut params = json!({"name": tool, "arguments": {"prompt": prompt}});
        loop {
            let answer = self.ask("tools/call", params.clone());
            let said = &answer["result"];
            if said["resultType"] == "complete" {
                return said["content"][0]["text"].as_str().expect("a text").into();
            }
            assert_eq!(said["resultType"], "input_required", "{answer}");
            let mut responses = json!({});
            for (key, request) in said["inputRequests"].as_object().expect("requests") {
                let asked = &request["params"]["messages"][0]["content"]["text"];
                let text = format!("{} is answered", asked.as_str().expect("a text"));
                let content = json!({"type": "text", "text": text});
                responses[key] = json!({"role": "assistant", "content": content, "model": "none"});
            }
            params["inputResponses"] = responses;
            params["requestState"] = said["requestState"].clone();
        }
    }

    fn tools(&mut self) -> usize {
        let listed = self.ask("tools/list", json!({}));
        assert_eq!(listed["result"]["ttlMs"], 0);
        listed["result"]["tools"].as_array().expect("a list").len()
    }
}

/// A server of each era, and a host of the later one.
fn both_for_modern(world: &World) -> Modern {
    write_down(world, &[("a", able(world)), ("b", modern(world))]);
    let mut host = Modern::new(world);
    // On a busy machine one comes later.
    mcp_sessiond_tests::until("both are listed", || {
        (host.tools() == 16 + 17).then_some(())
    });
    host
}

#[test]
fn a_host_of_the_later_era_gets_both() {
    let world = world("");
    let _daemon = world.daemon();
    let mut host = both_for_modern(&world);
    for (tool, ask) in [("increment", "ask"), ("b_increment", "b_ask")] {
        assert_eq!(host.count(tool), "1");
        assert_eq!(host.is_asked(ask, "Well?"), "Well? is answered");
        assert_eq!(host.is_asked(ask, "So?"), "So? is answered");
    }
    let discovered = host.ask("server/discover", json!({}))["result"].clone();
    assert_eq!(discovered["supportedVersions"], json!(["2026-07-28"]));
    assert!(discovered["capabilities"]["tools"].is_object());

    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listening = host.begin("subscriptions/listen", wanted);
    let id = "io.modelcontextprotocol/subscriptionId";
    for method in [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ] {
        let told = host.0.said(|message| message["method"] == method);
        assert_eq!(told["params"]["_meta"][id], listening);
        host.call("change", &json!({}));
    }

    let other = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}});
    let refused = host.0.request("tools/list", other);
    let error = host.0.answer(refused)["error"].clone();
    assert_eq!(
        (&error["code"], &error["data"]["supported"]),
        (&json!(-32022), &json!(["2026-07-28"]))
    );
    let unnamed = host.0.request("tools/list", json!({}));
    assert_eq!(host.0.answer(unnamed)["error"]["code"], -32602);
}

#[test]
fn what_is_killed_is_told_to_a_host_of_the_later_era() {
    let world = world("");
    let _daemon = world.daemon();
    let mut host = both_for_modern(&world);
    for (tool, die) in [("increment", "die"), ("b_increment", "b_die")] {
        assert_eq!(host.count(tool), "1");
        let call = json!({"name": die, "arguments": {"code": 1}});
        let lost = host.ask("tools/call", call);
        assert_eq!(lost["error"]["data"]["outcome"], "unknown", "{lost}");
        assert_eq!(host.count(tool), "1");
    }
    for name in ["a", "b"] {
        let former = backend(&world, name);
        former.kill_keeper();
        next_backend(&world, name, &former);
    }
    for ask in ["ask", "b_ask"] {
        assert_eq!(host.is_asked(ask, "Well?"), "Well? is answered");
    }
    // A call that was asked for input by a front that is gone is not made again.
    let arguments = json!({"name": "ask", "arguments": {"prompt": "Well?"}});
    let asked = host.ask("tools/call", arguments.clone())["result"].clone();
    assert_eq!(host.count("increment"), "1");
    host.0.pipe.kill();
    backend(&world, "a").wait_alone();
    let mut host = both_for_modern(&world);
    let mut again = arguments;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({});
    let error = host.ask("tools/call", again)["error"].clone();
    let why = error["message"].as_str().expect("a sentence");
    assert!(why.contains("it is not known"), "{why}");
    assert_eq!(host.count("increment"), "2");
}

#[test]
fn a_host_that_probes_is_sent_to_initialize_until_it_has_only_probed_three_times() {
    let world = world("");
    let _daemon = world.daemon();
    write_down(&world, &[("a", able(&world)), ("b", modern(&world))]);
    let probe = |world: &World| {
        let mut host = Modern::new(world);
        let is_answered = host
            .ask("server/discover", json!({}))
            .get("result")
            .is_some();
        (host, is_answered)
    };
    let leave = |mut host: Modern| {
        host.0.pipe.close();
        assert!(host.0.pipe.wait().success());
    };
    // One that goes on with `initialize` speaks that, however often it comes.
    for _ in 0..4 {
        let (mut host, is_answered) = probe(&world);
        assert!(!is_answered);
        host.0.initialize_as("modern");
        assert!(!tools(&mut host.0).is_empty());
        leave(host);
    }
    let answered = [(); 4].map(|()| {
        let (host, is_answered) = probe(&world);
        leave(host);
        is_answered
    });
    assert_eq!(answered, [false, false, true, true]);
    // What it has found out on a connection of its own is there for the next one.
    let (mut host, _) = probe(&world);
    assert_eq!(host.count("increment"), "1");
    let pid = backend(&world, "a").pid();
    for way in ["close", "SIGTERM"] {
        host.0.pipe.kill();
        backend(&world, "a").wait_alone();
        let (mut probing, _) = probe(&world);
        match way {
            "close" => leave(probing),
            _ => {
                probing.0.pipe.signal(nix::sys::signal::Signal::SIGTERM);
                probing.0.pipe.wait();
            }
        }
        host = Modern::new(&world);
        host.count("increment");
        assert_eq!(backend(&world, "a").pid(), pid, "{way}");
    }
    assert_eq!(host.count("increment"), "4");
    // It is this host alone.
    let mut other = connect(&world);
    assert!(!tools(&mut other).is_empty());
}

/// Servers of the later era that have a URL, for hosts of both.
#[test]
fn at_a_url() {
    let world = world("");
    let _daemon = world.daemon();
    let serve = world.serve(&["--name", "far"], &counter_with(&world, &["--modern"]));
    let url = json!({"url": serve.url()});
    write_down(&world, &[("a", able(&world)), ("b", url)]);
    let mut client = connect(&world);
    while tools(&mut client).len() < 16 + 17 {
        changed(&mut client);
    }
    assert_eq!(count(&mut client, &of_b("increment")), 1);
    let (call, asked) = ask(&mut client, &of_b("ask"));
    says(&mut client, &asked, "it is");
    assert_eq!(client.text(call).as_deref(), Ok("it is"));
    client.call("change", json!({}));
    changed(&mut client);

    let mut host = Modern::of(&world, &wrapped(&world, &[serve.url()]));
    let discovered = host.ask("server/discover", json!({}))["result"].clone();
    assert_eq!(discovered["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(host.count("increment"), "2");
    assert_eq!(host.is_asked("ask", "Well?"), "Well? is answered");
    let gate = world.root().join("gate");
    let level = json!({"io.modelcontextprotocol/logLevel": "info"});
    let slow = json!({"name": "slow", "arguments": {"gate": gate}, "_meta": level});
    let slow = host.begin("tools/call", slow);
    host.0.said(|message| message["params"]["logger"] == "slow");
    // Its connection ends, by which the server knows.
    host.0
        .notify("notifications/cancelled", json!({"requestId": slow}));
    assert_eq!(host.count("increment"), "3");
    fs::write(gate, "").expect("a file");
    assert_eq!(host.count("increment"), "4");
}
