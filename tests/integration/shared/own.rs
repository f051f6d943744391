//! Which hosts share, and which get a server of their own.

use mcp_sessiond_tests::{Client, Front};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{able, ask, connect, connect_as, entry, greet, hosts, pid, sharing, write_down};
use crate::several::{all, tools};
use crate::world;

#[test]
fn a_host_that_can_do_less_gets_a_server_of_its_own_and_keeps_it() {
    let world = sharing();
    let _daemon = world.daemon();
    let mut first = connect(&world);
    let shared = pid(&mut first);
    for (capabilities, version) in [
        (json!({}), "2025-06-18"),
        (json!({"sampling": {}}), "2025-06-18"),
        (able(), "2024-11-05"),
        (able(), "no version"),
    ] {
        let (mut less, answer) = connect_as(&world, "crowd", &capabilities, version);
        assert!(answer.get("result").is_some(), "{answer}");
        let own = pid(&mut less);
        assert_ne!(own, shared, "{capabilities} {version}");
        less.pipe
            .errors
            .wait("so this host does not share the server, and gets one of its own");
        assert_eq!(pid(&mut less), own);
        less.pipe.kill();
        assert_eq!(
            pid(&mut connect_as(&world, "crowd", &capabilities, version).0),
            own,
            "it is kept"
        );
    }
    for (capabilities, version) in [
        (able(), "2025-11-25"),
        (
            json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}}),
            "2025-06-18",
        ),
    ] {
        let (mut more, answer) = connect_as(&world, "crowd", &capabilities, version);
        assert_eq!(
            answer["result"]["protocolVersion"], "2025-06-18",
            "{answer}"
        );
        assert_eq!(pid(&mut more), shared, "{capabilities} {version}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_host_that_can_share_no_more_finds_its_own_server_again() {
    let world = sharing();
    let _daemon = world.daemon();
    let mut one = connect(&world);
    let server = pid(&mut one);
    // The next server's first host can do more.
    one.pipe.signal(Signal::SIGSTOP);
    world.backend().kill_keeper();
    let more = json!({"elicitation": {}, "sampling": {}});
    let (mut other, _) = connect_as(&world, "crowd", &more, "2025-06-18");
    let shared = pid(&mut other);
    assert_ne!(shared, server);
    one.pipe.signal(Signal::SIGCONT);
    one.pipe
        .errors
        .wait("so this host does not share the server, and gets one of its own");
    let own = pid(&mut one);
    assert!(own != server && own != shared);
    for _ in 0..2 {
        one.pipe.kill();
        one = connect(&world);
        assert_eq!(pid(&mut one), own);
    }
}

#[test]
fn an_entry_that_was_edited_has_other_servers_also_for_who_does_not_share() {
    let world = sharing();
    let _daemon = world.daemon();
    let connect_less = || connect_as(&world, "crowd", &json!({}), "2025-06-18").0;
    let mut first = connect(&world);
    let mut less = connect_less();
    let before = [pid(&mut first), pid(&mut less)];
    let mut edited = entry(&world);
    edited["env"]["EDITED"] = json!("1");
    write_down(&world, &json!({"crowd": edited}));
    for client in [&mut first, &mut less] {
        client.pipe.kill();
    }
    (first, less) = (connect(&world), connect_less());
    let after = [pid(&mut first), pid(&mut less)];
    assert_ne!(after[0], after[1]);
    assert!(
        after.iter().all(|pid| !before.contains(pid)),
        "{before:?} {after:?}"
    );
    assert!(less.call("env", json!({})).contains("EDITED"));
}

#[test]
fn roots_and_tasks_are_not_shared() {
    let world = sharing();
    let _daemon = world.daemon();
    let capabilities = json!({"elicitation": {}, "roots": {"listChanged": true}, "tasks": {}});
    let (mut first, answer) = connect_as(&world, "crowd", &capabilities, "2025-06-18");
    assert!(
        answer["result"]["capabilities"].get("tasks").is_none(),
        "{answer}"
    );
    assert!(
        answer["result"]["capabilities"].get("tools").is_some(),
        "{answer}"
    );
    let handshakes = std::fs::read_to_string(world.root().join("handshakes")).expect("handshakes");
    let told: Value = serde_json::from_str(handshakes.trim()).expect("JSON");
    assert_eq!(told["capabilities"], able());
    let id = first.request("tasks/list", json!({}));
    assert_eq!(first.answer(id)["error"]["code"], -32601);
}

#[test]
fn a_host_that_only_asks_for_the_era_first_shares_and_one_of_the_newer_era_does_not() {
    let world = sharing();
    let _daemon = world.daemon();
    let mut first = connect(&world);
    assert_eq!(first.call("increment", json!({})), "1");
    let command = world.wrapping(&[], &["@crowd".to_owned()]);
    let probing = || {
        let mut host = Client::new(world.front(&command));
        let id = host.request("server/discover", json!({}));
        assert_eq!(host.answer(id)["error"]["code"], -32601);
        host
    };
    // As Claude Code does.
    let mut both = probing();
    greet(&mut both, &able(), "2025-06-18");
    assert_eq!(both.call("increment", json!({})), "2");
    assert_eq!(hosts(&world), [2]);
    let goes_on = |host: Client<Front>| {
        let line = "its host does not begin with `initialize`";
        host.pipe.errors.wait(line);
        assert_eq!(hosts(&world), [2]);
    };
    // Its first request after the probe is of the newer era.
    let mut modern = probing();
    modern.request("tools/list", json!({}));
    goes_on(modern);
    // And one that never goes further, at its third try.
    let mut modern = Client::new(world.front(&command));
    for _ in 0..2 {
        let mut refused = probing();
        refused.pipe.close();
        refused.pipe.wait();
    }
    modern.request("server/discover", json!({}));
    goes_on(modern);
}

#[test]
fn wrap_all_shares_what_is_shared_and_nothing_else() {
    let world = world("");
    // Not whoever comes first.
    let always = [("MCP_SESSIOND_BUNDLE_NAMES", "always")];
    let mut alone = entry(&world);
    alone["shared"] = json!(false);
    alone["env"] = json!({});
    write_down(&world, &json!({"crowd": entry(&world), "alone": alone}));
    let _daemon = world.daemon();
    let mut clients = [(), ()].map(|()| {
        let mut client = Client::new(world.front_with(&all(&world, &[]), &always));
        greet(&mut client, &able(), "2025-06-18");
        client
    });
    let mut pids = Vec::new();
    for client in &mut clients {
        let listed = tools(client);
        assert!(
            ["crowd_pid", "alone_pid"]
                .iter()
                .all(|name| listed.iter().any(|tool| tool == name)),
            "{listed:?}"
        );
        pids.push(["crowd_pid", "alone_pid"].map(|tool| client.call(tool, json!({}))));
    }
    assert_eq!(pids[0][0], pids[1][0]);
    assert_ne!(pids[0][1], pids[1][1]);
    // An ask comes to the host whose call it is of.
    let [one, other] = &mut clients;
    for (client, tag) in [(one, "one"), (other, "other")] {
        ask(client, "crowd_ask", tag);
    }
}
