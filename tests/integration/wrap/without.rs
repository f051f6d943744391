//! Where a server can't be kept, it is run as it is; and what can't be run is said so, as a shell
//! does.

use mcp_sessiond_tests::{Client, Front, Pipe as _, World, signal, until};
use nix::sys::signal::Signal;

use super::{keeping, root, tiny, wrapped};
use crate::world;

/// The one line that says why.
#[track_caller]
fn assert_passed_through(front: &Front, why: &str) {
    let line = front.errors.wait("is run without being kept");
    assert!(
        line.starts_with("mcp-sessiond: ") && line.contains(why),
        "{line}"
    );
}

#[test]
fn without_a_daemon_a_server_is_run_as_it_is() {
    let world = world("");
    let command = world.wrapping(&["--no-start"], &tiny(&world));
    for _ in 0..2 {
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 1);
        assert_eq!(client.count(), 2);
        client.pipe.close();
        assert!(client.pipe.wait().success());
        assert_passed_through(&client.pipe, "daemon");
        client.pipe.errors.wait("-- end of the front --");
        assert_eq!(client.pipe.errors.len(), 2, "{}", client.pipe.errors.text());
    }
    assert!(!world.socket().exists(), "nothing was started");
    world.nothing_left();
}

#[test]
fn its_exit_code_is_then_that_of_the_server() {
    let world = world("");
    let server = ["sh", "-c", "exit 42"].map(String::from);
    assert_eq!(
        world
            .front(&world.wrapping(&["--no-start"], &server))
            .wait()
            .code(),
        Some(42)
    );
}

#[test]
fn where_the_host_can_t_be_verified_a_server_is_run_as_it_is() {
    let world = keeping("");
    let _daemon = world.daemon();
    // The shell in the middle dies first, so the front belongs to whoever adopts orphans when it
    // says a word.
    let script = "(while kill -0 $$ 2>/dev/null; do :; done; exec \"$@\") <&3 3<&- & exit 0";
    let orphan = format!("exec 3<&0; {script}");
    let command = [
        &["sh", "-c", &orphan, "sh"].map(String::from)[..],
        &wrapped(&world, &tiny(&world)),
    ]
    .concat();
    let mut front = world.front(&command);
    assert!(front.wait().success(), "the shell");
    let mut client = Client::connected(front);
    assert_eq!(client.count(), 1);
    assert_passed_through(&client.pipe, "session resume is disabled for this instance");
    assert_eq!(world.sessions(), Vec::<serde_json::Value>::new());
    client.pipe.close();
    world.nothing_left();
}

#[track_caller]
fn assert_not_run(world: &World, options: &[&str], program: &str, code: i32) {
    let why = if program.contains('/') {
        ""
    } else {
        ": it was not found in PATH=/"
    };
    let mut front = world.front(&world.wrapping(options, &[program.to_owned(), root(world)]));
    front.errors.wait(&format!("{program} can't be run{why}"));
    front.close();
    assert_eq!(front.wait().code(), Some(code), "{}", front.errors.text());
    assert_eq!(front.line(), None, "it has said nothing to its host");
}

/// A host has the whole command line in `command`.
#[test]
fn a_command_line_in_one_word_is_told_where_its_arguments_belong() {
    let world = keeping("");
    let line = "no-such-program -y server".to_owned();
    let mut front = world.front(&world.wrapping(&["--no-start"], &[line]));
    front
        .errors
        .wait("there is no program of this name; if it is a whole command line, its arguments");
    front.close();
    assert_eq!(front.wait().code(), Some(127));
}

#[test]
fn what_can_t_be_run_exits_as_a_shell_says_it() {
    let world = keeping("");
    let plain = world.root().join("plain");
    std::fs::write(&plain, "no program").expect("written");
    let plain = plain.to_str().expect("UTF-8").to_owned();
    // Without a daemon, and with one.
    assert_not_run(&world, &["--no-start"], "no-such-program", 127);
    assert_not_run(&world, &["--no-start"], &plain, 126);
    let _daemon = world.daemon();
    assert_not_run(&world, &[], "no-such-program", 127);
    assert_not_run(&world, &[], "/no/such/program", 127);
    assert_not_run(&world, &[], &plain, 126);
    world.nothing_left();
    world.wait_backends(0);
}

/// A daemon that hangs grants nothing later to a front that has given up.
#[test]
fn where_the_daemon_hangs_a_server_is_run_as_it_is_and_no_lease_is_left() {
    let world = keeping("");
    let _daemon = world.daemon();
    let daemon = world.daemon_pid();
    signal(daemon, Signal::SIGSTOP);
    let wait = [("MCP_SESSIOND_WRAP_KEEPER_WAIT_MS", "300")];
    let mut client = Client::connected(world.front_with(&wrapped(&world, &tiny(&world)), &wait));
    assert_eq!(client.count(), 1);
    // By the limit of the connection, or of the claim, whichever is noticed first.
    assert_passed_through(&client.pipe, "see `mcp-sessiond doctor`");
    signal(daemon, Signal::SIGCONT);
    // It has been asked before, and has answered that by now.
    // Nothing tells of a claim that waits no more.
    until("the daemon answers", || {
        (world.stat("claims_waiting") == 0).then_some(())
    });
    assert_eq!((world.stat("leases"), world.sessions().len()), (0, 0));
    assert_eq!(client.count(), 2);
    client.pipe.close();
    assert!(client.pipe.wait().success());
}

/// What the host sends to the front is the server's.
#[test]
#[ignore = "needs python3"]
fn signals_are_handed_on_to_a_server_that_is_run_as_it_is() {
    let world = world("");
    // A shell in `read` may sleep through a signal that comes just before.
    let script = "import os, signal, sys\n\
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n\
        print('ready', file=sys.stderr, flush=True)\n\
        signal.sigwait([signal.SIGTERM])\n\
        print('caught', file=sys.stderr, flush=True)\n\
        os._exit(9)";
    let mut front = world.front(&world.wrapping(
        &["--no-start"],
        &["python3", "-c", script].map(String::from),
    ));
    front.write("{}");
    assert_passed_through(&front, "daemon");
    front.errors.wait("ready");
    front.signal(Signal::SIGTERM);
    front.errors.wait("caught");
    assert_eq!(front.wait().code(), Some(9));
}
