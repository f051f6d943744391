//! Lines that no other test looks for, as their commands print them.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::os::unix::net::UnixListener;
use std::process::Command;

use mcp_sessiond_proto::hello::{Answer, HELLO_LEN, Hello};
use mcp_sessiond_tests::{Client, until};

use super::assert_row;
use crate::{needs_root, world};

/// What is provoked here.
pub(super) const ROWS: &[&str] = &[
    HELD,
    NEVER,
    REWRITTEN,
    "another daemon holds the lock",
    "… belongs to uid",
    "protocol version",
    "the server ended",
    "the daemon can't identify this process",
];

const HELD: &str = "Nothing is resumed: <why>";
const NEVER: &str = "Nothing is resumed, now or later: this host";
const REWRITTEN: &str = "Nothing is resumed, now or later: what this process";

/// What a command writes to its standard error, and its exit code.
fn errors(mut command: Command) -> (Option<i32>, String) {
    let said = command.output().expect("it runs");
    (
        said.status.code(),
        String::from_utf8(said.stderr).expect("UTF-8"),
    )
}

#[test]
fn of_two_servers_that_nothing_distinguishes() {
    let world = world("claim_wait_ms = 50");
    let _daemon = world.daemon();
    let host = world.host();
    let _holder = host.holder(&[], "mine");
    host.instance(&[]).load().assert_fresh();
    assert_row(HELD, &host.log.wait("Nothing is resumed: "));
}

#[test]
fn of_a_host_with_several_clients() {
    let world = world("");
    let _daemon = world.daemon();
    assert_row(
        NEVER,
        &errors(world.sessiond(&["token", "load", "--siblings", "never"])).1,
    );
}

#[test]
#[ignore = "needs perl"]
fn of_a_process_that_has_rewritten_its_command_line() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let script = r#"$0 = "a title"; system($ARGV[0], qw(token load --for), $$)"#;
    let mut server = host.server(&["perl", "-e", script, world.binaries.daemon]);
    server.wait();
    assert_row(
        REWRITTEN,
        &host.log.wait("Nothing is resumed, now or later: "),
    );
}

#[test]
fn of_a_second_daemon() {
    let world = world("");
    let _daemon = world.daemon();
    let (code, said) = errors(world.sessiond(&["run"]));
    assert_eq!(code, Some(75), "{said}");
    assert_row("another daemon holds the lock", &said);
}

#[test]
#[ignore = "needs root"]
fn of_a_directory_of_another_user() {
    needs_root("to give a directory away");
    let world = world("");
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(world.directory())
        .expect("made");
    chown(world.directory(), Some(65534), None).expect("given away");
    let (code, said) = errors(world.sessiond(&["run"]));
    assert_eq!(code, Some(70), "{said}");
    assert_row("… belongs to uid", &said);
}

#[test]
fn of_a_daemon_of_another_protocol() {
    let world = world("");
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(world.directory())
        .expect("made");
    let listener = UnixListener::bind(world.socket()).expect("listening");
    let token = std::thread::spawn({
        let command = world.sessiond(&["token", "load", "--no-start"]);
        || errors(command)
    });
    // Whoever only looks whether somebody listens says nothing.
    until("a hello", || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut hello = [0; HELLO_LEN];
        client.read_exact(&mut hello).ok()?;
        let mut answer = Hello::decode(&hello)
            .expect("a hello")
            .reply(Answer::Version);
        answer.version = 9;
        client.write_all(&answer.encode()).ok()
    });
    let (code, said) = token.join().expect("no panic");
    assert_eq!(code, Some(4), "{said}");
    assert_row("protocol version", &said);
}

#[test]
fn of_a_server_that_does_not_start() {
    let world = world("");
    let _daemon = world.daemon();
    let server = ["sh", "-c", "echo no licence >&2; exit 1"].map(String::from);
    let mut client = Client::new(world.front(&world.wrapping(&[], &server)));
    let answer = client.initialize();
    let message = answer["error"]["message"]
        .as_str()
        .unwrap_or_else(|| panic!("no error: {answer}"));
    assert_row("the server ended", message);
    assert!(message.contains("no licence"), "{message}");
}

#[test]
#[ignore = "needs root"]
fn of_a_daemon_in_another_pid_namespace() {
    needs_root("for a pid namespace");
    let world = world("");
    let run = world.sessiond(&["run"]);
    let mut apart = world.command("unshare");
    apart
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(run.get_program())
        .args(run.get_args());
    let daemon = world.spawn(apart);
    daemon.ready();
    let (code, said) = errors(world.sessiond(&["token", "load", "--no-start"]));
    assert_eq!(code, Some(4), "{said}");
    assert_row("the daemon can't identify this process", &said);
}
