//! What each command prints at a real terminal: no line is wider than it, and NO_COLOR is all that
//! takes the colours away.

use std::fs;
use std::path::PathBuf;

use mcp_sessiond_tests::{World, copy_program};
use serde_json::json;

use crate::world;
use crate::wrap::{connect, counter, tiny};

/// Runs a command at a terminal of its own, so wide, and prints what that shows.
const AT_TERMINAL: &str = "
import fcntl, pty, struct, sys, termios
columns, command = int(sys.argv[1]), sys.argv[2:]
sized = ['sh', '-c', f'stty cols {columns} rows 50 && exec \"$@\"', 'sh', *command]
sys.exit(pty.spawn(sized) >> 8)
";

/// As deep as the folders of a home may be: a line of `setup` that holds both this and a command is
/// wider than 80 columns.
const DEEP: &str = "home/.local/share/some-manager/versions/1.2.3/bin";

/// A command and its exit code.
type Case<'a> = (&'a [&'a str], i32);

/// Commands that show something, where a daemon keeps two servers, and a host's file has a third.
const SHOWN: &[Case<'static>] = &[
    (&[], 0),
    (&["status"], 0),
    (&["doctor"], 0),
    (&["config"], 0),
    (&["stats"], 0),
    (&["setup", "--dry-run"], 0),
    (&["import", "--from", "cursor", "--dry-run"], 0),
    (&["debug"], 0),
    (&["debug", "about"], 0),
    (&["debug", "hosts"], 0),
    (&["debug", "sessions"], 0),
    (&["debug", "streams"], 0),
    (&["debug", "tasks"], 0),
    (&["debug", "backends"], 0),
    (&["debug", "tokens"], 0),
    (&["debug", "sweep"], 0),
];

/// Commands that say a sentence, which the terminal wraps.
const SAID: &[Case<'static>] = &[
    (&["logs", "counter"], 0),
    (&["restart", "counter"], 0),
    (&["stop", "counter"], 0),
    (&["statsu"], 64),
    (&["stop", "nobody"], 66),
    (&["logs", "nobody"], 66),
    (&["debug", "session", "nobody"], 70),
    (&["wrap"], 64),
];

struct Screen {
    code: Option<i32>,
    text: String,
}

fn show(world: &World, columns: usize, variables: &[(&str, &str)], words: &[&str]) -> Screen {
    let mut command = world.command("python3");
    command
        .env("HOME", world.root().join("home"))
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR");
    command.envs(variables.iter().copied());
    command
        .args(["-I", "-c", AT_TERMINAL, &columns.to_string()])
        .arg(deep(world))
        .args(words);
    let shown = command.output().expect("it runs");
    Screen {
        code: shown.status.code(),
        text: String::from_utf8(shown.stdout).expect("UTF-8"),
    }
}

/// The executable, where its path is long.
fn deep(world: &World) -> PathBuf {
    let folder = world.root().join(DEEP);
    let executable = folder.join("mcp-sessiond");
    if !executable.exists() {
        fs::create_dir_all(&folder).expect("directories");
        if fs::hard_link(world.binaries.daemon, &executable).is_err() {
            copy_program(world.binaries.daemon, &executable);
        }
    }
    executable
}

/// What is seen of a text, without the sequences that paint it.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |seen, part| {
        seen + part
            .split_once(|c: char| c.is_ascii_alphabetic())
            .map_or("", |(_, rest)| rest)
    })
}

fn every_command(columns: usize, variables: &[(&str, &str)]) {
    let world = world("[backends]\nstop_wait_ms = 300\n");
    let _daemon = world.daemon();
    let cursor = world.root().join("home/.cursor");
    fs::create_dir_all(&cursor).expect("a directory");
    let long = "a/path/that/is/long/".repeat(8);
    let servers =
        json!({"mcpServers": {"files": {"command": "npx", "args": ["-y", "some-server", long]}}});
    fs::write(cursor.join("mcp.json"), servers.to_string()).expect("written");
    let _clients = [
        connect(&world, &counter(&world)),
        connect(&world, &tiny(&world)),
    ];
    world.wait_backends(2);
    let (mut painted, mut faults) = (0, Vec::new());
    let shown = SHOWN.iter().map(|case| (case, columns));
    for ((words, code), most) in shown.chain(SAID.iter().map(|case| (case, usize::MAX))) {
        let screen = show(&world, columns, variables, words);
        if screen.code != Some(*code) {
            faults.push(format!(
                "{words:?} exits with {:?}: {}",
                screen.code, screen.text
            ));
        }
        painted += usize::from(screen.text.contains('\u{1b}'));
        let seen = plain(&screen.text);
        let wide = seen.lines().filter(|line| line.chars().count() > most);
        faults.extend(wide.map(|line| format!("{words:?} at {columns}: {line}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(painted > 0, variables.is_empty(), "{painted}");
}

#[test]
#[ignore = "needs python3"]
fn at_80_columns() {
    every_command(80, &[]);
}

#[test]
#[ignore = "needs python3"]
fn at_80_columns_without_colours() {
    every_command(80, &[("NO_COLOR", "1")]);
}

#[test]
#[ignore = "needs python3"]
fn at_120_columns() {
    every_command(120, &[]);
}

#[test]
#[ignore = "needs python3"]
fn at_120_columns_without_colours() {
    every_command(120, &[("NO_COLOR", "1")]);
}
