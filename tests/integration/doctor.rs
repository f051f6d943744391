//! `mcp-sessiond doctor`, on real directories, daemons and hosts' files.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mcp_sessiond_tests::{SmallDisk, World, signal, until};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use crate::wrap::{connect, tiny};
use crate::{needs_root, world};

/// What must never be said.
const SECRET: &str = "an-open-secret";
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn home(world: &World) -> PathBuf {
    world.root().join("home")
}

fn command(world: &World, words: &[&str]) -> Command {
    fs::create_dir_all(home(world)).expect("a directory");
    let mut command = world.sessiond(words);
    command.env("HOME", home(world)).stdin(Stdio::null());
    for variable in [
        "XDG_CONFIG_HOME",
        "CODEX_HOME",
        "CLAUDE_CONFIG_DIR",
        "NO_COLOR",
        "CLICOLOR_FORCE",
    ] {
        command.env_remove(variable);
    }
    command
}

/// The exit code, and what was printed.
fn run(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (said, errors) = (text(output.stdout), text(output.stderr));
    assert!(!said.contains(SECRET), "{said}");
    assert_eq!(errors, "", "{said}");
    (output.status.code(), said)
}

/// What `doctor --json` says.
struct Report {
    code: Option<i32>,
    whole: Value,
}

fn doctor(world: &World) -> Report {
    of(command(world, &["doctor", "--json"]))
}

fn of(command: Command) -> Report {
    let (code, said) = run(command);
    Report {
        code,
        whole: serde_json::from_str(&said).expect("JSON"),
    }
}

impl Report {
    fn findings(&self) -> &[Value] {
        self.whole["findings"].as_array().expect("findings")
    }

    /// `what` and `fix` of each finding with this outcome, with the check before them.
    fn with(&self, outcome: &str) -> Vec<String> {
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
        let of = self
            .findings()
            .iter()
            .filter(|one| one["outcome"] == outcome);
        of.map(|one| {
            format!(
                "{}: {} -> {}",
                text(one, "check"),
                text(one, "what"),
                text(one, "fix")
            )
        })
        .collect()
    }

    /// Asserts that this is the only problem, with all of these words in it.
    #[track_caller]
    fn assert_only_problem(&self, words: &[&str]) {
        let problems = self.with("problem");
        assert_eq!(
            (self.code, problems.len()),
            (Some(1), 1),
            "{:#}",
            self.whole
        );
        for word in words {
            assert!(problems[0].contains(word), "{word:?} in {problems:?}");
        }
        let verdict = self.whole["verdict"].as_str().expect("a verdict");
        assert!(verdict.starts_with("1 problem"), "{verdict}");
    }

    #[track_caller]
    fn assert_well(&self) {
        let verdict = self.whole["verdict"].as_str().expect("a verdict");
        assert!(
            self.code == Some(0) && verdict.starts_with("All is well"),
            "{:#}",
            self.whole
        );
    }

    /// Asserts that this is among those with this outcome.
    #[track_caller]
    fn assert_has(&self, outcome: &str, words: &[&str]) {
        let found = self.with(outcome);
        let has = found
            .iter()
            .any(|one| words.iter().all(|word| one.contains(word)));
        assert!(has, "{words:?} in {found:#?}");
    }
}

/// Writes a file below the home directory. Where it is.
fn write(world: &World, file: &str, text: &str) -> PathBuf {
    let file = home(world).join(file);
    fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
    fs::write(&file, text).expect("written");
    file
}

#[test]
fn without_a_daemon_and_a_service_all_is_well() {
    let world = world("");
    let (code, said) = run(command(&world, &["doctor"]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.lines().last(), Some("All is well."), "{said}");
    assert!(
        said.contains("none was running, which is normal")
            && said.contains("a value written, read and removed"),
        "{said}"
    );
    let is_long = |line: &&str| line.chars().count() > 80 && line.split_whitespace().count() > 1;
    assert!(
        !said.contains('\u{1b}') && !said.lines().any(|line| is_long(&line)),
        "{said}"
    );
    let words: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with(char::is_alphabetic))
        .collect();
    assert!(
        words
            .iter()
            .all(|line| line.starts_with("ok ") || *line == "All is well."),
        "{said}"
    );
    // The daemon that was started is one as any client starts it, and nothing of this is left with
    // it.
    assert_eq!(world.about()["started_by"], "on_demand");
    assert_eq!((world.sessions(), world.token_files()), (vec![], vec![]));
    let left: Vec<_> = fs::read_dir(world.directory())
        .expect("there")
        .map(|entry| entry.expect("one").file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("doctor")),
        "{left:?}"
    );

    // Colours are for those who can see them.
    let mut coloured = command(&world, &["doctor"]);
    coloured.env("CLICOLOR_FORCE", "1");
    assert!(run(coloured).1.contains("\u{1b}[32mok"));
    let mut plain = command(&world, &["doctor"]);
    plain.env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1");
    assert!(!run(plain).1.contains('\u{1b}'));
}

#[test]
fn with_a_daemon_nothing_of_its_sessions_is_touched() {
    let world = world("");
    let daemon = world.daemon();
    let host = world.host();
    let mut instance = host.instance(&[]);
    let session = instance.first_run("a token").session();
    let before = world.sessions();
    let said = doctor(&world);
    said.assert_well();
    said.assert_has("ok", &["daemon: answers", VERSION, "started by hand"]);
    said.assert_has("ok", &["claim: ", "written, read and removed"]);
    assert_eq!(world.sessions(), before);
    instance.kill();
    host.instance(&[])
        .load()
        .assert_resumed(&session, Some("a token"));
    assert_eq!(daemon.log().lines("WARN"), Vec::<String>::new());
}

#[test]
fn json_has_the_documented_fields() {
    let world = world("");
    write(
        &world,
        ".cursor/mcp.json",
        &json!({"mcpServers": {"a": {"command": "npx"}}}).to_string(),
    );
    let Report { whole, .. } = doctor(&world);
    let names = |value: &Value| {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&whole),
        ["findings", "notes", "problems", "verdict", "version"]
    );
    assert_eq!(
        (&whole["version"], &whole["problems"], &whole["notes"]),
        (&json!(VERSION), &json!(0), &json!(1))
    );
    for finding in whole["findings"].as_array().expect("findings") {
        let expected: &[&str] = match finding["outcome"].as_str() {
            Some("ok") => &["check", "outcome", "what"],
            Some("note" | "problem") => &["check", "fix", "outcome", "what"],
            other => panic!("{other:?}"),
        };
        assert_eq!(names(finding), expected);
    }
}

#[test]
fn a_configuration_that_is_wrong_is_said_with_its_line_and_without_its_secrets() {
    let world = world(&format!(
        "log = \"info\"\nstorage = \"postgres://me:{SECRET}@db/x\"\n"
    ));
    // None runs, and one that a client starts does with what can be read.
    let said = doctor(&world);
    said.assert_has("problem", &["config: ", "config.toml: line 2", "kill -HUP"]);
    world.kill_any_daemon();

    world.configure("");
    let daemon = world.daemon();
    world.configure("claim_wait_ms = 1\nno_such_setting = 1\n");
    doctor(&world).assert_only_problem(&[
        "config: ",
        "config.toml: line 2",
        "correct ",
        "config.toml",
    ]);
    world.configure("");
    doctor(&world).assert_well();

    let servers = world.root().join("servers.json");
    fs::write(&servers, format!("{{\"mcpServers\": {{\n\"a\": {SECRET}\n")).expect("written");
    doctor(&world).assert_only_problem(&["servers: ", "servers.json is not JSON, at line 2"]);
    let entries = json!({"mcpServers": {"a": {"args": [SECRET]}, "b": {"command": "npx"}}});
    fs::write(&servers, entries.to_string()).expect("written");
    doctor(&world).assert_only_problem(&["servers: ", "\"a\"", "neither a `command` nor a `url`"]);
    drop(daemon);
}

#[test]
fn a_directory_that_others_may_enter_is_a_problem_and_nothing_is_started_there() {
    let world = world("");
    fs::create_dir(world.directory()).expect("made");
    fs::set_permissions(world.directory(), fs::Permissions::from_mode(0o755)).expect("ours");
    let shown = world.directory().display().to_string();
    doctor(&world).assert_only_problem(&[
        "directory: ",
        "has mode 0755",
        &format!("`chmod 700 {shown}`"),
    ]);
    assert_eq!(fs::read_dir(world.directory()).expect("there").count(), 0);
    fs::set_permissions(world.directory(), fs::Permissions::from_mode(0o700)).expect("ours");
    doctor(&world).assert_well();
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_is_a_problem_and_a_nearly_full_one_a_note() {
    needs_root("to mount a small file system");
    let world = world("storage.url = \"memory:\"\n");
    fs::create_dir(world.directory()).expect("made");
    let directory = world.directory();
    let _disk = SmallDisk::mount(&directory, "8m");
    let _daemon = world.daemon();
    let said = doctor(&world);
    said.assert_well();
    said.assert_has("note", &["directory: ", "left", "df -h"]);
    let mut file = fs::File::create(directory.join("filler")).expect("a file");
    std::io::copy(&mut std::io::repeat(1), &mut file).expect_err("no disk is endless");
    doctor(&world).assert_has(
        "problem",
        &["directory: ", "No space left on device", "df -h"],
    );
    fs::remove_file(directory.join("filler")).expect("room again");
    // What the disk has refused meanwhile the daemon tries again in its own time.
    until("all is well", || {
        (doctor(&world).code == Some(0)).then_some(())
    });
}

#[test]
fn a_database_where_there_is_no_directory_is_a_problem_with_the_command_that_makes_it() {
    let world = world("");
    let missing = world.root().join("missing");
    world.configure(&format!(
        "storage.url = \"sqlite:{}\"",
        missing.join("contents.db").display()
    ));
    doctor(&world)
        .assert_only_problem(&["storage: ", &format!("`mkdir -p {}`", missing.display())]);
}

#[test]
#[ignore = "needs python3"]
fn a_daemon_of_another_version_is_noted_with_the_command_that_replaces_it() {
    let world = world("");
    let daemon = world.daemon();
    let other: String = VERSION
        .chars()
        .map(|digit| if digit.is_ascii_digit() { '9' } else { digit })
        .collect();
    let other_version = world.of_version([VERSION, &other]);
    let mut doctor = command(&world, &["doctor", "--json"]);
    doctor.env("MCP_SESSIOND_DIR", &other_version.directory);
    let said = of(doctor);
    said.assert_well();
    let kill = format!("`kill {}`", daemon.pid());
    said.assert_has(
        "note",
        &[
            "daemon: ",
            &format!("is version {other}"),
            &format!("executable is {VERSION}"),
            &kill,
        ],
    );
}

/// Writes the units of the service, as `install` does, with this executable.
#[cfg(target_os = "linux")]
fn install(world: &World, binary: &Path) {
    let unit = format!("[Service]\nExecStart={} run\n", binary.display());
    write(world, ".config/systemd/user/mcp-sessiond.service", &unit);
    write(
        world,
        ".config/systemd/user/mcp-sessiond.socket",
        "[Socket]\n",
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_service_whose_executable_is_gone_is_a_problem_and_another_version_a_note() {
    let world = world("");
    let _daemon = world.daemon();
    let gone = world.root().join("gone/mcp-sessiond");
    install(&world, &gone);
    let shown = gone.display().to_string();
    doctor(&world).assert_only_problem(&[
        "service: ",
        &shown,
        "which is not there",
        "`mcp-sessiond install`",
    ]);

    let former = write(
        &world,
        "bin/mcp-sessiond",
        "#!/bin/sh\necho mcp-sessiond 0.0.1\n",
    );
    fs::set_permissions(&former, fs::Permissions::from_mode(0o755)).expect("ours");
    install(&world, &former);
    let said = doctor(&world);
    said.assert_well();
    said.assert_has(
        "note",
        &["service: ", "is version 0.0.1", "`mcp-sessiond install`"],
    );
}

#[cfg(target_os = "linux")]
#[test]
fn of_a_service_that_the_manager_can_not_be_asked_about_nothing_is_claimed() {
    let world = world("");
    let _daemon = world.daemon();
    write(
        &world,
        ".config/systemd/user/mcp-sessiond-serve@browser.service",
        "[Service]\n",
    );
    let here = |words: &[&str]| {
        let mut command = command(&world, words);
        command
            .env("XDG_RUNTIME_DIR", world.root())
            .env_remove("DBUS_SESSION_BUS_ADDRESS");
        command
    };
    let said = of(here(&["doctor", "--json"]));
    said.assert_well();
    said.assert_has(
        "note",
        &["serve: ", "systemd does not say whether", "browser"],
    );
    let (code, text) = run(here(&["service"]));
    let line = text
        .lines()
        .find(|line| line.contains("serve.browser"))
        .expect("a line");
    assert!(code == Some(0) && line.ends_with("not known"), "{text}");
}

#[test]
fn each_entry_of_a_host_s_file_is_told_and_setup_mends_what_it_can() {
    let world = world("");
    let _daemon = world.daemon();
    let servers = tiny(&world);
    let entries = json!({"mcpServers": {
        "gone": {"command": "/no/such/mcp-sessiond", "args": ["wrap", "--", "npx", "--token", SECRET]},
        "open": {"command": servers[0], "args": [SECRET], "env": {"TOKEN": SECRET}},
        "bare": {"command": "mcp-sessiond", "args": ["wrap", "--", "npx", SECRET]},
        "far": {"url": format!("https://example.com/?key={SECRET}")},
    }});
    let file = write(&world, ".cursor/mcp.json", &entries.to_string());
    let codex = "[mcp_servers.alone]\ncommand = \"npx\"\n";
    write(&world, ".codex/config.toml", codex);
    let said = doctor(&world);
    said.assert_only_problem(&[
        "setup: cursor: \"gone\"",
        "/no/such/mcp-sessiond",
        "`mcp-sessiond setup cursor`",
    ]);
    said.assert_has(
        "note",
        &[
            "setup: cursor: \"open\"",
            "could be",
            "`mcp-sessiond setup cursor`",
        ],
    );
    said.assert_has("ok", &["setup: cursor: \"far\"", "remote server"]);
    said.assert_has("ok", &["setup: cursor: \"bare\"", "is wrapped"]);
    said.assert_has("ok", &["setup: codex: \"alone\"", "nothing would be kept"]);
    let is_found = ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .any(|place| Path::new(place).join("mcp-sessiond").exists());
    if is_found {
        said.assert_has("ok", &["path: "]);
    } else {
        said.assert_has("note", &["path: ", "cursor (\"bare\")", "/usr/local/bin"]);
    }

    let setup = command(&world, &["setup", "cursor", "--yes"])
        .output()
        .expect("setup");
    assert!(setup.status.success(), "{setup:?}");
    let said = doctor(&world);
    said.assert_well();
    said.assert_has(
        "ok",
        &["setup: cursor: \"bare\", \"gone\", \"open\"", "are wrapped"],
    );

    // An update of the host has written an entry anew.
    let mut now: Value =
        serde_json::from_slice(&fs::read(&file).expect("it is there")).expect("JSON");
    now["mcpServers"]["open"] = entries["mcpServers"]["open"].clone();
    fs::write(&file, now.to_string()).expect("written");
    let said = doctor(&world);
    said.assert_well();
    let what = [
        "setup: cursor: \"open\"",
        "was wrapped by `setup`, and no longer is",
        "`mcp-sessiond setup cursor`",
    ];
    said.assert_has("note", &what);

    fs::write(&file, format!("{{\"mcpServers\": {{\n\"a\": {SECRET}")).expect("written");
    let said = doctor(&world);
    said.assert_well();
    said.assert_has("note", &["setup: cursor: ", "line 2"]);
}

#[test]
fn a_keeper_that_does_not_answer_is_a_problem() {
    let world = world("");
    let _daemon = world.daemon();
    let _client = connect(&world, &tiny(&world));
    let said = doctor(&world);
    said.assert_well();
    said.assert_has("ok", &["kept: 1 server is kept"]);
    let keeper = world.backend().keeper;
    signal(keeper, Signal::SIGSTOP);
    doctor(&world)
        .assert_only_problem(&["kept: ", &format!("`mcp-sessiond stop {keeper}` ends it")]);
    signal(keeper, Signal::SIGCONT);
}

#[test]
fn a_file_that_the_daemon_has_not_read_since_it_was_edited_is_noted() {
    let world = world("");
    let daemon = world.daemon();
    world.configure("claim_wait_ms = 17\n");
    let said = doctor(&world);
    said.assert_well();
    said.assert_has(
        "note",
        &[
            "config: ",
            "of claim_wait_ms",
            &format!("`kill -HUP {}`", daemon.pid()),
        ],
    );
    world.configure("claim_wait_ms = 17\nstorage.url = \"memory:\"\n");
    doctor(&world).assert_has(
        "note",
        &[
            "of claim_wait_ms, storage.url",
            &format!("`kill {}`", daemon.pid()),
        ],
    );
    daemon.signal(Signal::SIGHUP);
    world.configure("claim_wait_ms = 17\n");
    daemon.signal(Signal::SIGHUP);
    until("it has read it", || {
        doctor(&world).with("note").is_empty().then_some(())
    });
}

/// What a daemon uses at its start alone is not in force after SIGHUP, and nobody says that it is.
#[test]
fn a_setting_that_waits_for_a_restart_is_said_to_wait() {
    let world = world("");
    let daemon = world.daemon();
    let setting = |name: &str| {
        let output = world.sessiond(&["config", "--json"]).output();
        let settings: Value =
            serde_json::from_slice(&output.expect("it runs").stdout).expect("JSON");
        let found = settings
            .as_array()
            .expect("a list")
            .iter()
            .find(|one| one["name"] == name);
        found.expect("there").clone()
    };
    assert_eq!(setting("storage.durability").get("pending"), None);
    world.configure(
        "claim_wait_ms = 17\nstorage.durability = \"power\"\nbackends.closes = 7\nbundle.init_concurrency = 7\n",
    );
    daemon.signal(Signal::SIGHUP);
    let logged = |what: &str| world.log.wait(what);
    logged("storage.durability: \"process\" -> \"power\"; it applies when the daemon is restarted");
    assert!(logged("claim_wait_ms: ").trim_end().ends_with("-> 17"));
    logged("backends.closes: 3 -> 7; servers that run already keep the previous value");
    logged("8 -> 7; each `wrap` and `serve` reads it when it starts");
    let durability = setting("storage.durability");
    assert_eq!(
        (
            &durability["value"],
            &durability["source"],
            &durability["pending"]
        ),
        (
            &json!("\"process\""),
            &json!("default"),
            &json!("\"power\"")
        )
    );
    let claim_wait = setting("claim_wait_ms");
    assert_eq!(
        (&claim_wait["value"], claim_wait.get("pending")),
        (&json!("17"), None)
    );
    let text = world.sessiond(&["config"]).output().expect("it runs");
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(text.contains("AFTER A RESTART OF THE DAEMON"), "{text}");
    doctor(&world).assert_has(
        "note",
        &["of storage.durability", &format!("`kill {}`", daemon.pid())],
    );
    // Taken back, nothing waits.
    world.configure("claim_wait_ms = 17\n");
    daemon.signal(Signal::SIGHUP);
    logged("storage.durability: \"power\" -> \"process\"");
    assert_eq!(setting("storage.durability").get("pending"), None);
}

#[test]
fn files_that_are_none_and_servers_that_miss_something_are_found() {
    let world = world("");
    let _daemon = world.daemon();
    let servers = world.root().join("servers.json");
    let entries = json!({"mcpServers": {
        "fine": {"command": "x", "args": ["${env:NOT_SET_HERE}"], "cwd": "${env:NOT_SET_HERE}"},
        "in": {"command": "x", "cwd": "/no/such/directory"},
        "with": {"command": "x", "env": {"KEY": "${file:/no/such/file}"}},
    }});
    fs::write(&servers, entries.to_string()).expect("written");
    let problems = doctor(&world).with("problem");
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].contains("\"in\"") && problems[1].contains("/no/such/file"),
        "{problems:?}"
    );

    fs::remove_file(&servers).expect("removed");
    symlink("/no/such/file", &servers).expect("linked");
    doctor(&world).assert_has(
        "note",
        &["servers: ", "a symbolic link to a file that is not there"],
    );
    fs::remove_file(&servers).expect("removed");
    mkfifo(&servers, Mode::S_IRWXU).expect("made");
    doctor(&world).assert_only_problem(&["servers: ", "is not a file"]);
}
