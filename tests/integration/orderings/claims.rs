//! A claim, what comes before it, and what comes after it.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;

use mcp_sessiond_process::{ListenerLock, digest};
use mcp_sessiond_tests::{Client, Daemon, World, signal, suspend, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::by_every_door;
use crate::remote;
use crate::told_to_models::wrapping;
use crate::world;
use crate::wrap::{gate, keeping, tiny, wrapped};

/// The longest that a claim waits for another holder is a part of what a host waits for us. It tells
/// servers apart.
const WAIT: [(&str, &str); 1] = [("MCP_SESSIOND_WRAP_KEEPER_WAIT_MS", "60000")];

const CLAIM_WAIT: &str = "claim_wait_ms = 5000\n";

/// The front is stopped with the answer to its claim unread, by which nothing is lost yet, and goes on
/// when the keeper is gone.
#[test]
fn a_keeper_that_ends_between_the_claim_and_the_question_for_it_is_told() {
    by_every_door(|door| {
        let world = world(CLAIM_WAIT);
        let _daemon = world.daemon();
        let words = wrapping(&world, door);
        let mut first = Client::connected(world.front_with(&words, &WAIT));
        assert_eq!(first.count(), 1, "{door:?}");
        let backend = world.backend();
        let mut next = Client::new(world.front_with(&words, &WAIT));
        let asked = next.begin_initialize("test");
        world.wait_stat("claims_waiting", 1);
        let pid = next.pipe.pid();
        suspend(pid);
        first.pipe.kill();
        // Nothing tells when it has got it.
        until("the next front has the session", || {
            let holds = |session: &Value| session["holder"] == pid;
            world.sessions().iter().any(holds).then_some(())
        });
        backend.kill_keeper();
        backend.ended();
        signal(pid, Signal::SIGCONT);
        next.initialized(asked);
        let reason = "the process that kept the previous server";
        assert_eq!(next.count(), 1, "{door:?}");
        next.pipe.errors.wait(&format!("begins afresh: {reason}"));
    });
}

/// What the front has read before it claims, and what comes while it waits.
#[test]
fn what_is_sent_before_and_while_a_claim_waits_arrives_whole_once_and_in_order() {
    by_every_door(|door| {
        let world = world(CLAIM_WAIT);
        let _daemon = world.daemon();
        let words = wrapping(&world, door);
        let mut first = Client::connected(world.front_with(&words, &WAIT));
        assert_eq!(first.count(), 1, "{door:?}");
        let mut next = Client::new(world.front_with(&words, &WAIT));
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        }});
        // A host of several servers waits for their tools before it calls one.
        let calls = !door.0.contains(&"--all");
        let method = if calls { "tools/call" } else { "ping" };
        let call = |id: u64| {
            let params = json!({"name": "increment", "arguments": {}});
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        };
        // The first line in two pieces; a whole one and the half of another one behind it.
        let text = format!("{initialize}\n{}\n{}\n", call(2), call(3));
        let (start, rest) = text.as_bytes().split_at(40);
        let (rest, end) = rest.split_at(rest.len() - 40);
        next.pipe.send(start);
        next.pipe.send(rest);
        world.wait_stat("claims_waiting", 1);
        next.pipe.send(end);
        next.pipe.send(format!("{}\n", call(4)).as_bytes());
        first.pipe.kill();
        assert!(
            next.answer(1)["result"]["serverInfo"].is_object(),
            "{door:?}"
        );
        for id in 2..=4 {
            let answer = next.answer(id);
            let text = &answer["result"]["content"][0]["text"];
            let expected = if calls {
                json!(id.to_string())
            } else {
                Value::Null
            };
            assert_eq!((text, answer.get("error")), (&expected, None), "{door:?}");
        }
        next.last = 4;
        assert_eq!(next.count(), if calls { 5 } else { 2 }, "{door:?}");
    });
}

/// The command line that runs this one without capabilities, below a process that has none: what root
/// may read of any process would hide that the others' daemon can't.
fn without_capabilities(words: &[String]) -> Vec<String> {
    if !nix::unistd::geteuid().is_root() {
        return words.to_vec();
    }
    let host = "import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))";
    let prefix = [
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "python3",
        "-I",
        "-S",
        "-c",
        host,
    ];
    let prefix = prefix.map(str::to_owned);
    [&prefix[..], words].concat()
}

/// A daemon without capabilities.
fn unprivileged(world: &World) -> Daemon {
    let mut command = world.command("setpriv");
    command.args([
        "--bounding-set=-all",
        "--inh-caps=-all",
        world.binaries.daemon,
        "run",
    ]);
    if !nix::unistd::geteuid().is_root() {
        command = world.sessiond(&["run"]);
    }
    let daemon = world.spawn(command);
    daemon.ready();
    daemon
}

/// A session's key is digested of what the daemon reads of the front's process. It is doubtful where
/// that can't be read.
fn assert_key_is_known(world: &World, words: &[String]) {
    let mut client = Client::new(world.front(&without_capabilities(words)));
    client.begin_initialize("test");
    let session = until("it has claimed", || world.sessions().pop());
    assert!(session["key"].is_string(), "{words:?}: {session}");
    client.answer(1);
    let said = client.pipe.errors.text();
    assert!(!said.contains("without being kept"), "{words:?}: {said}");
    assert!(!said.contains("can't be read"), "{words:?}: {said}");
}

#[test]
#[ignore = "needs node"]
fn a_session_is_claimed_before_the_front_hides_what_it_was_started_with() {
    by_every_door(|door| {
        let world = world("");
        let _daemon = unprivileged(&world);
        assert_key_is_known(&world, &wrapping(&world, door));
    });
    let world = world("");
    let _daemon = unprivileged(&world);
    let upstream = remote::express(&world, &[]);
    assert_key_is_known(
        &world,
        &wrapped(&world, std::slice::from_ref(&upstream.url)),
    );
}

/// Another front of the host would wait for the lease until the host has closed this one.
#[test]
fn the_lease_is_given_up_before_the_host_hears_that_there_is_no_such_program() {
    let world = world("");
    let _daemon = world.daemon();
    for options in [&[][..], &["--name", "n"]] {
        let words = world.wrapping(options, &["/nonexistent".to_owned()]);
        let mut client = Client::new(world.front(&words));
        let answer = client.initialize();
        assert!(answer.get("error").is_some(), "{answer}");
        let holders: Vec<Value> = world.sessions();
        let holds = |session: &&Value| session["holder"] == client.pipe.pid();
        assert_eq!(holders.iter().find(holds), None, "{options:?}");
        assert!(client.pipe.runs());
    }
}

/// Without a daemon, the test itself has the name, as another front would that is about to start the
/// server.
#[test]
fn a_name_is_locked_before_its_server_is_started() {
    let world = world("");
    let started = gate(&world, "started");
    let script = "touch \"$0\"; exec \"$@\"".to_owned();
    let server = [
        &["sh".into(), "-c".into(), script, started.clone()],
        &tiny(&world)[..],
    ]
    .concat();
    let mut directory = fs::DirBuilder::new();
    directory
        .mode(0o700)
        .create(world.directory())
        .expect("a directory");
    let name = digest("mcp-sessiond name", b"n");
    let byte = u32::from_be_bytes([name[0], name[1], name[2], name[3]]);
    let locks = world.directory().join("names.lock");
    let _lock = ListenerLock::take(&locks, byte).expect("nobody has it");
    let words = world.wrapping(&["--no-start", "--name", "n"], &server);
    let mut client = Client::new(world.front(&words));
    let answer = client.initialize();
    let why = answer["error"]["message"].as_str().unwrap_or_default();
    let holder = format!(
        "(pid {}), which runs it without a daemon",
        std::process::id()
    );
    assert!(why.contains(&holder), "{answer}");
    assert!(!fs::exists(started).expect("it can be looked at"));
}

/// The front that has taken the session was told to take it, too, and is not told that again.
#[test]
fn a_name_is_taken_once_and_not_taken_back() {
    let world = keeping("");
    let _daemon = world.daemon();
    let taking = world.wrapping(&["--take", "--name", "n"], &tiny(&world));
    let mut former = Client::connected(world.front(&taking));
    assert_eq!(former.count(), 1);
    let mut next = Client::connected(world.front(&taking));
    assert_eq!(next.count(), 2);
    former.pipe.errors.wait("taken: ");
    assert_eq!(next.count(), 3);
    assert!(!next.pipe.errors.text().contains("taken: "));
}

/// A claim that is answered after that would be a lease of a front that runs its command as it is.
#[test]
fn a_claim_waits_for_another_holder_and_not_longer_than_its_front_for_the_daemon() {
    let world = world(CLAIM_WAIT);
    let _daemon = world.daemon();
    let words = wrapped(&world, &tiny(&world));
    let wait = [("MCP_SESSIOND_WRAP_KEEPER_WAIT_MS", "2000")];
    let mut holder = Client::connected(world.front_with(&words, &wait));
    assert_eq!(holder.count(), 1);
    let mut next = Client::connected(world.front_with(&words, &wait));
    assert_eq!(next.count(), 1);
    let said = next.pipe.errors.text();
    assert!(!said.contains("without being kept"), "{said}");
    assert_eq!(world.backends().len(), 2, "{said}");
}
