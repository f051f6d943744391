//! The daemon is killed with SIGKILL: what it acknowledged is kept, and who held a session still
//! does.

mod rotations;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use mcp_sessiond_process::fault::{POINTS, VARIABLE};
use mcp_sessiond_tests::{Loaded, random, until_removed};

use self::rotations::{ROTATIONS, WORKERS, Worker, kill_meanwhile};
use crate::{fixture, world};

#[test]
#[ignore = "needs a quiet machine"]
fn nothing_acknowledged_is_lost_in_2000_rotations_under_kills() {
    let world = world("claim_wait_ms = 5000");
    let mut random = random();
    let mut daemon = world.daemon();
    let host = world.host();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let (host, done, random) = (&host, &done, random.fork());
                scope.spawn(move || Worker::start(host, number, random).rotate(done))
            })
            .collect();
        kill_meanwhile(&mut daemon, &mut random, &done, || {
            workers.iter().all(|worker| worker.is_finished())
        });
        let mut workers: Vec<Worker> = workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker"))
            .collect();
        assert_eq!(done.load(Ordering::Relaxed), ROTATIONS);
        daemon.restart();
        // Each still has its own, and nobody has two.
        let loaded: Vec<Loaded> = workers
            .iter_mut()
            .map(|worker| worker.instance.load())
            .collect();
        for (worker, loaded) in workers.iter().zip(&loaded) {
            assert_eq!(
                loaded.token, worker.acknowledged,
                "worker {}",
                worker.number
            );
        }
        let sessions: HashSet<String> = loaded.iter().map(Loaded::session).collect();
        assert_eq!(sessions.len(), workers.len());
        assert_eq!(
            (world.stat("sessions"), world.stat("leases")),
            (WORKERS, WORKERS)
        );
    });
}

#[test]
fn a_daemon_killed_at_each_point_of_a_store_keeps_one_of_the_two_tokens() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut instance = host.holder(&[], "0");
    let mut kept = String::from("0");
    for (round, point) in POINTS.iter().cycle().take(3 * POINTS.len()).enumerate() {
        daemon.restart_with(&[(VARIABLE, point)]);
        // The ledger's point may already be passed by what the start has to record.
        let started = daemon.ready_or_ended();
        let token = format!("{}", round + 1);
        instance.begin(&format!("store {token}"));
        if started {
            let ended = daemon.wait();
            assert_eq!(ended.code(), None, "{point} was not reached");
        }
        // It dies with the daemon, so nobody repeats its store.
        instance.kill();
        daemon.restart();
        let loaded;
        (instance, loaded) = host.loaded(&[]);
        let found = loaded
            .token
            .clone()
            .unwrap_or_else(|| panic!("{point}: nothing is left: {loaded:?}"));
        assert!(
            found == kept || found == token,
            "{point}: {found}, neither {kept} nor {token}"
        );
        kept = found;
        assert_eq!(
            world.token_files().len(),
            1,
            "{point}: {:?}",
            world.token_files()
        );
    }
}

#[test]
fn a_store_is_carried_over_the_death_of_the_daemon() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut instance = host.instance(&[]);
    let session = instance.load().assert_fresh().session();
    for point in POINTS {
        daemon.restart_with(&[(VARIABLE, point)]);
        let _ = daemon.ready_or_ended();
        instance.begin(&format!("store {point}"));
        daemon.wait();
        daemon.start_again();
        let stored = instance.answer();
        assert!(stored.done, "{point}: {stored:?}");
        instance.load().assert_resumed(&session, Some(point));
    }
}

#[test]
fn a_holder_that_is_not_connected_keeps_its_session() {
    let world = world("claim_wait_ms = 100");
    let mut daemon = world.daemon();
    let host = world.host();
    let script = fixture("shell/server.sh");
    // It speaks to the daemon by the command, which is gone as soon as it is answered.
    let server = || host.server(&[&script, world.binaries.daemon]);
    let mut holder = server();
    holder.write("store mine");
    assert_eq!(holder.read(), "0");
    for _ in 0..3 {
        daemon.restart();
        assert_eq!(world.stat("leases"), 1);
        let mut newcomer = server();
        newcomer.write("load");
        assert_eq!(
            newcomer.read(),
            "3 ",
            "a newcomer must not get what is held"
        );
        newcomer.kill();
        holder.write("load");
        assert_eq!(holder.read(), "0 mine");
    }
}

#[test]
fn a_holder_that_died_meanwhile_is_seen_to_be_dead() {
    let world = world("claim_wait_ms = 0");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut old = host.instance(&[]);
    let session = old.load().assert_fresh().session();
    for round in 0..5 {
        old.store(&round.to_string());
        daemon.kill();
        old.kill();
        daemon.start_again();
        assert_eq!((world.stat("sessions"), world.stat("leases")), (1, 0));
        let resumed;
        (old, resumed) = host.loaded(&[]);
        resumed.assert_resumed(&session, Some(&round.to_string()));
    }
}

#[test]
fn a_host_that_died_meanwhile_leaves_nothing() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut host = world.host();
    let _holder = host.holder(&[], "one");
    daemon.kill();
    host.kill();
    assert_eq!(world.token_files().len(), 1);
    daemon.start_again();
    assert_eq!(world.stat("sessions"), 0);
    let tokens = world.directory().join("tokens");
    until_removed(&tokens, "its token is deleted", || {
        world.token_files().is_empty().then_some(())
    });
}

#[test]
fn what_was_lost_is_told_after_the_death_of_the_daemon() {
    let world = world("claim_wait_ms = 10");
    let mut daemon = world.daemon();
    let host = world.host();
    let (mut one, mut other) = (host.instance(&[]), host.instance(&[]));
    one.first_run("one");
    other.first_run("other");
    daemon.kill();
    one.kill();
    other.kill();
    daemon.start_again();
    let mut next = host.instance(&[]);
    next.load().assert_fresh();
    world
        .log
        .wait("several earlier servers with the same command");
}

#[test]
fn a_claim_that_waits_is_carried_over_the_death_of_the_daemon() {
    let world = world("claim_wait_ms = 5000");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut old = host.holder(&[], "one");
    let mut new = world.waiting(&host);
    daemon.restart();
    world.wait_stat("claims_waiting", 1);
    old.kill();
    assert_eq!(new.answer().token.as_deref(), Some("one"));
}
