//! A browser, and what somebody has typed into it, outlives the server that drives it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use mcp_sessiond_tests::{Client, Front};
use serde_json::{Value, json};

use super::{keeping, root, wrapped};
use crate::fixture;

#[test]
#[ignore = "needs node"]
fn a_page_and_what_was_typed_are_still_there() {
    let world = keeping("");
    let _daemon = world.daemon();
    let cli = fixture("node/node_modules/@playwright/mcp/cli.js");
    let chromium = which("chromium");
    let options = [
        "--headless",
        "--isolated",
        "--no-sandbox",
        "--executable-path",
        &chromium,
        "--output-dir",
    ];
    let words = ["node", &cli]
        .into_iter()
        .chain(options)
        .map(str::to_owned)
        .chain([root(&world)]);
    let server = wrapped(&world, &words.collect::<Vec<_>>());
    let mut command = world.command("node");
    command
        .arg(fixture("node/browser.mjs"))
        .arg("--")
        .args(server)
        .stdout(Stdio::piped());
    let mut host = command.spawn().expect("node");
    let lines = BufReader::new(host.stdout.take().expect("piped")).lines();
    let told: Vec<Value> = lines
        .map_while(Result::ok)
        .map(|line| serde_json::from_str(&line).expect("JSON"))
        .collect();
    assert!(host.wait().expect("it is our child").success(), "{told:?}");
    assert_eq!(
        told.last().map(|last| &last["kept"]),
        Some(&Value::from(true)),
        "{told:?}"
    );
    // With its host everything goes: server, browser, and whatever a browser starts.
    world.nothing_left();
}

/// Where a program is.
fn which(program: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file());
    let found =
        found.unwrap_or_else(|| panic!("no {program} in PATH: run tests/run, which installs it"));
    found.into_os_string().into_string().expect("UTF-8")
}

/// The default profile can be open in one browser at a time: a server that nobody can reach any
/// more must not keep it.
#[test]
#[ignore = "needs node"]
fn the_next_server_can_open_the_default_profile() {
    let world = crate::world("claim_wait_ms = 50");
    let _daemon = world.daemon();
    let cli = fixture("node/node_modules/@playwright/mcp/cli.js");
    let chromium = which("chromium");
    let options = [
        "--headless",
        "--no-sandbox",
        "--executable-path",
        &chromium,
        "--output-dir",
    ];
    let words = ["node", &cli]
        .into_iter()
        .chain(options)
        .map(str::to_owned)
        .chain([root(&world)]);
    let command = wrapped(&world, &words.collect::<Vec<_>>());
    let home = root(&world);
    let start = |conversation: &str| {
        let variables = [
            ("HOME", home.as_str()),
            ("XDG_CACHE_HOME", &home),
            ("CLAUDE_CODE_SESSION_ID", conversation),
        ];
        let mut client = Client::new(world.front_with(&command, &variables));
        // Without roots: it would ask for them, and wait.
        let info = json!({"name": "test", "version": "1"});
        let hello =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info});
        let id = client.request("initialize", hello);
        client.answer(id);
        client.notify("notifications/initialized", json!({}));
        client
    };
    let navigate = |client: &mut Client<Front>| {
        let id = client.begin(
            "browser_navigate",
            json!({"url": "data:text/html,<title>Here</title>"}),
        );
        let answer = client.answer(id);
        assert!(
            answer.get("error").is_none() && answer["result"]["isError"] != true,
            "{answer}"
        );
    };
    let mut first = start("1");
    navigate(&mut first);
    // The host goes on to another conversation, by a way that leaves the former server no time.
    first.pipe.kill();
    let mut second = start("2");
    navigate(&mut second);
    // A twin, and a reload beside it: the former one can't be told from it, and is ended before the
    // next one starts.
    let _twin = start("2");
    second.pipe.close();
    second.pipe.wait();
    let mut third = start("2");
    navigate(&mut third);
    // All at once, so that nobody can be told from anybody.
    third.pipe.kill();
    let mut fourth = start("3");
    navigate(&mut fourth);
}
