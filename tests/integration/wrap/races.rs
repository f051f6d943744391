//! Fronts that start at the worst moment. They always end up with a server that is kept.

use std::time::{Duration, Instant};

use mcp_sessiond_tests::{Client, Daemon, Front, World, random};

use super::{keeping, tiny};

/// How often each race is run.
const ROUNDS: u64 = 50;

/// Spends a random time without giving up the processor, so that it ends when it should.
fn moment(random: &mut fastrand::Rng, most_ms: u64) {
    let until = Instant::now() + Duration::from_micros(random.u64(0..most_ms * 1000));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// A front of its own session, which was started just now.
fn start(world: &World, round: u64) -> Client<Front> {
    let label = format!("round-{round}");
    Client::new(world.front(&world.wrapping(&["--instance", &label], &tiny(world))))
}

/// The server answers, and is kept: the next front finds it.
#[track_caller]
fn assert_kept(world: &World, mut client: Client<Front>, round: u64) {
    client.initialize();
    assert_eq!(client.count(), 1, "round {round}");
    let unkept = client.pipe.errors.lines("without being kept");
    assert!(unkept.is_empty(), "round {round}: {unkept:?}");
    client.pipe.kill();
    let mut next = start(world, round);
    next.initialize();
    assert_eq!(next.count(), 2, "round {round}: {}", next.pipe.errors.text());
}

fn settings() -> World {
    keeping("linger_ms = 3000\nstop_wait_ms = 300")
}

#[test]
fn fronts_find_no_daemon() {
    let world = settings();
    for round in 0..ROUNDS {
        let client = start(&world, round);
        assert_kept(&world, client, round);
        world.kill_any_daemon();
    }
}

#[test]
fn fronts_find_a_daemon_that_is_starting() {
    let world = settings();
    let mut random = random();
    for round in 0..ROUNDS {
        let mut daemon = world.start(&[]);
        moment(&mut random, 15);
        let client = start(&world, round);
        assert_kept(&world, client, round);
        // It may have found that one of a front's was there first.
        if daemon.ended().is_none() {
            daemon.kill();
        }
        world.kill_any_daemon();
    }
}

#[test]
fn fronts_find_a_daemon_that_is_being_killed() {
    let world = settings();
    let mut random = random();
    let mut daemon: Option<Daemon> = None;
    for round in 0..ROUNDS {
        let mut killed = daemon.take().unwrap_or_else(|| world.daemon());
        let client = start(&world, round);
        moment(&mut random, 30);
        killed.kill();
        // In every other round nobody but the front sees to another one.
        if round % 2 == 0 {
            killed.start_with(&[]);
            daemon = Some(killed);
        }
        assert_kept(&world, client, round);
        if daemon.as_mut().is_some_and(|daemon| daemon.ended().is_some()) {
            daemon = None;
        }
        if daemon.is_none() {
            world.kill_any_daemon();
        }
    }
}
