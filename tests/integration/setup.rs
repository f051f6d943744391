//! `mcp-sessiond setup`, on files as the hosts write them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use mcp_sessiond_process::fault;
use mcp_sessiond_tests::{Client, SmallDisk, World, copy_program};
use serde_json::{Value, json};

use crate::import::hosts;
use crate::world;
use crate::wrap::tiny;

/// What must never be said.
const SECRET: &str = "an-open-secret";

fn home(world: &World) -> PathBuf {
    world.root().join("home")
}

fn command(world: &World, words: &[&str]) -> Command {
    let mut command = world.sessiond(&[&["setup"], words].concat());
    command.env("HOME", home(world));
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
fn setup(world: &World, words: &[&str]) -> (Option<i32>, String, String) {
    let output = command(world, words)
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let (said, errors) = (text(output.stdout), text(output.stderr));
    assert!(
        !said.contains(SECRET) && !errors.contains(SECRET),
        "{said}{errors}"
    );
    (output.status.code(), said, errors)
}

/// Writes a host's file. Where it is.
fn write(world: &World, file: &str, text: &str) -> PathBuf {
    let file = home(world).join(file);
    fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
    fs::write(&file, text).expect("a host's file");
    file
}

fn read(file: &PathBuf) -> String {
    fs::read_to_string(file).expect("a host's file")
}

/// Where the copies are.
fn copies(world: &World) -> PathBuf {
    world.root().join("setup")
}

const CURSOR: &str = ".cursor/mcp.json";

#[test]
fn each_host_s_file_is_wrapped_and_given_back_byte_for_byte() {
    let world = world("");
    let files: Vec<_> = hosts()
        .into_iter()
        .map(|(host, file, text, _)| (host, write(&world, file, &text), text))
        .collect();
    let (code, said, errors) = setup(&world, &["--dry-run"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(
        errors.lines().count() == 1 && errors.contains("Codex is left out"),
        "{errors}"
    );
    assert!(files.iter().all(|(_, file, text)| read(file) == *text) && !copies(&world).exists());

    let (code, said, errors) = setup(&world, &["--yes"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    let untouched: Vec<_> = files
        .iter()
        .filter(|(_, file, text)| read(file) == *text)
        .map(|(host, ..)| *host)
        .collect();
    assert_eq!(untouched, ["codex"], "nothing is kept there");
    assert_eq!(setup(&world, &["codex", "--yes"]).0, Some(0));
    for (host, file, text) in &files {
        let now = read(file);
        assert!(
            now != *text && now.contains("\"wrap\", \"--entry\", \"NAME\", \"--\", \"npx\""),
            "{host}: {now}"
        );
        let (code, said, errors) = setup(&world, &[host, "--yes"]);
        assert_eq!(
            (code, &*errors, read(file)),
            (Some(0), "", now),
            "{host}: {said}"
        );
        assert!(
            said.contains("NAME: is wrapped already")
                && said.ends_with("There is nothing to change.\n")
        );
    }
    for copy in fs::read_dir(copies(&world)).expect("copies") {
        let mode = copy
            .expect("a copy")
            .metadata()
            .expect("its mode")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    let (code, said, errors) = setup(&world, &["--undo", "--yes"]);
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    for (host, file, text) in &files {
        assert_eq!(read(file), *text, "{host}");
    }
    assert!(!copies(&world).exists());
}

#[test]
fn a_wrapped_server_survives_its_wrapper() {
    let world = world("");
    let _daemon = world.daemon();
    let words = tiny(&world);
    let text =
        json!({"mcpServers": {"tiny": {"command": words[0], "args": words[1..]}}}).to_string();
    let file = write(&world, CURSOR, &text);
    assert_eq!(setup(&world, &["cursor", "--yes"]).0, Some(0));
    let entry: Value = serde_json::from_str(&read(&file)).expect("JSON");
    let entry = &entry["mcpServers"]["tiny"];
    let arguments = entry["args"].as_array().expect("arguments").iter();
    let line: Vec<String> = [&entry["command"]]
        .into_iter()
        .chain(arguments)
        .map(|word| word.as_str().expect("a word").to_owned())
        .collect();
    let mut client = Client::connected(world.front(&line));
    assert_eq!(client.call("increment", json!({})), "1");
    client.pipe.kill();
    let mut client = Client::connected(world.front(&line));
    assert_eq!(client.call("increment", json!({})), "2");
}

#[test]
fn what_is_no_command_and_what_surrounds_it_stay_as_they_are() {
    let world = world("");
    let text = format!(
        "\u{feff}{{\r\n  \"mcpServers\": {{ // mine\r\n    \"web\": {{\"url\": \"https://example.com\", \"headers\": {{\"Authorization\": \"{SECRET}\"}}}},\r\n    \
         \"files\": {{\"command\": \"npx\", \"args\": [\"files\", \"--token\", \"{SECRET}\",], \"cwd\": \"${{workspaceFolder}}\", \"envFile\": \".env\"}},\r\n    \
         \"odd\": {{\"command\": 7}},\r\n    \"git\": {{\"command\": \"uvx\", \"args\": [\"git\"]}},\r\n  }},\r\n  \"more\": [1, 2,],\r\n}}\r\n"
    );
    let real = write(&world, "dotfiles/mcp.json", &text);
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("a mode");
    let link = home(&world).join(CURSOR);
    fs::create_dir_all(link.parent().expect("a directory")).expect("a directory");
    symlink(&real, &link).expect("a link");

    let (code, said, errors) = setup(&world, &["cursor", "--only", "files", "--yes"]);
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    let ours = world
        .sessiond(&[])
        .get_program()
        .to_str()
        .expect("UTF-8")
        .to_owned();
    let expected = text.replace(
        "\"npx\", \"args\": [\"files\"",
        &format!(
            "\"{ours}\", \"args\": [\"wrap\", \"--entry\", \"files\", \"--\", \"npx\", \"files\""
        ),
    );
    assert_eq!(read(&real), expected);
    assert!(link.is_symlink());
    assert_eq!(real.metadata().expect("its mode").mode() & 0o777, 0o640);
    assert!(said.contains("    - npx files …\n"), "{said}");

    let (_, said, _) = setup(&world, &["cursor", "--json", "--dry-run"]);
    let lines: Value = serde_json::from_str(&said).expect("JSON");
    let outcome = |name: &str| {
        let line = lines
            .as_array()
            .expect("lines")
            .iter()
            .find(|line| line["server"] == name)
            .expect("it is listed");
        line["outcome"].as_str().expect("a text").to_owned()
    };
    assert_eq!(
        ["web", "files", "odd", "git"].map(outcome),
        ["skipped", "unchanged", "skipped", "wrapped"]
    );

    // A second round, and an edit by somebody else: only our words go.
    assert_eq!(setup(&world, &["cursor", "--yes"]).0, Some(0));
    let edited = read(&real).replace("\"more\": [1, 2,]", "\"more\": [3]");
    fs::write(&real, &edited).expect("an edit");
    let (code, said, errors) = setup(&world, &["cursor", "--undo", "--yes"]);
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    assert_eq!(
        read(&real),
        text.replace("\"more\": [1, 2,]", "\"more\": [3]")
    );
}

#[test]
fn what_can_t_be_edited_safely_is_refused_and_stays_as_it_is() {
    let world = world("");
    let server = r#""a": {"command": "x"}"#;
    for (text, says) in [
        (
            format!(r#"{{"mcpServers": {{{server}, {server}}}}}"#),
            "it has \"a\" twice in one place; remove one",
        ),
        (
            format!("{{\"mcpServers\": {{\n\"a\": {SECRET}"),
            "it is not JSON at line 2",
        ),
        (
            "{\"mcpServers\": []}".to_owned(),
            "`mcpServers` must be an object",
        ),
    ] {
        let file = write(&world, CURSOR, &text);
        let (code, _, errors) = setup(&world, &["cursor", "--yes"]);
        assert!(
            code == Some(65) && errors.contains(says) && errors.contains("it stays as it is"),
            "{errors}"
        );
        assert_eq!(read(&file), text);
    }
    let text = format!(r#"{{"mcpServers": {{{server}}}}}"#);
    let file = write(&world, CURSOR, &text);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).expect("a mode");
    let (code, _, errors) = setup(&world, &["cursor", "--yes"]);
    assert!(
        code == Some(65) && errors.contains("read-only; if it is yours to edit: chmod u+w"),
        "{errors}"
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::hard_link(&file, home(&world).join("other")).expect("a link");
    let (code, _, errors) = setup(&world, &["cursor", "--yes"]);
    assert!(
        code == Some(65) && errors.contains("several names"),
        "{errors}"
    );
    fs::remove_file(home(&world).join("other")).expect("a link");

    let (code, _, errors) = setup(&world, &["cursor"]);
    assert!(
        code == Some(64) && errors.contains("pass --yes"),
        "{errors}"
    );
    let (code, _, errors) = setup(&world, &["cursor", "--only", "b", "--yes"]);
    assert!(
        code == Some(66) && errors.contains("no server \"b\""),
        "{errors}"
    );
    let (code, _, errors) = setup(&world, &["zed", "--yes"]);
    assert!(
        code == Some(66) && errors.contains(".config/zed/settings.json"),
        "{errors}"
    );
    let (code, _, errors) = setup(&world, &["cursor", "--undo", "--yes"]);
    assert!(
        code == Some(66) && errors.contains("has changed no such file"),
        "{errors}"
    );
    assert_eq!(read(&file), text);
    assert!(!copies(&world).exists());
}

#[test]
#[ignore = "needs root"]
fn nothing_is_lost_when_the_disk_is_full() {
    let world = world("");
    let directory = home(&world).join(".cursor");
    fs::create_dir_all(&directory).expect("a directory");
    let _disk = SmallDisk::mount(&directory, "64k");
    let text = r#"{"mcpServers": {"a": {"command": "x"}}}"#;
    let file = write(&world, CURSOR, text);
    let _ = fs::write(directory.join("filling"), vec![0; 1 << 16]);
    let (code, _, errors) = setup(&world, &["cursor", "--yes"]);
    assert!(
        code == Some(73) && errors.contains("is as it was"),
        "{errors}"
    );
    assert_eq!(read(&file), text);
    let left: Vec<_> = fs::read_dir(&directory)
        .expect("it is there")
        .map(|entry| entry.expect("one").file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_kill_in_the_middle_leaves_the_one_or_the_other() {
    let world = world("");
    let text = r#"{"mcpServers": {"a": {"command": "x", "args": ["y"]}}}"#;
    let file = write(&world, CURSOR, text);
    let killed = |words: &[&str], point: &str, passes: usize| {
        let mut command = command(&world, words);
        let ended = command
            .env(fault::VARIABLE, format!("{point}:{passes}"))
            .output()
            .expect("it runs")
            .status;
        assert_eq!(ended.signal(), Some(9), "{words:?} {point}:{passes}");
        read(&file)
    };
    let wrapped = {
        assert_eq!(setup(&world, &["cursor", "--yes"]).0, Some(0));
        read(&file)
    };
    assert_eq!(setup(&world, &["--undo", "--yes"]).0, Some(0));
    for point in fault::FILE_POINTS {
        // The record, then the host's file.
        for passes in [0, 1] {
            let is_there = passes == 1 && point == "file-renamed";
            let expected = if is_there { &*wrapped } else { text };
            assert_eq!(
                killed(&["cursor", "--yes"], point, passes),
                expected,
                "{point}:{passes}"
            );
            // What a record that was written too early would spoil.
            assert_eq!(setup(&world, &["cursor", "--yes"]).0, Some(0));
            assert_eq!(read(&file), wrapped);
            let expected = if point == "file-renamed" {
                text
            } else {
                &*wrapped
            };
            assert_eq!(
                killed(&["--undo", "--yes"], point, 0),
                expected,
                "undo {point}"
            );
            assert_eq!(setup(&world, &["--undo", "--yes"]).0, Some(0));
            assert_eq!(read(&file), text);
            let left: Vec<_> = fs::read_dir(file.parent().expect("a directory"))
                .expect("it is there")
                .collect();
            assert_eq!(left.len(), 1, "{left:?}");
            assert!(!copies(&world).exists());
        }
    }
}

#[test]
fn several_servers_are_named_in_any_order() {
    let world = world("");
    let file = write(
        &world,
        CURSOR,
        r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}, "c": {"command": "z"}}}"#,
    );
    let (code, said, errors) = setup(
        &world,
        &[
            "cursor", "--yes", "--only", "c", "--only", "a", "--only", "a",
        ],
    );
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    assert!(
        read(&file).contains(r#""b": {"command": "y"}"#)
            && read(&file).matches("wrap").count() == 2
    );
    let (code, _, errors) = setup(&world, &["cursor", "--only", "b", "--only", "d"]);
    assert_eq!(code, Some(66), "{errors}");
}

#[test]
fn what_somebody_has_changed_since_is_taken_back_or_said() {
    let world = world("");
    let file = write(
        &world,
        CURSOR,
        r#"{"mcpServers": {"a": {"command": "x", "args": ["-v"]}, "b": {"command": "y", "args": ["-v"]}}}"#,
    );
    assert_eq!(setup(&world, &["cursor", "--yes"]).0, Some(0));
    let wrapped = read(&file);
    // Another name: it is still ours to take back.
    fs::write(&file, wrapped.replace("\"a\"", "\"another\"")).expect("written");
    assert_eq!(setup(&world, &["--undo", "--yes"]).0, Some(0));
    assert_eq!(
        read(&file),
        r#"{"mcpServers": {"another": {"command": "x", "args": ["-v"]}, "b": {"command": "y", "args": ["-v"]}}}"#
    );

    // Options of their own: that is for them to change, and the copy stays until then.
    assert_eq!(setup(&world, &["cursor", "--yes"]).0, Some(0));
    fs::write(
        &file,
        read(&file).replacen("\"--\"", "\"--fresh\", \"--\"", 1),
    )
    .expect("written");
    let (code, _, errors) = setup(&world, &["--undo", "--yes"]);
    assert_eq!(code, Some(65), "{errors}");
    assert!(
        errors.contains("still runs mcp-sessiond for another, since somebody has changed that"),
        "{errors}"
    );
    assert!(copies(&world).exists());
    fs::write(&file, read(&file).replacen("\"--fresh\", ", "", 1)).expect("written");
    assert_eq!(setup(&world, &["--undo", "--yes"]).0, Some(0));
    assert!(
        !read(&file).contains("wrap") && !copies(&world).exists(),
        "{}",
        read(&file)
    );
}

#[test]
fn an_executable_in_a_cache_is_copied_to_where_it_stays() {
    let world = world("");
    let cache = world.root().join("_npx/bin");
    fs::create_dir_all(&cache).expect("a directory");
    let usual = command(&world, &[]);
    let passing = cache.join("mcp-sessiond");
    copy_program(usual.get_program(), &passing);
    let file = write(&world, CURSOR, r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    let run = |words: &[&str]| {
        let mut from_cache = Command::new(&passing);
        for (name, value) in usual.get_envs() {
            match value {
                Some(value) => from_cache.env(name, value),
                None => from_cache.env_remove(name),
            };
        }
        let output = from_cache
            .arg("setup")
            .args(words)
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let lasting = home(&world).join(".local/bin/mcp-sessiond");
    let said = run(&["--dry-run"]);
    let promised = format!("It will be copied to {}.", lasting.display());
    assert!(said.contains(&promised) && !lasting.exists(), "{said}");
    run(&["--yes"]);
    let entry: Value = serde_json::from_str(&read(&file)).expect("JSON");
    assert_eq!(
        entry["mcpServers"]["a"]["command"],
        lasting.to_str().expect("UTF-8")
    );
    assert_eq!(
        fs::read(&lasting).expect("it is there"),
        fs::read(&passing).expect("it is there")
    );
    // A second run changes nothing.
    assert!(run(&["--yes"]).ends_with("There is nothing to change.\n"));
}

#[test]
fn servers_of_single_projects_in_claude_code_s_file_are_wrapped_and_given_back() {
    let world = world("");
    let text = r#"{
  "mcpServers": {"a": {"command": "x"}},
  "projects": {
    "/one": {"history": [], "mcpServers": {"a": {"type": "stdio", "command": "y", "args": ["-v"], "env": {}}}},
    "/two": {"mcpServers": {"b": {"command": "z"}}},
    "/three": {}
  }
}"#;
    let file = write(&world, ".claude.json", text);
    let (code, said, errors) = setup(&world, &["claude", "--yes", "--only", "b"]);
    assert_eq!((code, &*errors), (Some(0), ""), "{said}");
    assert!(
        said.contains("  b (/two)\n") && read(&file).matches("wrap").count() == 1,
        "{said}"
    );
    assert_eq!(setup(&world, &["claude", "--yes"]).0, Some(0));
    let now = read(&file);
    assert!(
        now.contains(r#""args": ["wrap", "--entry", "a", "--", "y", "-v"], "env": {}"#)
            && now.matches("wrap").count() == 3
    );
    let (code, said, _) = setup(&world, &["claude", "--yes"]);
    assert!(
        code == Some(0) && said.contains("a (/one): is wrapped already"),
        "{said}"
    );
    assert_eq!(setup(&world, &["--undo", "--yes"]).0, Some(0));
    assert_eq!(read(&file), text);
}

#[test]
fn one_file_that_is_refused_or_one_copy_that_is_broken_is_no_reason_to_leave_the_others() {
    let world = world("");
    let text = r#"{"mcpServers": {"a": {"command": "x"}}}"#;
    let file = write(&world, CURSOR, text);
    let broken = write(&world, ".config/Code/User/mcp.json", "{");
    let (code, said, errors) = setup(&world, &["--yes"]);
    assert_eq!(code, Some(65), "{said}{errors}");
    assert!(
        errors.contains("it is not JSON") && said.contains("1 file was changed. Restart"),
        "{said}{errors}"
    );
    assert_eq!(read(&broken), "{");

    let record = copies(&world).join("zed-00000000.json");
    fs::write(&record, "").expect("written");
    let (code, said, errors) = setup(&world, &["--undo", "--yes"]);
    assert!(
        code == Some(65) && errors.contains("zed-00000000.json"),
        "{said}{errors}"
    );
    assert_eq!(read(&file), text, "{said}");
}

#[test]
fn what_is_shown_of_a_file_does_nothing_to_a_terminal() {
    let world = world("");
    let entries = json!({"mcpServers": {
        "evil\u{1b}[2K\nDone.": {"command": "x\u{1b}[1A"}, "line": {"command": format!("npx -y foo --key {SECRET}")},
    }});
    let file = write(&world, CURSOR, &entries.to_string());
    let (code, said, _) = setup(&world, &["cursor", "--dry-run"]);
    assert_eq!(code, Some(0));
    assert!(
        !said.contains('\u{1b}') && !said.contains("\nDone."),
        "{said:?}"
    );
    assert!(
        said.contains("line: stays as it is: its command is a whole command line"),
        "{said}"
    );
    assert_eq!(read(&file), entries.to_string());
}

#[test]
fn with_json_nobody_is_asked() {
    let world = world("");
    let text = r#"{"mcpServers": {"a": {"command": "x"}}}"#;
    let file = write(&world, CURSOR, text);
    let (code, said, errors) = setup(&world, &["cursor", "--json"]);
    assert_eq!((code, &*said), (Some(64), ""));
    assert!(
        errors.contains("add --yes or --dry-run") && read(&file) == text,
        "{errors}"
    );
    let (code, said, _) = setup(&world, &["cursor", "--json", "--yes"]);
    let lines: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, &lines[0]["outcome"]), (Some(0), &json!("wrapped")));
}
