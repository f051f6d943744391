//! Workers that rotate their tokens, while the daemon is killed under them.

use std::sync::atomic::{AtomicU64, Ordering};

use mcp_sessiond_process::fault::{POINTS, VARIABLE};
use mcp_sessiond_tests::{Daemon, Host, Instance, Loaded, until};

pub(super) const WORKERS: u64 = 16;
/// Of all of them together.
pub(super) const ROTATIONS: u64 = 2_000;

/// Kills the daemon at each named point and at random moments, until the workers are done.
pub(super) fn kill_meanwhile(
    daemon: &mut Daemon,
    random: &mut fastrand::Rng,
    done: &AtomicU64,
    finished: impl Fn() -> bool,
) {
    let mut reached = [0; POINTS.len()];
    for round in 0.. {
        let point = (round / 2) % POINTS.len();
        if round % 2 == 0 {
            // A random moment: after some rotations, and some turns of the processor.
            let enough = done.load(Ordering::Relaxed) + random.u64(0..40);
            // Either the workers go on, or they have ended.
            until("rotations go on", || {
                (done.load(Ordering::Relaxed) >= enough || finished()).then_some(())
            });
            (0..random.u32(0..200_000)).for_each(|_| std::hint::spin_loop());
            daemon.restart_with(&[(
                VARIABLE,
                &format!("{}:{}", POINTS[point], random.u32(0..20)),
            )]);
        } else {
            // Either the daemon ends, or the workers have.
            until("the fault point is reached", || {
                (daemon.ended().is_some() || finished()).then_some(())
            });
            reached[point] += u32::from(daemon.ended().is_some());
            daemon.restart();
        }
        if finished() {
            // Whatever comes now needs a daemon without a fault.
            daemon.restart();
            assert!(
                reached.iter().all(|times| *times > 0),
                "of {POINTS:?} only {reached:?} were reached"
            );
            return;
        }
    }
}

/// One instance after the other, with one key, and what the daemon has acknowledged to them.
pub(super) struct Worker<'a> {
    host: &'a Host,
    pub(super) number: u64,
    random: fastrand::Rng,
    pub(super) instance: Instance,
    pub(super) acknowledged: Option<String>,
}

impl<'a> Worker<'a> {
    pub(super) fn start(host: &'a Host, number: u64, random: fastrand::Rng) -> Self {
        let (instance, loaded) = first_load(host, number);
        // Fresh; or held, where the daemon was killed between granting the lease and saying so.
        assert_eq!(loaded.token, None, "{loaded:?}");
        Self {
            host,
            number,
            random,
            instance,
            acknowledged: None,
        }
    }

    pub(super) fn rotate(mut self, done: &AtomicU64) -> Self {
        for rotation in 0..ROTATIONS / WORKERS {
            let token = format!("worker {} rotation {rotation}", self.number);
            match self.random.u32(0..40) {
                0 => self.die_while_storing(&token),
                1 => self.be_followed_while_storing(token),
                _ => {
                    self.instance.store(&token);
                    self.acknowledged = Some(token);
                }
            }
            let loaded = self.instance.load();
            assert_eq!(
                loaded.token, self.acknowledged,
                "worker {}: {loaded:?}",
                self.number
            );
            done.fetch_add(1, Ordering::Relaxed);
        }
        self
    }

    /// The instance is killed before it knows whether its token was kept. Either the new one or the
    /// former is.
    fn die_while_storing(&mut self, token: &str) {
        self.instance.begin(&format!("store {token}"));
        (0..self.random.u32(0..100_000)).for_each(|_| std::hint::spin_loop());
        self.instance.kill();
        let loaded;
        (self.instance, loaded) = first_load(self.host, self.number);
        assert!(
            loaded.token == self.acknowledged || loaded.token.as_deref() == Some(token),
            "{loaded:?}"
        );
        self.acknowledged = loaded.token;
    }

    /// The next instance is started while this one still stores.
    fn be_followed_while_storing(&mut self, token: String) {
        let follower = instance(self.host, self.number);
        follower.begin("load");
        self.instance.store(&token);
        self.acknowledged = Some(token);
        self.instance.kill();
        self.instance = follower;
        let loaded = self.instance.answer();
        if loaded.disabled.is_some() {
            // There was no daemon just then.
            self.instance.kill();
            self.instance = first_load(self.host, self.number).0;
        } else {
            assert_eq!(loaded.token, self.acknowledged, "{loaded:?}");
        }
    }
}

fn instance(host: &Host, number: u64) -> Instance {
    host.instance(&["--worker", &number.to_string()])
}

/// Starts instances until one meets a daemon: who finds none at its start goes on without resuming.
fn first_load(host: &Host, number: u64) -> (Instance, Loaded) {
    // It was killed at a random moment, and the next daemon may be killed before it listens.
    until("an instance meets the daemon", || {
        let mut instance = instance(host, number);
        let loaded = instance.load();
        if loaded.disabled.is_some() {
            instance.kill();
            return None;
        }
        Some((instance, loaded))
    })
}
