//! `mcp-sessiond import`, from files as the hosts write them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use mcp_sessiond_tests::{World, copy_program};
use serde_json::{Value, json};

use crate::world;

/// What must never be said.
const SECRET: &str = "an-open-secret";

/// What `import` has done: its exit code, its output, and its standard error.
fn import(world: &World, words: &[&str]) -> (Option<i32>, String, String) {
    said_by(world, &[&["import"], words].concat())
}

/// The exit code of a command in a home of its own, and what it has said.
pub(crate) fn said_by(world: &World, words: &[&str]) -> (Option<i32>, String, String) {
    let mut command = world.command(installed(world));
    command.args(words).env("HOME", home(world));
    for variable in [
        "XDG_CONFIG_HOME",
        "CODEX_HOME",
        "CLAUDE_CONFIG_DIR",
        "GOOSE_PATH_ROOT",
    ] {
        command.env_remove(variable);
    }
    let output = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (said, errors) = (text(output.stdout), text(output.stderr));
    assert!(
        !said.contains(SECRET) && !errors.contains(SECRET),
        "{said}{errors}"
    );
    (output.status.code(), said, errors)
}

/// The executable under the name that hosts' files have. It is among temporary files, so they name
/// the link that a package manager has put into the home directory.
fn installed(world: &World) -> PathBuf {
    let path = world.root().join("mcp-sessiond");
    if !path.exists() {
        let own = world.binaries.daemon;
        if fs::hard_link(own, &path).is_err() {
            copy_program(own, &path);
        }
        let folder = home(world).join(".local/bin");
        fs::create_dir_all(&folder).expect("a directory");
        symlink(&path, folder.join("mcp-sessiond")).expect("a link");
    }
    path
}

pub(crate) fn home(world: &World) -> PathBuf {
    world.root().join("home")
}

pub(crate) fn write(world: &World, file: &str, text: &str) {
    let file = home(world).join(file);
    fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
    fs::write(file, text).expect("a host's file");
}

pub(crate) fn servers(world: &World) -> PathBuf {
    world.root().join("servers.json")
}

pub(crate) fn written(world: &World) -> Value {
    serde_json::from_str(&fs::read_to_string(servers(world)).expect("servers.json")).expect("JSON")
}

/// Each host that is known, with a file as that host writes it, and what comes of it.
pub(crate) fn hosts() -> Vec<(&'static str, &'static str, String, Value)> {
    let data = if cfg!(target_os = "macos") {
        "Library/Application Support"
    } else {
        ".config"
    };
    let (desktop, code): (&str, &str) = if cfg!(target_os = "macos") {
        (
            "Library/Application Support/Claude/claude_desktop_config.json",
            "Library/Application Support/Code/User/mcp.json",
        )
    } else {
        (
            ".config/Claude/claude_desktop_config.json",
            ".config/Code/User/mcp.json",
        )
    };
    assert!(desktop.starts_with(data) && code.starts_with(data));
    let simple = json!({"command": "npx", "args": ["-y", "x"], "env": {"A": "1"}});
    let plain = |more: &str| {
        format!(
            r#"{{"mcpServers": {{"NAME": {{"command": "npx", "args": ["-y", "x"], "env": {{"A": "1"}}{more}}}}}}}"#
        )
    };
    vec![
        (
            "claude",
            ".claude.json",
            format!(
                r#"{{"numStartups": 3, "mcpServers": {{"NAME": {{"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {{"A": "1"}}}}}},
                "projects": {{"/p": {{"mcpServers": {{"not-this": {{"command": "npx", "args": ["-y", "y", "{SECRET}"]}}}}}}}}}}"#
            ),
            simple.clone(),
        ),
        ("claude-desktop", desktop, plain(""), simple.clone()),
        (
            "vscode",
            code,
            "{\n\t// mine\n\t\"servers\": {\n\t\t\"NAME\": {\"type\": \"stdio\", \"command\": \"npx\", \"args\": [\"-y\", \"x\",], \"env\": {\"A\": \"1\"}},\n\t},\n\t\"inputs\": [],\n}\n".to_owned(),
            simple.clone(),
        ),
        ("cursor", ".cursor/mcp.json", plain(""), simple.clone()),
        (
            "codex",
            ".codex/config.toml",
            "model = \"m\" # mine\n[mcp_servers.NAME]\ncommand = \"npx\"\nargs = [\"-y\", \"x\"]\nstartup_timeout_sec = 20\n\n[mcp_servers.NAME.env]\nA = \"1\"\n".to_owned(),
            simple.clone(),
        ),
        ("gemini", ".gemini/settings.json", plain(r#", "trust": true, "timeout": 600000"#), simple.clone()),
        (
            "opencode",
            ".config/opencode/opencode.jsonc",
            r#"{"$schema": "https://opencode.ai/config.json", "mcp": {"NAME": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"A": "1"}, "enabled": true}}}"#.to_owned(),
            simple.clone(),
        ),
        (
            "zed",
            ".config/zed/settings.json",
            "// Zed settings\n{\n  \"theme\": \"One\",\n  \"context_servers\": {\"NAME\": {\"source\": \"custom\", \"command\": \"npx\", \"args\": [\"-y\", \"x\"], \"env\": {\"A\": \"1\"},},},\n}\n".to_owned(),
            simple.clone(),
        ),
        ("cline", ".cline/data/settings/cline_mcp_settings.json", plain(r#", "disabled": false, "autoApprove": []"#), simple.clone()),
        ("roo", ".roo/mcp.json", plain(r#", "alwaysAllow": ["a"], "disabledTools": []"#), simple.clone()),
        ("windsurf", ".codeium/windsurf/mcp_config.json", plain(""), simple.clone()),
        ("copilot", ".copilot/mcp-config.json", plain(r#", "type": "local", "tools": ["*"]"#), simple.clone()),
        (
            "goose",
            ".config/goose/config.yaml",
            "GOOSE_MODE: auto # mine\nextensions:\n  memory: {type: builtin, name: memory, enabled: true}\n  NAME:\n    type: stdio\n    name: NAME\n    cmd: \"npx\"\n    args: [-y, x]\n    envs:\n      A: \"1\"\n    env_keys: []\n    enabled: true\n".to_owned(),
            simple,
        ),
    ]
}

#[test]
fn each_host_s_servers_come_as_they_are() {
    let world = world("");
    for (host, file, text, _) in hosts() {
        write(&world, file, &text.replace("NAME", &format!("from-{host}")));
    }
    let (code, said, errors) = import(&world, &[]);
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    assert!(!servers(&world).exists(), "nothing is written");
    for (host, file, _, entry) in hosts() {
        let name = format!("from-{host}");
        assert!(
            said.contains(&format!(
                "{host}: {}\n  {name}: would be added\n",
                home(&world).join(file).display()
            )),
            "{said}"
        );
        let (code, said, errors) = import(&world, &["--from", host]);
        assert_eq!(
            (code, said, &*errors),
            (Some(0), format!("  {name}: added\n"), "")
        );
        assert_eq!(written(&world)["mcpServers"][&name], entry, "{host}");
        let (code, said, _) = import(&world, &["--from", host, &name]);
        assert_eq!(
            (code, said),
            (Some(0), format!("  {name}: is there already\n"))
        );
    }
    let mode = fs::metadata(servers(&world))
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // What was written can be run: it gets as far as the program.
    let (code, _, errors) = import(&world, &["--from", "codex", "nobody"]);
    assert_eq!(
        (code, errors.contains("codex has no server \"nobody\"")),
        (Some(66), true),
        "{errors}"
    );
}

/// Everything else in the file stays as it was, and `--undo` gives back each byte: also where the host
/// has written the file anew since.
#[test]
fn each_host_runs_its_servers_from_the_list_until_that_is_taken_back() {
    let world = world("");
    for (host, file, text, entry) in hosts() {
        let name = format!("from-{host}");
        let text = text.replace("NAME", &name);
        write(&world, file, &text);
        let now = || fs::read_to_string(home(&world).join(file)).expect("the host's file");
        let rewrite = |words: &[&str]| import(&world, &[&["--rewrite", host], words].concat());
        let (code, said, errors) = rewrite(&["--dry-run"]);
        assert_eq!(
            (code, &*errors, now()),
            (Some(0), "", text.clone()),
            "{said}"
        );
        let (code, said, errors) = rewrite(&["--yes"]);
        assert_eq!((code, &*errors), (Some(0), ""), "{said}");
        assert!(said.contains(&format!("wrap @{name}\n")), "{said}");
        assert_eq!(written(&world)["mcpServers"][&name], entry, "{host}");
        let rewritten = now();
        assert!(
            rewritten.contains(&format!("\"wrap\", \"@{name}\"]")),
            "{rewritten}"
        );
        assert!(
            !rewritten.contains("\"npx\", \"args\": [\"-y\", \"x\""),
            "{rewritten}"
        );
        // Variables may be secrets; a table of them that is spread over lines is left to people.
        let is_spread = ["codex", "goose"].contains(&host);
        assert_eq!(rewritten.contains("\"1\""), is_spread, "{rewritten}");
        for more in [
            "theme",
            "startup_timeout_sec",
            "autoApprove",
            "not-this",
            "inputs",
            "enabled",
        ] {
            assert_eq!(rewritten.contains(more), text.contains(more), "{rewritten}");
        }
        let (code, said, _) = rewrite(&["--yes"]);
        assert_eq!((code, now()), (Some(0), rewritten.clone()), "{said}");
        assert!(
            said.contains("is there already") && said.contains("nothing to change"),
            "{said}"
        );

        let (code, said, errors) = rewrite(&["--undo", "--yes"]);
        assert_eq!(
            (code, &*errors, now()),
            (Some(0), "", text.clone()),
            "{said}"
        );
        assert_eq!(rewrite(&["--yes"]).0, Some(0));
        write(&world, file, &(rewritten + "\n"));
        let (code, said, errors) = rewrite(&["--undo", "--yes"]);
        assert_eq!(
            (code, &*errors, now()),
            (Some(0), "", text + "\n"),
            "{said}"
        );
    }
}

/// A server of a project with the same name, and one that is refused, are not touched.
#[test]
fn only_what_was_imported_is_rewritten() {
    let world = world("");
    let text = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "sh -c y"}},
        "projects": {"/p": {"mcpServers": {"a": {"command": "other"}}}}}"#;
    write(&world, ".claude.json", text);
    let (code, said, _) = import(&world, &["--rewrite", "claude", "--yes"]);
    assert_eq!(code, Some(65), "{said}");
    let now = fs::read_to_string(home(&world).join(".claude.json")).expect("the host's file");
    let now: Value = serde_json::from_str(&now).expect("JSON");
    assert_eq!(now["mcpServers"]["a"]["args"], json!(["wrap", "@a"]));
    assert_eq!(now["mcpServers"]["b"], json!({"command": "sh -c y"}));
    assert_eq!(
        now["projects"]["/p"]["mcpServers"]["a"],
        json!({"command": "other"})
    );
    // Nobody who could say yes is there.
    let (code, _, errors) = import(&world, &["--rewrite", "claude", "--undo"]);
    assert_eq!(code, Some(64), "{errors}");
    for words in [
        &["--yes"][..],
        &["--undo"],
        &["--rewrite", "claude", "--from", "claude"],
    ] {
        assert_eq!(import(&world, words).0, Some(64), "{words:?}");
    }
}

#[test]
fn what_else_is_in_the_file_stays_and_a_different_server_is_refused() {
    let world = world("");
    let before = "{\n  \"inputs\": [],\n  \"servers\": {\n    \"z\": {\"command\": \"mine\", \"lazy\": true},\n    \"a\": {\"command\": \"x\"}\n  },\n  \"more\": 1\n}\n";
    fs::write(servers(&world), before).expect("servers.json");
    let theirs = json!({"mcpServers": {
        "z": {"command": "theirs"},
        "wrapped": {"command": "mcp-sessiond", "args": ["wrap", "--", "npx", "y"]},
        "ours": {"command": "mcp-sessiond", "args": ["wrap", "@z"]},
        "old": {"type": "sse", "url": "https://example.com/sse"},
        "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": format!("Bearer {SECRET}")}},
    }});
    write(&world, ".cursor/mcp.json", &theirs.to_string());

    let (code, said, _) = import(&world, &["--from", "cursor", "--dry-run", "--json"]);
    let found: Value = serde_json::from_str(&said).expect("JSON");
    let outcome = |name: &str| {
        let one = found
            .as_array()
            .expect("a list")
            .iter()
            .find(|one| one["name"] == name)
            .expect("it is listed");
        one["outcome"].as_str().expect("a text").to_owned()
    };
    assert_eq!(
        ["z", "wrapped", "ours", "old", "web"].map(outcome),
        ["refused", "added", "refused", "refused", "added"]
    );
    assert_eq!(
        (
            code,
            fs::read_to_string(servers(&world)).expect("it is there")
        ),
        (Some(65), before.to_owned())
    );

    let (code, said, _) = import(&world, &["--from", "cursor"]);
    assert_eq!(code, Some(65), "{said}");
    for sentence in [
        "z: refused: servers.json has another one of this name; --replace puts this one in its place",
        "ours: refused: it runs @z",
        "old: refused: it speaks HTTP with SSE",
        "Authorization looks like a secret, and is copied as it is",
        "${keyring:web/Authorization}",
    ] {
        assert!(said.contains(sentence), "{said}");
    }
    let text = fs::read_to_string(servers(&world)).expect("it is there");
    let kept = before.split("\"a\"").next().expect("a beginning");
    assert!(
        text.starts_with(kept) && text.ends_with("\"more\": 1\n}\n"),
        "{text}"
    );
    assert_eq!(
        written(&world)["servers"]["wrapped"],
        json!({"command": "npx", "args": ["y"]})
    );
    assert_eq!(
        written(&world)["servers"]["web"]["headers"]["Authorization"],
        format!("Bearer {SECRET}")
    );

    let (code, said, _) = import(&world, &["--from", "cursor", "--replace", "z"]);
    assert_eq!((code, &*said), (Some(0), "  z: replaced\n"));
    assert_eq!(
        written(&world)["servers"]["z"],
        json!({"command": "theirs"})
    );
}

#[test]
fn a_file_that_can_t_be_understood_is_said_and_nothing_is_written() {
    let world = world("");
    let (code, _, errors) = import(&world, &["--from", "zed"]);
    assert_eq!(
        (code, errors.contains("zed has no file here; it would be ")),
        (Some(66), true),
        "{errors}"
    );
    write(
        &world,
        ".cursor/mcp.json",
        &format!("{{\"mcpServers\": {{\n \"a\": {SECRET}"),
    );
    let (code, _, errors) = import(&world, &["--from", "cursor"]);
    assert_eq!(
        (code, errors.contains("it is not JSON at line 2")),
        (Some(65), true),
        "{errors}"
    );
    write(
        &world,
        ".codex/config.toml",
        &format!("a = 1\nb = {SECRET}"),
    );
    let (code, _, errors) = import(&world, &["--from", "codex"]);
    assert_eq!(
        (code, errors.contains("it is not TOML at line 2")),
        (Some(65), true),
        "{errors}"
    );
    assert!(!servers(&world).exists());

    write(
        &world,
        ".cursor/mcp.json",
        "{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}",
    );
    fs::write(servers(&world), "{\"servers\": ").expect("servers.json");
    assert_eq!(import(&world, &["--from", "cursor"]).0, Some(65));
    assert_eq!(
        fs::read_to_string(servers(&world)).ok().as_deref(),
        Some("{\"servers\": ")
    );
}
