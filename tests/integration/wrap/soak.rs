//! Fifty hosts with four servers each, whose fronts, keepers and hosts are killed at random.
//! `MCP_SESSIOND_SOAK` says for how many seconds; 30 where it says nothing.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mcp_sessiond_tests::{Client, Host, Server, World, gone, random, signal, until, until_within};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{keeping, tiny, wrapped};

const HOSTS: usize = 50;
const SLOTS: usize = 4;

/// How long a start may take, for the front and for whoever waits for its server.
///
/// All servers start at once. A start takes 0.15 s of processor time in a debug build (front,
/// launcher, keeper, Python, and the daemon's part), so that all 200 take 31 s of it, which is 16 s
/// on two processors that do nothing else. On two that eighteen compilers use, it has taken 45 s.
/// The test is about whose state a server has, and not about how long that takes.
const START: Duration = Duration::from_secs(150);

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
    let wait = format!("MCP_SESSIOND_WRAP_KEEPER_WAIT_MS={}", START.as_millis());
    let words = [&["env".to_owned(), wait][..], &wrapped].concat();
    let mut client = Client::new(host.front(&words).within(START));
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
            until_within(START, "a fresh server answers", || {
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

/// A host and its servers, which it starts all at once, as hosts do.
fn started(world: &World) -> (Host, Vec<Slot>) {
    let host = world.host();
    let clients: Vec<Client<Server>> = (0..SLOTS).map(|slot| start(world, &host, slot)).collect();
    (host, clients.into_iter().map(Slot::fresh).collect())
}

/// The life of a host that has started, and of those that come after it.
fn live(
    world: &World,
    (mut host, mut slots): (Host, Vec<Slot>),
    mut random: fastrand::Rng,
    end: Instant,
    done: &Done,
) {
    loop {
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
        if Instant::now() >= end {
            break;
        }
        // The former host is killed first, and its servers with it.
        drop((slots, host));
        (host, slots) = started(world);
    }
}

/// Hosts live for so long, all at once; then nothing is left of them.
fn soak(world: &World, random: &mut fastrand::Rng, time: Duration, done: &Done) {
    // Nothing is killed before all have started: what is killed starts again, and so many starts
    // beside the first ones would keep these waiting for as long as the test takes.
    let hosts: Vec<(Host, Vec<Slot>)> = std::thread::scope(|scope| {
        let hosts: Vec<_> = (0..HOSTS).map(|_| scope.spawn(|| started(world))).collect();
        hosts
            .into_iter()
            .map(|host| host.join().expect("a host that has started"))
            .collect()
    });
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        for host in hosts {
            let random = random.fork();
            scope.spawn(move || live(world, host, random, end, done));
        }
    });
    world.nothing_left();
    world.wait_backends(0);
    world.wait_stat("hosts", 0);
    assert_eq!(world.sessions().len(), 0);
}

#[test]
#[ignore = "needs a quiet machine"]
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
