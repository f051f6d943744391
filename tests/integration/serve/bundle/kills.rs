//! Everything is killed in turn, with calls under way at every server: as with one server, and the
//! others are not touched.

use mcp_sessiond_tests::{signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{NAMES, begin, count, of_each, serving, text};
use crate::several::backend;
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
