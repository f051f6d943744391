//! `--lazy=start`: the server starts with its host, which is answered from memory and does not wait.

use std::fs;

use mcp_sessiond_tests::{Client, World, gone, until, write_program};
use serde_json::{Value, json};

use super::alone::{QUICK, gate};
use super::{ask_all, listed, pid, says, starts, told, tool, usual};
use crate::several::{all, write_down};
use crate::world;

/// Each way to say so, as the host's command line.
fn ways(world: &World, server: &[String]) -> [(&'static str, Vec<String>); 4] {
    let entry = |more: Value| {
        let mut entry = json!({"command": server[0], "args": &server[1..]});
        let more = more.as_object().into_iter().flatten();
        more.for_each(|(name, value)| entry[name] = value.clone());
        entry
    };
    let says_so = json!({"lazy": "start"});
    write_down(world, &[("one", entry(says_so))]);
    let mut at_name = world.wrapping(&["@one"], &[]);
    at_name.pop();
    [
        ("--lazy=start", world.wrapping(&["--lazy=start"], server)),
        ("@one", at_name),
        ("--all", all(world, &[])),
        ("--all --lazy=start", all(world, &["--lazy=start"])),
    ]
}

#[test]
fn the_host_does_not_wait_while_the_server_starts_and_what_has_changed_is_told() {
    for at in 0..4 {
        let world = world(QUICK);
        let _daemon = world.daemon();
        let server = told(&world);
        let (way, words) = ways(&world, &server)[at].clone();
        says(&world, &usual());
        let mut first = Client::connected(world.front(&words));
        let lists = ask_all(&mut first);
        first.pipe.close();
        assert!(first.pipe.wait().success(), "{way}");
        gone(pid(&world));
        let mut now = usual();
        now["tools/list"] = json!([{"tools": [tool("a"), tool("d")]}]);
        says(&world, &now);

        let gate = gate(world.root());
        let mut client = Client::connected(world.front(&words));
        assert_eq!(ask_all(&mut client), lists, "{way}");
        // Nothing was called.
        until("it is started", || (starts(&world) == 2).then_some(()));
        assert_eq!(ask_all(&mut client), lists, "{way}");
        let call = client.begin("a", json!({}));
        client.ping();
        fs::write(gate, "").expect("it is opened");
        client.text(call).expect("an answer");
        client.said(|message| message["method"] == "notifications/tools/list_changed");
        let tools = listed(&mut client, "tools/list", "tools");
        assert_eq!(tools, [tool("a"), tool("d")], "{way}");
        assert_eq!(starts(&world), 2, "{way}");
    }
}

#[test]
fn one_that_can_not_be_started_is_tried_again_at_the_first_call() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    let program = world.root().join("program");
    let text = format!("#!/bin/sh\nexec {}\n", told(&world).join(" "));
    write_program(&program, &text);
    says(&world, &usual());
    let server = [program.to_str().expect("UTF-8").to_owned()];
    let words = world.wrapping(&["--lazy=start"], &server);
    let mut first = Client::connected(world.front(&words));
    let lists = ask_all(&mut first);
    first.pipe.close();
    assert!(first.pipe.wait().success());
    gone(pid(&world));
    // It refuses a host that it has accepted before.
    says(&world, &json!({}));
    let mut client = Client::connected(world.front(&words));
    until("it was tried", || (starts(&world) == 2).then_some(()));
    let refusing = pid(&world);
    gone(refusing);
    // Nobody has called it, and it is told all the same.
    client.pipe.errors.wait("the server can't be started: it refused to be initialised: not today; its first call tries again");
    says(&world, &usual());
    assert_eq!(ask_all(&mut client), lists);
    assert_ne!(client.call("a", json!({})), refusing.to_string());
    assert_eq!(starts(&world), 3);
}
