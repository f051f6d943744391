//! Every command that the pages and `--help` show is run as it stands there, or by a test that is
//! named here.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions, read_to_string};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use mcp_sessiond_tests::{Client, Front, World, copy_program};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::sessions::create;
use crate::wrap::tiny;
use crate::{fixture, world};

/// Commands that end, in the order in which they are run, and their exit codes.
const ENDS: &[(&str, i32)] = &[
    ("status", 0),
    ("status --json", 0),
    ("logs -n 20 browser", 0),
    ("doctor", 0),
    (
        r#"doctor --json | jq '.findings[] | select(.outcome != "ok")'"#,
        0,
    ),
    ("doctor --for $$ >&2", 0),
    ("import", 0),
    ("import --from claude --dry-run", 0),
    ("import --from claude files issues", 0),
    ("import --from claude files", 0),
    ("setup", 0),
    ("setup claude-desktop --only browser", 0),
    ("setup claude --file .mcp.json", 0),
    ("setup --undo", 0),
    (
        r#"if token=$(mcp-sessiond token load --for $$); then echo "resuming"; fi"#,
        0,
    ),
    (
        r#"printf %s "$new_token" | mcp-sessiond token store --for $$"#,
        0,
    ),
    (
        r#"printf %s "$token" | mcp-sessiond token store --for $$"#,
        0,
    ),
    ("token load --for $$ >token.bin", 3),
    ("token reject --for $$", 0),
    (
        "count=$(mcp-sessiond state get count --for $$ || echo 0)",
        0,
    ),
    ("state set count $((count + 1)) --for $$", 0),
    (
        r#"state set cart '["apples"]' --service web --session 7"#,
        0,
    ),
    ("state get cart --service web --session 7", 0),
    (
        "date +%s | mcp-sessiond state set seen --expires 3600 --for $$",
        0,
    ),
    ("state list --json --for $$", 0),
    ("state remove cart --for $$", 0),
    (
        "stream append call-7 --close --service web --session 7 <messages",
        0,
    ),
    ("stream append _GET_stream --service web --session 7", 0),
    (
        r#"stream replay call-7 --after "$last_event_id" --service web --session 7"#,
        0,
    ),
    ("stream replay call-7 --service web --session 7", 0),
    (
        "id=$(mcp-sessiond task run --service web --session 7 -- make report &)",
        0,
    ),
    (r#"task get "$id" --service web --session 7"#, 0),
    ("task list --service web --session 7", 0),
    (
        r#"task answer "$id" name "$answer" --service web --session 7"#,
        0,
    ),
    (r#"task cancel "$id" --service web --session 7"#, 0),
    (r#"task wait "$id" --service web --session 7"#, 0),
    ("session expire --older-than 1h --service web", 0),
    (
        r#"debug config --json | jq '.[] | select(.source != "default")'"#,
        0,
    ),
    ("debug stats --prometheus > sessiond.prom", 0),
    ("debug sessions --json | jq '.[].session'", 0),
    ("debug about", 0),
    ("debug hosts", 0),
    ("debug sessions", 0),
    ("debug session 019a4e3c-5d2f-7c1e-9a51-3f0d6c1b2a77", 0),
    ("debug streams", 0),
    ("debug tasks", 0),
    ("debug backends", 0),
    ("debug tokens", 0),
    ("debug sweep --service web --older-than 2h", 0),
    ("debug prune s1 --service web --keep 100", 0),
    ("completions bash > $folder/mcp-sessiond", 0),
    ("completions zsh > ~/.zfunc/_mcp-sessiond", 0),
    (
        "completions fish > ~/.config/fish/completions/mcp-sessiond.fish",
        0,
    ),
    ("man | man -l -", 0),
    ("man --to ~/.local/share/man/man1", 0),
    ("install --dry-run", 0),
    ("restart browser", 0),
    ("restart 4711", 0),
    ("restart --all", 0),
    ("stop browser", 0),
    ("stop 019a4e3c-5d2f-7c1e-9a51-3f0d6c1b2a77", 0),
    ("stop 4711", 0),
];

/// Commands that listen until they are told to end.
const SERVES: &[&str] = &[
    "serve --listen 127.0.0.1:8000 --name browser -- npx @playwright/mcp@latest",
    "serve --listen 127.0.0.1:8000 -- npx @playwright/mcp",
    "serve --upstream http://127.0.0.1:3000/mcp",
    "serve --upstream http://127.0.0.1:3000/mcp --pass-header X-Api-Key",
    "serve --listen unix:/run/user/1000/notes.sock -- node notes.js",
    "serve --listen 127.0.0.1:8000 --upstream http://127.0.0.1:3000/mcp",
    "serve --listen 127.0.0.1:8000 --all",
    "serve --listen 127.0.0.1:8000 files browser",
    "serve --listen unix:/run/user/1000/mcp.sock --identity-header X-Forwarded-User -- node notes.js",
];

/// One that is the daemon.
const RUNS: &str = "run --set claim_wait_ms=500 --set log=debug";

/// Commands that speak MCP.
const WRAPS: &[&str] = &[
    "wrap -- https://example.org/mcp",
    "wrap --header 'X-Key: ${env:EXAMPLE_KEY}' -- https://example.org/mcp",
];

/// Commands that another test runs: that needs more than a shell.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    (
        "call browser browser_navigate url=https://example.org",
        "call.rs",
        "a_server_of_the_list_keeps_its_state_between_calls",
    ),
    (
        r#"call notes add '{"text": "milk"}'"#,
        "call.rs",
        "a_server_of_the_list_keeps_its_state_between_calls",
    ),
    (
        "call browser browser_take_screenshot --output page.png",
        "call.rs",
        "an_image_is_written_to_a_file",
    ),
    (
        "call browser",
        "call.rs",
        "a_server_of_the_list_keeps_its_state_between_calls",
    ),
    (
        "demo",
        "cli.rs",
        "demo_shows_that_a_wrapped_server_outlives_what_is_killed",
    ),
    (
        "demo token",
        "cli.rs",
        "demo_token_shows_who_finds_which_session",
    ),
    (
        "wrap --resume cut -- counter &",
        "cli.rs",
        "demo_shows_that_a_wrapped_server_outlives_what_is_killed",
    ),
    (
        "status -w",
        "wrap/watching.rs",
        "a_daemon_that_goes_away_and_comes_back_is_told_of",
    ),
    (
        "logs -f",
        "logs.rs",
        "it_ends_when_nobody_reads_it_any_more",
    ),
    (
        "stream tail _GET_stream --for $$",
        "shell.rs",
        "messages_are_appended_replayed_and_followed",
    ),
    (
        "if token=$(mcp-sessiond token load --for $$); then",
        "cli.rs",
        "a_shell_script_needs_no_library",
    ),
    (
        r#"resume "$token" || mcp-sessiond token reject --for $$"#,
        "cli.rs",
        "a_shell_script_needs_no_library",
    ),
    (
        r#"task message "$MCP_SESSIOND_TASK" half --service web --session 7"#,
        "shell.rs",
        "a_task_asks_its_client",
    ),
    (
        r#"task ask "$MCP_SESSIOND_TASK" name --service web --session 7 <<E"#,
        "shell.rs",
        "a_task_asks_its_client",
    ),
    (
        "login github",
        "remote/login.rs",
        "a_login_is_the_users_for_all_processes_and_nobody_elses",
    ),
    (
        "login https://example.org/mcp",
        "remote/login.rs",
        "a_login_is_the_users_for_all_processes_and_nobody_elses",
    ),
    (
        "login github --no-browser --scope repo --scope read:user",
        "remote/login.rs",
        "a_login_is_the_users_for_all_processes_and_nobody_elses",
    ),
    (
        "share docs",
        "share.rs",
        "all_hosts_run_one_server_until_that_is_taken_back",
    ),
    (
        "share docs --from claude",
        "share.rs",
        "a_server_that_is_not_the_same_everywhere_is_shared_where_it_is",
    ),
    (
        "share docs --undo",
        "share.rs",
        "all_hosts_run_one_server_until_that_is_taken_back",
    ),
    (
        "import --rewrite cursor",
        "import.rs",
        "each_host_runs_its_servers_from_the_list_until_that_is_taken_back",
    ),
    (
        "import --rewrite cursor --undo",
        "import.rs",
        "each_host_runs_its_servers_from_the_list_until_that_is_taken_back",
    ),
    (
        "logout github",
        "remote/login.rs",
        "a_logout_needs_no_entry",
    ),
    (
        "install --serve browser --listen 127.0.0.1:8000 -- npx @playwright/mcp@latest",
        "systemd/serve.rs",
        "a_call_goes_on_when_serve_is_killed_and_uninstall_leaves_nothing",
    ),
    (
        "install --serve browser -- npx @playwright/mcp",
        "systemd/serve.rs",
        "a_call_goes_on_when_serve_is_killed_and_uninstall_leaves_nothing",
    ),
    (
        "install --remove --serve browser",
        "systemd/serve.rs",
        "a_call_goes_on_when_serve_is_killed_and_uninstall_leaves_nothing",
    ),
    (
        "install --remove",
        "systemd/install.rs",
        "uninstall_leaves_nothing_but_the_sessions",
    ),
    (
        "install --status --json | jq .enabled",
        "systemd/service.rs",
        "it_is_told_from_before_it_is_installed_until_it_is_gone",
    ),
    (
        "install --restart",
        "systemd/service.rs",
        "it_is_told_from_before_it_is_installed_until_it_is_gone",
    ),
    (
        "install --restart --serve browser",
        "systemd/service.rs",
        "it_is_told_from_before_it_is_installed_until_it_is_gone",
    ),
    (
        "serve --jwt-issuer https://id.example --jwt-audience notes --jwt-keys keys.json -- node notes.js",
        "serve/identity.rs",
        "a_token_of_each_kind_of_key_is_taken_and_a_refreshed_one_keeps_the_session",
    ),
];

/// A line of a page that runs `mcp-sessiond` itself, without its comment; of one that begins with
/// it, what follows.
fn command(line: &str) -> Option<String> {
    let line = line.trim();
    let line = line.strip_prefix("Example: ").unwrap_or(line);
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let line = line.split(" #").next()?.trim_end();
    let runs = [
        "mcp-sessiond ",
        "token=$(mcp-sessiond ",
        "count=$(mcp-sessiond ",
        "id=$(mcp-sessiond ",
        "if token=$(",
    ];
    let is_piped = line.contains("| mcp-sessiond ");
    // What has brackets or dots says how such a command is made.
    let is_synopsis = line.contains(" [") || line.contains('…');
    let is_shown = is_piped || runs.iter().any(|begin| line.starts_with(begin));
    (is_shown && !is_synopsis).then(|| {
        line.strip_prefix("mcp-sessiond ")
            .unwrap_or(line)
            .to_owned()
    })
}

/// What stands in the code blocks of the pages, which are for readers to type.
fn of_the_pages() -> BTreeSet<String> {
    let docs = fs::read_dir(fixture("../docs"))
        .expect("docs")
        .map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<PathBuf> = docs
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    pages.push(fixture("../README.md").into());
    let mut found = BTreeSet::new();
    for page in pages {
        let mut is_fenced = false;
        for line in read_to_string(page).expect("a page").lines() {
            is_fenced ^= line.trim_start().starts_with("```");
            found.extend(command(line).filter(|_| is_fenced || line.starts_with("    ")));
        }
    }
    found
}

/// The examples of a verb's help, and of those below it.
fn of_the_help(world: &World, verb: &[&str], found: &mut BTreeSet<String>) {
    let help = world
        .sessiond(&[verb, &["--help"]].concat())
        .output()
        .expect("help");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let examples = help.lines().skip_while(|line| !line.starts_with("Example"));
    found.extend(examples.filter_map(command));
    let verbs = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| *line != "Options:");
    for line in verbs.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
        let below = line.split_whitespace().next().expect("a verb");
        if below != "help" {
            of_the_help(world, &[verb, &[below]].concat(), found);
        }
    }
}

#[test]
fn every_command_is_run() {
    let world = world("");
    let mut shown = of_the_pages();
    assert!(
        shown.len() > 20,
        "the commands of the pages are not found any more: {shown:?}"
    );
    let of_pages = shown.len();
    for verb in crate::cli::verbs(&world) {
        of_the_help(&world, &[&verb], &mut shown);
    }
    assert!(
        shown.len() > of_pages + 20,
        "those of the help are not: {shown:?}"
    );
    let run: BTreeSet<String> = (ENDS.iter().map(|one| one.0))
        .chain(SERVES.iter().chain(WRAPS).copied())
        .chain(ELSEWHERE.iter().map(|one| one.0))
        .chain([RUNS])
        .map(str::to_owned)
        .collect();
    let missing: Vec<&String> = shown.difference(&run).collect();
    assert!(
        missing.is_empty(),
        "run these, or name the test that does: {missing:#?}"
    );
    let gone: Vec<&String> = run.difference(&shown).collect();
    assert!(gone.is_empty(), "no page shows these any more: {gone:#?}");
    for (command, file, test) in ELSEWHERE {
        let text = read_to_string(fixture(&format!("integration/{file}"))).expect(file);
        assert!(
            named(&text).iter().any(|name| name == test),
            "{command}: {file} has no test {test}"
        );
    }
}

/// A user's home, with what the pages speak of.
struct Home {
    world: World,
}

/// Answers the question of a command that asks at a terminal.
const AT_TERMINAL: &str = "import pty, sys; sys.exit(pty.spawn(['sh', '-c', sys.argv[1]]) >> 8)";

impl Home {
    fn new() -> Self {
        let world = world("backends.stop_wait_ms = 300\n");
        let home = world.root().join("home");
        let bin = world.root().join("bin");
        for folder in [
            ".config/Claude",
            ".local/share/bash-completion/completions",
            ".zfunc",
            ".config/fish/completions",
        ] {
            fs::create_dir_all(home.join(folder)).expect("a directory");
        }
        fs::create_dir_all(&bin).expect("a directory");
        copy_program(world.binaries.daemon, bin.join("mcp-sessiond"));
        let path = std::env::var("PATH").expect("a PATH");
        let server = format!("PATH='{path}' exec '{}'", tiny(&world).join("' '"));
        let programs = [
            ("npx", &*server),
            ("node", &server),
            ("make", "exec sleep 1000"),
            ("jq", "exec cat"),
            ("man", "exec cat"),
        ];
        for (name, script) in programs {
            let program = bin.join(name);
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a program");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
        }
        let entry = |argument: &str| json!({"command": "npx", "args": [argument]});
        let servers = json!({"mcpServers": {
            "files": entry("files"), "browser": entry("@playwright/mcp"), "issues": entry("issues"),
        }});
        for file in [
            ".claude.json",
            ".config/Claude/claude_desktop_config.json",
            ".mcp.json",
        ] {
            fs::write(home.join(file), servers.to_string()).expect("a host's file");
        }
        fs::write(world.root().join("servers.json"), servers.to_string()).expect("a file");
        fs::write(home.join("messages"), "{\"n\":1}\n").expect("messages");
        Self { world }
    }

    /// A shell that runs what a page shows, where something stands for the places that it speaks
    /// of.
    fn shell(&self, shown: &str, places: &[(&str, &str)]) -> Command {
        let root = self.world.root().to_str().expect("UTF-8");
        let is_whole = shown.contains("$(mcp-sessiond ") || shown.contains("| mcp-sessiond ");
        let whole = if is_whole {
            shown.to_owned()
        } else {
            format!("mcp-sessiond {shown}")
        };
        let whole = places
            .iter()
            .fold(whole, |whole, (page, here)| whole.replace(page, here));
        let mut command = if shown.starts_with("setup") {
            let mut command = self.world.command("python3");
            command.args(["-I", "-c", AT_TERMINAL]);
            command
        } else {
            let mut command = self.world.command("sh");
            command.arg("-c");
            command
        };
        command
            .arg(whole)
            .current_dir(self.world.root().join("home"));
        command
            .env("HOME", self.world.root().join("home"))
            .env_remove("XDG_CONFIG_HOME");
        let path = std::env::var("PATH").expect("a PATH");
        let path = if shown.starts_with("setup") {
            path
        } else {
            "/usr/bin:/bin".to_owned()
        };
        command.env("PATH", format!("{root}/bin:{path}"));
        command
    }

    /// A front with a server that is called `browser`.
    fn browser(&self) -> Client<Front> {
        let wrap = "wrap --entry browser -- npx @playwright/mcp";
        Client::connected(Front::spawn(self.shell(wrap, &[])))
    }

    /// The first word that a command prints.
    fn first_word(&self, arguments: &str) -> String {
        let said = self.shell(arguments, &[]).output().expect("it runs");
        let said = String::from_utf8(said.stdout).expect("UTF-8");
        said.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    }
}

#[test]
#[ignore = "needs python3"]
fn those_that_end_do_what_they_are_shown_for() {
    let home = Home::new();
    let _daemon = home.world.daemon();
    create(&mut home.world.peer(), "web", "s1");
    let mut client = home.browser();
    let mut faults = Vec::new();
    for (shown, code) in ENDS {
        if home.world.backends().is_empty() {
            client = home.browser();
        }
        assert!(client.count() > 0);
        let backend = home.world.backend();
        let (session, server) = (&backend.session, backend.pid().to_string());
        let mut command = home.shell(
            shown,
            &[
                ("019a4e3c-5d2f-7c1e-9a51-3f0d6c1b2a77", session),
                ("4711", &server),
            ],
        );
        command
            .env("token", "one")
            .env("new_token", "two")
            .env("answer", r#"{"action": "decline"}"#)
            .env(
                "folder",
                home.world
                    .root()
                    .join("home/.local/share/bash-completion/completions"),
            )
            .env("count", "0");
        if shown.contains("$id") {
            command.env("id", home.first_word("task list --service web --session 7"));
        }
        if shown.contains("$last_event_id") {
            command.env(
                "last_event_id",
                home.first_word("stream replay call-7 --service web --session 7"),
            );
        }
        // Not to a pipe: a task that goes on would keep it open.
        let said = home.world.root().join("said");
        let file = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&said)
                .expect("a file")
        };
        command.stdin(Stdio::piped()).stdout(file()).stderr(file());
        let mut child = command.spawn().expect("a shell");
        let input = if shown.starts_with("setup") {
            "y\n"
        } else {
            "{\"n\":2}\n"
        };
        // Most read nothing, and may be gone.
        let _ = child
            .stdin
            .take()
            .expect("piped")
            .write_all(input.as_bytes());
        let ended = child.wait().expect("it ends").code();
        if ended != Some(*code) {
            faults.push(format!(
                "{shown} exits with {ended:?}: {}",
                read_to_string(&said).unwrap_or_default()
            ));
        }
        fs::remove_file(&said).expect("it was there");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn those_that_serve_listen() {
    let home = Home::new();
    let _daemon = home.world.daemon();
    let root = home.world.root().to_str().expect("UTF-8");
    for shown in SERVES {
        let places = [
            ("127.0.0.1:8000", "127.0.0.1:0"),
            ("serve --upstream", "serve --listen 127.0.0.1:0 --upstream"),
            ("/run/user/1000", root),
        ];
        let mut command = home.shell(shown, &places);
        let mut serve = command
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        BufReader::new(serve.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("a line");
        assert!(line.starts_with("listening at "), "{shown}: {line}");
        killpg(Pid::from_raw(serve.id().cast_signed()), Signal::SIGTERM).expect("ours");
        serve.wait().expect("it ends");
    }
}

#[test]
fn the_one_that_is_the_daemon_has_its_settings() {
    let home = Home::new();
    let daemon = home.world.spawn(home.shell(RUNS, &[]));
    daemon.ready();
    let shown = home
        .shell("debug config --json", &[])
        .output()
        .expect("it runs");
    let settings: Vec<Value> = serde_json::from_slice(&shown.stdout).expect("JSON");
    let of = |name: &str| {
        settings
            .iter()
            .find(|one| one["name"] == name)
            .map(|one| one["value"].clone())
    };
    assert_eq!(
        (of("claim_wait_ms"), of("log")),
        (Some(json!("500")), Some(json!("\"debug\""))),
        "{settings:?}"
    );
}

#[test]
#[ignore = "needs node"]
fn those_that_wrap_speak_mcp() {
    let home = Home::new();
    let _daemon = home.world.daemon();
    let upstream = home
        .world
        .upstream(&["node".into(), fixture("node/express.mjs")], &[]);
    for shown in WRAPS {
        let mut command = home.shell(shown, &[("https://example.org/mcp", &upstream.url)]);
        command.env("EXAMPLE_KEY", "a key");
        Client::connected(Front::spawn(command)).ping();
    }
}

/// The names of the tests in a file.
pub(crate) fn named(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, after)) = line
            .split_once("fn ")
            .filter(|_| is_test && !line.starts_with("//"))
        {
            names.extend(after.split(['(', '<']).next().map(str::to_owned));
            is_test = false;
        }
    }
    names
}

/// The page is what users set values by.
#[test]
fn the_page_of_settings_has_each_with_its_default() {
    let page = read_to_string(fixture("../docs/settings.md")).expect("the page");
    let row = |line: &str| {
        let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`'));
        let (_, name, default) = (cells.next()?, cells.next()?, cells.next()?);
        Some((name.to_owned(), default.to_owned()))
    };
    let rows: BTreeSet<_> = page.lines().filter_map(row).collect();
    let defaults = mcp_sessiond_daemon::config::load(None, &[]).expect("the defaults");
    for setting in defaults.settings() {
        let row = (setting.name, setting.value);
        assert!(
            rows.contains(&row),
            "docs/settings.md has no row of {row:?}"
        );
    }
}
