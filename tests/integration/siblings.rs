//! Instances of one host that can't be told apart: nobody ever gets a session that another one
//! holds.

use std::collections::HashSet;

use mcp_sessiond_tests::{Host, Instance, Loaded, random, until_removed};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::world;

fn start(host: &Host, count: usize) -> Vec<Instance> {
    host.loading((0..count).map(|_| Vec::new()))
}

fn answers(instances: &mut [Instance]) -> Vec<Loaded> {
    instances.iter_mut().map(Instance::answer).collect()
}

fn assert_fresh(loaded: &Loaded) {
    loaded.assert_fresh();
}

fn distinct(loaded: &[Loaded]) -> HashSet<String> {
    let sessions: HashSet<String> = loaded.iter().map(Loaded::session).collect();
    assert_eq!(
        sessions.len(),
        loaded.len(),
        "a session is held twice: {loaded:#?}"
    );
    sessions
}

#[test]
fn two_hundred_claims_at_once_get_two_hundred_sessions() {
    let world = world("claim_wait_ms = 50");
    let _daemon = world.daemon();
    let host = world.host();
    let mut instances = start(&host, 200);
    let loaded = answers(&mut instances);
    loaded.iter().for_each(assert_fresh);
    distinct(&loaded);
    for (n, instance) in instances.iter_mut().enumerate() {
        instance.begin(&format!("store {n}"));
    }
    assert!(answers(&mut instances).iter().all(|stored| stored.done));
    // A second claim of the same process is the same lease.
    instances.iter().for_each(|instance| instance.begin("load"));
    let again = answers(&mut instances);
    for (n, (before, now)) in loaded.iter().zip(&again).enumerate() {
        assert_eq!((&now.session, now.epoch), (&before.session, before.epoch));
        assert_eq!(now.token, Some(n.to_string()));
    }
    assert_eq!(world.stat("leases"), 200);
}

#[test]
fn identical_ones_begin_afresh_by_default() {
    let world = world("claim_wait_ms = 50");
    let _daemon = world.daemon();
    let host = world.host();
    let mut instances = start(&host, 8);
    let mut seen = distinct(&answers(&mut instances));
    for round in 0..10 {
        for (n, instance) in instances.iter_mut().enumerate() {
            instance.store(&format!("{n}-{round}"));
        }
        instances
            .iter_mut()
            .for_each(|instance| instance.0.signal(Signal::SIGKILL));
        instances = start(&host, 8);
        let loaded = answers(&mut instances);
        loaded.iter().for_each(assert_fresh);
        let sessions = distinct(&loaded);
        assert!(
            seen.is_disjoint(&sessions),
            "a sibling's session was resumed"
        );
        seen.extend(sessions);
    }
}

#[test]
fn identical_ones_resume_each_another_one_where_that_is_wanted() {
    let world = world("siblings = \"oldest\"\nclaim_wait_ms = 1000");
    let _daemon = world.daemon();
    let host = world.host();
    let mut instances = start(&host, 8);
    let sessions = distinct(&answers(&mut instances));
    for round in 0..10 {
        let mut tokens = HashSet::new();
        for (n, instance) in instances.iter_mut().enumerate() {
            instance.store(&format!("{n}-{round}"));
            tokens.insert(format!("{n}-{round}"));
        }
        instances
            .iter_mut()
            .for_each(|instance| instance.0.signal(Signal::SIGKILL));
        instances = start(&host, 8);
        let loaded = answers(&mut instances);
        assert_eq!(distinct(&loaded), sessions, "round {round}");
        let resumed: HashSet<String> = loaded
            .into_iter()
            .filter_map(|loaded| loaded.token)
            .collect();
        assert_eq!(resumed, tokens, "round {round}");
    }
}

#[test]
fn a_claim_can_ask_for_the_oldest_by_itself() {
    let world = world("claim_wait_ms = 20");
    let _daemon = world.daemon();
    let host = world.host();
    let arguments = ["--siblings", "oldest"];
    let (mut one, mut other) = (host.instance(&arguments), host.instance(&arguments));
    one.load().assert_fresh();
    other.load().assert_fresh();
    one.store("one");
    other.store("other");
    other.kill();
    assert_eq!(
        host.instance(&arguments).load().token.as_deref(),
        Some("other")
    );
}

#[test]
fn of_two_that_wait_for_one_place_neither_gets_it() {
    let world = world("claim_wait_ms = 5000");
    let _daemon = world.daemon();
    for _ in 0..20 {
        // Each round has a host of its own, since a key that was raced for stays plural.
        let host = world.host();
        let mut old = host.holder(&[], "prize");
        let mut racers = start(&host, 2);
        world.wait_stat("claims_waiting", 2);
        old.kill();
        // Which of them follows the old one can't be told.
        let loaded = answers(&mut racers);
        loaded.iter().for_each(assert_fresh);
        distinct(&loaded);
    }
}

#[test]
fn of_two_that_race_for_one_place_at_most_one_gets_it() {
    let world = world("claim_wait_ms = 100");
    let _daemon = world.daemon();
    let mut random = random();
    for round in 0..40 {
        let host = world.host();
        let mut old = host.holder(&[], "prize");
        let mut racers = start(&host, 2);
        (0..random.u32(0..400_000)).for_each(|_| std::hint::spin_loop());
        old.0.signal(Signal::SIGKILL);
        let loaded = answers(&mut racers);
        distinct(&loaded);
        assert!(
            loaded
                .iter()
                .filter(|loaded| loaded.token.is_some())
                .count()
                <= 1,
            "round {round}: {loaded:?}"
        );
    }
}

#[test]
fn a_process_that_claims_many_times_at_once_has_one_lease() {
    let world = world("");
    let _daemon = world.daemon();
    let leases: HashSet<String> = std::thread::scope(|scope| {
        let claim = || {
            let claimed = world.peer().claim();
            json!([claimed["session"], claimed["epoch"]]).to_string()
        };
        let claims: Vec<_> = (0..32).map(|_| scope.spawn(claim)).collect();
        claims
            .into_iter()
            .map(|claim| claim.join().expect("claimed"))
            .collect()
    });
    assert_eq!((leases.len(), world.stat("sessions")), (1, 1), "{leases:?}");
}

#[test]
fn a_holder_that_is_stopped_is_still_the_holder() {
    let world = world("claim_wait_ms = 50");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut asleep = host.holder(&[], "mine");
    asleep.0.signal(Signal::SIGSTOP);
    assert_eq!(
        host.instance(&[]).load().assert_fresh().outcome.as_deref(),
        Some("fresh_held")
    );
    daemon.restart();
    host.instance(&[]).load().assert_fresh();
    asleep.0.signal(Signal::SIGCONT);
    assert_eq!(asleep.load().token.as_deref(), Some("mine"));
}

#[test]
fn a_host_that_restarts_identical_ones_for_ever_does_not_run_out_of_sessions() {
    let world = world("claim_wait_ms = 0\n[limits]\nsessions_per_host = 4\n");
    let _daemon = world.daemon();
    let host = world.host();
    let mut holder = host.holder(&[], "kept");
    for _ in 0..20 {
        host.holder(&[], "soon forgotten").kill();
    }
    assert!(world.sessions().len() <= 4);
    let tokens = world.directory().join("tokens");
    until_removed(&tokens, "their tokens go with them", || {
        (world.token_files().len() <= 4).then_some(())
    });
    assert_eq!(
        holder.load().token.as_deref(),
        Some("kept"),
        "what is held is never made room of"
    );
}
