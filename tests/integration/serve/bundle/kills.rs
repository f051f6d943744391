//! Everything is killed in turn, with calls under way at every server: as with one server, and the
//! others are not touched.

use mcp_sessiond_tests::{Daemon, HttpClient, Reply, Serve, World, signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{NAMES, begin, count, of_each, serving_eras, text, with_one_elsewhere};
use crate::several::backend;
use crate::wrap::{gate, open};

/// `serve` in front of the servers, and a call of `slow` under way at each.
struct Calling {
    world: World,
    daemon: Daemon,
    serve: Serve,
    client: HttpClient,
    /// The tools that count.
    counting: [String; 3],
    /// The id of each call, and the event that it is resumed by.
    begun: Vec<(u64, String)>,
    gates: [String; 3],
    pids: [u32; 3],
}

impl Calling {
    /// `before`: how often each has counted.
    fn begun(before: u64) -> Self {
        let (world, daemon, serve) = serving_eras("");
        let mut client = serve.connected("2025-11-25");
        let counting = of_each(&mut client, "increment");
        let slow = of_each(&mut client, "slow");
        for tool in &counting {
            for nth in 1..=before {
                assert_eq!(count(&mut client, tool), nth);
            }
        }
        let gates = NAMES.map(|name| gate(&world, name));
        let begun = slow.iter().zip(&gates);
        let begun = begun.map(|(tool, gate)| begin(&mut client, tool, gate));
        let begun = begun.collect();
        let pids = NAMES.map(|name| backend(&world, name).pid());
        Self {
            world,
            daemon,
            serve,
            client,
            counting,
            begun,
            gates,
            pids,
        }
    }

    /// The streams of the calls, resumed.
    fn resumed(&self) -> Vec<Reply> {
        let begun = self.begun.iter();
        begun.map(|(_, event)| self.client.resume(event)).collect()
    }

    fn open(&self) {
        self.gates.iter().for_each(|gate| open(gate));
    }

    fn counts(&mut self) -> [u64; 3] {
        let Self {
            client, counting, ..
        } = self;
        counting.each_ref().map(|tool| count(client, tool))
    }

    #[track_caller]
    fn assert_same_servers(&self) {
        assert_eq!(
            NAMES.map(|name| backend(&self.world, name).pid()),
            self.pids
        );
    }
}

#[test]
fn serve() {
    let mut calling = Calling::begun(1);
    calling.serve.kill();
    // One of them answers while nobody is there.
    open(&calling.gates[0]);
    calling.serve.start_again();
    let mut back = calling.resumed();
    calling.open();
    for (back, (id, _)) in back.iter_mut().zip(&calling.begun) {
        let answer = back.answer();
        assert_eq!((&answer["id"], text(&answer)), (&json!(id), "2"));
        assert_eq!(back.event(), None, "the stream is complete");
    }
    assert_eq!(of_each(&mut calling.client, "increment"), calling.counting);
    assert_eq!(calling.counts(), [3; 3]);
    calling.assert_same_servers();
}

#[test]
fn the_daemon() {
    let mut calling = Calling::begun(0);
    calling.daemon.kill();
    calling.open();
    calling.daemon.start_again();
    for mut back in calling.resumed() {
        assert_eq!(text(&back.answer()), "1");
    }
    assert_eq!(calling.counts(), [2; 3]);
    calling.assert_same_servers();
}

#[test]
fn each_keeper() {
    let (world, _daemon, serve) = serving_eras("");
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
    let mut calling = Calling::begun(0);
    calling.serve.kill();
    calling.serve.start_again();
    let mut back = calling.resumed();
    // The new one has taken them over.
    assert_eq!(of_each(&mut calling.client, "increment"), calling.counting);
    backend(&calling.world, "b").kill_keeper();
    assert_lost(&mut calling, &mut back);
    assert_eq!(calling.counts(), [2, 1, 2]);
}

/// Of `serve` and a keeper at once: what that keeper had is lost, and told as that; the rest goes
/// on.
#[test]
fn serve_and_one_keeper() {
    let mut calling = Calling::begun(0);
    let keeper = backend(&calling.world, "b");
    calling.serve.kill();
    keeper.kill_keeper();
    calling.serve.start_again();
    let mut back = calling.resumed();
    assert_lost(&mut calling, &mut back);
    assert_eq!(calling.counts(), [2, 1, 2]);
}

/// A keeper that hangs has let nobody in: what it was asked is lost, and told as that; the rest
/// goes on, and so does its server later.
#[test]
fn serve_while_a_keeper_hangs() {
    let mut calling = Calling::begun(0);
    let keeper = backend(&calling.world, "b").keeper;
    signal(keeper, Signal::SIGSTOP);
    calling.serve.kill();
    calling.serve.start_again();
    let mut back = calling.resumed();
    assert_lost(&mut calling, &mut back);
    signal(keeper, Signal::SIGCONT);
    // When it is tried again, nothing tells. Nobody hears of the call that was lost, and it has
    // done its work.
    let (client, tool) = (&mut calling.client, &calling.counting[1]);
    until("b is back", || {
        let answer = client.call(tool, &json!({})).answer();
        (answer["result"]["content"][0]["text"] == "2").then_some(())
    });
    assert_eq!(calling.counts(), [2, 3, 2]);
    calling.assert_same_servers();
}

/// The call at `b` has an unknown outcome. Those at the others go on, and are answered.
#[track_caller]
fn assert_lost(calling: &mut Calling, back: &mut [Reply]) {
    let answer = back[1].answer();
    assert_eq!(
        (&answer["id"], &answer["error"]["data"]["outcome"]),
        (&json!(calling.begun[1].0), &json!("unknown")),
        "{answer}"
    );
    assert_eq!(back[1].event(), None, "the stream is complete");
    calling.open();
    assert_eq!(
        (text(&back[0].answer()), text(&back[2].answer())),
        ("1", "1")
    );
}

/// A server elsewhere has a session that its `serve` has begun. The next `serve` goes on with it,
/// and where the server has forgotten it, the log says so.
#[test]
#[ignore = "needs node"]
fn serve_in_front_of_a_remote_server() {
    let (_world, _daemon, mut far, mut serve) = with_one_elsewhere("");
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
        .wait("far: a new session was begun, since the server has forgotten the previous session");
    // What its client ends is not gone on with.
    client.ask("DELETE", &[], "").must_be(204);
    let mut client = serve.connected("2025-11-25");
    assert_eq!(count(&mut client, "far_increment"), 1);
}
