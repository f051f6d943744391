//! `wrap.tell = "error"`: the first call after the loss of a used server is refused with the reason,
//! by every way to a server that one host has.

use std::fs;

use mcp_sessiond_tests::{Client, World, signal};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::world;
use crate::wrap::tiny;

/// The options of a way, and whether the server stands in `servers.json`.
const DOORS: [(&[&str], bool); 5] = [
    (&[], false),
    (&["--lazy"], false),
    (&["--name", "n"], false),
    (&[], true),
    (&["--all"], true),
];

const SETTINGS: &str = "[wrap]\ntell = \"error\"\n";

fn wrapping(world: &World, (options, is_listed): (&[&str], bool)) -> Vec<String> {
    let server = tiny(world);
    if !is_listed {
        return world.wrapping(options, &server);
    }
    let file = json!({"mcpServers": {"t": {"command": server[0], "args": server[1..]}}});
    fs::write(world.root().join("servers.json"), file.to_string()).expect("servers.json");
    if options.is_empty() {
        return world.wrapping(options, &["@t".to_owned()]);
    }
    let mut words = world.wrapping(options, &[]);
    words.pop();
    words
}

/// How a server is lost.
type Kill = fn(&World);

fn kill_server(world: &World) {
    signal(world.backend().pid(), Signal::SIGKILL);
}

fn kill_keeper(world: &World) {
    let backend = world.backend();
    backend.kill_keeper();
    backend.ended();
}

/// The call was not made, since the server begins afresh, and for this reason.
#[track_caller]
fn assert_refused(error: &Value, reason: &str) {
    assert_eq!(error["data"]["outcome"], "not_sent", "{error}");
    let words = error["message"].as_str().unwrap_or_default();
    for part in ["begins afresh", reason, "repeat the call"] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn the_first_call_after_a_loss_is_refused_with_the_reason_where_that_is_wanted() {
    for door in DOORS {
        let kills: [(Kill, &str); 2] = [
            (kill_server, "the previous server has ended"),
            (kill_keeper, "the process that kept the previous server"),
        ];
        for (kill, reason) in kills {
            let world = world(SETTINGS);
            let _daemon = world.daemon();
            let mut client = Client::connected(world.front(&wrapping(&world, door)));
            assert_eq!(client.count(), 1, "{door:?}");
            kill(&world);
            client.pipe.errors.wait_from(0, &["has ended", "had ended"]);
            // What is no call of a model's is answered.
            let list = client.request("tools/list", json!({}));
            assert!(
                client.answer(list)["result"]["tools"].is_array(),
                "{door:?}"
            );
            let refused = client.try_call("increment", json!({}));
            assert_refused(&refused.expect_err("it is not made"), reason);
            // It is refused once, and was not made.
            assert_eq!([client.count(), client.count()], [1, 2], "{door:?}");
        }
    }
}

/// The next front tells of what its predecessor could not; and of a server that nobody has used
/// there is nothing to tell.
#[test]
fn so_is_that_of_the_next_host_process_and_never_that_to_an_unused_server() {
    let world = world(SETTINGS);
    let _daemon = world.daemon();
    let words = wrapping(&world, DOORS[0]);
    let mut client = Client::connected(world.front(&words));
    kill_server(&world);
    client.pipe.errors.wait("the server has ended (");
    assert_eq!(client.count(), 1, "nobody had used it");
    let backend = world.backend();
    backend.cut_off(&mut client.pipe);
    kill_keeper(&world);
    let mut next = Client::connected(world.front(&words));
    let refused = next.try_call("increment", json!({}));
    let reason = "the process that kept the previous server";
    assert_refused(&refused.expect_err("it is not made"), reason);
    assert_eq!(next.count(), 1);
}

/// Another server of its key lives, which is no loss of a server, though it is said on standard error.
#[test]
fn the_first_call_of_a_twin_is_made() {
    let world = world(&format!("claim_wait_ms = 100\n{SETTINGS}"));
    let _daemon = world.daemon();
    let words = wrapping(&world, DOORS[0]);
    let mut first = Client::connected(world.front(&words));
    assert_eq!(first.count(), 1);
    let mut twin = Client::connected(world.front(&words));
    twin.pipe
        .errors
        .wait("another server with the same command");
    assert_eq!((twin.count(), first.count()), (1, 2));
}

/// By default nothing is refused.
#[test]
fn nothing_is_refused_where_nobody_wants_that() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = Client::connected(world.front(&wrapping(&world, DOORS[0])));
    client.count();
    kill_server(&world);
    client.pipe.errors.wait("the server has ended (");
    assert_eq!(client.count(), 1);
}
