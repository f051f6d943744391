//! How fronts go.

use mcp_sessiond_tests::{Client, signal, suspend};
use nix::sys::signal::Signal;

use super::by_every_door;
use crate::told_to_models::wrapping;
use crate::world;

/// The keeper is stopped, and sees all of it at once: that the front is gone, and what it has said
/// before. A server whose front was cut off would go on.
#[test]
fn a_keeper_is_told_that_the_host_leaves_before_the_front_ends() {
    by_every_door(|door| {
        // What the user has named stays.
        if door.0.contains(&"--name") {
            return;
        }
        for end in [None, Some(Signal::SIGTERM), Some(Signal::SIGINT)] {
            let world = world("").with_hosts("[]");
            let _daemon = world.daemon();
            let words = wrapping(&world, door);
            let mut client = Client::connected(world.front(&words));
            assert_eq!(client.count(), 1, "{door:?} {end:?}");
            let backend = world.backend();
            suspend(backend.keeper);
            match end {
                None => client.pipe.close(),
                Some(end) => client.pipe.signal(end),
            }
            client.pipe.wait();
            signal(backend.keeper, Signal::SIGCONT);
            let mut next = Client::connected(world.front(&words));
            assert_eq!(next.count(), 1, "{door:?} {end:?}");
        }
    });
}
