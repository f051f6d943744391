//! The official servers, wrapped: whatever the official client and the inspector can ask, the
//! answers are the same bytes.

use std::process::Output;

use mcp_sessiond_tests::{World, write_program};

use super::{keeping, root, wrapped};
use crate::fixture;

/// One of the official servers, which says the same bytes at every run.
fn server(world: &World, name: &str) -> Vec<String> {
    let module = fixture(&format!(
        "node/node_modules/@modelcontextprotocol/{name}/dist/index.js"
    ));
    let mut words = vec![
        "node".into(),
        "--import".into(),
        fixture("node/fixed.mjs"),
        module,
    ];
    if name == "server-filesystem" {
        words.push(format!("{}/place/files", root(world)));
    }
    words
}

fn node(world: &World, script: &str, arguments: &[String]) -> Output {
    let mut command = world.command("node");
    command
        .arg(fixture(&format!("node/{script}")))
        .args(arguments)
        .env_remove("MCP_SESSIOND_BIN");
    command.output().expect("node")
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{}\n{said}\n{errors}",
        output.status
    );
    said.into_owned()
}

/// All that the client can ask of a server, wrapped or not, goes over the wire alike.
fn says_the_same(name: &str) {
    let world = keeping("");
    let _daemon = world.daemon();
    let plain = server(&world, name);
    let at = |file: &str| format!("{}/{file}", root(&world));
    std::fs::create_dir(at("place")).expect("a directory");
    for (out, command) in [("direct", &plain), ("wrapped", &wrapped(&world, &plain))] {
        let arguments = [&[at(out), at("place"), "--".into()][..], command].concat();
        succeeded(&node(&world, "transcript.mjs", &arguments));
    }
    let compared = succeeded(&node(&world, "compare.mjs", &[at("direct"), at("wrapped")]));
    assert!(
        compared.starts_with(r#"{"same":true,"tools":"#) && !compared.contains(r#""tools":0"#),
        "{compared}"
    );
    assert_eq!(
        world.stat("backends_kept_total"),
        1,
        "the second one was wrapped"
    );
}

#[test]
#[ignore = "needs node"]
fn server_everything_says_the_same_bytes() {
    says_the_same("server-everything");
}

#[test]
#[ignore = "needs node"]
fn server_memory_says_the_same_bytes() {
    says_the_same("server-memory");
}

#[test]
#[ignore = "needs node"]
fn server_filesystem_says_the_same_bytes() {
    says_the_same("server-filesystem");
}

/// Every command of the inspector is a host of its own, with a server of its own.
fn is_inspected_alike(name: &str) {
    let world = keeping("");
    let _daemon = world.daemon();
    let plain = server(&world, name);
    let place = format!("{}/place", root(&world));
    std::fs::create_dir(&place).expect("a directory");
    let inspect = |command: &[String]| {
        succeeded(&node(
            &world,
            "inspect.mjs",
            &[&[place.clone(), "--".into()][..], command].concat(),
        ))
    };
    // The inspector's own parser of arguments would stumble over `--`.
    let script = |name: &str, words: &[String]| {
        let script = format!("{}/{name}", root(&world));
        write_program(
            &script,
            &format!("#!/bin/sh\nexec '{}'\n", words.join("' '")),
        );
        [script]
    };
    let direct = inspect(&script("direct", &plain));
    let kept = inspect(&script("wrapped", &wrapped(&world, &plain)));
    assert!(direct.contains("$ --method tools/call"), "{direct}");
    for (n, (direct, kept)) in direct.lines().zip(kept.lines()).enumerate() {
        assert_eq!(direct, kept, "line {n}");
    }
    assert_eq!(direct.lines().count(), kept.lines().count());
    let commands = direct.lines().filter(|line| line.starts_with("$ ")).count() as u64;
    assert_eq!(world.stat("backends_kept_total"), commands);
}

#[test]
#[ignore = "needs node"]
fn server_everything_is_inspected_alike() {
    is_inspected_alike("server-everything");
}

#[test]
#[ignore = "needs node"]
fn server_memory_is_inspected_alike() {
    is_inspected_alike("server-memory");
}

#[test]
#[ignore = "needs node"]
fn server_filesystem_is_inspected_alike() {
    is_inspected_alike("server-filesystem");
}
