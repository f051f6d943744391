//! What people call a server in `status`, `logs`, `restart` and `stop`: the name of its entry in the
//! host's file, whoever has written that.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use mcp_sessiond_tests::{Client, Host, Server, World};
use serde_json::{Value, json};

use crate::world;
use crate::wrap::{tiny, wrapped};

fn home(world: &World) -> PathBuf {
    world.root().join("home")
}

/// A project of the user's.
fn project(world: &World, name: &str) -> PathBuf {
    let project = home(world).join(name);
    fs::create_dir_all(&project).expect("a directory");
    project
}

fn run(world: &World, words: &[&str]) -> Output {
    let mut command = world.sessiond(words);
    command
        .env("HOME", home(world))
        .env_remove("CLAUDE_CONFIG_DIR");
    command.output().expect("it runs")
}

/// What a verb prints where it succeeds.
fn said(world: &World, words: &[&str]) -> String {
    let output = run(world, words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {text}{errors}");
    text
}

fn servers(world: &World) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&said(world, &["status", "--json"])).expect("JSON");
    listed["servers"].as_array().expect("servers").clone()
}

/// An entry for a server, as people write it by hand.
fn entry(world: &World) -> Value {
    let words = wrapped(world, &tiny(world));
    json!({"type": "stdio", "command": words[0], "args": words[1..]})
}

fn write(world: &World, file: &Value) {
    fs::create_dir_all(home(world)).expect("a directory");
    fs::write(home(world).join(".claude.json"), file.to_string()).expect("written");
}

fn connect(world: &World, host: &Host, project: &str) -> Client<Server> {
    let words = wrapped(world, &tiny(world));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let place = self::project(world, project);
    Client::connected(host.server_with(&words, &json!({"directory": place})))
}

#[test]
fn an_entry_that_was_written_by_hand_names_its_server_in_every_verb() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host_called("claude");
    let history = "x".repeat(100_000);
    write(
        &world,
        &json!({"history": [history], "mcpServers": {"browser": entry(&world)}, "projects": {}}),
    );
    let mut client = connect(&world, &host, "app");
    assert_eq!(client.count(), 1);

    let listed = servers(&world);
    assert_eq!(listed[0]["server"], "browser");
    assert_eq!(listed[0]["host_name"], "Claude Code");
    assert_eq!(listed[0]["program"], "tiny");
    let table = said(&world, &["status"]);
    let mut lines = table.lines();
    let heading = lines.next().expect("a heading");
    let columns: Vec<&str> = heading.split_whitespace().collect();
    assert_eq!(
        columns,
        ["NAME", "HOST", "STATE", "SINCE", "RESTARTS", "MEMORY"]
    );
    let line = lines.next().expect("a line");
    let pid = host.pid();
    assert!(
        line.starts_with(&format!("browser  Claude Code {pid} ~/app")),
        "{table}"
    );

    let logs = run(&world, &["logs", "browser"]);
    let errors = String::from_utf8_lossy(&logs.stderr).into_owned();
    assert_eq!(logs.status.code(), Some(0), "{errors}");
    assert!(errors.contains("browser of Claude Code"), "{errors}");
    let restarted = said(&world, &["restart", "browser"]);
    assert!(
        restarted.starts_with("browser of Claude Code"),
        "{restarted}"
    );
    assert_eq!(client.count(), 1);
    let stopped = said(&world, &["stop", "browser"]);
    assert!(
        stopped.contains("is stopped; it starts again when Claude Code next calls it"),
        "{stopped}"
    );
    assert_eq!(client.count(), 1);

    // Its program still finds it, and an edit of the file counts at once.
    let changed = json!({"mcpServers": {"web": entry(&world)}});
    write(&world, &changed);
    assert_eq!(servers(&world)[0]["server"], "web");
    said(&world, &["restart", "tiny"]);
    let unknown = run(&world, &["restart", "browser"]);
    assert_eq!(unknown.status.code(), Some(66));
}

#[test]
fn two_of_one_name_are_told_apart_by_what_the_list_says() {
    let world = world("");
    let _daemon = world.daemon();
    let first = world.host_called("claude");
    let own = json!({"mcpServers": {"files": entry(&world)}});
    let place = |name: &str| project(&world, name).to_str().expect("UTF-8").to_owned();
    write(
        &world,
        &json!({"projects": {place("one"): own.clone(), place("two"): own}}),
    );
    let mut one = connect(&world, &first, "one");
    let mut two = connect(&world, &first, "two");
    assert_eq!((one.count(), two.count(), two.count()), (1, 1, 2));
    for verb in ["stop", "restart", "logs"] {
        let output = run(&world, &[verb, "files"]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{verb}: {errors}");
        assert!(errors.contains("could be any of 2 servers"), "{errors}");
        assert!(
            errors.contains("~/one") && errors.contains("~/two"),
            "{errors}"
        );
    }
    let output = run(&world, &["restart", "files"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = errors.lines().find(|line| line.contains("~/two"));
    let word = line.and_then(|line| line.split_whitespace().last());
    said(&world, &["restart", word.expect("a word")]);
    assert_eq!((one.count(), two.count()), (2, 1), "the other one goes on");
}

#[test]
fn setup_names_the_entry_and_the_kept_server_is_found_under_it() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let connect = |options: &[&str]| {
        let words = world.wrapping(options, &tiny(&world));
        Client::connected(host.front(&words))
    };
    let mut client = connect(&["--entry", "browser"]);
    assert_eq!(client.count(), 1);
    assert_eq!(servers(&world)[0]["server"], "browser");
    assert_eq!(servers(&world)[0]["program"], "tiny");
    // What the daemon logs names it so, too.
    world.log.wait("browser");
    client.pipe.kill();
    let mut client = connect(&["--entry", "browser"]);
    assert_eq!(client.count(), 2);
}
