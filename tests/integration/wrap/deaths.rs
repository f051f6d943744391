//! Servers and keepers die. The front stays, its host is told what became of its calls, and there
//! is a fresh server.

use mcp_sessiond_tests::{
    Client, Front, World, copy_program, gone, lives, signal, until, write_program,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{connect, connect_official, counter, gate, keeping, open, tiny, wrapped};

#[track_caller]
fn assert_unknown(answer: &Value) {
    let error = &answer["error"];
    assert_eq!(error["data"]["outcome"], "unknown", "{answer}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|words| words.contains("unknown")),
        "{answer}"
    );
}

/// A server that has counted to two, and has a call under way.
fn busy(world: &World) -> (Client<Front>, u64) {
    let mut client = connect(world, &counter(world));
    client.count();
    client.count();
    let slow = client.begin_slow(&gate(world, "never"));
    (client, slow)
}

#[track_caller]
fn goes_on_with_a_fresh_one(mut client: Client<Front>) {
    // It is told at once.
    let ends = [
        "the server has ended (",
        "the keeper of the server had ended",
    ];
    client.pipe.errors.wait_from(0, &ends);
    assert_eq!(client.count(), 1);
    client.said(|message| message["method"] == "notifications/tools/list_changed");
    assert!(client.pipe.runs());
    let list = client.request("tools/list", json!({}));
    assert!(client.answer(list)["result"]["tools"].is_array());
}

#[test]
fn a_server_that_exits_is_started_again_and_its_calls_are_said_to_be_unknown() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (mut client, slow) = busy(&world);
    let die = client.begin("die", json!({"code": 7}));
    for call in [slow, die] {
        assert_unknown(&client.answer(call));
    }
    let line = client.pipe.errors.wait("the server has ended (");
    assert!(line.contains('7'), "{line}");
    goes_on_with_a_fresh_one(client);
}

/// The host hears why as soon as from a direct child; and so does the next one, for which the
/// server is started once more.
#[test]
fn a_server_that_can_not_start_says_why_and_is_not_started_in_vain() {
    let world = keeping("");
    let _daemon = world.daemon();
    let initialize =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}).to_string() + "\n";
    for (name, first) in [("at-once", ""), ("when-spoken-to", "read line; ")] {
        let starts = world.root().join(name);
        let script = format!(
            "echo >>{}; {first}echo 'Error: no API key' >&2; exit 3",
            starts.display()
        );
        let server = ["sh", "-c", &script].map(str::to_owned);
        for attempt in 1..=2 {
            let mut front = world.front(&world.wrapping(&[], &server));
            front.send(initialize.as_bytes());
            let answer: Value =
                serde_json::from_slice(&front.line().expect("an answer")).expect("JSON");
            let words = answer["error"]["message"].as_str().unwrap_or_default();
            assert!(
                words.contains("exit status 3: Error: no API key"),
                "{answer}"
            );
            front.errors.wait("Error: no API key");
            assert!(
                front.runs(),
                "it stays: some hosts don't come back to a server that has exited"
            );
            let begun = std::fs::read_to_string(&starts).expect("it was started");
            assert_eq!(begun.lines().count(), attempt, "once for each host");
            front.kill();
        }
    }
}

#[test]
fn a_server_that_is_killed_is_started_again_and_its_calls_are_said_to_be_unknown() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (mut client, slow) = busy(&world);
    signal(world.backend().pid(), Signal::SIGKILL);
    assert_unknown(&client.answer(slow));
    goes_on_with_a_fresh_one(client);
}

/// The official client does not notice but for the call.
#[test]
#[ignore = "needs node"]
fn the_official_client_goes_on_after_the_death_of_server_and_keeper() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut host = connect_official(&world, &counter(&world));
    for keeper in [false, true] {
        let seen = host.told.len();
        host.count("main");
        let gate = gate(&world, &format!("never-{keeper}"));
        let slow = host.begin_slow("main", &gate);
        let backend = world.backend();
        if keeper {
            backend.kill_keeper();
        } else {
            signal(backend.pid(), Signal::SIGKILL);
        }
        let error = host.text(slow).expect_err("it was cut off");
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|words| words.contains("unknown")),
            "{error}"
        );
        assert_eq!(host.count("main"), 1);
        host.told
            .wait_from(seen, &["notifications/tools/list_changed"]);
        assert_eq!(
            host.told.lines("\"event\":\"exited\""),
            Vec::<String>::new()
        );
    }
}

#[test]
fn a_killed_keeper_takes_the_server_with_it_and_another_one_takes_its_place() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (mut client, slow) = busy(&world);
    let spawned: u32 = client.call("spawn", json!({})).parse().expect("a pid");
    client.call("ignore", json!({}));
    let backend = world.backend();
    let server = backend.pid();
    assert!(lives(server) && lives(spawned));
    backend.kill_keeper();
    assert_unknown(&client.answer(slow));
    goes_on_with_a_fresh_one(client);
    gone(server);
    gone(spawned);
    assert_ne!(world.backend().keeper, backend.keeper);
}

#[test]
fn a_keeper_killed_while_nobody_is_attached_means_a_fresh_server() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    client.count();
    drop(client);
    world.backend().kill_keeper();
    assert_eq!(connect(&world, &tiny(&world)).count(), 1);
}

/// The keeper dies at the same moment as the daemon, and the next one, which the front starts, has
/// to sweep up.
#[test]
fn a_keeper_killed_with_the_daemon_leaves_nothing() {
    let world = keeping("");
    let mut daemon = world.daemon();
    let (mut client, slow) = busy(&world);
    client.call("ignore", json!({}));
    let backend = world.backend();
    let server = backend.pid();
    daemon.kill();
    backend.kill_keeper();
    assert_unknown(&client.answer(slow));
    goes_on_with_a_fresh_one(client);
    gone(server);
}

/// A server that dies of being started, until a file is there.
#[test]
fn while_no_server_can_be_had_calls_are_said_not_to_be_sent() {
    let world = keeping("");
    let _daemon = world.daemon();
    let program = world.root().join("server");
    let command: Vec<String> = tiny(&world)
        .into_iter()
        .map(|word| format!("'{word}'"))
        .collect();
    write_program(
        &program,
        &format!("#!/bin/sh\nexec {}\n", command.join(" ")),
    );
    let words = [program.to_str().expect("UTF-8").to_owned()];
    let mut client = connect(&world, &words);
    let away = world.root().join("away");
    std::fs::rename(&program, &away).expect("taken away");
    signal(world.backend().keeper, Signal::SIGKILL);
    // One that was on its way when the keeper died is lost with it.
    let answer = until("a call is refused", || {
        let call = client.begin("increment", json!({}));
        let answer = client.answer(call);
        assert!(answer.get("error").is_some(), "{answer}");
        (answer["error"]["data"]["outcome"] == "not_sent").then_some(answer)
    });
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|words| words.contains("can't be run")),
        "{answer}"
    );
    // And it heals. When it may be tried again, nothing tells.
    std::fs::rename(&away, &program).expect("put back");
    until("it is there", || {
        client.try_call("increment", json!({})).ok()
    });
}

#[test]
fn a_front_whose_executable_was_upgraded_starts_keepers_all_the_same() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut words = wrapped(&world, &tiny(&world));
    let (copy, newer) = (
        world.root().join("mcp-sessiond"),
        world.root().join("newer"),
    );
    copy_program(&words[0], &copy);
    copy_program(&words[0], &newer);
    words[0] = copy.to_str().expect("UTF-8").to_owned();
    let mut client = Client::connected(world.front(&words));
    client.count();
    std::fs::rename(&newer, &copy).expect("upgraded");
    signal(world.backend().keeper, Signal::SIGKILL);
    goes_on_with_a_fresh_one(client);
}

#[test]
fn a_server_that_dies_at_once_is_not_started_in_a_hot_loop() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (starts, healed) = (gate(&world, "starts"), gate(&world, "healed"));
    let script = "echo >> \"$1\"; [ -e \"$2\" ] || exit 3; shift 2; exec \"$@\"";
    let broken = [
        "sh".into(),
        "-c".into(),
        script.into(),
        "sh".into(),
        starts.clone(),
        healed.clone(),
    ];
    let count = || std::fs::read_to_string(&starts).map_or(0, |text| text.len());
    let mut client =
        Client::new(world.front(&wrapped(&world, &[&broken[..], &tiny(&world)].concat())));
    // As long as it is tried to start it, it dies with the question in its hands.
    let answer = loop {
        let answer = client.initialize();
        assert!(
            answer.get("error").is_some() && count() <= 8,
            "{} starts: {answer}",
            count()
        );
        if answer["error"]["data"]["outcome"] == "not_sent" {
            break answer;
        }
    };
    assert_eq!(answer["error"]["data"]["outcome"], "not_sent", "{answer}");
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|words| words.contains("was not sent")),
        "{answer}"
    );
    assert!((2..=8).contains(&count()), "{} starts", count());
    // However often it is asked.
    for _ in 0..100 {
        assert!(client.try_call("increment", json!({})).is_err());
    }
    assert!((2..=8).contains(&count()), "{} starts", count());
    assert!(client.pipe.runs());
    // And it heals. When it may be tried again, nothing tells.
    open(&healed);
    until("it is there", || {
        client.initialize().get("result").is_some().then_some(())
    });
    assert_eq!(client.count(), 1);
}

/// A host that probes on a process of its own discards what that says; a front that is killed has said
/// nothing; and what somebody has read is said no more.
#[test]
fn the_end_of_a_server_is_told_until_somebody_has_read_it() {
    let world = keeping("");
    let _daemon = world.daemon();
    let command = wrapped(&world, &tiny(&world));
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    client.pipe.kill();
    backend.wait_alone();
    signal(backend.pid(), Signal::SIGKILL);
    backend.wait("it has ended", |status| status.pid.is_none());
    for _ in 0..2 {
        let mut sibling = Client::new(world.front(&command));
        let meta = json!({"_meta": {"io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}}});
        let id = sibling.request("server/discover", meta);
        assert_eq!(sibling.answer(id)["error"]["code"], -32601);
        sibling.pipe.close();
        sibling.pipe.wait();
        let said = sibling.pipe.errors.text();
        assert!(!said.contains("afresh"), "{said}");
    }
    let mut client = Client::connected(world.front(&command));
    let line = client.pipe.errors.wait("this server begins afresh");
    assert!(
        line.contains("SIGKILL") || line.contains("signal"),
        "{line}"
    );
    assert_eq!(client.count(), 1);
    world.until_told();
    client.pipe.kill();
    let mut client = Client::connected(world.front(&command));
    client.pipe.errors.wait("resumed the server");
    assert_eq!(client.count(), 2);
    let said = client.pipe.errors.text();
    assert!(!said.contains("afresh"), "{said}");
}

/// Keeper and front at once, so that nobody who has seen it can say so.
#[test]
fn a_keeper_that_is_killed_with_its_front_is_told_to_the_next_one() {
    let world = keeping("");
    let _daemon = world.daemon();
    let command = wrapped(&world, &tiny(&world));
    for keeper_first in [true, false] {
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 1);
        let backend = world.backend();
        if keeper_first {
            signal(backend.keeper, Signal::SIGKILL);
            client.pipe.kill();
        } else {
            client.pipe.kill();
            signal(backend.keeper, Signal::SIGKILL);
        }
        gone(backend.keeper);
        let mut client = Client::connected(world.front(&command));
        client.pipe.errors.wait("this server begins afresh");
        assert_eq!(client.count(), 1);
        let backend = world.backend();
        client.pipe.close();
        client.pipe.wait();
        world
            .sessiond(&["stop", &backend.session])
            .output()
            .expect("it is stopped");
        gone(backend.keeper);
    }
}

/// The records are gone with all that they said, and the daemon that has found that ends before the
/// host comes back.
#[test]
fn a_host_hears_that_the_records_were_lost() {
    let world = keeping("");
    let mut daemon = world.daemon();
    let command = wrapped(&world, &tiny(&world));
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    client.pipe.kill();
    daemon.kill();
    signal(backend.keeper, Signal::SIGKILL);
    gone(backend.keeper);
    world.lose_records();
    daemon.start_again();
    daemon.kill();
    daemon.start_again();
    for (count, is_told) in [(1, true), (2, false)] {
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), count);
        let lost = "the records of an earlier daemon were lost";
        if is_told {
            client.pipe.errors.wait(lost);
            world.until_told();
        } else {
            client.pipe.errors.wait("resumed the server");
        }
        client.pipe.kill();
    }
}

/// A database is sound without its log, and says nothing of the server, whose keeper knows better.
#[test]
fn so_it_does_where_only_the_log_of_the_database_was_deleted() {
    let world = keeping("");
    let mut daemon = world.daemon();
    let command = wrapped(&world, &tiny(&world));
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 1);
    world.backend().cut_off(&mut client.pipe);
    daemon.kill();
    for file in ["sessions.db-wal", "sessions.db-shm"] {
        let _ = std::fs::remove_file(world.directory().join(file));
    }
    daemon.start_again();
    daemon
        .log()
        .wait("it does not have a keeper that was on record");
    let mut client = Client::connected(world.front(&command));
    client
        .pipe
        .errors
        .wait("the records of an earlier daemon were lost");
    assert_eq!(client.count(), 1);
}
