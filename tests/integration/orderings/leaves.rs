//! How fronts go.

use mcp_sessiond_process::{PinnedProcess, latest_start_ms, start_clock_ms};
use mcp_sessiond_tests::{Client, World, gone, signal, suspend, until};
use nix::sys::signal::Signal;

use super::by_every_door;
use crate::told_to_models::wrapping;
use crate::world;

/// A host without a row may end a conversation by a kill: the next one gets nothing of it, whichever
/// way its server is started.
#[test]
fn a_used_server_of_an_unknown_host_ends_with_its_front() {
    by_every_door(|door| {
        if door.0.contains(&"--name") {
            return;
        }
        let world = world("").with_hosts("[]");
        let _daemon = world.daemon();
        let words = wrapping(&world, door);
        for nth in 0..2 {
            let mut client = Client::connected(world.front(&words));
            assert_eq!(client.count(), 1, "{door:?} {nth}");
            client.pipe.kill();
        }
    });
}

/// A world of a host that names the conversation, and starts the next front within this time if it
/// reconnects.
fn conversing(closed_again_ms: u64) -> World {
    world(&format!(
        "[backends]\nclosed_again_ms = {closed_again_ms}\n"
    ))
    .with_hosts("[{ executable = \"*\", conversation = \"CHAT\" }]")
}

/// Subagents in turn: each has a server of its own, which the host starts for it and closes at its
/// end. All of it is the same each time, the conversation included.
#[test]
fn the_server_of_a_subagent_is_not_the_next_one_s() {
    by_every_door(|door| {
        if door.0.contains(&"--name") {
            return;
        }
        let world = conversing(1);
        let _daemon = world.daemon();
        let words = wrapping(&world, door);
        for nth in 0..3 {
            let front = world.front_with(&words, &[("CHAT", "one")]);
            let mut client = Client::connected(front);
            assert_eq!(client.count(), 1, "{door:?} {nth}");
            let said = "did not start the next one at once";
            if nth == 1 {
                client.pipe.errors.wait(said);
            } else {
                let text = client.pipe.errors.text();
                assert!(!text.contains(said), "{door:?} {nth}: {text}");
            }
            client.pipe.close();
            client.pipe.wait();
        }
    });
}

#[test]
fn a_host_that_names_the_conversation_reconnects_by_a_close_or_a_kill() {
    by_every_door(|door| {
        if door.0.contains(&"--name") {
            return;
        }
        let world = conversing(60_000);
        let _daemon = world.daemon();
        let words = wrapping(&world, door);
        let ends = [None, Some(Signal::SIGINT), Some(Signal::SIGKILL), None];
        for (count, end) in (1..).zip(ends) {
            let front = world.front_with(&words, &[("CHAT", "one")]);
            let mut client = Client::connected(front);
            assert_eq!(client.count(), count, "{door:?} {end:?}");
            match end {
                None => client.pipe.close(),
                Some(end) => client.pipe.signal(end),
            }
            client.pipe.wait();
        }
    });
}

/// Two subagents at once: the second does not follow the first, however soon that ends.
#[test]
fn a_front_that_was_started_before_the_other_one_left_does_not_follow_it() {
    by_every_door(|door| {
        if door.0.contains(&"--name") {
            return;
        }
        let world = conversing(60_000);
        let _daemon = world.daemon();
        let words = wrapping(&world, door);
        let front = || world.front_with(&words, &[("CHAT", "one")]);
        let mut first = Client::connected(front());
        assert_eq!(first.count(), 1, "{door:?}");
        let mut second = Client::new(front());
        let begun = second.begin_initialize("test");
        // That clock has steps.
        let process = PinnedProcess::open(second.pipe.pid()).expect("it lives");
        let latest = latest_start_ms(process.id().start);
        until("it has started before", || {
            (start_clock_ms() > latest).then_some(())
        });
        first.pipe.close();
        second.initialized(begun);
        assert_eq!(second.count(), 1, "{door:?}");
    });
}

/// Nobody reconnects: it ends as a direct child does, a little later.
#[test]
fn the_server_of_a_subagent_ends_when_nobody_follows() {
    by_every_door(|door| {
        if door.0.contains(&"--name") {
            return;
        }
        let world = conversing(1);
        let _daemon = world.daemon();
        let words = wrapping(&world, door);
        let mut client = Client::connected(world.front_with(&words, &[("CHAT", "one")]));
        assert_eq!(client.count(), 1, "{door:?}");
        let server = world.backend().pid();
        client.pipe.close();
        gone(server);
    });
}

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
            let world = world("").with_hosts("[{ executable = \"*\", resume = \"cut\" }]");
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
