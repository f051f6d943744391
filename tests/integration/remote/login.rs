//! The user's login: in the browser, shared by processes, refreshed once, revoked, and killed in
//! between.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use mcp_sessiond_tests::{Client, Connected, Log, Upstream, World, get, until};
use serde_json::{Value, json};

use crate::several::{all, tools};
use crate::{fixture, world};

/// A remote server that wants a login, and `servers.json` with it.
pub(super) struct Guarded {
    pub(super) world: World,
    pub(super) server: Upstream,
}

impl Guarded {
    pub(super) fn new() -> Self {
        let world = world("");
        let server = world.upstream(
            &["python3".into(), "-I".into(), fixture("python/guarded.py")],
            &[],
        );
        let entries =
            json!({"mcpServers": {"test": {"url": server.url}, "local": {"command": "true"}}});
        std::fs::write(world.root().join("servers.json"), entries.to_string()).expect("written");
        Self { world, server }
    }

    /// Sets something, and returns what was counted.
    pub(super) fn control(&self, query: &str) -> Value {
        let (status, _, body) = get(&format!(
            "{}/control?{query}",
            self.server.url.trim_end_matches("/mcp")
        ));
        assert_eq!(status, 200);
        serde_json::from_str(&body).expect("JSON")
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.control("")[name].as_u64().expect(name)
    }

    pub(super) fn login(&self) {
        log_in(&self.world, "test", |page| {
            let (status, location, body) = get(page);
            assert_eq!(status, 302, "{body}");
            location.expect("a redirect")
        });
    }

    fn process(&self) -> Connected {
        let mut process = self.world.remote(&["token", "test", &self.server.url], &[]);
        assert_eq!(process.said_next(), "ready");
        process
    }

    fn file(&self) -> PathBuf {
        let files = std::fs::read_dir(self.world.directory().join("logins")).expect("a directory");
        let mut files = files.flatten().map(|file| file.path());
        files
            .find(|path| path.extension().is_some_and(|ending| ending == "json"))
            .expect("a login")
    }

    fn tokens(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.file()).expect("a file")).expect("JSON")
    }

    /// The access token is about to expire, as the file has it.
    fn expire(&self) {
        let mut tokens = self.tokens();
        tokens["asked_ms"] = json!(0);
        let path = self.file();
        let new = path.with_extension("test");
        std::fs::write(&new, tokens.to_string()).expect("written");
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("set");
        std::fs::rename(new, path).expect("renamed");
    }
}

/// Logs in by the command. The browser is the test: `decide` says where the page leads.
pub(super) fn log_in(world: &World, name: &str, decide: impl FnOnce(&str) -> String) {
    let mut command: Command = world.sessiond(&["login", name, "--no-browser"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("login");
    let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.starts_with("http") {
        line.clear();
        assert!(
            std::io::BufRead::read_line(&mut output, &mut line).expect("text") > 0,
            "it has printed no page"
        );
    }
    let back = decide(line.trim());
    let (status, _, body) = get(&back);
    assert_eq!(
        (status, &*body),
        (200, "You are logged in. You can close this page.")
    );
    assert!(child.wait().expect("it is our child").success());
}

fn token(said: &Value) -> &str {
    said["token"]
        .as_str()
        .unwrap_or_else(|| panic!("no token in {said}"))
}

#[test]
#[ignore = "needs python3"]
fn a_login_is_the_users_for_all_processes_and_nobody_elses() {
    let guarded = Guarded::new();
    let mut before = guarded.process();
    before.line("");
    assert_eq!(before.said_next(), json!({"token": null}));
    guarded.login();
    before.line("");
    let first = before.said_next();
    let mut other = guarded.process();
    other.line("");
    assert_eq!(token(&other.said_next()), token(&first));
    assert_eq!(
        (
            guarded.count("logins"),
            guarded.count("clients"),
            guarded.count("refreshes")
        ),
        (1, 1, 0)
    );
    let mode = |path: PathBuf| {
        std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(path).expect("there").permissions(),
        ) & 0o777
    };
    assert_eq!(
        (
            mode(guarded.file()),
            mode(guarded.world.directory().join("logins"))
        ),
        (0o600, 0o700)
    );

    let logout = guarded
        .world
        .sessiond(&["logout", "test"])
        .output()
        .expect("logout");
    assert!(
        logout.status.success() && String::from_utf8_lossy(&logout.stdout).contains("are deleted")
    );
    other.line("");
    assert_eq!(other.said_next(), json!({"token": null}));
    for (arguments, code, said) in [
        (["login", "local"], 65, "no `url`"),
        (["login", "nobody"], 66, "there is no server"),
        (["logout", "local"], 0, ""),
        (["logout", "test"], 0, ""),
    ] {
        let output = guarded
            .world
            .sessiond(&arguments)
            .output()
            .expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[test]
#[ignore = "needs python3"]
fn twenty_processes_make_one_refresh() {
    const ROUNDS: u64 = 25;
    let guarded = Guarded::new();
    guarded.login();
    // The lock is held for long enough that all others come to it.
    guarded.control("delay_ms=30");
    let mut processes: Vec<Connected> = (0..20).map(|_| guarded.process()).collect();
    let mut former = guarded.tokens()["token"]["access_token"].clone();
    for round in 1..=ROUNDS {
        guarded.expire();
        processes.iter_mut().for_each(|process| process.line(""));
        let said: Vec<Value> = processes.iter_mut().map(Connected::said_next).collect();
        assert!(
            said.iter().all(|token| token == &said[0]),
            "round {round}: {said:?}"
        );
        assert_ne!(token(&said[0]), former, "round {round}");
        former = said[0]["token"].clone();
        assert_eq!(guarded.count("refreshes"), round, "one refresh");
    }
    // The server refuses a token that has not expired.
    guarded.control("refuse=1");
    let refused = former.as_str().expect("a token");
    let url = &guarded.server.url;
    let mut processes: Vec<Connected> = (0..20)
        .map(|_| guarded.world.remote(&["token", "test", url, refused], &[]))
        .collect();
    processes
        .iter_mut()
        .for_each(|process| drop(process.said_next()));
    processes.iter_mut().for_each(|process| process.line(""));
    let said: Vec<Value> = processes.iter_mut().map(Connected::said_next).collect();
    assert!(
        said.iter().all(|token| token == &said[0]) && token(&said[0]) != refused,
        "{said:?}"
    );
    assert_eq!(guarded.count("refreshes"), ROUNDS + 1);
    assert_eq!(guarded.count("rejected"), 0);
}

/// A kill between the authorization server's rotation and the rename costs the login, and each
/// process says so; at no other moment anything is lost, and nobody ever gets a token that is none.
#[test]
#[ignore = "needs python3"]
fn a_kill_of_the_process_that_refreshes_leaves_a_token_or_a_sentence() {
    let guarded = Guarded::new();
    guarded.login();
    let moments = [
        Moment::Asking,
        Moment::Rotated,
        Moment::Answered,
        Moment::Told,
    ];
    for (round, moment) in moments.into_iter().cycle().take(32).enumerate() {
        let is_held = matches!(moment, Moment::Rotated | Moment::Answered);
        guarded.control(&format!("hold={}", u8::from(is_held)));
        let before = guarded.count("refreshes");
        let mut processes: Vec<Connected> = (0..3).map(|_| guarded.process()).collect();
        guarded.expire();
        processes.iter_mut().for_each(|process| process.line(""));
        if is_held {
            until("the rotation", || {
                (guarded.count("refreshes") > before).then_some(())
            });
        }
        match moment {
            Moment::Asking | Moment::Rotated => {}
            Moment::Answered => drop(guarded.control("hold=0")),
            Moment::Told => drop(token(&processes[round % 3].said_next())),
        }
        // Whoever has the lock is among them, or was.
        processes.iter_mut().for_each(Connected::kill);
        guarded.control("hold=0");
        let mut after = guarded.process();
        after.line("");
        let said = after.said_next();
        if let Some(error) = said["error"].as_str() {
            assert!(
                error.contains("has ended, or was revoked: run `mcp-sessiond login test`"),
                "{error}"
            );
            assert!(
                !matches!(moment, Moment::Told),
                "round {round}: its tokens were written before it was told"
            );
            guarded.login();
        } else {
            assert!(
                !matches!(moment, Moment::Rotated),
                "round {round}: nobody has got the next refresh token"
            );
            assert_eq!(
                who_am_i(&guarded, round),
                token(&said),
                "round {round}: the server takes it"
            );
        }
    }
}

/// When the processes are killed of which one refreshes.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// They have just been asked for a token.
    Asking,
    /// The authorization server has rotated the refresh token, and has not answered.
    Rotated,
    /// It is just answering.
    Answered,
    /// One of them has said its token.
    Told,
}

/// The token that a call comes with.
fn who_am_i(guarded: &Guarded, round: usize) -> String {
    let file = guarded.world.root().join(format!("kept-{round}.json"));
    let (mut connected, _) = guarded.world.connected(&guarded.server.url, &file);
    connected.initialize();
    connected.text(1, "whoami", &json!({}))
}

#[test]
#[ignore = "needs python3"]
fn calls_go_on_while_tokens_expire_and_are_refused() {
    let guarded = Guarded::new();
    guarded.login();
    let (mut connected, _) = guarded
        .world
        .connected(&guarded.server.url, &guarded.world.root().join("kept.json"));
    connected.initialize();
    let first = connected.text(1, "whoami", &json!({}));
    guarded.expire();
    let second = connected.text(2, "whoami", &json!({}));
    guarded.control("refuse=1");
    let third = connected.text(3, "whoami", &json!({}));
    assert!(
        first != second && second != third,
        "{first} {second} {third}"
    );
    assert_eq!(guarded.count("refreshes"), 2);
    guarded.control("forget=1");
    assert_eq!(
        connected.text(4, "whoami", &json!({})),
        third,
        "the handshake is repeated"
    );
    assert_eq!(guarded.count("handshakes"), 2);

    connected.begin(5, "scoped", &json!({}));
    let (_, answer) = connected.answer(5);
    let said = answer["error"]["message"].as_str().expect("a sentence");
    assert!(
        said.contains("run `mcp-sessiond login test --scope 'basic more'`"),
        "{said}"
    );

    // What passes by itself is no reason to log in again.
    guarded.control("fail=1");
    guarded.expire();
    connected.begin(6, "whoami", &json!({}));
    let (_, answer) = connected.answer(6);
    let said = answer["error"]["message"].as_str().expect("a sentence");
    assert!(said.contains("could not be renewed"), "{said}");
    assert_eq!(answer["error"]["data"]["outcome"], "not_sent");
    // Only who has waited for that does not try again.
    connected.begin(7, "whoami", &json!({}));
    let (_, answer) = connected.answer(7);
    assert_eq!(
        (guarded.count("failed"), guarded.count("refreshes")),
        (1, 3)
    );
    assert_ne!(answer["result"]["content"][0]["text"], third);
}

#[test]
#[ignore = "needs python3"]
fn who_is_not_logged_in_or_is_so_no_more_is_told_what_to_do() {
    let guarded = Guarded::new();
    let file = guarded.world.root().join("kept.json");
    let (mut connected, _) = guarded.world.connected(&guarded.server.url, &file);
    let sentence = |answer: &Value| {
        answer["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let answer = connected.initialize();
    assert!(
        sentence(&answer).contains("needs a login: run `mcp-sessiond login test`"),
        "{answer}"
    );
    guarded.login();
    assert!(
        connected.initialize()["result"].is_object(),
        "the same process, after the login"
    );
    guarded.control("revoke=1");
    let mut other = guarded.process();
    for id in 1..=2 {
        connected.begin(id, "whoami", &json!({}));
        let (_, answer) = connected.answer(id);
        assert!(
            sentence(&answer).contains("has ended, or was revoked: run `mcp-sessiond login test`"),
            "{answer}"
        );
    }
    other.line("");
    assert!(
        other.said_next()["token"].is_string(),
        "it has not expired, as far as one knows"
    );
    assert_eq!(guarded.count("rejected"), 1, "it is asked once");
    guarded.login();
    let handshakes = guarded.count("handshakes");
    assert!(
        connected
            .text(3, "whoami", &json!({}))
            .starts_with("access-"),
        "the same process"
    );
    assert_eq!(
        guarded.count("handshakes"),
        handshakes + 1,
        "in a session of the new login, perhaps another account's"
    );
}

#[test]
#[ignore = "needs python3"]
fn a_server_that_refuses_the_handshake_is_asked_again_at_the_next_call() {
    let guarded = Guarded::new();
    guarded.login();
    let (mut connected, _) = guarded
        .world
        .connected(&guarded.server.url, &guarded.world.root().join("kept.json"));
    connected.initialize();
    connected.text(2, "whoami", &json!({}));
    guarded.control("forget=1&handshakes=0");
    for id in [3, 4] {
        connected.begin(id, "whoami", &json!({}));
        let (_, answer) = connected.answer(id);
        assert_eq!(answer["error"]["data"]["outcome"], "not_sent", "{answer}");
        let said = answer["error"]["message"].as_str().expect("a sentence");
        assert!(
            said.contains("has forgotten the session, and refuses the handshake"),
            "{said}"
        );
    }
    guarded.control("handshakes=1");
    assert!(
        connected
            .text(5, "whoami", &json!({}))
            .starts_with("access-"),
        "the same process"
    );
}

#[test]
#[ignore = "needs python3"]
fn a_login_that_is_refused_or_forged_is_told() {
    let guarded = Guarded::new();
    let mut command = guarded.world.sessiond(&["login", "test", "--no-browser"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("login");
    let output = Log::default();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    let page = lines
        .find_map(|line| line.ok().filter(|line| line.starts_with("http")))
        .expect("a page");
    drop(output);
    let (_, back, _) = get(&page);
    let back = back.expect("a redirect");
    let forged = back.replace("state=", "state=x");
    assert_eq!(get(&forged).0, 404, "another login's");
    let callback = back.split('?').next().expect("a path");
    let state = back
        .split('&')
        .find(|part| part.starts_with("state="))
        .expect("a state");
    let (status, _, body) = get(&format!("{callback}?error=access_denied&{state}"));
    assert_eq!(status, 400);
    assert!(body.contains("access_denied"), "{body}");
    let ended = child.wait_with_output().expect("it is our child");
    assert_eq!(ended.status.code(), Some(70));
    assert!(
        String::from_utf8_lossy(&ended.stderr)
            .contains("the authorization server says access_denied")
    );
}

#[test]
#[ignore = "needs python3"]
fn among_several_servers_one_that_wants_a_login_says_so_and_joins_after_it() {
    let guarded = Guarded::new();
    let _daemon = guarded.world.daemon();
    let mut client = Client::new(guarded.world.front(&all(&guarded.world, &[])));
    let answer = client.initialize();
    let instructions = answer["result"]["instructions"].as_str().expect("text");
    assert!(
        instructions.contains("mcp-sessiond login test"),
        "{instructions}"
    );
    assert_eq!(tools(&mut client), [""; 0]);
    guarded.login();
    client.said(|message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(tools(&mut client), ["whoami", "scoped"]);
    client.call("whoami", json!({}));
}

#[test]
#[ignore = "needs python3"]
fn the_refresh_token_goes_to_the_endpoint_of_the_login_alone() {
    let (guarded, other) = (Guarded::new(), Guarded::new());
    guarded.login();
    let port = other
        .server
        .url
        .trim_end_matches("/mcp")
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    guarded.control(&format!("token_port={port}"));
    guarded.expire();
    let mut process = guarded.process();
    process.line("");
    let said = process.said_next();
    let error = said["error"].as_str().expect("a sentence");
    assert!(
        error.contains("names another authorization server"),
        "{error}"
    );
    assert_eq!((other.count("posts"), guarded.count("refreshes")), (0, 0));
    // An error of the server's that it mends costs no login.
    guarded.control("token_port=0");
    let mut process = guarded.process();
    process.line("");
    token(&process.said_next());
}

#[test]
#[ignore = "needs python3"]
fn a_logout_needs_no_entry() {
    let key = json!({"headers": {"Authorization": "x"}});
    let unset = json!({"headers": {"X": "${env:NOBODY_HAS_SET_THIS}"}});
    let moved = json!({"url": "https://example.org/mcp"});
    for change in [Some(key), Some(unset), Some(moved), None] {
        let guarded = Guarded::new();
        guarded.login();
        let file = guarded.file();
        let mut entries = json!({"mcpServers": {}});
        if let Some(change) = &change {
            entries["mcpServers"]["test"] = json!({"url": guarded.server.url});
            for (name, value) in change.as_object().expect("an object") {
                entries["mcpServers"]["test"][name] = value.clone();
            }
        }
        std::fs::write(
            guarded.world.root().join("servers.json"),
            entries.to_string(),
        )
        .expect("written");
        let logout = || {
            guarded
                .world
                .sessiond(&["logout", "test"])
                .output()
                .expect("logout")
        };
        let first = logout();
        assert!(
            first.status.success(),
            "{change:?}: {}",
            String::from_utf8_lossy(&first.stderr)
        );
        assert!(
            String::from_utf8_lossy(&first.stdout).contains("are deleted") && !file.exists(),
            "{change:?}"
        );
        assert!(String::from_utf8_lossy(&logout().stdout).contains("not logged in"));
    }
}

#[test]
#[ignore = "needs python3"]
fn a_server_that_says_401_of_a_session_it_has_forgotten_gets_the_handshake_again() {
    let guarded = Guarded::new();
    guarded.login();
    let (mut connected, _) = guarded
        .world
        .connected(&guarded.server.url, &guarded.world.root().join("kept.json"));
    connected.initialize();
    let first = connected.text(1, "whoami", &json!({}));
    guarded.control("forget=1&lost_status=401");
    assert_eq!(connected.text(2, "whoami", &json!({})), first);
    assert_eq!(
        (guarded.count("handshakes"), guarded.count("refreshes")),
        (2, 0)
    );
}

#[test]
#[ignore = "needs python3"]
fn a_session_is_ready_for_a_next_process_once_the_server_has_taken_the_notification() {
    let guarded = Guarded::new();
    guarded.login();
    for (mute, is_ready) in [(1, false), (0, true)] {
        guarded.control(&format!("mute={mute}"));
        let file = guarded.world.root().join(format!("kept-{mute}.json"));
        let (mut connected, _) = guarded.world.connected(&guarded.server.url, &file);
        connected.initialize();
        connected.text(1, "whoami", &json!({}));
        connected.kill();
        let (_next, handshake) = guarded.world.connected(&guarded.server.url, &file);
        assert_eq!(handshake.is_object(), is_ready, "mute={mute}: {handshake}");
    }
}
