//! State and streams by the command line, for what has no library.

use std::io::Write as _;
use std::process::{Output, Stdio};

use mcp_sessiond_tests::World;
use serde_json::{Value, json};

use crate::{fixture, world};

const OF: [&str; 4] = ["--service", "web", "--session", "7"];

/// Runs a command about the session `web`/`7`, with this standard input.
fn run(world: &World, arguments: &[&str], input: &str) -> Output {
    let mut command = world.sessiond(&[arguments, &OF, &["--no-start"]].concat());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    // A command that reads nothing may have exited.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("it exits")
}

/// What it prints.
#[track_caller]
fn printed(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    std::str::from_utf8(&output.stdout).expect("UTF-8")
}

/// Asserts that it was refused with this exit code, and that standard error says so.
#[track_caller]
fn refused(output: &Output, code: i32, sentence: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{said}");
    assert!(said.contains(sentence) && said.lines().count() == 1, "{said}");
}

#[test]
fn state_is_written_read_listed_and_removed() {
    let world = world("");
    let mut daemon = world.daemon();
    refused(&run(&world, &["state", "get", "cart"], ""), 66, "there is no such session");
    printed(&run(&world, &["state", "set", "cart", r#"[ "apples" ]"#], ""));
    daemon.restart();
    assert_eq!(printed(&run(&world, &["state", "get", "cart"], "")), "[ \"apples\" ]\n");
    printed(&run(&world, &["state", "set", "seen", "--expires", "3600"], "17\n"));
    assert_eq!(printed(&run(&world, &["state", "list"], "")), "cart\nseen\n");
    let listed: Value =
        serde_json::from_str(printed(&run(&world, &["state", "list", "--json"], ""))).expect("JSON");
    assert_eq!(
        listed[0],
        json!({"key": "cart", "version": listed[0]["version"].as_u64(), "bytes": 12}),
        "it stays"
    );
    assert!(listed[1]["expires_ms"].is_u64(), "{listed}");
    printed(&run(&world, &["state", "remove", "cart"], ""));
    refused(&run(&world, &["state", "get", "cart"], ""), 66, "the key cart has no value");
    refused(&run(&world, &["state", "set", "cart", "apples"], ""), 65, "quotes");
    let alone = world.sessiond(&["state", "get", "cart", "--service", "web"]).output().expect("run");
    assert_eq!(alone.status.code(), Some(64), "a service's session has an id");
    daemon.kill();
    let away = run(&world, &["state", "get", "seen"], "");
    assert_eq!(away.status.code(), Some(4), "{away:?}");
}

#[test]
fn a_shell_script_finds_the_state_of_its_former_instance() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let script = fixture("shell/server.sh");
    let start = || host.server(&[&script, world.binaries.daemon]);
    let mut server = start();
    assert_eq!(server.ask("get count"), "66");
    assert_eq!(server.ask("set count=1"), "0");
    server.kill();
    let mut server = start();
    assert_eq!(server.ask("get count"), "0 1");
    assert_eq!(server.ask("set count=one"), "65");
}

#[test]
fn messages_are_appended_replayed_and_followed() {
    let world = world("");
    let _daemon = world.daemon();
    let first = run(&world, &["stream", "append", "call-7"], "{\"n\":1}\n\n  {\"n\":2}\n");
    let ids: Vec<&str> = printed(&first).lines().collect();
    assert_eq!(ids.len(), 2);
    let replayed = run(&world, &["stream", "replay", "call-7"], "");
    let expected = format!("{}\t{{\"n\":1}}\n{}\t{{\"n\":2}}\n", ids[0], ids[1]);
    assert_eq!(printed(&replayed), expected);
    let after = run(&world, &["stream", "replay", "call-7", "--after", ids[0]], "");
    assert_eq!(printed(&after), format!("{}\t{{\"n\":2}}\n", ids[1]));
    // It goes on until the stream is closed.
    let mut tail = world.sessiond(&[&["stream", "tail", "call-7"][..], &OF].concat());
    let tail = tail.stdout(Stdio::piped()).spawn().expect("started");
    printed(&run(&world, &["stream", "append", "call-7", "--close"], "{\"n\":3}"));
    let tail = tail.wait_with_output().expect("it ends");
    assert_eq!(printed(&tail).lines().count(), 3);
    printed(&run(&world, &["stream", "append", "_GET_stream"], "{}"));
    refused(&run(&world, &["stream", "append", "call-7"], "{}"), 65, "closed");
    refused(&run(&world, &["stream", "append", "other"], "no JSON"), 65, "JSON");
    refused(&run(&world, &["stream", "replay", "nobody"], ""), 66, "no such stream");
    refused(&run(&world, &["stream", "replay", "call-7", "--after", "forged"], ""), 66, "cursor");
}
