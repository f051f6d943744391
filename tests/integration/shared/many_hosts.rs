//! Twenty hosts at once do at random what hosts do, and are killed. Every message of the server has
//! in it whose it is.
//!
//! `SHARED_SEED` repeats a run; `SHARED_ACTIONS` is how much each host does.
//! `tests/campaign shared` has long runs.

use std::collections::BTreeSet;

use mcp_sessiond_tests::{Client, Front, World};
use serde_json::{Value, json};

use super::{ask, connect, hosts, pid, sharing, try_ask, wait_hosts};

/// Windows of an editor: as many as some people have open.
const HOSTS: usize = 20;

/// What each does, in an ordinary run.
const DEEDS: u64 = 12;

/// Numbers at random, the same for the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A host, and what it may hear.
struct Host<'a> {
    world: &'a World,
    own: usize,
    client: Client<Front>,
    serial: u64,
    /// Everything that it has subscribed to since it connected.
    subscribed: BTreeSet<String>,
    asked: u64,
}

impl Host<'_> {
    fn tag(&mut self) -> String {
        self.serial += 1;
        format!("{}/{}", self.own, self.serial)
    }

    /// A call whose token is that of every other host.
    fn begin(&mut self, tool: &str, mut arguments: Value) -> (u64, String) {
        let tag = self.tag();
        arguments["tag"] = json!(tag);
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}});
        (self.client.request("tools/call", params), tag)
    }

    fn act(&mut self, dice: &mut Dice) {
        match dice.roll(8) {
            0 => {
                let (id, tag) = self.begin("echo", json!({}));
                assert_eq!(self.client.text(id).as_deref(), Ok(&*tag));
            }
            1 | 2 => {
                let calls: Vec<_> = (0..3)
                    .map(|n| self.begin("steps", json!({"n": n})))
                    .collect();
                for (id, tag) in calls {
                    assert_eq!(self.client.text(id).as_deref(), Ok(&*tag));
                }
            }
            3 => {
                let tag = self.tag();
                self.asked += u64::from(try_ask(&mut self.client, "ask", &tag).is_some());
            }
            4 => {
                let uri = format!("x:/{}", dice.roll(4));
                let id = self
                    .client
                    .request("resources/subscribe", json!({"uri": uri}));
                self.subscribed.insert(uri);
                self.client.answer(id);
            }
            5 => {
                let uri = format!("x:/{}", dice.roll(6));
                let (id, tag) = self.begin("touch", json!({"uri": uri}));
                assert_eq!(self.client.text(id).as_deref(), Ok(&*tag));
            }
            6 => {
                let gate = self.world.root().join("never");
                let (id, _) = self.begin("slow", json!({"gate": gate}));
                self.client
                    .notify("notifications/cancelled", json!({"requestId": id}));
            }
            _ => {
                // With calls under way.
                let gate = self.world.root().join("never");
                self.begin("slow", json!({"gate": gate}));
                self.begin("steps", json!({"n": 3}));
                self.check();
                self.client.pipe.kill();
                self.client = connect(self.world);
                self.subscribed.clear();
            }
        }
    }

    /// Everything that came unasked is its own.
    fn check(&mut self) {
        let own = format!("{}/", self.own);
        for said in self.client.rest() {
            let params = &said["params"];
            match said["method"].as_str() {
                Some("notifications/progress") => {
                    assert_eq!(params["progressToken"], 1, "{said}");
                    assert!(
                        params["message"]
                            .as_str()
                            .is_some_and(|tag| tag.starts_with(&own)),
                        "{own} {said}"
                    );
                }
                Some("notifications/resources/updated") => {
                    let uri = params["uri"].as_str().unwrap_or_default();
                    assert!(self.subscribed.contains(uri), "{own} {said}");
                }
                _ => panic!("{own} {said}"),
            }
        }
    }
}

#[test]
fn twenty_hosts_at_random_and_nothing_reaches_the_wrong_one() {
    let seed = number("SHARED_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1);
    let deeds = number("SHARED_ACTIONS").unwrap_or(DEEDS);
    let world = sharing();
    let _daemon = world.daemon();
    // All at once: one of them starts the server.
    let clients: Vec<Client<Front>> = std::thread::scope(|scope| {
        let begun: Vec<_> = (0..HOSTS)
            .map(|_| scope.spawn(|| connect(&world)))
            .collect();
        begun
            .into_iter()
            .map(|thread| thread.join().expect("it connects"))
            .collect()
    });
    let mut crowd: Vec<Host<'_>> = clients
        .into_iter()
        .enumerate()
        .map(|(own, client)| Host {
            world: &world,
            own,
            client,
            serial: 0,
            subscribed: BTreeSet::new(),
            asked: 0,
        })
        .collect();
    let server = pid(&mut crowd[0].client);
    for host in &mut crowd {
        assert_eq!(pid(&mut host.client), server);
    }
    // One after the other they can be asked.
    for host in &mut crowd[..2] {
        let tag = host.tag();
        ask(&mut host.client, "ask", &tag);
    }
    let handed: u64 = std::thread::scope(|scope| {
        let acting = crowd.iter_mut().map(|host| {
            scope.spawn(move || {
                let mut dice = Dice(seed.wrapping_mul(host.own as u64 + 1) | 1);
                for _ in 0..deeds {
                    host.act(&mut dice);
                }
                host.client.ping();
                host.check();
                host.asked
            })
        });
        let acting: Vec<_> = acting.collect();
        acting
            .into_iter()
            .map(|host| host.join().unwrap_or_else(|_| panic!("SHARED_SEED={seed}")))
            .sum()
    });
    assert_eq!(
        pid(&mut crowd[0].client),
        server,
        "SHARED_SEED={seed}; asked at random: {handed}"
    );
    assert_eq!(world.backends().len(), 1);
    drop(crowd);
    wait_hosts(&world, 0);
    assert_eq!(hosts(&world), [0]);
}
