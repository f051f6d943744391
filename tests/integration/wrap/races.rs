//! Fronts that start at the worst moment. They always end up with a server that is kept.

use std::time::{Duration, Instant};

use mcp_sessiond_tests::{Client, Front, World, random};

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
    // A daemon that a front starts does not have this world's row.
    let options = ["--resume", "cut", "--instance", &label];
    Client::new(world.front(&world.wrapping(&options, &tiny(world))))
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
    assert_eq!(
        next.count(),
        2,
        "round {round}: {}",
        next.pipe.errors.text()
    );
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
        let daemon = world.start(&[]);
        moment(&mut random, 15);
        let client = start(&world, round);
        assert_kept(&world, client, round);
        // It may have found that one of a front's was there first.
        drop(daemon);
        world.kill_any_daemon();
    }
}

#[test]
fn fronts_find_a_daemon_that_is_being_killed() {
    let world = settings();
    let mut random = random();
    for round in 0..ROUNDS {
        // Or one that a former front or its keeper was still about to start.
        let first = world.start(&[]);
        let _ = first.ready_or_ended();
        let client = start(&world, round);
        moment(&mut random, 30);
        world.kill_any_daemon();
        // In every other round nobody but the front sees to another one.
        let next = (round % 2 == 0).then(|| world.start(&[]));
        assert_kept(&world, client, round);
        drop((first, next));
        world.kill_any_daemon();
    }
}
