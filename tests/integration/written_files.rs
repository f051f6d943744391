//! Every file that is written is in the tables of docs/security.md, with its mode. What those tables
//! say is compared with what a daemon, wrappers, `serve`, `setup` and `import` leave in a home
//! directory, where no umask protects anything.

use std::collections::BTreeMap;
use std::fs::{self, read_to_string};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mcp_sessiond_tests::{Client, Front, World};
use serde_json::{Value, json};

use crate::wrap::tiny;
use crate::{fixture, world};

/// What no command here leaves behind: it is there for a moment, or only on some systems, or
/// another test looks at its mode.
const NOT_HERE: [&str; 9] = [
    "closed/*",
    "ended/*",
    "config.toml",
    "contents.db-redo",
    "daemon.log.1",
    "logins/*",
    "sessions.db-shm",
    "sessions.db.set-aside",
    "contents.db-shm",
];

/// The names in the page's first two tables, of the runtime directory and of the configuration's,
/// with the mode beside them.
fn tables() -> [BTreeMap<String, String>; 2] {
    let page = read_to_string(fixture("../docs/security.md")).expect("the page");
    let (_, section) = page
        .split_once("## Every file that is written")
        .expect("the section");
    let mut tables = section.split("| file | mode |").skip(1).map(|table| {
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with("| "));
        let rows = rows.flat_map(|row| {
            let mut cells = row.trim_matches(['|', ' ']).split(" | ");
            let (files, mode) = (cells.next().expect("files"), cells.next().expect("a mode"));
            let names = files.split('`').skip(1).step_by(2);
            names.map(|name| (name.to_owned(), mode.to_owned()))
        });
        rows.collect()
    });
    std::array::from_fn(|_| tables.next().expect("a table"))
}

/// `mcp-sessiond` with these arguments, and a umask that takes nothing away.
fn open(world: &World, arguments: &[&str]) -> Command {
    let mut command = world.command("sh");
    command
        .args(["-c", "umask 0; exec \"$@\"", "sh", world.binaries.daemon])
        .args(arguments)
        .current_dir(world.root())
        .env(
            "MCP_SESSIOND_CONFIG",
            world.root().join("config/config.toml"),
        )
        .env("HOME", world.root().join("home"))
        .env_remove("CLAUDE_CONFIG_DIR");
    command
}

#[track_caller]
fn run(mut command: Command, input: &str) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it runs");
    let mut pipe = child.stdin.take().expect("piped");
    pipe.write_all(input.as_bytes()).expect("written");
    drop(pipe);
    let ended = child.wait_with_output().expect("it ends");
    assert!(ended.status.success(), "{ended:?}");
}

/// Every file and socket below a directory, by its path from there.
fn files(directory: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a directory") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        if entry.file_type().expect("a type").is_dir() {
            let mode = entry.metadata().expect("there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o700, "{}", path.display());
            files(directory, &path, found);
        } else {
            found.push(path.strip_prefix(directory).expect("below it").to_owned());
        }
    }
}

fn is_of(pattern: &str, path: &str) -> bool {
    pattern
        .split_once('*')
        .map_or(pattern == path, |(begin, end)| {
            path.len() > begin.len() + end.len() && path.starts_with(begin) && path.ends_with(end)
        })
}

/// The files of the runtime directory, and of the configuration's.
fn written(world: &World) -> [Vec<String>; 2] {
    [world.directory(), world.root().join("config")].map(|directory| {
        let mut found = Vec::new();
        files(&directory, &directory, &mut found);
        let text = |path: PathBuf| path.into_os_string().into_string().expect("UTF-8");
        found.into_iter().map(text).collect()
    })
}

fn mode(path: impl AsRef<Path>) -> String {
    let meta = fs::symlink_metadata(path).expect("there");
    format!("{:04o}", meta.permissions().mode() & 0o7777)
}

/// Takes away the names of files that are there, and returns what is wrong with them.
fn compare(world: &World, missing: &mut [BTreeMap<String, String>; 2]) -> Vec<String> {
    let mut wrong = Vec::new();
    let directories = [world.directory(), world.root().join("config")];
    let tables = tables();
    for (at, found) in written(world).iter().enumerate() {
        for path in found {
            let mode = mode(directories[at].join(path));
            let row = tables[at].iter().find(|(name, _)| is_of(name, path));
            if row.is_none_or(|(_, said)| *said != mode) {
                wrong.push(format!("{path} has {mode}; the page has {row:?}"));
            }
            missing[at].retain(|name, _| !is_of(name, path));
        }
    }
    wrong
}

#[test]
fn the_page_of_security_has_every_file_with_its_mode() {
    let world = world("");
    let home = world.root().join("home");
    fs::create_dir(&home).expect("a home");
    let server = tiny(&world);
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let entry = json!({"command": server[0], "args": server[1..]});
    let host_file = json!({"mcpServers": {"tiny": entry}});
    let of_host = home.join(".claude.json");
    fs::write(&of_host, host_file.to_string()).expect("a host's file");
    fs::set_permissions(&of_host, fs::Permissions::from_mode(0o640)).expect("ours");
    let wrap = |options: &[&str], server: &[&str]| {
        let arguments = [&["wrap"], options, server].concat();
        Client::connected(Front::spawn(open(&world, &arguments)))
    };
    run(open(&world, &["import", "--from", "claude"]), "");

    // There is no daemon yet, so these are run unkept.
    let unkept = [&["--no-start"][..], &["--no-start", "--name", "mine"]];
    let mut unkept = unkept.map(|options| wrap(options, &server));
    assert!(unkept.iter_mut().all(|client| client.count() > 0));
    let mut missing = tables();
    let mut wrong = compare(&world, &mut missing);
    for client in &mut unkept {
        client.pipe.close();
    }

    run(open(&world, &["setup", "claude", "--yes"]), "");
    let mut kept = wrap(&[], &server);
    assert!(kept.count() > 0);
    // A shell that stays: the session is its own.
    let script = "umask 0; printf one | \"$0\" token store --for $$; exit $?";
    let mut store = world.command("sh");
    store
        .args(["-c", script, world.binaries.daemon])
        .env("HOME", &home);
    run(store, "");
    let file = world.root().join("config/servers.json");
    let imported = read_to_string(&file).expect("imported");
    let mut servers: Value = serde_json::from_str(&imported).expect("JSON");
    servers["mcpServers"]["tiny"]["shared"] = json!(true);
    // The mode stays as it is.
    fs::write(&file, servers.to_string()).expect("written");
    let mut shared = wrap(&[], &["@tiny"]);
    assert!(shared.count() > 0);
    let listen = world.root().join("serve.sock");
    let listen = listen.to_str().expect("UTF-8");
    let address = format!("unix:{listen}");
    let arguments = [
        &["serve", "--listen", &address, "--token", "--"],
        &server[..],
    ]
    .concat();
    let mut serve = open(&world, &arguments);
    let mut serve = serve.stdout(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(serve.stdout.take().expect("piped"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert!(line.starts_with("listening at "), "{line}");

    wrong.extend(compare(&world, &mut missing));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        (mode(listen), mode(&of_host)),
        ("0600".into(), "0640".into())
    );
    let in_home: Vec<_> = fs::read_dir(&home).expect("a home").collect();
    assert_eq!(in_home.len(), 1, "{in_home:?}");
    for name in NOT_HERE {
        let was_there = missing.iter_mut().any(|table| table.remove(name).is_some());
        assert!(
            was_there || tables().iter().any(|table| table.contains_key(name)),
            "{name}"
        );
    }
    assert!(
        missing.iter().all(BTreeMap::is_empty),
        "no command left {missing:?}"
    );
    serve.kill().expect("ours");
    serve.wait().expect("it ends");
    shared.pipe.close();
    kept.pipe.close();
}
