//! What peers cost the daemon, and whether it still serves others.

use mcp_sessiond_proto::hello::Codec;
use mcp_sessiond_tests::{Daemon, Peer, World, until};
use serde_json::{Value, json};

use crate::world;

/// Room for every peer of these tests, which all are this one process.
pub(super) const ROOMY: &str = "[limits]\nconnections_per_process = 1000\n";

/// Memory that may come and go with what an allocator keeps, in KiB. What is looked for are the
/// megabytes that a peer can make the daemon hold.
const NOISE_KIB: u64 = 12 * 1024;

/// That the daemon still serves who behaves.
pub(super) fn assert_serves(world: &World) {
    for codec in [Codec::JsonRpc, Codec::MessagePack] {
        let mut peer = world.peer_in(codec);
        match codec {
            Codec::JsonRpc => assert_eq!(peer.call("ping", json!({})), Ok(Value::Null)),
            Codec::MessagePack => {
                assert_eq!(ping(&mut peer, 1_000)["reply"], json!({"Ping": null}));
            }
        }
    }
}

pub(super) fn ping(peer: &mut Peer, deadline_ms: u64) -> Value {
    peer.ask_packed(&json!({"id": 7, "deadline_ms": deadline_ms, "call": {"Ping": {}}}))
        .expect("an answer")
}

/// What a daemon holds.
pub(super) struct Footprint {
    kib: u64,
    descriptors: usize,
}

impl Footprint {
    pub(super) fn of(daemon: &Daemon) -> Self {
        Self {
            kib: daemon.resident_kib(),
            descriptors: daemon.descriptors(),
        }
    }

    /// How much more memory it holds by now, shared out among so many peers.
    pub(super) fn more_for_each(&self, daemon: &Daemon, peers: u64) -> u64 {
        daemon.resident_kib().saturating_sub(self.kib) / peers
    }

    /// Asserts that memory and descriptors are as they were.
    #[track_caller]
    pub(super) fn assert_flat(&self, daemon: &Daemon) {
        // The daemon closes connections after the other end; nothing tells when.
        until("the connections are gone", || {
            (daemon.descriptors() <= self.descriptors).then_some(())
        });
        let kib = daemon.resident_kib();
        assert!(
            kib < self.kib + NOISE_KIB,
            "{} KiB before, {kib} KiB now",
            self.kib
        );
    }
}

/// A world with this configuration, its daemon, which has served, and what that one holds then.
pub(super) fn serving(configuration: &str) -> (World, Daemon, Footprint) {
    let world = world(configuration);
    let daemon = world.daemon();
    assert_serves(&world);
    let footprint = Footprint::of(&daemon);
    (world, daemon, footprint)
}
