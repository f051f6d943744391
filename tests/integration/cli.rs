//! The command line, as people script against it.

use std::collections::HashSet;
use std::io::Write;
use std::process::{Output, Stdio};

use mcp_sessiond_tests::{Client, Server, World, until};
use serde_json::{Value, json};

use crate::wrap::counter;
use crate::{fixture, world};

/// The flow of version 1, by a server without a library: it answers each command with an exit code
/// and what was printed.
fn goes_through_the_whole_flow(world: &World, start: &dyn Fn() -> Server) {
    let mut server = start();
    assert_eq!(server.ask("load"), "3", "there is nothing to resume");
    assert_eq!(server.ask("store one"), "0");
    assert_eq!(server.ask("load"), "0 one");
    for round in 0..3 {
        server.kill();
        server = start();
        let before = if round == 0 {
            "one".to_owned()
        } else {
            format!("round {}", round - 1)
        };
        assert_eq!(server.ask("load"), format!("0 {before}"));
        assert_eq!(server.ask(&format!("store round {round}")), "0");
    }
    assert_eq!(world.stat("sessions"), 1);
    assert_eq!(server.ask("reject"), "0");
    assert_eq!(server.ask("load"), "3");
    assert_eq!(
        server.ask("reject"),
        "0",
        "there was none, which is as good"
    );
    server.kill();
    assert_eq!(start().ask("load"), "3");
}

#[test]
fn a_shell_script_needs_no_library() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let script = fixture("shell/server.sh");
    goes_through_the_whole_flow(&world, &|| host.server(&[&script, world.binaries.daemon]));
    host.log
        .wait("Token file not found (first run or clean slate)");
    host.log.wait("Session resumed successfully");
    host.log
        .wait("Broker rejected resume token, starting fresh session");
}

#[test]
fn bash_and_its_dying_subshells_too() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let script = fixture("shell/server.sh");
    goes_through_the_whole_flow(&world, &|| {
        host.server(&["bash", &script, world.binaries.daemon])
    });
}

#[test]
#[ignore = "needs python3"]
fn python_needs_no_library() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let script = fixture("python/server.py");
    goes_through_the_whole_flow(&world, &|| {
        host.server(&["python3", &script, "command", world.binaries.daemon])
    });
}

#[test]
fn two_scripts_that_differ_in_one_argument_never_meet() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let script = fixture("shell/server.sh");
    let start = |name: &str| host.server(&[&script, world.binaries.daemon, name]);
    for name in ["a", "b"] {
        let mut server = start(name);
        assert_eq!(server.ask(&format!("store {name}")), "0");
        server.kill();
    }
    for name in ["b", "a"] {
        assert_eq!(start(name).ask("load"), format!("0 {name}"));
    }
}

/// Runs the command with this on standard input. Its caller is the test, which is the instance.
fn run(world: &World, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = world.sessiond(arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    // Whoever wants no input may be gone already.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().expect("ended")
}

fn code(world: &World, arguments: &[&str], input: &[u8]) -> Option<i32> {
    run(world, arguments, input).status.code()
}

#[test]
fn a_token_is_printed_byte_for_byte() {
    let world = world("");
    let _daemon = world.daemon();
    let all: Vec<u8> = (0..=255).cycle().take(65_536).collect();
    for token in [&b"\n"[..], b"\0", b"two\nlines\n", &all] {
        assert_eq!(code(&world, &["token", "store"], token), Some(0));
        let loaded = run(&world, &["token", "load"], b"");
        assert_eq!((loaded.status.code(), &*loaded.stdout), (Some(0), token));
    }
}

#[test]
fn exit_codes_say_what_happened() {
    let world = world("");
    // No daemon, and none to be started.
    for verb in ["load", "store", "reject"] {
        assert_eq!(
            code(&world, &["token", verb, "--no-start"], b"x"),
            Some(4),
            "{verb}"
        );
    }
    assert_eq!(code(&world, &["status"], b""), Some(0), "nothing is kept");
    for topic in [&["debug"][..], &["debug", "sessions"], &["stats", "--json"]] {
        assert_eq!(code(&world, topic, b""), Some(69), "{topic:?}");
    }
    let _daemon = world.daemon();
    assert_eq!(code(&world, &["token", "load"], b""), Some(3));
    // Refused, with the reason.
    for (token, reason) in [(&b""[..], "empty"), (&[b'x'; 65_537], "65536")] {
        let refused = run(&world, &["token", "store"], token);
        assert_eq!(refused.status.code(), Some(65));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(reason), "{said}");
    }
    assert_eq!(
        code(&world, &["token", "load"], b""),
        Some(3),
        "nothing was stored"
    );
    // Nobody's ancestor.
    let refused = run(&world, &["token", "load", "--for", "1"], b"");
    assert_eq!(refused.status.code(), Some(4));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("--for"),
        "{refused:?}"
    );
    // Bad usage.
    let bad = [
        &["token"][..],
        &["token", "steal"],
        &["token", "load", "--for", "me"],
        &["token", "load", "--instance", ""],
        &["token", "load", "--siblings", "newest"],
        &["debug", "secrets"],
    ];
    for arguments in bad {
        assert_eq!(code(&world, arguments, b""), Some(64), "{arguments:?}");
    }
    for help in [
        &["--help"][..],
        &["token", "load", "--help"],
        &["--version"],
    ] {
        assert_eq!(code(&world, help, b""), Some(0), "{help:?}");
    }
}

/// The verbs that `--help` and its topics list, but `help`.
pub(crate) fn verbs(world: &World) -> Vec<String> {
    let lists = [&["--help"][..], &["help", "authors"], &["help", "more"]];
    let listed = lists.map(|words| {
        let list = String::from_utf8(run(world, words, b"").stdout).expect("UTF-8");
        let lines = list.lines().take_while(|line| *line != "Options:");
        // A longer line goes on below.
        let verbs = lines.filter_map(|line| {
            line.strip_prefix("  ")
                .filter(|rest| !rest.starts_with(' '))
        });
        let first = verbs.filter_map(|line| line.split_whitespace().next());
        first.map(str::to_owned).collect::<Vec<_>>()
    });
    let listed = listed.into_iter().flatten();
    listed.filter(|verb| verb != "help").collect()
}

#[test]
fn every_verb_has_help_with_an_example() {
    let world = world("");
    let verbs = verbs(&world);
    for known in [
        "wrap",
        "setup",
        "status",
        "doctor",
        "serve",
        "token",
        "man",
        "completions",
    ] {
        assert!(verbs.iter().any(|verb| verb == known), "{known}: {verbs:?}");
    }
    assert!(
        !verbs.iter().any(|verb| verb == "keep"),
        "it is hidden: {verbs:?}"
    );
    let more = [
        &["token", "load"][..],
        &["token", "store"],
        &["token", "reject"],
    ];
    let all = verbs.iter().map(|verb| vec![verb.as_str()]);
    for verb in all.chain(more.map(<[_]>::to_vec)) {
        let help = run(&world, &[&verb[..], &["--help"]].concat(), b"");
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        assert!(
            help.status.success() && text.contains("Example"),
            "{verb:?}: {text}"
        );
    }
}

#[test]
fn what_packages_install_beside_the_executable_is_printed() {
    let world = world("");
    for (shell, check) in [("bash", "bash"), ("zsh", ""), ("fish", "")] {
        let script = run(&world, &["completions", shell], b"");
        assert_eq!(script.status.code(), Some(0), "{script:?}");
        let text = String::from_utf8_lossy(&script.stdout);
        assert!(text.contains("MCP_SESSIOND_COMPLETE"), "{shell}");
        // zsh reads the file at the first Tab of a shell, which has to complete, too.
        let completes_at_once = text.contains("$funcstack[1] != _mcp-sessiond");
        assert_eq!(completes_at_once, shell == "zsh", "{text}");
        if !check.is_empty() {
            let path = world.root().join("completions");
            std::fs::write(&path, &script.stdout).expect("written");
            let parsed = std::process::Command::new(check)
                .arg("-n")
                .arg(&path)
                .output()
                .expect("it runs");
            assert!(parsed.status.success(), "{parsed:?}");
        }
    }
    assert_eq!(code(&world, &["completions", "csh"], b""), Some(64));
    let page = run(&world, &["man"], b"");
    assert!(
        String::from_utf8_lossy(&page.stdout).contains(".TH mcp-sessiond 1"),
        "{page:?}"
    );
    let pages = world.root().join("man1");
    let to = pages.to_str().expect("UTF-8");
    assert_eq!(code(&world, &["man", "--to", to], b""), Some(0));
    for page in [
        "mcp-sessiond.1",
        "mcp-sessiond-wrap.1",
        "mcp-sessiond-token-load.1",
    ] {
        assert!(pages.join(page).is_file(), "{page}");
    }
    let refused = run(&world, &["man", "--to", "/proc/no/such"], b"");
    assert_eq!(refused.status.code(), Some(73), "{refused:?}");
}

#[test]
fn without_a_verb_a_program_gets_the_help_and_a_code() {
    let world = world("");
    let refused = run(&world, &[], b"");
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("Every day:"),
        "{refused:?}"
    );
}

#[test]
fn settings_and_figures_have_verbs_of_their_own() {
    let world = world("");
    let _daemon = world.daemon();
    let settings = json_of(&world, &["config", "--json"]);
    assert!(
        settings
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["name"] == "claim_wait_ms")),
        "{settings}"
    );
    let counted = run(&world, &["stats", "--prometheus"], b"");
    assert!(
        String::from_utf8_lossy(&counted.stdout).contains("mcp_sessiond_claims_total"),
        "{counted:?}"
    );
}

/// The rows of a story, all of which are as expected. Nothing is left of it.
fn played(words: &[&str]) -> Vec<Value> {
    let world = world("");
    let mut command = world.sessiond(&[&["demo"], words, &["--json"]].concat());
    let story = command.stdout(Stdio::piped()).spawn().expect("spawned");
    let directory = format!("/tmp/mcp-sessiond-demo-{}", story.id());
    let played = story.wait_with_output().expect("it ends");
    assert_eq!(played.status.code(), Some(0), "{played:?}");
    let said = String::from_utf8(played.stdout).expect("UTF-8");
    let rows: Vec<Value> = said
        .lines()
        .map(|row| serde_json::from_str(row).expect("JSON"))
        .collect();
    assert!(rows.iter().all(|row| row["as_expected"] == true), "{said}");
    assert!(!std::path::Path::new(&directory).exists());
    rows
}

#[test]
fn demo_shows_that_a_wrapped_server_outlives_what_is_killed() {
    let counts = [
        "count: 1 ",
        "count: 2 ",
        "count: 1 ",
        "count: 1 ",
        "count: 2 ",
        "count: 3 ",
        "count: 4 ",
        "count: 1 ",
    ];
    let rows = played(&[]);
    let said: Vec<&str> = rows
        .iter()
        .filter_map(|row| row["expected"].as_str())
        .collect();
    let found: Vec<&str> = said
        .iter()
        .filter(|row| row.starts_with("count"))
        .map(|row| &row[..9])
        .collect();
    assert_eq!(found, counts);
    assert_eq!(rows.len(), counts.len() + 3, "{rows:?}");
}

#[test]
fn demo_token_shows_who_finds_which_session() {
    assert_eq!(played(&["token"]).len(), 15);
}

#[test]
fn a_token_can_be_kept_under_a_label() {
    let world = world("");
    let _daemon = world.daemon();
    for label in ["a", "b"] {
        assert_eq!(
            code(
                &world,
                &["token", "store", "--instance", label],
                label.as_bytes()
            ),
            Some(0)
        );
    }
    for label in ["a", "b"] {
        assert_eq!(
            run(&world, &["token", "load", "--instance", label], b"").stdout,
            label.as_bytes()
        );
    }
    assert_eq!(
        code(&world, &["token", "load", "--instance", "c"], b""),
        Some(3)
    );
}

#[test]
fn token_starts_a_daemon_where_none_runs() {
    let world = world("idle_exit_ms = 600000");
    assert_eq!(code(&world, &["token", "store"], b"one"), Some(0));
    assert_eq!(run(&world, &["token", "load"], b"").stdout, b"one");
    assert_eq!(world.about()["started_by"], "on_demand");
}

fn json_of(world: &World, arguments: &[&str]) -> Value {
    let output = run(world, arguments, b"");
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

#[test]
fn debug_shows_what_there_is_and_no_secrets() {
    let world = world("claim_wait_ms = 0");
    let _daemon = world.daemon();
    let host = world.host();
    let mut instances: Vec<_> = (0..3)
        .map(|n| host.instance(&["--label", &format!("l{n}")]))
        .collect();
    for instance in &mut instances {
        instance.first_run("hunter2");
    }
    instances[0].kill();
    let hosts = json_of(&world, &["debug", "hosts", "--json"]);
    assert_eq!(
        (&hosts[0]["pid"], &hosts[0]["sessions"], &hosts[0]["held"]),
        (&json!(host.pid()), &json!(3), &json!(2))
    );
    let sessions = json_of(&world, &["debug", "sessions", "--json"]);
    let labels: HashSet<&str> = sessions
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|session| session["label"].as_str())
        .collect();
    assert_eq!(labels, HashSet::from(["l0", "l1", "l2"]));
    let tokens = json_of(&world, &["debug", "tokens", "--json"]);
    assert_eq!(tokens.as_array().map(Vec::len), Some(3));
    assert!(
        tokens
            .as_array()
            .expect("a list")
            .iter()
            .all(|token| token["bytes"] == 7 && token["state"] == "ok")
    );
    let settings = json_of(&world, &["config", "--json"]);
    let wait = settings
        .as_array()
        .expect("a list")
        .iter()
        .find(|setting| setting["name"] == "claim_wait_ms");
    assert_eq!(
        wait,
        Some(&json!({"name": "claim_wait_ms", "value": "0", "source": "file"}))
    );
    json_of(&world, &["stats", "--json"]);
    json_of(&world, &["debug", "about", "--json"]);
    for topic in [
        &["debug"][..],
        &["debug", "about"],
        &["debug", "hosts"],
        &["debug", "sessions"],
        &["debug", "tokens"],
        &["stats"],
        &["config"],
    ] {
        let output = run(&world, topic, b"");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && !text.is_empty(),
            "{topic:?}: {output:?}"
        );
        assert!(
            !text.contains('\u{1b}'),
            "colours are for terminals: {text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn doctor_shows_the_way_to_the_host() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut server = host.server(&[
        "sh",
        "-c",
        "\"$0\" doctor --json --for $$ | tr -d '\\n'; echo; read end",
        world.binaries.daemon,
    ]);
    let check: Value = serde_json::from_str(&server.read()).expect("JSON");
    let text = check.to_string();
    assert!(text.contains(&host.pid().to_string()), "{text}");
}

#[test]
fn debug_shows_what_takes_several_pages() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    let mut claim = |n: usize| {
        peer.call("claim", json!({ "label": format!("l{n}") }))
            .expect("a session")
    };
    let claimed: HashSet<String> = (0..250).map(|n| claim(n)["session"].to_string()).collect();
    let shown = json_of(&world, &["debug", "sessions", "--json"]);
    let shown = shown.as_array().expect("a list");
    assert_eq!(shown.len(), 250, "none twice");
    assert_eq!(
        shown
            .iter()
            .map(|info| info["session"].to_string())
            .collect::<HashSet<_>>(),
        claimed
    );
}

#[test]
fn a_host_gets_all_of_a_usage_error() {
    let world = world("");
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    let refused = run(&world, &["wrap"], format!("{initialize}\n").as_bytes());
    let answer: Value = serde_json::from_slice(&refused.stdout).expect("an answer");
    let message = answer["error"]["message"].as_str().expect("an error");
    assert!(
        message.contains("the following required arguments were not provided: <CMD>..."),
        "{message}"
    );
}

#[test]
fn install_refuses_what_is_no_option() {
    let world = world("");
    for (word, expected) in [
        ("--dry-rn", "did you mean --dry-run?"),
        ("--bogus", "`install` has no option or argument \"--bogus\""),
    ] {
        let refused = run(&world, &["install", word], b"");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(64), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_port_in_use_is_refused_with_the_process_that_has_it() {
    let world = world("");
    let _daemon = world.daemon();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = taken.local_addr().expect("an address").to_string();
    let words = ["serve", "--name", "x", "--listen", &at, "--", "true"];
    let refused = run(&world, &words, b"");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_ne!(refused.status.code(), Some(0), "{text}");
    let pid = format!("(pid {}) listens there", std::process::id());
    assert!(text.contains(&pid), "{text}");
}

#[test]
fn status_tells_of_setup_what_is_still_to_do() {
    let world = world("");
    let home = world.root().join("home");
    std::fs::create_dir_all(home.join(".cursor")).expect("a directory");
    let file = r#"{"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"]}}}"#;
    std::fs::write(home.join(".cursor/mcp.json"), file).expect("a host's file");
    let of_home = |words: &[&str]| {
        let mut command = world.sessiond(words);
        command.env("HOME", &home).env_remove("XDG_CONFIG_HOME");
        let output = command.stdin(Stdio::null()).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.replace("\n  ", " ")
    };
    let before = of_home(&["status"]);
    assert!(before.contains("run `mcp-sessiond setup`"), "{before}");
    of_home(&["setup", "cursor", "--yes"]);
    let after = of_home(&["status"]);
    assert!(
        after.contains("has wrapped servers of Cursor") && after.contains("restart it"),
        "{after}"
    );
}

/// A server that its user has stopped has a row, and its log can still be read.
#[test]
fn a_stopped_server_is_shown_as_not_running() {
    let world = world("idle_exit_ms = 600000\n");
    let started = world.sessiond(&["run", "--on-demand"]).status();
    assert!(started.expect("started").success());
    let words = world.wrapping(&["--entry", "browser"], &counter(&world));
    let mut host = Client::connected(world.front(&words));
    assert_eq!(host.count(), 1);
    let said = |words: &[&str]| {
        let output = run(&world, words, b"");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    assert!(said(&["status"]).1.contains("in use"));
    assert_eq!(said(&["stop", "browser"]).0, Some(0));
    // The daemon sees the end a moment later than `stop`.
    until("it is shown as not running", || {
        let shown = said(&["status"]).1;
        let row = shown.lines().find(|line| line.starts_with("browser "))?;
        row.contains("not running").then_some(())
    });
    let (code, _, errors) = said(&["restart", "browser"]);
    assert!(
        code == Some(66) && errors.contains("browser is not running; it starts when"),
        "{errors}"
    );
    let (code, lines, errors) = said(&["logs", "browser"]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        lines.contains("a server was started") && errors.contains("browser does not run now"),
        "{lines}{errors}"
    );
    assert_eq!(said(&["logs", "nobody"]).0, Some(66));
    assert_eq!(host.count(), 1, "a fresh one");
    assert!(said(&["status"]).1.contains("in use"));
}
