//! `wrap @NAME`: a server that the user has written down in `servers.json`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use mcp_sessiond_tests::{World, gone};
use serde_json::{Value, json};

use super::{connect, tiny};
use crate::world;

/// The secret that servers of these tests get.
const SECRET: &str = "an open secret";

/// Writes `servers.json`, in which a counter has these variables.
fn write_down(world: &World, variables: &Value) {
    let command = tiny(world);
    let counter =
        json!({"command": command[0], "args": &command[1..], "env": variables, "disabled": true});
    let file = json!({"inputs": [], "mcpServers": {"a counter": counter, "neither": {"env": {}}}});
    fs::write(world.root().join("servers.json"), file.to_string()).expect("servers.json");
}

#[test]
fn a_server_of_the_file_outlives_its_wrap_and_begins_afresh_once_it_is_edited() {
    let world = world("");
    let _daemon = world.daemon();
    fs::write(world.root().join("key"), "secret\n").expect("a file");
    write_down(&world, &json!({"KEY": "${file:key}"}));
    let named = ["@a counter".to_owned()];
    let mut client = connect(&world, &named);
    assert_eq!(client.count(), 1);
    let pid = world.backend().pid();
    client.pipe.close();
    drop(client);

    let mut client = connect(&world, &named);
    assert_eq!((client.count(), world.backend().pid()), (2, pid));
    client.pipe.close();
    drop(client);

    // It is another server now, and the former one has nobody who could come back to it.
    write_down(&world, &json!({"KEY": "another"}));
    let mut client = connect(&world, &named);
    assert_eq!(client.count(), 1);
    gone(pid);
}

/// What its user does on purpose is no loss, whatever the server is called by.
#[test]
fn it_is_stopped_and_restarted_by_its_name_which_is_no_loss() {
    let world = world("");
    let _daemon = world.daemon();
    write_down(&world, &json!({}));
    let mut client = connect(&world, &["@a counter".to_owned()]);
    for verb in ["stop", "restart"] {
        client.count();
        let former = world.backend().pid();
        let done = world.sessiond(&[verb, "a counter"]).output();
        let done = done.expect("it runs");
        assert!(done.status.success(), "{done:?}");
        gone(former);
        assert_eq!(client.count(), 1, "{verb}");
    }
    let status = world.sessiond(&["status", "--json"]).output();
    let status = status.expect("it runs").stdout;
    let status: Value = serde_json::from_slice(&status).expect("JSON");
    assert_eq!(status["lost"], json!([]));
    let told = client.pipe.errors.text();
    assert!(!told.contains("lost") && !told.contains("killed"), "{told}");
}

/// Writes down a server that does nothing but store its variable KEY, which stands for this secret
/// of the desktop's store. Returns the command that runs it, and where it stores the variable.
fn write_down_keyring(world: &World, name: &str) -> (Command, PathBuf) {
    let seen = world.root().join("seen");
    let script = "printf %s \"$KEY\" > \"$1\"";
    let server = json!({"command": "sh", "args": ["-c", script, "sh", seen], "env": {"KEY": format!("${{keyring:{name}}}")}});
    fs::write(
        world.root().join("servers.json"),
        json!({"mcpServers": {"a": server}}).to_string(),
    )
    .expect("servers.json");
    (world.sessiond(&["wrap", "--no-start", "@a"]), seen)
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs dbus"]
fn a_secret_of_the_desktop_s_store_is_looked_up_and_one_that_is_not_there_is_named() {
    let world = world("");
    // A Secret Service on a bus of its own, as there is one in each desktop's session.
    let desktop = |command: &Command, stays: bool| {
        let script = "printf a | gnome-keyring-daemon --unlock --components=secrets >/dev/null && \
                      printf %s \"$SECRET\" | secret-tool store --label=x service a/b account me && exec \"$@\"";
        let mut desktop = world.command("dbus-run-session");
        desktop
            .args(["--", "sh", "-c", script, "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        for directory in ["HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME"] {
            desktop.env(directory, world.root());
        }
        desktop
            .env("SECRET", SECRET)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut desktop = desktop
            .spawn()
            .expect("dbus-run-session, of the package dbus");
        // A host that closes its end at once gets no server.
        let input = desktop.stdin.take().filter(|_| stays);
        let output = desktop.wait_with_output().expect("it ends");
        drop(input);
        output
    };
    let (command, seen) = write_down_keyring(&world, "a/b/me");
    let output = desktop(&command, true);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        fs::read_to_string(seen).ok().as_deref(),
        Some(SECRET),
        "{said}"
    );
    assert!(!said.contains(SECRET), "{said}");

    let (command, _) = write_down_keyring(&world, "a/b/you");
    let output = desktop(&command, false);
    let said = String::from_utf8_lossy(&output.stderr);
    let sentence = "there is no secret of the service \"a/b\" and the account \"you\"; store it with: \
                    secret-tool store --label='a/b' service 'a/b' account 'you'\n";
    assert!(said.ends_with(sentence), "{said}");
    assert_eq!(output.status.code(), Some(65));
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs secret-tool"]
fn a_store_of_secrets_that_is_not_there_is_said_with_a_mend() {
    let world = world("");
    let (mut command, _) = write_down_keyring(&world, "a/me");
    let output = command.env("PATH", world.root()).output().expect("it runs");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        said.contains("${keyring:a/me} needs the program secret-tool; it comes with libsecret"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(65));

    // The program is there, but there is no desktop.
    let (mut command, _) = write_down_keyring(&world, "a/me");
    let nowhere = format!("unix:path={}", world.root().join("no-bus").display());
    let output = command
        .env("DBUS_SESSION_BUS_ADDRESS", nowhere)
        .output()
        .expect("it runs");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        said.contains("${keyring:a/me} could not be read; secret-tool: "),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(65));
}

#[test]
fn what_is_not_in_the_file_or_can_t_be_run_is_said() {
    let world = world("");
    let said = |words: &[&str]| {
        let output = world
            .sessiond(&[&["wrap"], words].concat())
            .output()
            .expect("it runs");
        (
            output.status.code(),
            String::from_utf8(output.stderr).expect("UTF-8"),
        )
    };
    let path = world.root().join("servers.json");
    let path = path.to_str().expect("UTF-8");
    let (code, sentence) = said(&["@a"]);
    assert_eq!(
        (code, sentence.contains(&format!("there is no {path}"))),
        (Some(66), true),
        "{sentence}"
    );
    write_down(&world, &json!({}));
    let unknown = format!(
        "mcp-sessiond: there is no server \"b\" in {path}; there are: a counter, neither\n"
    );
    assert_eq!(said(&["--", "@b"]), (Some(66), unknown));
    let (code, sentence) = said(&["--fresh", "@neither"]);
    assert_eq!(
        (
            code,
            sentence.contains("it has neither a `command` nor a `url`")
        ),
        (Some(65), true),
        "{sentence}"
    );
    let more =
        "mcp-sessiond: the arguments of @a counter are in servers.json; none may follow it\n";
    assert_eq!(said(&["@a counter", "x"]), (Some(64), more.to_owned()));
    fs::write(path, "{\"servers\": 1}").expect("servers.json");
    let (code, sentence) = said(&["@a"]);
    assert_eq!(
        (
            code,
            sentence.contains("an object, with a server under each name at line 1")
        ),
        (Some(65), true),
        "{sentence}"
    );
}
