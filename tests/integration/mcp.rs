//! `mcp-sessiond mcp`: what a model sees of the servers of its own host, and what it can do about one
//! that hangs.

use mcp_sessiond_tests::{Client, Front, World, signal, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::world;
use crate::wrap::counter;

/// The control server of this test, which is its host.
fn control(world: &World) -> Client<Front> {
    let words = [world.binaries.daemon, "mcp"].map(str::to_owned);
    Client::connected(world.front(&words))
}

/// What a tool of it has answered: data, or the sentence of a failure.
fn ask(control: &mut Client<Front>, tool: &str, arguments: Value) -> Result<Value, String> {
    let call = control.begin(tool, arguments);
    let answer = control.answer(call);
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("{answer}"));
    if result["isError"] == true {
        return Err(text.to_owned());
    }
    let data: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(data, result["structuredContent"]);
    Ok(data)
}

/// A server of this name, kept for this test.
fn kept(world: &World, name: &str) -> Client<Front> {
    let words = world.wrapping(&["--entry", name], &counter(world));
    let mut client = Client::connected(world.front(&words));
    assert_eq!(client.count(), 1);
    client
}

#[test]
fn a_server_that_hangs_is_restarted_by_a_call_and_its_host_goes_on() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = kept(&world, "browser");
    let mut control = control(&world);
    let pid = world.backend().pid();
    signal(pid, Signal::SIGSTOP);
    let hangs = client.begin("increment", json!({}));

    let seen = ask(&mut control, "list_servers", json!({})).expect("a list");
    let [server] = &seen["servers"].as_array().expect("a list")[..] else {
        panic!("{seen}");
    };
    assert_eq!(
        (&server["name"], &server["state"], &server["pid"]),
        (&json!("browser"), &json!("in use"), &json!(pid))
    );
    let done = ask(&mut control, "restart_server", json!({"name": "browser"})).expect("done");
    let done = done["done"].as_str().expect("a sentence");
    assert!(
        done.starts_with("browser of ") && done.contains(" was restarted; its pid is now "),
        "{done}"
    );
    // The server got it, and nobody knows what it has done.
    let error = client.text(hangs).expect_err("an error");
    assert_eq!(error["data"]["outcome"], "unknown", "{error}");
    assert_eq!(client.count(), 1, "it is a fresh one");
    let why = ask(&mut control, "why_fresh", json!({"name": "browser"})).expect("why");
    assert_eq!(why["restarts"], 1, "{why}");
    let ended = why["the_last_one_ended"].as_str().expect("a sentence");
    assert!(ended.contains("restart"), "{why}");
}

#[test]
fn a_host_sees_its_own_servers_alone() {
    let world = world("");
    let _daemon = world.daemon();
    let _mine = kept(&world, "mine");
    let other = world.host();
    let words = world.wrapping(&["--entry", "theirs"], &counter(&world));
    let mut theirs = Client::connected(other.front(&words));
    assert_eq!(theirs.count(), 1);
    let mut control = control(&world);
    let seen = ask(&mut control, "list_servers", json!({})).expect("a list");
    let names: Vec<&Value> = seen["servers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["mine"]);
    for tool in ["restart_server", "server_logs", "why_fresh"] {
        let why = ask(&mut control, tool, json!({"name": "theirs"})).expect_err("not its own");
        assert_eq!(why, "this host has no server \"theirs\"; it has mine");
    }
    assert_eq!(theirs.count(), 2, "nobody has touched it");
}

#[test]
fn a_log_is_read_without_what_looks_like_a_secret() {
    let world = world("");
    let _daemon = world.daemon();
    let script = "echo \"signing in with $API_TOKEN and $1\" >&2; exec \"$3\"";
    let server = [
        "sh",
        "-c",
        script,
        "sh",
        "password-1",
        "--key",
        world.binaries.counter,
    ]
    .map(str::to_owned);
    let words = world.wrapping(&["--entry", "mail"], &server);
    let variables = [("API_TOKEN", "abcdef-123")];
    let mut client = Client::connected(world.front_with(&words, &variables));
    assert_eq!(client.count(), 1);
    let mut control = control(&world);
    let log = until("the line to be there", || {
        let log = ask(
            &mut control,
            "server_logs",
            json!({"name": "mail", "lines": 500}),
        )
        .expect("a log");
        log["standard_error"][0].is_string().then_some(log)
    });
    let hidden = "signing in with [API_TOKEN] and password-1";
    assert_eq!(log["standard_error"][0], hidden);
    // One that has died is what somebody reads the log of.
    signal(world.backend().pid(), Signal::SIGKILL);
    until("it to have ended", || {
        let seen = ask(&mut control, "list_servers", json!({})).expect("a list");
        (seen["servers"][0]["state"] == "ended").then_some(())
    });
    let log = ask(&mut control, "server_logs", json!({"name": "mail"})).expect("a log");
    assert_eq!(log["standard_error"][0], hidden);
    let why = ask(&mut control, "why_fresh", json!({"name": "mail"})).expect("why");
    let ended = why["the_last_one_ended"].as_str().expect("a sentence");
    assert!(
        ended.contains("SIGKILL") && !why.to_string().contains("abcdef-123"),
        "{why}"
    );
}

#[test]
fn what_does_not_run_is_shown_with_why_and_can_not_be_asked() {
    let world = world("");
    let daemon = world.daemon();
    let absent = world.wrapping(&["--entry", "gone"], &["no-such-program".to_owned()]);
    let mut front = Client::new(world.front(&absent));
    front.begin_initialize("test");
    front.pipe.errors.wait("no-such-program can't be run");
    let mut control = control(&world);
    let why = ask(&mut control, "restart_server", json!({"name": "gone"}))
        .expect_err("nothing to restart");
    assert!(
        why.starts_with("gone has no process that could be asked: no-such-program can't be run"),
        "{why}"
    );
    drop(daemon);
    let seen = ask(&mut control, "list_servers", json!({})).expect("without a daemon");
    assert!(seen["servers"].is_array(), "{seen}");
}

#[test]
fn bad_calls_are_refused_and_both_eras_are_spoken() {
    let world = world("");
    let _daemon = world.daemon();
    let _kept = kept(&world, "browser");
    let mut control = control(&world);
    for (tool, arguments, expected) in [
        ("format_disk", json!({}), "there is no tool \"format_disk\""),
        (
            "restart_server",
            json!({}),
            "restart_server needs the argument `name`: a server's name, as a string",
        ),
        (
            "server_logs",
            json!({"name": "browser", "lines": 0}),
            "`lines` is a number from 1 to 500",
        ),
    ] {
        let error = control.try_call(tool, arguments).expect_err("refused");
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(-32602), &json!(expected))
        );
    }
    let meta =
        |version: &str| json!({"_meta": {"io.modelcontextprotocol/protocolVersion": version}});
    let discovered = control.request("server/discover", meta("2026-07-28"));
    let discovered = control.answer(discovered);
    assert_eq!(
        discovered["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    let list = control.request("tools/list", meta("2026-07-28"));
    let list = &control.answer(list)["result"];
    assert_eq!(
        (&list["resultType"], &list["ttlMs"]),
        (&json!("complete"), &json!(0))
    );
    assert_eq!(list["tools"].as_array().map(Vec::len), Some(4));
    // MCP 2025-03-26 has batches, and answers them by one.
    let ping = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let batch = format!("{}\n", json!([ping(900), ping(901)]));
    control.pipe.send(batch.as_bytes());
    let answers = control.said(Value::is_array);
    assert_eq!(
        (&answers[0]["id"], &answers[1]["id"]),
        (&json!(900), &json!(901))
    );
    let later = control.request("tools/list", meta("2027-01-01"));
    assert_eq!(control.answer(later)["error"]["code"], -32022);
}

#[test]
fn one_that_is_kept_itself_knows_its_host_and_one_that_all_share_has_none() {
    let world = world("");
    let _daemon = world.daemon();
    let _kept = kept(&world, "browser");
    let own = [world.binaries.daemon, "mcp"].map(str::to_owned);
    let mut control = Client::connected(world.front(&world.wrapping(&[], &own)));
    let seen = ask(&mut control, "list_servers", json!({})).expect("a list");
    let names: Vec<&Value> = seen["servers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["browser"]);
    // What the user has named is a host's while it has it.
    let words = world.wrapping(&["--name", "mine"], &counter(&world));
    let mut mine = Client::connected(world.front(&words));
    assert_eq!(mine.count(), 1);
    let done = ask(&mut control, "restart_server", json!({"name": "mine"})).expect("done");
    assert!(
        done["done"]
            .as_str()
            .is_some_and(|done| done.contains("was restarted")),
        "{done}"
    );
    mine.pipe.kill();
    until("it to be nobody's", || {
        let seen = ask(&mut control, "list_servers", json!({})).expect("a list");
        (seen["servers"].as_array()?.len() == 1).then_some(())
    });
    let stopped = world.sessiond(&["stop", "mine"]).output().expect("it runs");
    assert!(stopped.status.success());
    let named = world.wrapping(&["--name", "control"], &own);
    let mut control = Client::connected(world.front(&named));
    let why = ask(&mut control, "list_servers", json!({})).expect_err("no host");
    assert!(why.contains("is not of one host"), "{why}");
    let stopped = world
        .sessiond(&["stop", "control"])
        .output()
        .expect("it runs");
    assert!(stopped.status.success());
}
