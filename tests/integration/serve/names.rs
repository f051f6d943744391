//! The name that a `serve` was given is a name for its user, too: `status` has a row for it, and
//! `logs`, `restart` and `stop` take it.

use mcp_sessiond_tests::World;

use super::world;
use crate::wrap::counter;

/// What a command says, standard error before standard output, and its exit code.
fn said(world: &World, words: &[&str]) -> (String, Option<i32>) {
    let output = world.sessiond(words).output().expect("it runs");
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8(text).expect("UTF-8");
    (text, output.status.code())
}

#[track_caller]
fn says(world: &World, words: &[&str], code: i32, parts: &[&str]) {
    let (text, exit) = said(world, words);
    assert_eq!(exit, Some(code), "{words:?}: {text}");
    for part in parts {
        assert!(text.contains(part), "{words:?} without {part:?}: {text}");
    }
}

#[test]
fn a_service_is_called_by_its_name() {
    let world = world("");
    let _daemon = world.daemon();
    let serve = world.serve(&["--name", "lab"], &counter(&world));
    says(&world, &["status"], 0, &["serve.lab", "waiting"]);
    for verb in ["logs", "restart", "stop"] {
        for name in ["lab", "serve.lab"] {
            let none = "no client has a session with serve.lab now (`serve`, pid ";
            says(&world, &[verb, name], 66, &[none]);
        }
    }
    let _clients = [(); 2].map(|()| serve.connected("2025-11-25"));
    says(
        &world,
        &["status"],
        0,
        &["(2 sessions)", "serve.lab", "in use"],
    );
    let (wide, _) = said(&world, &["status", "--wide"]);
    assert_eq!(wide.matches("serve.lab").count(), 2, "{wide}");
    let sessions = world.backends().into_iter().map(|one| one.session);
    let sessions: Vec<String> = sessions
        .map(|session| format!("session {session}:"))
        .collect();
    let sessions: Vec<&str> = sessions.iter().map(String::as_str).collect();
    says(&world, &["logs", "lab"], 0, &sessions);
    says(&world, &["logs", "-f", "lab"], 64, &["lab has 2 sessions"]);
    let (restarted, _) = said(&world, &["restart", "serve.lab"]);
    assert_eq!(
        restarted.matches(" was restarted").count(),
        2,
        "{restarted}"
    );
    let (stopped, _) = said(&world, &["stop", "lab"]);
    assert_eq!(stopped.matches(" is stopped").count(), 2, "{stopped}");
    says(&world, &["status"], 0, &["serve.lab"]);
}
