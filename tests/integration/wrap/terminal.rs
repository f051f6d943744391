//! What a person at a terminal is told while a command waits.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use mcp_sessiond_tests::World;
use serde_json::json;

use super::{connect, counter, keeping, wrapped};

/// A command of this world's at a terminal of its own, whose screen is the standard output.
fn at_terminal(world: &World, arguments: &[&str]) -> std::process::Command {
    let mut command = world.command("python3");
    command.args([
        "-I",
        "-c",
        "import pty, sys; pty.spawn(sys.argv[1:])",
        world.binaries.daemon,
    ]);
    command.args(arguments);
    command
}

#[test]
#[ignore = "needs python3"]
fn who_waits_at_a_terminal_is_told_for_what() {
    let world = keeping("stop_wait_ms = 1500");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    client.call("ignore", json!({}));
    let screen = at_terminal(&world, &["restart", "counter"])
        .output()
        .expect("it runs")
        .stdout;
    let screen = String::from_utf8(screen).expect("UTF-8");
    let said: Vec<&str> = screen.lines().collect();
    assert_eq!(said.len(), 2, "{screen}");
    assert!(said[0].starts_with("waiting until counter of "), "{screen}");
    assert!(
        said[0].ends_with(" has ended, and a fresh one runs"),
        "{screen}"
    );
    assert!(said[1].contains(" was restarted"), "{screen}");
    // One that ends at once is not waited for, and where there is no terminal nothing is said.
    let screen = at_terminal(&world, &["restart", "counter"])
        .output()
        .expect("it runs")
        .stdout;
    let screen = String::from_utf8(screen).expect("UTF-8");
    assert!(
        screen.lines().count() == 1 && screen.contains(" was restarted"),
        "{screen}"
    );
    client.call("ignore", json!({}));
    let stopped = world
        .sessiond(&["stop", "counter"])
        .output()
        .expect("it runs");
    assert_eq!(
        (stopped.status.code(), &*stopped.stderr),
        (Some(0), &b""[..])
    );
}

#[test]
#[ignore = "needs python3"]
fn who_runs_wrap_at_a_terminal_is_told_what_it_waits_for() {
    let world = keeping("");
    let _daemon = world.daemon();
    let words = wrapped(&world, &counter(&world));
    let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let mut command = at_terminal(&world, &words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut screen = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    screen.read_line(&mut line).expect("text");
    assert!(
        line.contains("counter runs, and waits for a host's messages"),
        "{line}"
    );
    world.wait_backends(1);
    let backend = world.backend();
    // The terminal is closed, as a window is; and what has started the command was its host.
    child.kill().expect("ours");
    child.wait().expect("ended");
    backend.ended();
}
