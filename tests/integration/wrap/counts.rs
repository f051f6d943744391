//! A count goes on, whoever is killed between the host and the server that counts.

use std::os::unix::net::UnixStream;

use mcp_sessiond_proto::hello::{Hello, greet_blocking};
use mcp_sessiond_tests::{Client, Daemon, NodeHost};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;

use super::{connect, connect_official, counter, gate, keeping, open, tiny, wrapped};

/// The official client, a counter, and what is done between one connection and the next.
fn goes_on_after(mut between: impl FnMut(&mut NodeHost, &mut Daemon)) {
    let world = keeping("");
    let mut daemon = world.daemon();
    let mut host = world.node_host();
    let command = wrapped(&world, &counter(&world));
    host.connect("main", &command);
    let server = world.backend().pid();
    for count in 1..=4 {
        assert_eq!(host.count("main"), count);
        between(&mut host, &mut daemon);
        host.connect("main", &command);
        assert_eq!(world.backend().pid(), server, "the server is the same");
    }
    assert_eq!(host.call("main", "get", json!({})), "4");
}

#[test]
#[ignore = "needs node"]
fn a_count_goes_on_when_the_front_is_killed() {
    goes_on_after(|host, _| host.end("main", "SIGKILL"));
}

#[test]
#[ignore = "needs node"]
fn a_count_goes_on_when_the_front_is_terminated() {
    goes_on_after(|host, _| host.end("main", "SIGTERM"));
}

#[test]
#[ignore = "needs node"]
fn a_count_goes_on_when_the_host_closes_its_end() {
    goes_on_after(|host, _| host.close("main"));
}

#[test]
#[ignore = "needs node"]
fn a_count_goes_on_when_front_and_daemon_are_killed_at_once() {
    goes_on_after(|host, daemon| {
        daemon.kill();
        host.end("main", "SIGKILL");
        daemon.start_again();
    });
}

/// Nobody starts the daemon but the next front.
#[test]
fn a_count_goes_on_when_the_next_front_has_to_start_the_daemon() {
    let world = keeping("");
    let mut daemon = world.daemon();
    // A daemon that a front starts does not have this world's row.
    let words = world.wrapping(&["--resume", "cut"], &tiny(&world));
    for count in 1..=4 {
        let mut client = Client::connected(world.front(&words));
        assert_eq!(client.count(), count);
        if count == 1 {
            daemon.kill();
        }
        client.pipe.kill();
    }
}

#[test]
fn a_count_goes_on_when_the_front_s_process_group_is_killed() {
    let world = keeping("");
    let _daemon = world.daemon();
    for count in 1..=4 {
        let mut client = connect(&world, &tiny(&world));
        assert_eq!(client.count(), count);
        client.pipe.kill_group();
    }
}

/// As above, where the front is no leader: a host that kills everything that it has started in one
/// group.
#[test]
fn a_count_goes_on_when_a_launcher_is_killed_with_all_its_children() {
    let world = keeping("");
    let _daemon = world.daemon();
    let script = ["sh", "-c", "\"$@\"; true", "sh"].map(String::from);
    let command = [&script[..], &wrapped(&world, &tiny(&world))].concat();
    for count in 1..=3 {
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), count);
        killpg(
            Pid::from_raw(client.pipe.pid().cast_signed()),
            Signal::SIGKILL,
        )
        .expect("a group");
        client.pipe.wait();
    }
}

#[test]
#[ignore = "needs node"]
fn no_call_fails_when_the_daemon_is_killed_before_during_or_after_it() {
    let world = keeping("");
    let mut daemon = world.daemon();
    let mut host = connect_official(&world, &counter(&world));
    for round in 0..3 {
        let before = host.count("main");
        daemon.kill();
        assert_eq!(host.count("main"), before + 1, "a call while there is none");
        daemon.start_again();
        let gate = gate(&world, &format!("gate-{round}"));
        let call = host.begin_slow("main", &gate);
        daemon.kill();
        open(&gate);
        assert_eq!(
            host.text(call),
            Ok((before + 2).to_string()),
            "a call during which it was killed"
        );
        daemon.start_again();
        assert_eq!(host.count("main"), before + 3);
    }
    assert_eq!(host.told.lines("\"error\":{"), Vec::<String>::new());
    assert_eq!(
        host.told.lines("\"event\":\"exited\""),
        Vec::<String>::new()
    );
}

#[test]
#[ignore = "needs node"]
fn a_call_goes_on_through_any_number_of_daemons() {
    let world = keeping("");
    let mut daemon = world.daemon();
    let mut host = world.node_host();
    let command = wrapped(&world, &counter(&world));
    host.connect("main", &command);
    assert_eq!(host.count("main"), 1);
    let gate = gate(&world, "gate");
    let call = host.begin_slow("main", &gate);
    for _ in 0..5 {
        daemon.restart();
        assert_eq!(world.backends().len(), 1, "each knows of the keeper");
    }
    open(&gate);
    assert_eq!(host.text(call), Ok("2".into()));
    host.end("main", "SIGKILL");
    host.connect("main", &command);
    assert_eq!(host.count("main"), 3);
}

/// One front speaks the version before, the other the next one; and the keepers that they start
/// speak theirs.
fn meets_a_keeper_of(keepers: &str, fronts: &str) {
    let world = keeping("");
    let daemon = world.start(&[(VERSION, fronts)]);
    daemon.ready();
    // The variable is part of what tells instances apart, unless there is a label.
    let command = world.wrapping(&["--instance", "one"], &tiny(&world));
    let start =
        |version: &str| Client::connected(world.front_with(&command, &[(VERSION, version)]));
    let mut first = start(keepers);
    assert_eq!(first.count(), 1);
    let keeper = world.backend().keeper;
    drop(first);
    for count in 2..5 {
        let mut next = start(fronts);
        assert_eq!(next.count(), count);
        assert_eq!(world.backend().keeper, keeper);
        next.pipe.close();
        assert!(next.pipe.wait().success());
    }
}

const VERSION: &str = mcp_sessiond_process::fault::VERSION_VARIABLE;

#[test]
fn a_front_takes_over_from_a_keeper_of_the_former_version() {
    meets_a_keeper_of("3", "4");
}

#[test]
fn a_front_of_the_former_version_takes_over_from_a_newer_keeper() {
    meets_a_keeper_of("4", "3");
}

/// Version 2 had lines in the place of frames.
#[test]
fn a_keeper_refuses_an_older_front_and_says_so() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let mut older = UnixStream::connect(world.backend().socket()).expect("it listens");
    let refused = greet_blocking(&mut older, &Hello::keeper(2)).expect_err("refused");
    let told = "protocol version 2 here, 3 there; upgrade the older one";
    assert_eq!(refused.to_string(), told);
    assert_eq!(client.count(), 2, "its own front notices nothing");
}
