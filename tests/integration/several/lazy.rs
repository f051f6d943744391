//! Servers among several that are started at their first calls.

use std::fs;

use mcp_sessiond_tests::{Client, gone};
use serde_json::{Value, json};

use super::{all, backend, changed, connect, count, entry, small, tools, write_down};
use crate::lazy::{pid, says, starts, told, tool, usual};
use crate::remote::express;
use crate::world;

const QUICK: &str = "backends.closed_linger_ms = 100\nbackends.stop_wait_ms = 100";

#[test]
fn one_is_started_at_its_first_call_and_the_others_are_with_their_host() {
    let world = world(QUICK);
    let mut daemon = world.daemon();
    says(&world, &usual());
    let mut slow = entry(&told(&world));
    slow["lazy"] = json!(true);
    write_down(&world, &[("slow", slow), ("counter", small(&world))]);
    let mut client = connect(&world);
    let first = tools(&mut client);
    assert_eq!((first.len(), starts(&world)), (7, 1));
    let instructions =
        |client: &mut Client<_>| client.initialize()["result"]["instructions"].clone();
    client.pipe.close();
    assert!(client.pipe.wait().success());
    gone(pid(&world));

    let mut client = Client::new(world.front(&all(&world, &[])));
    assert_eq!(instructions(&mut client), "# slow\n\nAsk me.");
    let mut second = tools(&mut client);
    second.sort();
    let mut expected = first.clone();
    expected.sort();
    assert_eq!((second, starts(&world)), (expected, 1));
    assert_eq!(count(&mut client, "increment"), 1);
    daemon.kill();
    daemon.start_again();
    let mut now = usual();
    now["tools/list"] = json!([{"tools": [tool("a"), tool("d")]}]);
    says(&world, &now);
    // It waits where nobody waits for it until the call.
    let own = client.call("a", json!({}));
    assert_eq!(
        (own, starts(&world)),
        (backend(&world, "slow").pid().to_string(), 2)
    );
    while !tools(&mut client).contains(&"d".to_owned()) {
        changed(&mut client);
    }
    assert!(!tools(&mut client).contains(&"b".to_owned()));

    // One that runs is found again, whoever was killed.
    let own = backend(&world, "slow").pid();
    client.pipe.kill();
    let mut client = connect(&world);
    assert_eq!(
        (client.call("d", json!({})), starts(&world)),
        (own.to_string(), 2)
    );
    assert_eq!(count(&mut client, "increment"), 2);
}

#[test]
fn one_whose_secret_may_be_another_one_is_not_answered_from_memory() {
    let world = world(QUICK);
    let _daemon = world.daemon();
    says(&world, &usual());
    fs::write(world.root().join("key"), "of an account").expect("a file");
    let mut slow = entry(&told(&world));
    slow["lazy"] = json!(true);
    slow["env"] = json!({"MY": format!("${{file:{}}}", world.root().join("key").display())});
    write_down(&world, &[("slow", slow)]);
    for starts_then in 1..=2 {
        let mut client = connect(&world);
        assert_eq!((tools(&mut client).len(), starts(&world)), (3, starts_then));
        client.pipe.close();
        assert!(client.pipe.wait().success());
        gone(pid(&world));
        let mut other = usual();
        other["tools/list"] = json!([{"tools": [tool("a"), tool("b")]}, {"tools": [tool("z")]}]);
        says(&world, &other);
    }
}

/// Another account may have logged in since.
#[test]
#[ignore = "needs node"]
fn one_that_the_user_logs_in_to_is_not_answered_from_memory() {
    let world = world(&format!("{QUICK}\nbundle.ready_wait_ms = 500"));
    let _daemon = world.daemon();
    let mut server = express(&world, &["events"]);
    let given = json!({"url": server.url, "lazy": true, "headers": {"Authorization": "Bearer x"}});
    write_down(
        &world,
        &[
            ("mine", json!({"url": server.url, "lazy": true})),
            ("given", given),
        ],
    );
    let mut client = connect(&world);
    let mut all = tools(&mut client);
    while all.len() < 10 {
        changed(&mut client);
        all = tools(&mut client);
    }
    client.pipe.close();
    assert!(client.pipe.wait().success());
    server.kill();
    let mut client = connect(&world);
    let known = tools(&mut client);
    assert_eq!(known.len(), 5, "{known:?} of {all:?}");
}

#[test]
fn all_are_where_the_command_line_says_so_and_one_that_hangs_is_told() {
    let within = |limit_ms: u32| format!("{QUICK}\nbundle.init_timeout_ms = {limit_ms}");
    let world = world(&within(120_000));
    let _daemon = world.daemon();
    says(&world, &usual());
    write_down(
        &world,
        &[("slow", entry(&told(&world))), ("counter", small(&world))],
    );
    let words = all(&world, &["--lazy"]);
    let mut client = Client::connected(world.front(&words));
    assert_eq!(tools(&mut client).len(), 7);
    world.wait_backends(2);
    client.pipe.close();
    assert!(client.pipe.wait().success());
    gone(pid(&world));

    world.configure(&within(5_000));
    let mut client = Client::connected(world.front(&words));
    assert_eq!((tools(&mut client).len(), starts(&world)), (7, 1));
    let gate = world.root().join("gate");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&gate)
            .status()
            .expect("mkfifo")
            .success()
    );
    let error = client.try_call("a", json!({})).expect_err("it hangs");
    let message = error["message"].as_str().expect("text");
    assert!(message.contains("it was not ready within 5 s"), "{message}");
    gone(pid(&world));
    fs::remove_file(gate).expect("removed");
    assert_eq!(client.call("a", json!({})), pid(&world).to_string());
    client.ping();
    assert_eq!(client.rest(), Vec::<Value>::new());
    assert_eq!(count(&mut client, "increment"), 1);
}
