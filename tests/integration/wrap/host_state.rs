//! What a kept server knows of its host: folders, log level and subscriptions; and which modules it
//! was started from.

use std::fs;
use std::path::Path;

use mcp_sessiond_tests::{Client, Front, World};
use serde_json::{Value, json};

use super::{close, counter, gate, keeping, open, root, wrapped};
use crate::fixture;
use crate::several::{all, entry, write_down};

/// A command of the host for this server, by each entry point that keeps a server for one host at a
/// time, and whether the server is the user's.
fn ways(world: &World, server: &[String]) -> [(&'static str, Vec<String>, bool); 5] {
    write_down(world, &[("one", entry(server))]);
    let named = ["@one".to_owned()];
    [
        ("wrap", wrapped(world, server), false),
        ("--lazy", world.wrapping(&["--lazy"], server), false),
        ("--name", world.wrapping(&["--name", "mine"], server), true),
        ("@NAME", wrapped(world, &named), false),
        ("--all", all(world, &[]), false),
    ]
}

fn rooted() -> Vec<String> {
    vec![crate::BINARIES.rooted.into()]
}

/// A host in this folder that has made a call. What it was asked meanwhile, and the text of the
/// answer.
fn call(client: &mut Client<Front>, folder: &str, tool: &str) -> (usize, String) {
    let id = client.begin(tool, json!({}));
    let mut questions = 0;
    loop {
        let message = client.said(|message| {
            message["method"] == "roots/list"
                || message["id"] == id && message.get("method").is_none()
        });
        if message["method"] != "roots/list" {
            let text = message["result"]["content"][0]["text"].as_str();
            return (
                questions,
                text.unwrap_or_else(|| panic!("{message}")).to_owned(),
            );
        }
        questions += 1;
        let roots = json!({"roots": [{"uri": folder}]});
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": roots});
        mcp_sessiond_tests::Pipe::write(&mut client.pipe, &answer.to_string());
    }
}

#[test]
fn a_server_works_in_the_folders_of_the_host_that_has_it() {
    for at in 0..5 {
        let world = keeping("");
        let _daemon = world.daemon();
        let (way, command, is_users) = ways(&world, &rooted())[at].clone();
        let connect = || Client::connected(world.front(&command));
        let mut client = connect();
        assert_eq!(
            call(&mut client, "file:///a", "where").1,
            "file:///a",
            "{way}"
        );
        assert_eq!(call(&mut client, "file:///a", "increment").1, "1", "{way}");
        close(client);

        let mut same = connect();
        let (questions, count) = call(&mut same, "file:///a", "increment");
        assert_eq!(
            (questions, &*count),
            (1, "2"),
            "{way}: it is asked once, and nothing changes"
        );
        close(same);

        let mut other = connect();
        assert_eq!(
            call(&mut other, "file:///b", "where").1,
            "file:///b",
            "{way}"
        );
        let count = if is_users { "3" } else { "1" };
        assert_eq!(call(&mut other, "file:///b", "increment").1, count, "{way}");
        if !is_users {
            other.pipe.errors.wait(
                "the host's folders (roots) are not those that the server was given; a fresh server is started",
            );
        }
    }
}

/// Each of its servers wants to know, and the host is asked once.
#[test]
fn a_host_of_several_servers_is_asked_once_for_all_of_them() {
    let world = keeping("");
    let _daemon = world.daemon();
    let tools = |prefix: &str| json!({"where": format!("{prefix}_where"), "increment": format!("{prefix}_increment"), "levels": format!("{prefix}_levels")});
    let member = |prefix: &str| {
        let mut member = entry(&rooted());
        member["rename"] = tools(prefix);
        member
    };
    write_down(&world, &[("a", member("a")), ("b", member("b"))]);
    let connect = || Client::connected(world.front(&all(&world, &[])));
    let mut client = connect();
    let (questions, _) = call(&mut client, "file:///a", "a_increment");
    let (more, _) = call(&mut client, "file:///a", "b_increment");
    assert_eq!(questions + more, 1, "their own");
    close(client);
    let mut client = connect();
    let (questions, a) = call(&mut client, "file:///a", "a_increment");
    let (more, b) = call(&mut client, "file:///a", "b_increment");
    assert_eq!((questions + more, &*a, &*b), (1, "2", "2"));
}

#[test]
fn a_host_that_gives_no_folders_gets_a_server_that_has_none() {
    let world = keeping("");
    let _daemon = world.daemon();
    let command = wrapped(&world, &rooted());
    let mut client = Client::connected(world.front(&command));
    assert_eq!(call(&mut client, "file:///a", "increment").1, "1");
    close(client);
    let mut client = Client::new(world.front(&command));
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let id = client.request("initialize", params);
    client.initialized(id);
    client
        .pipe
        .errors
        .wait("the host no longer gives folders (roots), and the server was given some; a fresh server is started");
}

#[test]
fn what_a_former_host_has_asked_for_is_undone() {
    for at in 0..5 {
        let world = keeping("");
        let _daemon = world.daemon();
        let (way, command, _) = ways(&world, &rooted())[at].clone();
        let mut client = Client::connected(world.front(&command));
        assert_eq!(call(&mut client, "file:///a", "increment").1, "1", "{way}");
        for (method, params) in [
            ("logging/setLevel", json!({"level": "error"})),
            ("resources/subscribe", json!({"uri": "x:a"})),
        ] {
            let id = client.request(method, params);
            client.answer(id);
        }
        close(client);
        let mut client = Client::connected(world.front(&command));
        let (_, levels) = call(&mut client, "file:///a", "levels");
        let undone = "setLevel=error subscribe=x:a setLevel=debug unsubscribe=x:a";
        assert_eq!(levels, undone, "{way}");
    }
}

#[test]
fn a_server_that_is_handed_on_with_a_call_open_says_so() {
    let world = keeping("");
    let _daemon = world.daemon();
    let command = wrapped(&world, &counter(&world));
    let mut client = Client::connected(world.front(&command));
    let (begun, gate) = (gate(&world, "begun"), gate(&world, "gate"));
    client.begin("block", json!({"begun": begun, "gate": gate}));
    mcp_sessiond_tests::until(&begun, || fs::exists(&begun).ok().filter(|there| *there));
    world.backend().cut_off(&mut client.pipe);
    let next = Client::connected(world.front(&command));
    next.pipe
        .errors
        .wait("a call of the previous connection has been open for ");
    open(&gate);
}

/// The script of a server that counts in steps that a module says, and that module.
fn in_modules(directory: &Path, step: u32) -> Vec<String> {
    let text = fs::read_to_string(fixture("python/tiny.py")).expect("a script");
    let script = directory.join("server.py");
    fs::create_dir_all(directory.join("lib")).expect("a directory");
    fs::write(directory.join("pyproject.toml"), "").expect("written");
    fs::write(
        &script,
        text.replace("STEP = 1", "from lib.steps import STEP"),
    )
    .expect("written");
    fs::write(directory.join("lib/steps.py"), format!("STEP = {step}\n")).expect("written");
    let words = ["python3", "-B", "-S", script.to_str().expect("UTF-8")];
    words.map(String::from).into()
}

#[test]
#[ignore = "needs python3"]
fn an_edited_module_runs_at_the_next_orderly_reconnect() {
    for at in 0..5 {
        let world = keeping("");
        let _daemon = world.daemon();
        let directory = world.root().join("project");
        let mut server = in_modules(&directory, 1);
        server.push(root(&world));
        let (way, command, _) = ways(&world, &server)[at].clone();
        let connect = || Client::connected(world.front(&command));
        let mut client = connect();
        assert_eq!(client.count(), 1, "{way}");
        // A checkout that comes back to the same is none.
        in_modules(&directory, 10);
        in_modules(&directory, 1);
        close(client);
        let mut client = connect();
        assert_eq!(client.count(), 2, "{way}");
        for step in [10, 100] {
            in_modules(&directory, step);
            let count = client.count();
            client.pipe.kill();
            let mut cut = connect();
            assert!(
                cut.count() > count,
                "{way}: a cut is no wish for a fresh one"
            );
            close(cut);
            client = connect();
            assert_eq!(client.count(), u64::from(step), "{way}");
            let line =
                "lib/steps.py has changed since the server was started; a fresh server is started";
            client.pipe.errors.wait(line);
        }
        client.pipe.errors.wait(
            "lib/steps.py has changed twice in a row; if the server itself writes this file, `\"sources\": false` in servers.json, \
             or `wrap --no-sources`, leaves such files out",
        );
    }
}

#[test]
#[ignore = "needs python3"]
fn sources_can_be_left_out() {
    for at in 0..3 {
        let world = keeping("");
        let _daemon = world.daemon();
        let directory = world.root().join("project");
        let mut server = in_modules(&directory, 1);
        server.push(root(&world));
        let mut member = entry(&server);
        member["sources"] = json!(false);
        write_down(&world, &[("one", member)]);
        let command = match at {
            0 => world.wrapping(&["--no-sources"], &server),
            1 => wrapped(&world, &["@one".to_owned()]),
            _ => all(&world, &[]),
        };
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 1);
        in_modules(&directory, 10);
        close(client);
        assert_eq!(Client::connected(world.front(&command)).count(), 2, "{at}");
    }
}

/// What a server that is started again may have is announced.
#[test]
fn changed_lists_are_declared() {
    for at in 0..5 {
        let world = keeping("");
        let _daemon = world.daemon();
        let (way, command, _) = ways(&world, &rooted())[at].clone();
        for round in 0..2 {
            let mut client = Client::new(world.front(&command));
            let answer = client.initialize();
            let capabilities = &answer["result"]["capabilities"];
            assert_eq!(
                capabilities["tools"],
                json!({"listChanged": true}),
                "{way} {round}"
            );
            let resources = json!({"subscribe": true, "listChanged": true});
            assert_eq!(capabilities["resources"], resources, "{way} {round}");
            if way != "--all" {
                assert_eq!(capabilities.get("prompts"), None::<&Value>, "{way} {round}");
            }
            call(&mut client, "file:///a", "increment");
            close(client);
        }
    }
}
