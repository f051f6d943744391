//! Everything is killed in turn, with calls under way at every server: as with one server, and the
//! others are not touched.

use mcp_sessiond_tests::{signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{NAMES, begin, count, of_each, serving, text};
use crate::remote::express;
use crate::several::{able, backend, write_down};
use crate::world;
use crate::wrap::{gate, open};

#[test]
fn serve() {
    let (world, _daemon, mut serve) = serving("");
    let mut client = serve.connected("2025-11-25");
    let (counting, slow) = (
        of_each(&mut client, "increment"),
        of_each(&mut client, "slow"),
    );
    for tool in &counting {
        assert_eq!(count(&mut client, tool), 1);
    }
    let pids = NAMES.map(|name| backend(&world, name).pid());
    let gates = NAMES.map(|name| gate(&world, name));
    let begun: Vec<_> = slow
        .iter()
        .zip(&gates)
        .map(|(tool, gate)| begin(&mut client, tool, gate))
        .collect();
    serve.kill();
    // One of them answers while nobody is there.
    open(&gates[0]);
    serve.start_again();
    let mut back: Vec<_> = begun
        .iter()
        .map(|(_, event)| client.resume(event))
        .collect();
    gates.iter().for_each(|gate| open(gate));
    for (back, (id, _)) in back.iter_mut().zip(&begun) {
        let answer = back.answer();
        assert_eq!((&answer["id"], text(&answer)), (&json!(id), "2"));
        assert_eq!(back.event(), None, "the stream is complete");
    }
    assert_eq!(of_each(&mut client, "increment"), counting);
    for tool in &counting {
        assert_eq!(count(&mut client, tool), 3);
    }
    assert_eq!(NAMES.map(|name| backend(&world, name).pid()), pids);
}

#[test]
fn the_daemon() {
    let (world, mut daemon, serve) = serving("");
    let mut client = serve.connected("2025-11-25");
    let (counting, slow) = (
        of_each(&mut client, "increment"),
        of_each(&mut client, "slow"),
    );
    let pids = NAMES.map(|name| backend(&world, name).pid());
    let gates = NAMES.map(|name| gate(&world, name));
    let begun: Vec<_> = slow
        .iter()
        .zip(&gates)
        .map(|(tool, gate)| begin(&mut client, tool, gate))
        .collect();
    daemon.kill();
    gates.iter().for_each(|gate| open(gate));
    daemon.start_again();
    for (_, event) in &begun {
        assert_eq!(text(&client.resume(event).answer()), "1");
    }
    for tool in &counting {
        assert_eq!(count(&mut client, tool), 2);
    }
    assert_eq!(NAMES.map(|name| backend(&world, name).pid()), pids);
}

#[test]
fn each_keeper() {
    let (world, _daemon, serve) = serving("");
    let mut client = serve.connected("2025-11-25");
    let (counting, slow) = (
        of_each(&mut client, "increment"),
        of_each(&mut client, "slow"),
    );
    for (at, name) in NAMES.into_iter().enumerate() {
        let others: Vec<&String> = counting
            .iter()
            .filter(|tool| **tool != counting[at])
            .collect();
        let former: Vec<u64> = others.iter().map(|tool| count(&mut client, tool)).collect();
        let mut lost = client.call(&slow[at], &json!({"gate": gate(&world, name)}));
        lost.said();
        backend(&world, name).kill_keeper();
        let error = lost.answer()["error"].take();
        assert_eq!(
            (&error["code"], &error["data"]["outcome"]),
            (&json!(-32000), &json!("unknown"))
        );
        // A fresh one, and the others are as they were.
        assert_eq!(count(&mut client, &counting[at]), 1);
        let now: Vec<u64> = others.iter().map(|tool| count(&mut client, tool)).collect();
        assert_eq!(
            now,
            former.iter().map(|count| count + 1).collect::<Vec<_>>()
        );
    }
}

/// A server that is lost after a new `serve` has gone on with its call: the call is answered, and
/// the session is not in use for ever.
#[test]
fn serve_and_later_a_keeper() {
    let (world, _daemon, mut serve) = serving("");
    let mut client = serve.connected("2025-11-25");
    let (counting, slow) = (
        of_each(&mut client, "increment"),
        of_each(&mut client, "slow"),
    );
    let gates = NAMES.map(|name| gate(&world, name));
    let begun: Vec<_> = slow
        .iter()
        .zip(&gates)
        .map(|(tool, gate)| begin(&mut client, tool, gate))
        .collect();
    serve.kill();
    serve.start_again();
    let mut back: Vec<_> = begun
        .iter()
        .map(|(_, event)| client.resume(event))
        .collect();
    // The new one has taken them over.
    assert_eq!(of_each(&mut client, "increment"), counting);
    backend(&world, "b").kill_keeper();
    let answer = back[1].answer();
    assert_eq!(answer["id"], json!(begun[1].0));
    assert_eq!(answer["error"]["data"]["outcome"], "unknown", "{answer}");
    assert_eq!(back[1].event(), None, "the stream is complete");
    gates.iter().for_each(|gate| open(gate));
    assert_eq!(
        (text(&back[0].answer()), text(&back[2].answer())),
        ("1", "1")
    );
    assert_eq!(counting.map(|tool| count(&mut client, &tool)), [2, 1, 2]);
}

/// Of `serve` and a keeper at once: what that keeper had is lost, and told as that; the rest goes
/// on.
#[test]
fn serve_and_one_keeper() {
    let (world, _daemon, mut serve) = serving("");
    let mut client = serve.connected("2025-11-25");
    let (counting, slow) = (
        of_each(&mut client, "increment"),
        of_each(&mut client, "slow"),
    );
    let gates = NAMES.map(|name| gate(&world, name));
    let begun: Vec<_> = slow
        .iter()
        .zip(&gates)
        .map(|(tool, gate)| begin(&mut client, tool, gate))
        .collect();
    let keeper = backend(&world, "b");
    serve.kill();
    keeper.kill_keeper();
    serve.start_again();
    let mut back: Vec<_> = begun
        .iter()
        .map(|(_, event)| client.resume(event))
        .collect();
    let error = back[1].answer()["error"].take();
    assert_eq!(error["data"]["outcome"], "unknown", "{error}");
    gates.iter().for_each(|gate| open(gate));
    assert_eq!(
        (text(&back[0].answer()), text(&back[2].answer())),
        ("1", "1")
    );
    assert_eq!(counting.map(|tool| count(&mut client, &tool)), [2, 1, 2]);
}

/// A keeper that hangs has let nobody in: what it was asked is lost, and told as that; the rest
/// goes on, and so does its server later.
#[test]
fn serve_while_a_keeper_hangs() {
    let (world, _daemon, mut serve) = serving("");
    let mut client = serve.connected("2025-11-25");
    let (counting, slow) = (
        of_each(&mut client, "increment"),
        of_each(&mut client, "slow"),
    );
    let pids = NAMES.map(|name| backend(&world, name).pid());
    let gates = NAMES.map(|name| gate(&world, name));
    let begun: Vec<_> = slow
        .iter()
        .zip(&gates)
        .map(|(tool, gate)| begin(&mut client, tool, gate))
        .collect();
    let keeper = backend(&world, "b").keeper;
    signal(keeper, Signal::SIGSTOP);
    serve.kill();
    serve.start_again();
    let mut back: Vec<_> = begun
        .iter()
        .map(|(_, event)| client.resume(event))
        .collect();
    let answer = back[1].answer();
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["outcome"]),
        (&json!(begun[1].0), &json!("unknown"))
    );
    assert_eq!(back[1].event(), None, "the stream is complete");
    gates.iter().for_each(|gate| open(gate));
    assert_eq!(
        (text(&back[0].answer()), text(&back[2].answer())),
        ("1", "1")
    );
    signal(keeper, Signal::SIGCONT);
    // When it is tried again, nothing tells. Nobody hears of the call that was lost, and it has
    // done its work.
    until("b is back", || {
        let answer = client.call(&counting[1], &json!({})).answer();
        (answer["result"]["content"][0]["text"] == "2").then_some(())
    });
    assert_eq!([0, 2].map(|at| count(&mut client, &counting[at])), [2, 2]);
    assert_eq!(NAMES.map(|name| backend(&world, name).pid()), pids);
}

/// A server elsewhere has a session that its `serve` has begun. The next `serve` goes on with it,
/// and where the server has forgotten it, the log says so.
#[test]
#[ignore = "needs node"]
fn serve_in_front_of_a_remote_server() {
    let world = world("");
    let _daemon = world.daemon();
    let mut far = express(&world, &["events"]);
    write_down(
        &world,
        &[("near", able(&world)), ("far", json!({"url": far.url}))],
    );
    let mut serve = world.serve(&["--name", "test", "--all"], &[]);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(count(&mut client, "far_increment"), 1);
    serve.kill();
    serve.start_again();
    assert_eq!(count(&mut client, "far_increment"), 2);
    assert_eq!(far.handshakes(), 1);
    serve
        .errors
        .wait("far: the session that an earlier connection had with the server goes on");
    serve.kill();
    far.kill();
    far.start_again();
    serve.start_again();
    assert_eq!(count(&mut client, "far_increment"), 1);
    serve
        .errors
        .wait("far: a new session was begun, since the server has forgotten the previous one");
    // What its client ends is not gone on with.
    client.ask("DELETE", &[], "").must_be(204);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(count(&mut client, "far_increment"), 1);
}
