//! Fifty hosts with four servers each, whose fronts, keepers and hosts are killed at random.
//! `MCP_SESSIOND_SOAK` says for how many seconds; 30 where it says nothing.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mcp_sessiond_tests::{Client, Host, Server, World, gone, random, signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{keeping, tiny, wrapped};

const HOSTS: usize = 50;
const SLOTS: usize = 4;

/// What the daemon may have kept for itself afterwards, in KiB: its allocator gives memory back in
/// parts only.
const KEPT_KIB: u64 = 16 * 1024;

/// One server of one host, and the count that it must have: no two servers come to the same one.
struct Slot {
    client: Client<Server>,
    count: u64,
}

/// What was done.
#[derive(Default)]
struct Done {
    calls: AtomicU64,
    fronts: AtomicU64,
    keepers: AtomicU64,
    hosts: AtomicU64,
}

fn note(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn start(world: &World, host: &Host, slot: usize) -> Client<Server> {
    let wrapped = wrapped(world, &[&tiny(world)[..], &[slot.to_string()]].concat());
    // Eight hundred processes begin at once: what this is about is whose they are, and not how long
    // it takes.
    let patience = ["env", "MCP_SESSIOND_WRAP_KEEPER_WAIT_MS=60000"].map(str::to_owned);
    let words = [&patience[..], &wrapped].concat();
    let mut client = Client::new(host.front(&words));
    // At once: who says nothing for a while is taken for somebody else than who begins with its
    // name.
    client.begin_initialize("test");
    client
}

impl Slot {
    /// A server of a host that has just begun.
    fn fresh(client: Client<Server>) -> Self {
        let mut slot = Self { client, count: 0 };
        slot.client.initialized(1);
        slot
    }

    /// The count is its own, and goes on from there.
    fn check(&mut self, random: &mut fastrand::Rng, done: &Done) {
        assert_eq!(
            self.client.call("get", json!({})),
            self.count.to_string(),
            "not its own count"
        );
        let by = random.u64(1..1 << 40);
        self.count += by;
        assert_eq!(
            self.client.call("increment", json!({"by": by})),
            self.count.to_string()
        );
        note(&done.calls);
    }

    /// Kills the front, or closes its input, and connects again.
    fn lose_front(&mut self, world: &World, host: &Host, number: usize) {
        self.client.pipe.kill();
        self.client = start(world, host, number);
        self.client.initialized(1);
    }

    /// Kills the keeper: the count begins anew. The front may take a call with it that it sends to
    /// where nobody is.
    fn lose_keeper(&mut self, world: &World, host: &Host, number: usize, attached: bool) {
        let keeper: u32 = self
            .client
            .call("parent", json!({}))
            .parse()
            .expect("a pid");
        if !attached {
            self.client.pipe.kill();
        }
        signal(keeper, Signal::SIGKILL);
        gone(keeper);
        self.count = 0;
        if attached {
            // The front says nothing of the keeper that it has started in place of the former.
            until("a fresh server answers", || {
                match self.client.try_call("get", json!({})) {
                    Ok(count) => {
                        assert_eq!(count, "0", "somebody else's count");
                        Some(())
                    }
                    Err(error) => {
                        assert!(error["data"]["outcome"].is_string(), "{error}");
                        None
                    }
                }
            });
        } else {
            self.client = start(world, host, number);
            self.client.initialized(1);
        }
    }
}

/// The life of a host, and of those that come after it.
fn live(world: &World, mut random: fastrand::Rng, end: Instant, done: &Done) {
    while Instant::now() < end {
        let host = world.host();
        // All at once, as hosts do.
        let clients: Vec<Client<Server>> =
            (0..SLOTS).map(|slot| start(world, &host, slot)).collect();
        let mut slots: Vec<Slot> = clients.into_iter().map(Slot::fresh).collect();
        while Instant::now() < end {
            let number = random.usize(0..SLOTS);
            let slot = &mut slots[number];
            slot.check(&mut random, done);
            match random.u8(0..20) {
                0..12 => {
                    slot.lose_front(world, &host, number);
                    note(&done.fronts);
                }
                attached @ 12..15 => {
                    slot.lose_keeper(world, &host, number, attached == 12);
                    note(&done.keepers);
                }
                15 => break,
                _ => {}
            }
        }
        for slot in &mut slots {
            slot.check(&mut random, done);
        }
        note(&done.hosts);
    }
}

/// Hosts live for so long, all at once; then nothing is left of them.
fn soak(world: &World, random: &mut fastrand::Rng, time: Duration, done: &Done) {
    let end = Instant::now() + time;
    let lives: Vec<fastrand::Rng> = (0..HOSTS).map(|_| random.fork()).collect();
    std::thread::scope(|scope| {
        for random in lives {
            scope.spawn(move || live(world, random, end, done));
        }
    });
    world.nothing_left();
    world.wait_backends(0);
    world.wait_stat("hosts", 0);
    assert_eq!(world.sessions().len(), 0);
}

#[test]
fn fifty_hosts_with_four_servers_each_never_see_another_s_state() {
    let seconds = std::env::var("MCP_SESSIOND_SOAK")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(30));
    let world = keeping("stop_wait_ms = 500");
    let daemon = world.daemon();
    let mut random = random();
    let done = Done::default();
    // After this it has been as large as it ever has to be.
    soak(&world, &mut random, time / 3, &done);
    let before = (daemon.descriptors(), daemon.resident_kib());
    soak(&world, &mut random, time - time / 3, &done);
    // The daemon closes connections after the other end; nothing tells when.
    until("its descriptors are where they were", || {
        (daemon.descriptors() <= before.0).then_some(())
    });
    let (before, after) = (before.1, daemon.resident_kib());
    let Done {
        calls,
        fronts,
        keepers,
        hosts,
    } = done;
    let said = format!(
        "{calls:?} checks, {fronts:?} fronts, {keepers:?} keepers and {hosts:?} hosts killed; the daemon had {before} KiB, \
         and has {after} KiB"
    );
    let _ = writeln!(std::io::stderr(), "{said}");
    assert!(after < before + KEPT_KIB, "{said}");
}
