//! How several servers come up, and by which names their tools are called.

use std::fs;

use mcp_sessiond_tests::{Client, write_program};
use serde_json::{Value, json};

use super::{all, connect, count, small, tools, write_down};
use crate::world;
use crate::wrap::tiny;

/// A server of which it can be seen when it starts and ends: it writes a line into a file each
/// time.
fn noted(log: &str, name: &str, does: &str) -> Value {
    let script = format!("echo \"+ {name} $$\" >> {log}; {does}");
    json!({"command": "sh", "args": ["-c", script]})
}

#[test]
fn twelve_servers_of_which_four_do_not_come_up() {
    let world = world(
        "bundle.init_concurrency = 4\nbundle.init_timeout_ms = 5000\nbundle.ready_wait_ms = 30000\nbackends.stop_wait_ms = 100",
    );
    let _daemon = world.daemon();
    let log = world
        .root()
        .join("starts")
        .to_str()
        .expect("UTF-8")
        .to_owned();
    let good = |name: &str| {
        noted(
            &log,
            name,
            &format!("exec {} --starts {log} 4", crate::BINARIES.counter),
        )
    };
    let mut servers: Vec<(String, Value)> = (0..8)
        .map(|n| format!("s{n}"))
        .map(|name| (name.clone(), good(&name)))
        .collect();
    servers.insert(
        1,
        ("hangs".to_owned(), noted(&log, "hangs", "exec sleep 1000")),
    );
    servers.insert(3, ("crashes".to_owned(), noted(&log, "crashes", "exit 3")));
    servers.insert(
        6,
        ("waits".to_owned(), noted(&log, "waits", "exec sleep 1000")),
    );
    servers.insert(
        9,
        ("missing".to_owned(), json!({"command": "no-such-program"})),
    );
    let servers: Vec<(&str, Value)> = servers
        .iter()
        .map(|(name, entry)| (&**name, entry.clone()))
        .collect();
    write_down(&world, &servers);

    let mut client = Client::new(world.front(&all(&world, &[])));
    let answer = client.initialize();
    let instructions = answer["result"]["instructions"]
        .as_str()
        .expect("text")
        .to_owned();
    for (name, why) in [
        ("hangs", "it was not ready within 5 s"),
        ("waits", "it was not ready within 5 s"),
        ("crashes", ""),
        (
            "missing",
            "no-such-program can't be run: it was not found in PATH",
        ),
    ] {
        let sentence = format!("The server {name:?} is not available: {why}");
        assert!(instructions.contains(&sentence), "{instructions}");
    }
    assert_eq!(
        instructions
            .lines()
            .filter(|line| line.starts_with("The server"))
            .count(),
        4,
        "{instructions}"
    );
    assert_eq!(tools(&mut client).len(), 8 * 16);

    // One is mended, and joins.
    let program = world.root().join("no-such-program");
    let script = good("mended")["args"][1]
        .as_str()
        .expect("a script")
        .to_owned();
    write_program(&program, &format!("#!/bin/sh\n{script}\n"));
    let mended: Vec<(&str, Value)> = servers
        .into_iter()
        .map(|(name, entry)| {
            (
                name,
                if name == "missing" {
                    json!({"command": program})
                } else {
                    entry
                },
            )
        })
        .collect();
    write_down(&world, &mended);
    while tools(&mut client).len() < 9 * 16 {
        super::changed(&mut client);
    }
    client.pipe.close();

    // Each that came up has counted who was starting with it.
    let noted = fs::read_to_string(&log).expect("what was noted");
    let counts = noted
        .lines()
        .filter_map(|line| line.strip_prefix("= ")?.parse().ok());
    assert_eq!(counts.max(), Some(4), "{noted}");
}

#[test]
fn names_are_the_same_after_a_restart_of_everything_and_after_a_third_has_joined() {
    let world = world("");
    let mut daemon = world.daemon();
    let (a, b) = (small(&world), small(&world));
    write_down(&world, &[("a", a.clone()), ("b", b.clone())]);
    let mut client = connect(&world);
    let first = tools(&mut client);
    // Which of the two has the bare name is that of the first start.
    // The first in the file has the bare names.
    let other = "b";
    assert!(first.contains(&format!("{other}_get")), "{first:?}");
    count(&mut client, "increment");
    let pids =
        ["parent".to_owned(), format!("{other}_parent")].map(|tool| client.call(&tool, json!({})));
    assert_ne!(pids[0], pids[1]);
    client.pipe.close();
    assert!(client.pipe.wait().success());
    daemon.restart();

    write_down(&world, &[("c", small(&world)), ("b", b), ("a", a)]);
    let mut client = Client::connected(world.front(&all(&world, &["--fresh"])));
    let second = tools(&mut client);
    assert!(first.iter().all(|name| second.contains(name)), "{second:?}");
    let third: Vec<_> = second.iter().filter(|name| !first.contains(name)).collect();
    assert_eq!(third, ["c_increment", "c_get", "c_parent", "c_echo"]);
    assert_eq!(count(&mut client, "increment"), 1);
    assert_eq!(count(&mut client, &format!("{other}_increment")), 1);
}

#[test]
fn names_have_their_server_always_where_that_is_wanted() {
    let world = world("bundle.names = \"always\"");
    let _daemon = world.daemon();
    write_down(&world, &[("a", small(&world))]);
    let mut client = connect(&world);
    assert_eq!(
        tools(&mut client),
        ["a_increment", "a_get", "a_parent", "a_echo"]
    );
    assert_eq!(count(&mut client, "a_increment"), 1);
}

#[test]
fn without_a_daemon_they_are_run_as_they_are() {
    let world = world("");
    write_down(&world, &[("a", small(&world)), ("b", small(&world))]);
    let mut client = Client::connected(world.front(&all(&world, &["--no-start"])));
    assert_eq!(tools(&mut client).len(), 8);
    assert_eq!(count(&mut client, "increment"), 1);
    client
        .pipe
        .errors
        .wait("the servers are run without being kept");
    client.pipe.close();
    assert!(client.pipe.wait().success());
    world.nothing_left();
}

#[test]
fn without_the_file_it_is_said_where_it_would_be() {
    let world = world("");
    let output = world
        .sessiond(&["wrap", "--all"])
        .output()
        .expect("it runs");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(66));
    assert!(said.contains("servers.json"), "{said}");
}

#[test]
fn a_server_at_a_url_is_one_of_them() {
    let world = world("");
    let _daemon = world.daemon();
    let mut serve = world.serve(&["--name", "remote"], &tiny(&world));
    write_down(
        &world,
        &[
            ("far", json!({"url": serve.url()})),
            ("near", small(&world)),
        ],
    );
    let mut client = connect(&world);
    let listed = tools(&mut client);
    let far = if listed.contains(&"far_increment".to_owned()) {
        "far_increment"
    } else {
        "increment"
    };
    let near = if far == "increment" {
        "near_increment"
    } else {
        "increment"
    };
    assert_eq!((count(&mut client, far), count(&mut client, near)), (1, 1));
    serve.kill();
    serve.start_again();
    assert_eq!((count(&mut client, far), count(&mut client, near)), (2, 2));
    // The next connection of the host goes on with the session, also with a server that is not
    // ours.
    client.pipe.kill();
    let mut client = connect(&world);
    assert_eq!((count(&mut client, far), count(&mut client, near)), (3, 3));
}
