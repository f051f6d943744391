//! Kernels that lack a system call, and containers that refuse one: what takes its place.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Command, Stdio};

use mcp_sessiond_proto::hello::{CHALLENGE_LEN, Codec, Hello};
use mcp_sessiond_tests::{Client, Peer, World, lives, signal, until};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::wrap::{connect, tiny, wrapped};
use crate::{fixture, world};

/// The command line that runs this one with system calls refused, for all that it starts.
fn refusing(rules: &[&str], command: &[String]) -> Vec<String> {
    let script = fixture("python/refusing.py");
    let prefix = ["python3", "-I", &script].into_iter();
    prefix
        .chain(rules.iter().copied())
        .chain(["--"])
        .map(str::to_owned)
        .chain(command.iter().cloned())
        .collect()
}

#[test]
#[ignore = "needs python3"]
fn without_close_range_what_is_detached_has_no_descriptor_of_the_host() {
    for error in ["ENOSYS", "EINVAL", "EPERM"] {
        let world = world("");
        let pipe = world.root().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let mut reader = options.open(&pipe).expect("its end to read from");
        // Nothing to read: an error as long as somebody has the other end, and the end then.
        let mut is_held = || reader.read(&mut [0]).is_err();

        // Descriptors of one and of three digits.
        let script = format!("exec 9>'{0}' 200>'{0}'; exec \"$@\"", pipe.display());
        let opening = ["bash", "-c", &script, "bash"].map(String::from);
        let command = [&opening[..], &kept(&world)].concat();
        let command = refusing(&[&format!("close_range={error}")], &command);
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 1, "{error}");
        assert!(is_held(), "the front has what its host has left open");

        client.pipe.signal(Signal::SIGKILL);
        client.pipe.wait();
        until("the front was the last to have it", || {
            (!is_held()).then_some(())
        });
        // The daemon and the keeper live, and so does the server.
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 2, "{error}");
    }
}

/// A counter that goes on after a kill of its front. The daemon here is started on demand, so it takes
/// no rows of hosts from the test's environment: what keeps the server is the flag.
fn kept(world: &World) -> Vec<String> {
    world.wrapping(&["--resume", "cut"], &tiny(world))
}

/// `SO_PEERPIDFD` refused so.
fn no_peer_pidfd(error: &str) -> String {
    format!("getsockopt:2=77={error}")
}

/// A command of ours for which system calls are refused.
fn refused(world: &World, rules: &[&str], words: &[&str]) -> Command {
    let own = world.sessiond(words);
    let words = [own.get_program()].into_iter().chain(own.get_args());
    let words: Vec<String> = words
        .map(|word| word.to_str().expect("UTF-8").to_owned())
        .collect();
    let command = refusing(rules, &words);
    let mut refused = Command::new(&command[0]);
    let variables = own.get_envs();
    refused.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    refused.args(&command[1..]).stdin(Stdio::null());
    refused
}

/// Starts a daemon for which system calls are refused, and waits until it can be reached.
fn daemon(world: &World, rules: &[&str]) {
    let started = refused(world, rules, &["run", "--on-demand"]).status();
    assert!(started.expect("it runs").success());
}

#[test]
#[ignore = "needs python3"]
fn where_the_kernel_does_not_say_who_has_connected_everything_works() {
    for error in ["ENOPROTOOPT", "EPERM", "ENOSYS"] {
        let world = world("");
        let command = refusing(&[&no_peer_pidfd(error)], &kept(&world));
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 1, "{error}");
        client.pipe.signal(Signal::SIGKILL);
        client.pipe.wait();
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 2, "{error}");
        assert_eq!(world.about()["peers"], "challenge", "{error}");

        let doctor = world.sessiond(&["doctor", "--json"]).output();
        let doctor = String::from_utf8(doctor.expect("it runs").stdout).expect("UTF-8");
        assert!(doctor.contains("so the daemon asks each one"), "{doctor}");
    }
}

/// A kernel that knows `SO_PEERPIDFD` says by these that the peer has exited.
#[test]
#[ignore = "needs python3"]
fn who_is_gone_by_the_kernel_s_word_is_not_asked() {
    for error in ["EINVAL", "ESRCH", "ENODATA"] {
        let world = world("");
        daemon(&world, &[&no_peer_pidfd(error)]);
        let mut peer = Peer::connect(&world.socket());
        let answer = peer.hello(&Hello::client(Codec::JsonRpc).encode());
        assert!(answer.is_none(), "{error}: {answer:?}");
    }
}

/// The child of a process that has connected says what its parent was to say.
#[test]
#[ignore = "needs python3"]
fn a_child_that_answers_for_its_parent_is_refused() {
    const CHILD: &str = r#"
import os, socket, struct, sys
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1])
stream.sendall(struct.pack(">8sHHBBxxIxxxxQ", b"mcpsessd", 2, 0, 2, 0, 4 << 20, 0))
said = stream.recv(48, socket.MSG_WAITALL)
if os.fork() == 0:
    stream.sendall(said[32:])
    os._exit(0)
os.wait()
print(said[13], stream.recv(32, socket.MSG_WAITALL)[13])"#;
    let world = world("");
    daemon(&world, &[&no_peer_pidfd("ENOPROTOOPT")]);
    let mut command = Command::new("python3");
    let command = command.args(["-I", "-c", CHILD]).arg(world.socket());
    let said = command.output().expect("it runs").stdout;
    assert_eq!(String::from_utf8_lossy(&said).trim(), "6 5");
    until("the log says why", || {
        let said = std::fs::read_to_string(world.directory().join("daemon.log")).ok()?;
        (said.contains("the connection was opened by process") && said.contains("writes on it"))
            .then_some(())
    });
    assert_eq!(world.stat("connections_refused_total"), 1);
}

#[test]
#[ignore = "needs python3"]
fn a_wrong_answer_to_the_question_who_it_is_is_refused() {
    let world = world("");
    daemon(&world, &[&no_peer_pidfd("ENOPROTOOPT")]);
    let mut peer = Peer::connect(&world.socket());
    let hello = Hello::client(Codec::JsonRpc).encode();
    // Ahead, before it was asked.
    let ahead = [&hello[..], &[7; CHALLENGE_LEN]].concat();
    peer.stream.write_all(&ahead).expect("sent");
    let mut asked = [0; 48];
    peer.stream.read_exact(&mut asked).expect("the question");
    assert_eq!(asked[13], 6);
    let mut refused = [0; 32];
    peer.stream.read_exact(&mut refused).expect("the answer");
    assert_eq!(refused[13], 5);
    assert!(peer.is_ended());
}

/// What the memory of text is given back by.
#[test]
#[ignore = "needs python3"]
fn without_madvise_a_daemon_serves() {
    let world = world("");
    daemon(&world, &["madvise=EINVAL"]);
    assert_eq!(
        world.peer().call("ping", serde_json::json!({})),
        Ok(serde_json::Value::Null)
    );
}

#[test]
#[ignore = "needs python3"]
fn where_no_process_can_be_held_nothing_is_kept_and_it_says_why() {
    for error in ["ENOSYS", "EPERM"] {
        let world = world("");
        let rule = format!("pidfd_open={error}");
        let command = refusing(&[&rule], &wrapped(&world, &tiny(&world)));
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 1, "{error}");
        client.pipe.errors.wait("it will not survive a reconnect");

        let doctor = refused(&world, &[&rule], &["doctor", "--json"]).output();
        let said = doctor.expect("it runs");
        assert_eq!(said.status.code(), Some(1), "{error}");
        let said = String::from_utf8(said.stdout).expect("UTF-8");
        assert!(said.contains("pidfd_open"), "{said}");
    }
}

/// What watches files for a change.
#[test]
#[ignore = "needs python3"]
fn without_inotify_a_server_is_kept() {
    let world = world("");
    let command = refusing(&["inotify_init1=ENOSYS"], &kept(&world));
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 1);
    client.pipe.signal(Signal::SIGKILL);
    client.pipe.wait();
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 2);
}

/// Nobody has it on record, and it can't say who it is: its lock does.
#[test]
#[ignore = "needs python3"]
fn a_stopped_keeper_that_is_not_on_record_is_known_by_its_lock() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    backend.cut_off(&mut client.pipe);
    daemon.kill();
    std::fs::remove_file(world.directory().join("sessions.db")).expect("its records");
    signal(backend.keeper, Signal::SIGSTOP);
    self::daemon(&world, &[&no_peer_pidfd("ENOPROTOOPT")]);
    assert!(lives(backend.keeper) && lives(server), "it is waited for");
    signal(backend.keeper, Signal::SIGCONT);
    until("keeper and server are ended", || {
        (!lives(backend.keeper) && !lives(server)).then_some(())
    });
}

/// Its lock is gone with the file, so nobody may be signalled in its place.
#[test]
#[ignore = "needs python3"]
fn a_keeper_that_can_t_be_identified_is_not_stopped_and_it_is_said() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    let backend = world.backend();
    backend.cut_off(&mut client.pipe);
    daemon.kill();
    std::fs::remove_file(world.directory().join("keepers/locks")).expect("its lock");
    let stop = refused(&world, &[&no_peer_pidfd("ENOPROTOOPT")], &["stop", "--all"]).output();
    let stop = stop.expect("it runs");
    let said = String::from_utf8(stop.stderr).expect("UTF-8");
    assert_eq!(stop.status.code(), Some(69), "{said}");
    assert!(
        said.contains("must hold a lock") && said.contains("`fuser -v "),
        "{said}"
    );
    assert!(lives(backend.keeper));
    daemon.start_again();
}
