//! `mcp-sessiond setup` on hosts' files as people have them: those in `wild/`, and some that are
//! made here. A new file is a line in a table.

mod disk;
mod killed;
mod reading;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mcp_sessiond_tests::{Client, World, write_program};
use serde_json::Value;
use tempfile::TempDir;

use crate::{fixture, world};
use reading::{Entry, entries};

/// What must never be said.
const SECRET: &str = "an-open-secret";

/// Nobody, to whom a file may belong.
const NOBODY: u32 = 65534;

/// Programs that the files name. Each is a server here, which says how it was started.
const PROGRAMS: [&str; 9] = [
    "npx",
    "uvx",
    "bunx",
    "node",
    "python",
    "docker",
    "mcp-proxy",
    "mcp-mux",
    "server with a blank",
];
const SERVER: &str = r#"#!/usr/bin/python3 -IS
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        how = json.dumps({"words": sys.argv[1:], "variables": dict(os.environ)})
        info = {"name": os.path.basename(sys.argv[0]), "version": "1"}
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {}, "serverInfo": info, "instructions": how}
    elif "id" in asked:
        result = {}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"#;

/// How a file lies where its host looks for it.
#[derive(Debug, Clone, Copy)]
enum Lies {
    Mode(u32),
    /// A relative link leads to it.
    Linked,
    /// A link leads to it on another file system.
    Elsewhere,
    /// Two links, one after the other.
    LinkedTwice,
    Group,
    /// It belongs to somebody else.
    Foreign,
    Dangling,
    HardLink,
}

/// What becomes of a file.
#[derive(Debug, Clone, Copy)]
enum Becomes {
    /// These servers are wrapped.
    Wrapped(&'static [&'static str]),
    /// There is nothing to be wrapped.
    Same,
    /// It stays as it is, and this is said.
    Refused(&'static str),
}

use Becomes::{Refused, Same, Wrapped};
use Lies::{Dangling, Elsewhere, Foreign, Group, HardLink, Linked, LinkedTwice, Mode};

const USUAL: Lies = Mode(0o644);
const TWICE: &str = "twice in one place; remove one";

/// The host, the file, how it lies, and what becomes of it.
type Line = (&'static str, &'static str, Lies, Becomes);

#[rustfmt::skip]
const JSON: [Line; 29] = [
    ("claude-desktop", "desktop-two-servers.json", USUAL, Wrapped(&["filesystem", "notes"])),
    ("claude-desktop", "desktop-crlf-bom.json", Mode(0o600), Wrapped(&["db"])),
    ("claude-desktop", "desktop-no-final-newline.json", Linked, Wrapped(&["clock"])),
    ("claude-desktop", "desktop-only-preferences.json", USUAL, Same),
    ("claude-desktop", "desktop-empty.json", USUAL, Same),
    ("claude-desktop", "desktop-null.json", USUAL, Same),
    ("claude", "claude-projects.json", Mode(0o600), Wrapped(&["playwright", "playwright (/home/ada/new)"])),
    ("claude", "claude-project-file.json", LinkedTwice, Wrapped(&["api", "lint"])),
    ("claude", "claude-sse.json", USUAL, Same),
    ("vscode", "vscode-inputs.json", Elsewhere, Wrapped(&["github"])),
    ("vscode", "vscode-cwd-envfile.json", Mode(0o640), Same),
    ("vscode", "vscode-comments-only.json", USUAL, Same),
    ("vscode", "vscode-trailing-commas.json", Mode(0o666), Wrapped(&["a", "b"])),
    ("cursor", "cursor-one-line.json", Group, Wrapped(&["a", "b", "d"])),
    ("cursor", "cursor-names.json", USUAL, Wrapped(&["say \"hi\"", "two\nlines", "日本語 🪿", "", "slash/"])),
    ("cursor", "cursor-command-line.json", USUAL, Wrapped(&["odd"])),
    ("cursor", "cursor-by-us.json", USUAL, Same),
    ("cursor", "cursor-by-an-older-us.json", USUAL, Wrapped(&["old", "new"])),
    ("copilot", "copilot-tools.json", USUAL, Wrapped(&["issues"])),
    ("copilot", "copilot-empty-object.json", USUAL, Same),
    ("cline", "cline-disabled.json", Linked, Wrapped(&["weather"])),
    ("cline", "cline-by-others.json", USUAL, Wrapped(&["muxed", "proxied"])),
    ("gemini", "gemini-settings.json", USUAL, Wrapped(&["tools"])),
    ("windsurf", "windsurf-mixed.json", USUAL, Wrapped(&["git"])),
    ("zed", "zed-settings.json", Elsewhere, Wrapped(&["old-form", "new-form"])),
    ("zed", "zed-nothing.json", USUAL, Same),
    ("opencode", "opencode-local.jsonc", USUAL, Wrapped(&["lines", "one"])),
    ("opencode", "opencode-crlf.json", USUAL, Wrapped(&["a"])),
    ("roo", "roo-allow.json", USUAL, Wrapped(&["x"])),
];

#[rustfmt::skip]
const OTHERS: [Line; 8] = [
    ("codex", "codex-usual.toml", Linked, Wrapped(&["context", "db"])),
    ("codex", "codex-dotted.toml", USUAL, Wrapped(&["a", "b", "c d", "e"])),
    ("codex", "codex-crlf.toml", Mode(0o600), Wrapped(&["indented", "quoted.name"])),
    ("codex", "codex-long-text.toml", USUAL, Wrapped(&["a"])),
    ("goose", "goose-usual.yaml", Mode(0o600), Wrapped(&["github"])),
    ("goose", "goose-by-hand.yaml", Linked, Wrapped(&["files", "flow", "none", "bare"])),
    ("goose", "goose-crlf.yaml", USUAL, Wrapped(&["git"])),
    ("goose", "goose-anchors.yaml", USUAL, Wrapped(&["plain"])),
];

#[rustfmt::skip]
const REFUSED: [Line; 19] = [
    ("claude-desktop", "desktop-array.json", USUAL, Refused("`mcpServers` must be an object")),
    ("windsurf", "windsurf-servers-text.json", USUAL, Refused("`mcpServers` must be an object")),
    ("cursor", "cursor-twice.json", USUAL, Refused(TWICE)),
    ("cursor", "cursor-two-commands.json", USUAL, Refused(TWICE)),
    ("gemini", "gemini-broken.json", USUAL, Refused("it is not JSON at line")),
    ("codex", "codex-array-of-tables.toml", USUAL, Refused("`mcp_servers` must be")),
    ("codex", "codex-twice.toml", USUAL, Refused("it is not TOML at line 4")),
    ("goose", "goose-alias.yaml", USUAL, Refused("`extensions` has an anchor, an alias or a tag")),
    ("goose", "goose-two-documents.yaml", USUAL, Refused("it has more than one document")),
    ("goose", "goose-twice.yaml", USUAL, Refused(TWICE)),
    ("goose", "goose-tabs.yaml", USUAL, Refused("it is not YAML at line 2")),
    ("claude", "claude-projects.json", Mode(0o444), Refused("is read-only; if it is yours to edit: chmod u+w")),
    ("copilot", "copilot-tools.json", Foreign, Refused("belongs to another user")),
    ("cline", "cline-disabled.json", HardLink, Refused("has several names (hard links)")),
    ("vscode", "vscode-inputs.json", Dangling, Refused("it is a symbolic link to a file that is not there")),
    ("opencode", "made: UTF-16", USUAL, Refused("it is not UTF-8")),
    ("zed", "made: a directory", USUAL, Refused("it is not a file")),
    ("cursor", "made: deep", USUAL, Refused("it is not JSON")),
    ("goose", "made: deep", USUAL, Refused("it is not YAML at line 1")),
];

#[rustfmt::skip]
const MADE: [Line; 3] = [
    ("claude", "made: 1 MB of history", Mode(0o600), Wrapped(&["a"])),
    ("codex", "made: 300 servers", USUAL, Same),
    ("goose", "goose-null.yaml", USUAL, Same),
];

/// A host's file in a world of its own.
struct Wild {
    world: World,
    host: &'static str,
    /// Where the host looks.
    path: PathBuf,
    elsewhere: TempDir,
}

impl Wild {
    fn new(host: &'static str, name: &str, lies: Lies) -> Self {
        let world = world("");
        let stubs = world.root().join("stubs");
        fs::create_dir(&stubs).expect("a directory");
        for program in PROGRAMS {
            write_program(stubs.join(program), SERVER);
        }
        let path = world.root().join("home").join(place(host));
        let elsewhere = TempDir::new_in("/dev/shm").expect("another file system");
        let wild = Self {
            world,
            host,
            path,
            elsewhere,
        };
        wild.lay(&wild.bytes(name), lies);
        wild
    }

    fn ours(&self) -> String {
        self.world
            .sessiond(&[])
            .get_program()
            .to_str()
            .expect("UTF-8")
            .to_owned()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        match name {
            "made: UTF-16" => "{}"
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .chain([0xff])
                .collect(),
            "made: a directory" => Vec::new(),
            "made: deep" => "[".repeat(1 << 17).into_bytes(),
            "made: 1 MB of history" => {
                let lines: Vec<_> = (0..8192)
                    .map(|line| format!("{line}: {}", "ü".repeat(60)))
                    .collect();
                let file = serde_json::json!({"history": lines, "mcpServers": {"a": {"command": "node", "args": ["a.js"]}}});
                serde_json::to_vec_pretty(&file).expect("JSON")
            }
            "made: 300 servers" => (0..300)
                .map(|at| format!("[mcp_servers.s{at}]\nurl = \"https://x\"\n"))
                .collect::<String>()
                .into_bytes(),
            name => {
                let bytes = fs::read(fixture(&format!("integration/wild/{name}"))).expect("a file");
                match String::from_utf8(bytes) {
                    Ok(text) => text.replace("{OURS}", &self.ours()).into_bytes(),
                    Err(error) => error.into_bytes(),
                }
            }
        }
    }

    fn lay(&self, bytes: &[u8], lies: Lies) {
        let directory = self.path.parent().expect("a directory");
        fs::create_dir_all(directory).expect("a directory");
        if bytes.is_empty() && self.host == "zed" {
            return fs::create_dir(&self.path).expect("a directory");
        }
        let write = |at: &Path| fs::write(at, bytes).expect("a host's file");
        let link = |to: &Path, at: &Path| symlink(to, at).expect("a link");
        let beside = directory.join("dotfiles/file");
        match lies {
            Mode(mode) => {
                write(&self.path);
                fs::set_permissions(&self.path, fs::Permissions::from_mode(mode)).expect("a mode");
            }
            Linked | LinkedTwice => {
                fs::create_dir(directory.join("dotfiles")).expect("a directory");
                write(&beside);
                if matches!(lies, Linked) {
                    link(Path::new("dotfiles/file"), &self.path);
                } else {
                    link(&beside, &directory.join("between"));
                    link(Path::new("between"), &self.path);
                }
            }
            Elsewhere => {
                let real = self.elsewhere.path().join("file");
                write(&real);
                link(&real, &self.path);
            }
            Group | Foreign => {
                write(&self.path);
                let owner = matches!(lies, Foreign).then_some(NOBODY);
                chown(&self.path, owner, Some(NOBODY)).expect("an owner");
            }
            Dangling => link(Path::new("dotfiles/file"), &self.path),
            HardLink => {
                write(&self.path);
                fs::hard_link(&self.path, directory.join("other")).expect("a link");
            }
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.sessiond(&[&["setup"], words].concat());
        command
            .env("HOME", self.world.root().join("home"))
            .stdin(Stdio::null());
        for variable in [
            "XDG_CONFIG_HOME",
            "CODEX_HOME",
            "CLAUDE_CONFIG_DIR",
            "GOOSE_PATH_ROOT",
        ] {
            command.env_remove(variable);
        }
        command
    }

    /// What `setup` has done: its exit code, its output, and its standard error.
    fn setup(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(words).output().expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        let (said, errors) = (text(output.stdout), text(output.stderr));
        assert!(
            !said.contains(SECRET) && !errors.contains(SECRET),
            "{said}{errors}"
        );
        (output.status.code(), said, errors)
    }

    /// Everything of the file, and of the way to it.
    fn seen(&self) -> Seen {
        let of = |path: &Path| {
            let meta = path.metadata().ok()?;
            Some((
                fs::read(path).unwrap_or_default(),
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.nlink(),
            ))
        };
        let directory =
            fs::read_dir(self.path.parent().expect("a directory")).expect("it is there");
        let mut names: Vec<_> = directory
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        Seen {
            file: of(&self.path),
            link: fs::read_link(&self.path).ok(),
            names,
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).expect("a host's file")
    }

    fn copies(&self) -> PathBuf {
        self.world.root().join("setup")
    }

    /// Starts this entry as its host does, and looks at whether its own server answers.
    fn start(&self, name: &str, entry: &Entry, former: &Entry) {
        let path = format!(
            "{}:{}",
            self.world.root().join("stubs").display(),
            std::env::var("PATH").expect("a PATH")
        );
        let variables: Vec<_> = entry
            .variables
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let front = self.world.front_with(
            &entry.words,
            &[&variables[..], &[("PATH", &*path)]].concat(),
        );
        let answer = Client::new(front).initialize();
        let answer = &answer["result"];
        let how: Value = answer["instructions"]
            .as_str()
            .and_then(|how| serde_json::from_str(how).ok())
            .expect("how");
        let own = former.own_words();
        assert_eq!(answer["serverInfo"]["name"], own[0].as_str(), "{name}");
        assert_eq!(how["words"], Value::from(&own[1..]), "{name}");
        for (variable, value) in &former.variables {
            assert_eq!(
                how["variables"][variable],
                value.as_str(),
                "{name}: {variable}"
            );
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Bytes, mode, owner, group and number of names.
    file: Option<(Vec<u8>, u32, u32, u32, u64)>,
    link: Option<PathBuf>,
    /// What is beside it.
    names: Vec<std::ffi::OsString>,
}

/// Where this host looks for its file.
fn place(host: &str) -> &'static str {
    let places = [
        ("claude", ".claude.json"),
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
        ),
        ("vscode", ".config/Code/User/mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("codex", ".codex/config.toml"),
        ("copilot", ".copilot/mcp-config.json"),
        ("cline", ".cline/data/settings/cline_mcp_settings.json"),
        ("gemini", ".gemini/settings.json"),
        ("windsurf", ".codeium/windsurf/mcp_config.json"),
        ("zed", ".config/zed/settings.json"),
        ("opencode", ".config/opencode/opencode.jsonc"),
        ("roo", ".roo/mcp.json"),
        ("goose", ".config/goose/config.yaml"),
    ];
    places
        .iter()
        .find(|(known, _)| *known == host)
        .expect("a host")
        .1
}

/// What became of each server.
fn outcomes(said: &str, outcome: &str) -> Vec<String> {
    let lines: Value = serde_json::from_str(said).expect("JSON");
    let of = |line: &Value| {
        (line["outcome"] == outcome).then(|| line["server"].as_str().expect("a text").to_owned())
    };
    lines
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(of)
        .collect()
}

/// Wraps what there is, starts each server, does it again, and takes it back.
fn all_of(lines: &[Line]) {
    for (host, name, lies, becomes) in lines {
        let wild = Wild::new(host, name, *lies);
        let before = wild.seen();
        let names: &[&str] = match becomes {
            Refused(why) => {
                let (code, said, errors) = wild.setup(&[host, "--yes"]);
                assert_eq!(code, Some(65), "{name}: {said}{errors}");
                assert!(
                    errors.contains(why) && errors.contains("; it stays as it is"),
                    "{name}: {errors}"
                );
                assert_eq!(wild.seen(), before, "{name}");
                assert!(!wild.copies().exists(), "{name}");
                continue;
            }
            Same => &[],
            Wrapped(names) => names,
        };
        let text = wild.text();
        let (code, said, errors) = wild.setup(&[host, "--yes", "--json"]);
        assert_eq!((code, &*errors), (Some(0), ""), "{name}: {said}");
        assert_eq!(outcomes(&said, "wrapped"), names, "{name}");
        let after = wild.seen();
        assert_eq!(after == before, names.is_empty(), "{name}: {}", wild.text());

        let now = wild.text();
        let (formers, entries) = (entries(host, &text), entries(host, &now));
        assert_eq!(formers.len(), entries.len(), "{name}: {now}");
        let started = [outcomes(&said, "wrapped"), outcomes(&said, "unchanged")].concat();
        if !started.is_empty() {
            let _daemon = wild.world.daemon();
            for server in &started {
                wild.start(
                    &format!("{name}: {server:?}"),
                    &entries[server],
                    &formers[server],
                );
            }
        }
        for (server, entry) in entries
            .iter()
            .filter(|(server, _)| !started.contains(server))
        {
            assert_eq!(*entry, formers[server], "{name}: {server:?}");
        }

        let (code, said, errors) = wild.setup(&[host, "--yes"]);
        assert_eq!((code, &*errors), (Some(0), ""), "{name}: {said}");
        assert!(
            said.ends_with("There is nothing to change.\n"),
            "{name}: {said}"
        );
        assert_eq!(wild.seen(), after, "{name}");

        let (code, said, errors) = wild.setup(&["--undo", "--yes"]);
        assert_eq!((code, &*errors), (Some(0), ""), "{name}: {said}");
        assert_eq!(wild.seen(), before, "{name}");
        assert!(!wild.copies().exists(), "{name}");
    }
}

#[test]
#[ignore = "needs npm"]
fn json_as_people_have_it_is_wrapped_started_and_given_back() {
    all_of(&JSON);
}

#[test]
#[ignore = "needs npm"]
fn toml_and_yaml_as_people_have_them_are_wrapped_started_and_given_back() {
    all_of(&OTHERS);
    all_of(&MADE);
}

#[test]
#[ignore = "needs root"]
fn what_can_t_be_edited_is_said_and_stays_as_it_is() {
    all_of(&REFUSED);
}

#[test]
fn each_file_is_in_a_table() {
    let directory = fs::read_dir(fixture("integration/wild")).expect("the files");
    let mut files = 0;
    for file in directory {
        let name = file
            .expect("a file")
            .file_name()
            .into_string()
            .expect("UTF-8");
        if name.ends_with(".rs") || name.starts_with('.') {
            continue;
        }
        let mut lines = JSON.iter().chain(&OTHERS).chain(&REFUSED).chain(&MADE);
        assert!(lines.any(|line| line.1 == name), "{name} is in no table");
        files += 1;
    }
    assert!(files >= 30, "{files}");
}
