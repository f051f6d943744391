//! Whether a kept server goes on serving its host's next connection: after a cut, and after an
//! orderly close, in a host that nobody knows, and in hosts with a row.

use std::fs;

use mcp_sessiond_tests::{Client, Front, World, gone, signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

#[cfg(target_os = "linux")]
use super::input_end::fill;
use super::{connect, keeping, tiny, wrapped};

/// What says that a server was ended because its host closed it.
const CLOSED: &str = "a fresh server: the host closed the previous server";

/// What says that its host serves many conversations.
const CONVERSATIONS: &str = "a fresh server: this host runs many conversations";

/// What says that nobody knows whether a kill ends a conversation of its host.
const UNKNOWN_HOST: &str = "a fresh server: mcp-sessiond does not know this host";

/// A host that nobody knows: only the built-in table counts.
const UNKNOWN: &str = "[]";

/// A host that was seen to start a killed server again.
const CUT: &str = "[{ executable = \"*\", resume = \"cut\" }]";

fn host(rows: &str) -> World {
    keeping("").with_hosts(rows)
}

/// This test as host of a wrapped counter, with these options.
fn connect_with(world: &World, options: &[&str]) -> Client<Front> {
    Client::connected(world.front(&world.wrapping(options, &tiny(world))))
}

/// Closes the connection, and makes the next one at once: the former front may not have read its
/// end yet.
fn close_and_connect(world: &World, former: &mut Client<Front>, options: &[&str]) -> Client<Front> {
    former.pipe.close();
    connect_with(world, options)
}

/// The process that keeps the counter. It ends with that.
fn pid(client: &mut Client<Front>) -> u32 {
    let answer = client.call("parent", json!({}));
    answer.parse().expect("a pid")
}

#[test]
fn a_close_ends_the_server_and_the_next_one_is_told_so_once() {
    let world = host(CUT);
    let _daemon = world.daemon();
    let mut client = connect_with(&world, &[]);
    assert_eq!(client.count(), 1);
    for nth in 0..3 {
        let former = pid(&mut client);
        client = close_and_connect(&world, &mut client, &[]);
        assert_eq!(client.count(), 1, "it is a fresh server");
        gone(former);
        if nth == 0 {
            let said = client.pipe.errors.wait(CLOSED);
            assert!(said.contains("`--resume always` keeps it"), "{said}");
        } else {
            let said = client.pipe.errors.text();
            assert!(!said.contains("a fresh server"), "{said}");
        }
    }
}

/// The official C# SDK ends each conversation by a kill, and `wrap` can't tell that from anything
/// else.
#[test]
fn an_unknown_host_gets_no_used_server_again_and_is_told_once_how_to_keep_it() {
    let world = host(UNKNOWN);
    let _daemon = world.daemon();
    let mut client = connect_with(&world, &[]);
    assert_eq!(client.count(), 1);
    for (nth, close) in [false, true, false].into_iter().enumerate() {
        let former = pid(&mut client);
        if close {
            client.pipe.close();
        } else {
            client.pipe.kill();
        }
        client = connect_with(&world, &[]);
        assert_eq!(client.count(), 1, "it is a fresh server");
        gone(former);
        if nth == 0 {
            let said = client.pipe.errors.wait(UNKNOWN_HOST);
            for way in ["`--resume cut`", "`[[hosts]]`"] {
                assert!(said.contains(way), "{way}: {said}");
            }
        } else {
            let said = client.pipe.errors.text();
            assert!(!said.contains("a fresh server"), "{said}");
        }
    }
}

/// Nobody waits for it: as without us, it ends with its connection, and not when the next one comes.
#[test]
fn a_used_server_of_an_unknown_host_ends_when_its_front_is_killed() {
    let world = host(UNKNOWN);
    let mut daemon = world.daemon();
    let mut client = connect_with(&world, &[]);
    assert_eq!(client.count(), 1);
    let former = pid(&mut client);
    client.pipe.kill();
    gone(former);
    // Without a daemon as well.
    let mut client = connect_with(&world, &[]);
    assert_eq!(client.count(), 1);
    let former = pid(&mut client);
    daemon.kill();
    client.pipe.kill();
    gone(former);
}

#[test]
fn what_an_unknown_host_has_not_used_goes_on_after_a_cut() {
    let world = host(UNKNOWN);
    let _daemon = world.daemon();
    let mut client = connect_with(&world, &[]);
    client.ping();
    let server = world.backend().pid();
    client.pipe.kill();
    let mut next = connect_with(&world, &[]);
    assert_eq!(next.count(), 1);
    assert_eq!(world.backend().pid(), server);
    let said = next.pipe.errors.text();
    assert!(!said.contains("a fresh server"), "{said}");
}

#[test]
fn a_cut_is_resumed() {
    let world = host(CUT);
    let _daemon = world.daemon();
    for count in 1..=3 {
        let mut client = connect_with(&world, &[]);
        assert_eq!(client.count(), count);
        client.pipe.kill();
    }
}

#[test]
fn a_signal_to_the_front_is_a_close() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let world = host(CUT);
        let _daemon = world.daemon();
        let mut client = connect_with(&world, &[]);
        assert_eq!(client.count(), 1);
        client.pipe.signal(signal);
        let mut next = connect_with(&world, &[]);
        assert_eq!(next.count(), 1, "{signal}");
    }
}

#[test]
fn a_close_counts_where_the_daemon_is_killed_before_the_next_claim() {
    let world = host(CUT);
    let mut daemon = world.daemon();
    let mut client = connect_with(&world, &[]);
    assert_eq!(client.count(), 1);
    let former = pid(&mut client);
    daemon.kill();
    client.pipe.close();
    client.pipe.wait();
    daemon.start_again();
    let mut next = connect_with(&world, &[]);
    assert_eq!(next.count(), 1);
    gone(former);
}

/// The keeper has no room for what the front says, and reads it once the front is gone.
#[test]
#[cfg(target_os = "linux")]
fn a_close_counts_behind_lines_that_a_stopped_server_does_not_read() {
    let world = keeping("stop_wait_ms = 100").with_hosts(CUT);
    let _daemon = world.daemon();
    let mut client = connect_with(&world, &[]);
    assert_eq!(client.count(), 1);
    let server = world.backend().pid();
    signal(server, Signal::SIGSTOP);
    fill(&mut client, 100);
    client.pipe.close_output();
    client.pipe.close();
    assert!(client.pipe.wait().success());
    let mut next = connect_with(&world, &[]);
    assert_eq!(next.count(), 1, "it is a fresh server");
    next.pipe.errors.wait(CLOSED);
    gone(server);
}

#[test]
fn a_server_that_was_not_used_is_no_loss_to_anybody() {
    let world = host(UNKNOWN);
    let _daemon = world.daemon();
    let mut client = connect_with(&world, &[]);
    client.ping();
    let mut next = close_and_connect(&world, &mut client, &[]);
    assert_eq!(next.count(), 1);
    let said = next.pipe.errors.text();
    assert!(!said.contains("a fresh server"), "{said}");
}

#[test]
fn a_host_that_does_not_wait_for_initialize_has_closed_nothing() {
    let world = host(UNKNOWN);
    let _daemon = world.daemon();
    let mute = ["sh", "-c", "while read -r line; do :; done"].map(String::from);
    let words = wrapped(&world, &mute);
    let mut client = Client::new(world.front(&words));
    client.begin_initialize("impatient");
    world.wait_backends(1);
    let backend = world.backend();
    let server = backend.wait("initialize has arrived", |status| !status.calls.is_empty());
    client.pipe.close_output();
    client.pipe.close();
    client.pipe.wait();
    backend.wait_alone();
    let mut next = Client::new(world.front(&words));
    next.begin_initialize("impatient");
    let again = world
        .backend()
        .wait("the next front", |status| status.front.is_some());
    assert_eq!(again.pid, server.pid, "nobody has seen its state");
}

#[test]
fn a_client_that_says_mcp_never_gets_another_one_s_server() {
    let world = host(UNKNOWN);
    let _daemon = world.daemon();
    let words = wrapped(&world, &tiny(&world));
    let mut client = Client::connected_as("mcp", world.front(&words));
    assert_eq!(client.count(), 1);
    let former = pid(&mut client);
    // Even a cut.
    client.pipe.kill();
    let mut next = Client::connected_as("mcp", world.front(&words));
    assert_eq!(next.count(), 1);
    gone(former);
    // A client of another name in the same process is none of that one's business.
    let kept = world.wrapping(&["--resume", "cut"], &tiny(&world));
    let mut other = Client::connected_as("another", world.front(&kept));
    assert_eq!(other.count(), 1);
    other.pipe.kill();
    let mut other = Client::connected_as("another", world.front(&kept));
    assert_eq!(other.count(), 2);
    let mut third = Client::connected_as("mcp", world.front(&words));
    assert_eq!(third.count(), 1);
    // One of the two was told, once it was known that the first one had been used.
    until("it is told once", || {
        let told = [&next, &third]
            .into_iter()
            .filter(|client| client.pipe.errors.text().contains(CONVERSATIONS));
        (told.count() == 1).then_some(())
    });
}

#[test]
fn a_row_says_whether_a_server_is_resumed() {
    // After a cut, after a close.
    for (resume, cut, close) in [
        ("always", true, true),
        ("cut", true, false),
        ("never", false, false),
    ] {
        let rows = format!("[{{ executable = \"*\", resume = \"{resume}\" }}]");
        let world = host(&rows);
        let _daemon = world.daemon();
        let mut client = connect_with(&world, &[]);
        assert_eq!(client.count(), 1);
        client.pipe.kill();
        let mut client = connect_with(&world, &[]);
        assert_eq!(client.count() == 2, cut, "{resume}, after a cut");
        let count = client.count();
        let mut client = close_and_connect(&world, &mut client, &[]);
        let again = client.count() == count + 1;
        assert_eq!(again, close, "{resume}, after a close");
    }
}

#[test]
fn the_flag_has_more_to_say_than_any_row() {
    let never = "[{ executable = \"*\", siblings = \"never\" }]";
    for (rows, flag, close) in [
        (UNKNOWN, "always", true),
        (UNKNOWN, "cut", false),
        (never, "always", true),
        (never, "cut", false),
        (
            "[{ executable = \"*\", resume = \"always\" }]",
            "never",
            false,
        ),
    ] {
        let options = ["--resume", flag];
        let world = host(rows);
        let _daemon = world.daemon();
        let mut client = connect_with(&world, &options);
        assert_eq!(client.count(), 1);
        client.pipe.kill();
        let mut client = connect_with(&world, &options);
        assert_eq!(client.count() == 2, flag != "never", "{rows}, {flag}");
        let count = client.count();
        let mut client = close_and_connect(&world, &mut client, &options);
        assert_eq!(client.count() == count + 1, close, "{rows}, {flag}");
        // Whoever has asked for it need not be told.
        let said = client.pipe.errors.text();
        assert!(!said.contains("a fresh server"), "{said}");
    }
}

#[test]
fn a_host_that_names_the_conversation_gets_its_server_again_in_the_same_one() {
    // The machine may be slow, and this is about who reconnects, and not when.
    let world = keeping("closed_again_ms = 60000")
        .with_hosts("[{ executable = \"*\", conversation = \"CHAT\" }]");
    let _daemon = world.daemon();
    let words = wrapped(&world, &tiny(&world));
    let connect =
        |variables: &[(&str, &str)]| Client::connected(world.front_with(&words, variables));
    for count in 1..=2 {
        let mut client = connect(&[("CHAT", "one")]);
        assert_eq!(client.count(), count, "after a close");
        client.pipe.close();
        client.pipe.wait();
    }
    let mut other = connect(&[("CHAT", "two")]);
    assert_eq!(other.count(), 1, "another conversation");
    other.pipe.close();
    other.pipe.wait();
    for _ in 0..2 {
        let mut nameless = connect(&[]);
        assert_eq!(nameless.count(), 1, "it has no conversation");
        nameless.pipe.close();
        nameless.pipe.wait();
    }
}

#[test]
fn an_entry_of_the_file_may_say_whether_its_server_is_resumed() {
    let world = host(UNKNOWN);
    let _daemon = world.daemon();
    let command = tiny(&world);
    let entry = |more: &str| {
        let mut entry = json!({"command": command[0], "args": &command[1..]});
        if !more.is_empty() {
            entry["resume"] = more.into();
        }
        entry
    };
    let servers = json!({"mcpServers": {"kept": entry("always"), "plain": entry("")}});
    fs::write(world.root().join("servers.json"), servers.to_string()).expect("servers.json");
    for (name, again) in [("@kept", 2), ("@plain", 1)] {
        let words = [name.to_owned()];
        let mut client = connect(&world, &words);
        assert_eq!(client.count(), 1, "{name}");
        client.pipe.close();
        client.pipe.wait();
        assert_eq!(connect(&world, &words).count(), again, "{name}");
    }
}

#[test]
fn a_lazy_server_is_not_resumed_after_a_close_either() {
    let world = host(CUT);
    let _daemon = world.daemon();
    for (options, second) in [(&["--lazy"][..], 1), (&["--lazy", "--resume", "always"], 2)] {
        let mut client = connect_with(&world, options);
        assert_eq!(client.count(), 1);
        let mut client = close_and_connect(&world, &mut client, options);
        assert_eq!(client.count(), second, "{options:?}");
        if second == 1 {
            client.pipe.errors.wait(CLOSED);
        }
    }
}

#[test]
fn the_whole_session_of_all_servers_ends_with_a_close() {
    let world = host(CUT);
    let _daemon = world.daemon();
    let command = tiny(&world);
    let entry = json!({"command": command[0], "args": &command[1..]});
    let servers = json!({"mcpServers": {"a": entry}});
    fs::write(world.root().join("servers.json"), servers.to_string()).expect("servers.json");
    let all = |options: &[&str]| {
        let words = [&[world.binaries.daemon, "wrap", "--all"], options].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        Client::connected(world.front(&words))
    };
    let mut client = all(&[]);
    assert_eq!(client.count(), 1);
    client.pipe.kill();
    let mut client = all(&[]);
    assert_eq!(client.count(), 2, "after a cut");
    let former = pid(&mut client);
    client.pipe.close();
    let mut client = all(&[]);
    assert_eq!(client.count(), 1, "after a close");
    client.pipe.errors.wait(CLOSED);
    gone(former);
    client.pipe.signal(Signal::SIGTERM);
    let mut client = all(&[]);
    assert_eq!(client.count(), 1, "after a signal");
    client.pipe.close();
    let kept = ["--resume", "always"];
    let mut client = all(&kept);
    assert_eq!(client.count(), 1);
    client.pipe.close();
    assert_eq!(all(&kept).count(), 2);
}
