//! How a server ends: the table of docs/wrap.md, seen by a server that writes down what comes and
//! when, run directly and in each entry point.

use std::collections::BTreeSet;
use std::fs;
use std::process::ExitStatus;

use mcp_sessiond_proto::time::now_ms;
use mcp_sessiond_tests::{Client, Front, World, gone, signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{connect_official, keeping, root};
use crate::several::{all, entry, write_down};

/// The entry points of a server that ends with its front, where the host is known to start only a
/// killed one again.
const WAYS: [&str; 4] = ["", "--lazy", "@", "--all"];

/// How long a server has to end, in ms.
const STOP_WAIT_MS: u64 = 300;

/// A world in which servers have so long to end.
fn world() -> World {
    keeping(&format!("stop_wait_ms = {STOP_WAIT_MS}"))
}

/// A server that saves for so long after the end of its input. It writes to this file.
fn server(world: &World, file: &str, save: &str) -> Vec<String> {
    let file = format!("{}/{file}", root(world));
    [env!("CARGO_BIN_EXE_ending-server"), &file, save]
        .map(String::from)
        .into()
}

/// The command line that runs it this way.
fn command(world: &World, way: &str, server: &[String]) -> Vec<String> {
    write_down(world, &[("one", entry(server))]);
    match way {
        "direct" => server.to_vec(),
        "@" => world.wrapping(&["--resume", "cut"], &["@one".to_owned()]),
        "--all" => all(world, &["--resume", "cut"]),
        "--name" => world.wrapping(&["--name", "mine"], server),
        "" => world.wrapping(&["--resume", "cut"], server),
        way => world.wrapping(&["--resume", "cut", way], server),
    }
}

/// This test as host of a server that it has used.
fn connect(world: &World, way: &str, save: &str) -> Client<Front> {
    let server = server(world, "heard", save);
    let mut client = Client::connected(world.front(&command(world, way, &server)));
    client.request("tools/list", json!({}));
    assert_eq!(client.call("use", json!({})), "used", "{way:?}");
    client
}

/// The times, in ms, and the words that the server has written, without its start.
fn heard(world: &World) -> Vec<(u64, String)> {
    let text = fs::read_to_string(world.root().join("heard")).unwrap_or_default();
    let read = |line: &str| {
        let (time, word) = line.split_once(' ')?;
        Some((time.parse().ok()?, word.to_owned()))
    };
    text.lines()
        .filter_map(read)
        .filter(|(_, word)| word != "start")
        .collect()
}

/// The words.
fn words(world: &World) -> Vec<String> {
    heard(world).into_iter().map(|(_, word)| word).collect()
}

/// Waits until the server has written this word so often.
fn wait_for(world: &World, word: &str, times: usize) {
    until("the server has heard it", || {
        let words = words(world);
        (words.iter().filter(|heard| *heard == word).count() >= times).then_some(())
    });
}

/// The host does this to its end of the server; the front's exit, or the server's own.
fn end(mut client: Client<Front>, event: Option<Signal>) -> ExitStatus {
    match event {
        None => client.pipe.close(),
        Some(event) => client.pipe.signal(event),
    }
    client.pipe.wait()
}

/// What a host does is what the server hears, in each entry point, and whoever waits for the front
/// has waited for what the server saves.
#[test]
fn a_server_that_ends_with_its_host_saves_before_its_front_exits() {
    for way in WAYS {
        for event in [None, Some(Signal::SIGTERM), Some(Signal::SIGINT)] {
            let world = world();
            let _daemon = world.daemon();
            let client = connect(&world, way, "100");
            end(client, event);
            let words = words(&world);
            let (last, before) = words.split_last().expect("words");
            assert_eq!(last, "saved", "{way:?} {event:?}");
            // The end of the input and a signal come at the same time.
            let before: BTreeSet<&str> = before.iter().map(String::as_str).collect();
            let event = event.map(Signal::as_str);
            let wanted: BTreeSet<&str> = ["end"].into_iter().chain(event).collect();
            assert_eq!(before, wanted, "{way:?} {event:?}");
        }
    }
}

/// As directly, where the end of the input and nothing else comes from a host that closes it.
#[test]
fn a_server_that_does_not_end_gets_sigterm_and_sigkill_each_after_its_time() {
    for way in WAYS {
        for event in [None, Some(Signal::SIGTERM), Some(Signal::SIGINT)] {
            let world = world();
            let _daemon = world.daemon();
            let client = connect(&world, way, "never");
            let server = world.backend().pid();
            // When the server sees the end of its input is for the scheduler to say; that it was there
            // before this, nobody.
            let asked = now_ms();
            end(client, event);
            gone(server);
            let heard = heard(&world);
            let own = heard
                .iter()
                .rposition(|(_, word)| word == "SIGTERM")
                .expect("SIGTERM");
            let (time, _) = heard[own];
            assert!(
                heard.iter().any(|(_, word)| word == "end"),
                "{way:?} {heard:?}"
            );
            assert!(time >= asked + STOP_WAIT_MS, "{way:?} {asked} {heard:?}");
            let first = event.map_or(1, |_| 2);
            assert_eq!(heard.len(), first + 1, "{way:?} {event:?}: {heard:?}");
        }
    }
}

/// A host that loses its patience says so, and the server hears that, too.
#[test]
fn the_next_signal_of_the_host_is_handed_on_while_the_server_ends() {
    for way in WAYS {
        let world = world();
        world.configure("claim_wait_ms = 5000\n[backends]\nstop_wait_ms = 20000\n");
        let _daemon = world.daemon();
        let mut client = connect(&world, way, "never");
        let server = world.backend().pid();
        client.pipe.close();
        wait_for(&world, "end", 1);
        for (event, times) in [
            (Signal::SIGINT, 1),
            (Signal::SIGTERM, 1),
            (Signal::SIGTERM, 2),
        ] {
            client.pipe.signal(event);
            wait_for(&world, event.as_str(), times);
        }
        assert_eq!(words(&world), ["end", "SIGINT", "SIGTERM", "SIGTERM"]);
        signal(server, Signal::SIGKILL);
        client.pipe.wait();
    }
}

#[test]
#[ignore = "needs node"]
fn a_server_ends_by_the_end_of_its_input_where_its_host_is_gone_without_a_word() {
    let world = world();
    let _daemon = world.daemon();
    let mut host = connect_official(&world, &server(&world, "heard", "100"));
    host.call("main", "use", json!({}));
    let server = world.backend().pid();
    host.kill();
    gone(server);
    assert_eq!(words(&world), ["end", "saved"]);
}

/// It may still save by a signal what it holds.
#[test]
fn a_server_that_hangs_gets_sigterm_before_sigkill() {
    let world = keeping(&format!(
        "ping_wait_ms = 100\nstop_wait_ms = {STOP_WAIT_MS}"
    ));
    let _daemon = world.daemon();
    let server = server(&world, "heard", "never");
    let command = world.wrapping(&[], &server);
    let mut client = Client::connected(world.front(&command));
    // Only one that has answered pings is known to hang.
    client.ping();
    let hanging = world.backend().pid();
    assert_eq!(client.call("hang", json!({})), "used");
    client.pipe.close();
    client.pipe.wait();
    let mut next = Client::connected(world.front(&command));
    assert_eq!(next.call("use", json!({})), "used");
    gone(hanging);
    assert_eq!(words(&world), ["SIGTERM"]);
}

/// `mcp-sessiond stop`, with its host and without one.
#[test]
fn a_server_that_is_stopped_gets_the_end_of_its_input_first() {
    for way in ["", "--lazy", "@", "--all", "--name"] {
        for attended in [true, false] {
            let world = world();
            let _daemon = world.daemon();
            let mut client = connect(&world, way, "100");
            let backend = world.backend();
            if !attended {
                // What is killed is resumed, so the server stays.
                client.pipe.kill();
                backend.wait_alone();
            }
            let stopped = world.sessiond(&["stop", &backend.session]).output();
            assert!(stopped.expect("it runs").status.success());
            assert_eq!(words(&world), ["end", "saved"], "{way:?} {attended}");
        }
    }
}

/// What systemd does to all processes of a machine's session, or of a scope, when that ends.
#[test]
fn a_server_saves_where_all_processes_get_sigterm_at_once() {
    for way in WAYS {
        let world = world();
        let _daemon = world.daemon();
        let mut client = connect(&world, way, "100");
        let backend = world.backend();
        let server = backend.pid();
        client.pipe.signal(Signal::SIGTERM);
        signal(backend.keeper, Signal::SIGTERM);
        signal(server, Signal::SIGTERM);
        client.pipe.wait();
        gone(server);
        let words = words(&world);
        assert_eq!(
            words.last().map(String::as_str),
            Some("saved"),
            "{way:?}: {words:?}"
        );
        assert!(words.contains(&"end".to_owned()), "{way:?}: {words:?}");
    }
}

/// A server of the user's own outlives its host, and hears nothing of its end. What ends it later
/// follows the signal that the host has sent.
#[test]
fn a_server_that_stays_hears_of_its_hosts_signal_when_it_ends() {
    let world = world();
    let _daemon = world.daemon();
    end(connect(&world, "--name", "100"), Some(Signal::SIGINT));
    let backend = world.backend();
    let mut next = connect(&world, "--name", "100");
    assert_eq!(
        words(&world),
        [""; 0],
        "it hears nothing, and the next host has it"
    );
    next.pipe.signal(Signal::SIGINT);
    next.pipe.wait();
    backend.wait_alone();
    let stopped = world.sessiond(&["stop", "mine"]).output();
    assert!(stopped.expect("it runs").status.success());
    let words: BTreeSet<String> = words(&world).into_iter().collect();
    let wanted = ["end", "SIGINT", "saved"].map(String::from);
    assert_eq!(words, wanted.into());
}

/// Signals that don't end a program by their meaning are the server's. So is SIGHUP: this front has
/// no terminal that could have closed.
#[test]
fn other_signals_are_handed_on_and_end_nothing() {
    for way in ["", "--lazy", "@", "--all", "--name"] {
        let world = world();
        let _daemon = world.daemon();
        let mut client = connect(&world, way, "0");
        for event in [
            Signal::SIGUSR1,
            Signal::SIGUSR2,
            Signal::SIGWINCH,
            Signal::SIGCONT,
            Signal::SIGHUP,
        ] {
            client.pipe.signal(event);
            wait_for(&world, event.as_str(), 1);
        }
        client.ping();
        assert_eq!(words(&world).len(), 5, "{way:?}");
    }
}

/// The next server may need what the former one holds, such as the lock on a profile.
#[test]
fn the_next_start_waits_until_the_former_server_is_gone() {
    let world = world();
    let _daemon = world.daemon();
    let mut former = connect(&world, "", "200");
    former.pipe.close();
    let mut next = connect(&world, "", "200");
    assert_eq!(
        words(&world),
        ["end", "saved"],
        "before the next one has started"
    );
    next.ping();
    former.pipe.wait();
}

/// `close()` of the official TypeScript client.
#[test]
#[ignore = "needs node"]
fn the_official_client_has_closed_when_its_server_has_saved() {
    let world = world().with_hosts(r#"[{ executable = "*", resume = "cut" }]"#);
    world.configure("[backends]\nstop_wait_ms = 2000\n");
    let _daemon = world.daemon();
    let mut host = connect_official(&world, &server(&world, "heard", "300"));
    host.call("main", "use", json!({}));
    host.close("main");
    assert_eq!(words(&world), ["end", "saved"]);
}
