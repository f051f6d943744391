//! `mcp-sessiond status -w` in a real terminal.

use std::process::Stdio;

use mcp_sessiond_tests::{Client, Front, Terminal, World, gone, signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{connect, counter, keeping, tiny};

/// A terminal in which `status -w` shows a server, beside which a file has what `stty` said before.
fn watching(world: &World, columns: u32, variables: &[(&str, &str)]) -> Terminal {
    let terminal = world.terminal(columns, 24, variables);
    begin(world, &terminal, "stty -g > before");
    watch(world, &terminal);
    terminal
}

/// Does this, and has the shell say something. What is typed before it waits again would be seen in
/// the middle of that.
fn begin(world: &World, terminal: &Terminal, command: &str) {
    let begun = world.root().join("begun");
    let _ = std::fs::remove_file(&begun);
    terminal.enter(&format!("{command}; echo what was there; touch begun"));
    terminal.wait("the shell waits again", |screen| {
        begun.exists() && screen.contains("what was there") && screen.trim_end().ends_with("ready$")
    });
}

fn watch(world: &World, terminal: &Terminal) {
    terminal.enter(&format!(
        "{} status -w; echo left with $?",
        world.binaries.daemon
    ));
    terminal.wait("it shows the list", |screen| {
        screen.contains("? keys") && screen.contains("STATE")
    });
    assert_eq!(terminal.about("alternate_on"), "1");
    is_hidden(terminal);
}

/// The cursor is hidden, after what was drawn.
fn is_hidden(terminal: &Terminal) {
    until("the cursor is hidden", || {
        (terminal.about("cursor_flag") == "0").then_some(())
    });
}

/// The terminal is as it was: the shell has it, and what it showed before is there again.
#[track_caller]
fn is_given_back(terminal: &Terminal, exit_code: &str) {
    let left = format!("left with {exit_code}");
    terminal.wait("the shell has the terminal", |screen| {
        screen.contains(&left)
    });
    is_as_it_was(terminal);
}

#[track_caller]
fn is_as_it_was(terminal: &Terminal) {
    assert_eq!(
        (
            &*terminal.about("alternate_on"),
            &*terminal.about("cursor_flag")
        ),
        ("0", "1")
    );
    terminal.enter("stty -g | cmp - before && echo sane: $((6 * 7))");
    let screen = terminal.wait("the terminal is sane", |screen| screen.contains("sane: 42"));
    assert!(
        screen.contains("what was there") && !screen.contains("? keys"),
        "{screen}"
    );
}

/// The line of a server on the screen.
fn line(screen: &str, server: &str) -> String {
    screen
        .lines()
        .find(|line| line.contains(server))
        .unwrap_or_default()
        .to_owned()
}

/// What is seen, wherever the lines were broken.
fn words(screen: &str) -> String {
    screen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A world with a daemon and a server that counts.
fn counting() -> (World, mcp_sessiond_tests::Daemon, Client<Front>) {
    let world = keeping("stop_wait_ms = 300");
    let daemon = world.daemon();
    let client = connect(&world, &counter(&world));
    (world, daemon, client)
}

/// How often the server of a line was restarted: what stands before its memory, a number and a unit.
fn restarts(line: &str) -> Option<&str> {
    line.split_whitespace().rev().nth(2)
}

fn a_life(columns: u32, variables: &[(&str, &str)]) {
    let (world, _daemon, mut client) = counting();
    client.count();
    let backend = world.backend();
    let _other = connect(&world, &tiny(&world));
    world.wait_backends(2);
    let terminal = watching(&world, columns, variables);
    let first = backend.pid();
    let screen = terminal.wait("it is in use", |screen| {
        let line = line(screen, "> counter");
        restarts(&line) == Some("0") && line.contains("in use")
    });
    assert!(
        screen.contains("2 servers") && screen.contains("the daemon runs"),
        "{screen}"
    );
    let painted = terminal.painted();
    // tmux has colours as they were written: one of 16, or of 256.
    let colours = ["38;5;", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"];
    let has_colours = colours.iter().any(|one| painted.contains(one));
    assert_eq!(has_colours, variables.is_empty(), "{painted:?}");

    signal(first, Signal::SIGKILL);
    // Nothing was asked of it: the next request starts a fresh one.
    backend.wait("it has ended", |status| status.pid.is_none());
    client.count();
    terminal.wait("a fresh one runs", |screen| {
        restarts(&line(screen, "> counter")) == Some("1")
    });
    let second = backend.pid();
    terminal.press(&["r"]);
    let asked = terminal.wait("it asks", |screen| screen.contains("? y/n"));
    assert!(
        line(&asked, "? y/n").starts_with("Restart counter of "),
        "{asked}"
    );
    terminal.press(&["y"]);
    terminal.wait("it is restarted", |screen| {
        words(screen).contains("was restarted; its pid is ")
    });
    let third = backend.pid();
    assert_ne!(second, third);
    terminal.wait("the restart is counted", |screen| {
        restarts(&line(screen, "> counter")) == Some("2")
    });

    // The other one is selected, asked about, and left alone.
    terminal.press(&["Down"]);
    terminal.wait("the next one is selected", |screen| {
        screen.contains("> tiny")
    });
    terminal
        .press(&["s"])
        .wait("it asks", |screen| screen.contains("Stop tiny of "));
    terminal
        .press(&["n"])
        .wait("it asks no more", |screen| screen.contains("? keys"));
    terminal
        .press(&["k", "s"])
        .wait("it asks", |screen| screen.contains("Stop counter of "));
    terminal.press(&["y"]);
    terminal.wait("it is stopped", |screen| screen.contains(" is stopped"));
    backend.ended();
    terminal.wait("it does not run, and the other one is selected", |screen| {
        screen.contains("> tiny") && line(screen, "counter").contains("not running")
    });
    terminal.press(&["q"]);
    is_given_back(&terminal, "0");
}

#[test]
#[ignore = "needs tmux"]
fn a_life_is_seen_at_80_columns() {
    a_life(80, &[]);
}

#[test]
#[ignore = "needs tmux"]
fn a_life_is_seen_at_120_columns() {
    a_life(120, &[]);
}

#[test]
#[ignore = "needs tmux"]
fn a_life_is_seen_without_colours_at_80_columns() {
    a_life(80, &[("NO_COLOR", "1")]);
}

#[test]
#[ignore = "needs tmux"]
fn a_life_is_seen_without_colours_at_120_columns() {
    a_life(120, &[("NO_COLOR", "1")]);
}

#[test]
#[ignore = "needs tmux"]
fn the_log_of_a_server_is_shown_and_does_nothing_to_the_terminal() {
    let world = keeping("");
    world.configure("idle_exit_ms = 600000\n");
    // One whose log can be read.
    assert!(
        world
            .sessiond(&["run", "--on-demand"])
            .status()
            .expect("started")
            .success()
    );
    let mut client = connect(&world, &counter(&world));
    client.count();
    let terminal = watching(&world, 80, &[]);
    let title = terminal.about("pane_title");
    client.call(
        "complain",
        json!({"text": "first \u{1b}]0;stolen\u{7}\u{1b}[31mred\u{1b}[0m\ttab é\n"}),
    );
    terminal.press(&["Enter"]);
    let screen = terminal.wait("what it has written", |screen| screen.contains("tab é"));
    assert!(
        screen.contains("Log of counter of ") && screen.contains("mcp-sessiond: "),
        "{screen}"
    );
    assert!(
        screen.contains("a server was started "),
        "what the daemon has said of it: {screen}"
    );
    client.call("complain", json!({"text": "second\n"}));
    terminal.wait("what it writes next", |screen| screen.contains("second"));
    assert_eq!(
        (
            terminal.about("pane_title"),
            terminal.painted().contains("\u{1b}[31m")
        ),
        (title, false)
    );
    terminal.press(&["Escape"]);
    terminal.wait("the list", |screen| screen.contains("STATE"));
    terminal
        .press(&["?"])
        .wait("the keys", |screen| screen.contains("Ctrl-Z"));
    terminal.press(&["x", "C-c"]);
    is_given_back(&terminal, "0");
}

#[test]
#[ignore = "needs tmux"]
fn a_daemon_that_goes_away_and_comes_back_is_told_of() {
    let (world, daemon, mut client) = counting();
    let terminal = watching(&world, 80, &[]);
    terminal.wait("there is a daemon", |screen| {
        screen.contains("the daemon runs")
    });
    drop(daemon);
    let screen = terminal.wait("there is none", |screen| {
        screen.contains("no daemon runs; what is kept goes")
    });
    assert!(line(&screen, "> counter").contains("in use"), "{screen}");
    let _daemon = world.daemon();
    terminal.wait("there is one again", |screen| {
        screen.contains("the daemon runs")
            && !screen.contains("no daemon")
            && screen.contains("> counter")
    });
    assert_eq!(client.count(), 1);
    terminal.press(&["Escape"]);
    is_given_back(&terminal, "0");
}

#[test]
#[ignore = "needs tmux"]
fn a_terminal_of_any_size_shows_what_fits() {
    let (world, _daemon, _client) = counting();
    let terminal = watching(&world, 80, &[]);
    for (columns, rows) in [(40, 8), (20, 3), (2, 1), (1, 2), (200, 50)] {
        terminal.resize(columns, rows);
    }
    terminal.wait("it is drawn for the new size", |screen| {
        screen
            .lines()
            .next()
            .is_some_and(|line| line.len() > 180 && line.ends_with("the daemon runs"))
    });
    terminal.resize(30, 6);
    let screen = terminal.wait("what fits", |screen| {
        screen.contains("> counter") && screen.contains("1 server")
    });
    assert!(
        screen.lines().all(|line| line.chars().count() <= 30),
        "{screen}"
    );
    terminal.press(&["s"]);
    terminal.wait("the whole question", |screen| {
        screen.contains("Stop") && screen.contains("? y/n")
    });
    terminal.press(&["n"]).resize(80, 24);
    terminal.wait("the list", |screen| screen.contains("? keys"));
    terminal.press(&["q"]);
    is_given_back(&terminal, "0");
}

#[test]
#[ignore = "needs tmux"]
fn the_terminal_is_given_back_whatever_ends_or_stops_it() {
    let (world, _daemon, _client) = counting();
    let variables = [("MCP_SESSIOND_PANIC", "1"), ("RUST_BACKTRACE", "0")];
    let terminal = watching(&world, 80, &variables);
    let pid = || -> u32 { terminal.about("pane_pid").parse().expect("a pid") };
    let shell = pid();
    let own = || {
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        children
            .expect("a shell")
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok())
            .expect("ours")
    };
    signal(own(), Signal::SIGTERM);
    is_given_back(&terminal, "0");

    // Stopped and continued, by the keys and by a signal.
    for by_key in [true, false] {
        begin(&world, &terminal, "clear");
        terminal.enter(&format!("{} status -w", world.binaries.daemon));
        terminal.wait("it shows the list", |screen| screen.contains("? keys"));
        if by_key {
            terminal.press(&["C-z"]);
        } else {
            signal(own(), Signal::SIGTSTP);
        }
        terminal.wait("it is stopped", |screen| screen.contains("Stopped"));
        is_as_it_was(&terminal);
        terminal.enter("clear; echo what was there; fg; echo left with $?");
        terminal.wait("it goes on", |screen| {
            screen.contains("? keys") && screen.contains("> counter")
        });
        is_hidden(&terminal);
        terminal.press(&["q"]);
        is_given_back(&terminal, "0");
    }

    begin(&world, &terminal, "clear");
    watch(&world, &terminal);
    terminal.press(&["P"]);
    is_given_back(&terminal, "101");
    let screen = terminal.screen();
    assert!(
        screen.contains("panicked at") && screen.contains("asks for it"),
        "{screen}"
    );

    // A terminal that is closed takes it along.
    watch(&world, &terminal);
    let last = own();
    drop(terminal);
    gone(last);
}

#[test]
#[ignore = "needs tmux"]
fn without_a_terminal_that_can_be_drawn_on_it_says_what_to_use() {
    let (world, _daemon, _client) = counting();
    let said = world
        .sessiond(&["status", "-w"])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let why = String::from_utf8(said.stderr).expect("UTF-8");
    assert_eq!((said.status.code(), &*said.stdout), (Some(64), &b""[..]));
    assert!(
        why.contains("needs a terminal") && why.contains("use `mcp-sessiond status`"),
        "{why}"
    );
    let said = world
        .sessiond(&["status", "--watch", "--json"])
        .output()
        .expect("it runs");
    assert_eq!(said.status.code(), Some(64), "{said:?}");

    let terminal = world.terminal(100, 24, &[]);
    terminal.enter(&format!(
        "TERM=dumb {} status -w; echo left with $?",
        world.binaries.daemon
    ));
    let screen = terminal.wait("it is refused", |screen| screen.contains("left with 64"));
    // The terminal breaks lines anywhere.
    assert!(
        screen
            .replace('\n', "")
            .contains("use `mcp-sessiond status`"),
        "{screen}"
    );
}

#[test]
#[ignore = "needs tmux"]
fn wide_shows_everything_and_scrolls_sideways() {
    let (world, _daemon, mut client) = counting();
    client.count();
    let session = world.backend().session.clone();
    let terminal = world.terminal(80, 24, &[]);
    terminal.enter(&format!("{} status -w --wide", world.binaries.daemon));
    terminal.wait("it shows the list", |screen| screen.contains("NAME"));
    assert!(!terminal.screen().contains(&*session));
    until("the session is there", || {
        let is_there = terminal.screen().contains(&*session);
        if !is_there {
            terminal.press(&["Right"]);
        }
        is_there.then_some(())
    });
    terminal.press(&["q"]);
}
