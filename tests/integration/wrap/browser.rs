//! A browser, and what somebody has typed into it, outlives the server that drives it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::{keeping, root, wrapped};
use crate::fixture;

#[test]
fn a_page_and_what_was_typed_are_still_there() {
    let world = keeping("");
    let _daemon = world.daemon();
    let cli = fixture("node/node_modules/@playwright/mcp/cli.js");
    let chromium = which("chromium");
    let options =
        ["--headless", "--isolated", "--no-sandbox", "--executable-path", &chromium, "--output-dir"];
    let words = ["node", &cli].into_iter().chain(options).map(str::to_owned).chain([root(&world)]);
    let server = wrapped(&world, &words.collect::<Vec<_>>());
    let mut command = world.command("node");
    command.arg(fixture("node/browser.mjs")).arg("--").args(server).stdout(Stdio::piped());
    let mut host = command.spawn().expect("node");
    let lines = BufReader::new(host.stdout.take().expect("piped")).lines();
    let told: Vec<Value> =
        lines.map_while(Result::ok).map(|line| serde_json::from_str(&line).expect("JSON")).collect();
    assert!(host.wait().expect("it is our child").success(), "{told:?}");
    assert_eq!(told.last().map(|last| &last["kept"]), Some(&Value::from(true)), "{told:?}");
    // With its host everything goes: server, browser, and whatever a browser starts.
    world.nothing_left();
}

/// Where a program is.
fn which(program: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file());
    let found = found.unwrap_or_else(|| panic!("no {program} in PATH: run tests/run, which installs it"));
    found.into_os_string().into_string().expect("UTF-8")
}
