//! An attempt to connect that is dropped before its end.

use std::time::{Duration, Instant};

use mcp_sessiond_tests::{Client, Front, World, gone};
use serde_json::Value;

use crate::wrap::{keeping, tiny};

/// How long anything of it may be left.
const LEFT: Duration = Duration::from_secs(1);

/// Starts a front that polls its attempt so often, drops it, and gives up what was begun, unless it
/// `keeps` that. Returns whether it has connected, too.
fn dropped(world: &World, polls: usize, keeps: bool) -> (Front, bool) {
    let polls = polls.to_string();
    let variables = [
        ("MCP_SESSIOND_TEST_POLLS", &*polls),
        ("MCP_SESSIOND_TEST_KEEPS", "1"),
    ];
    let given = if keeps { &variables } else { &variables[..1] };
    let mut front = world.front_with(&words(world), given);
    let line = front.line().expect("it says how it went");
    let said: Value = serde_json::from_slice(&line).expect("JSON");
    (front, said["connected"] == true)
}

fn words(world: &World) -> Vec<String> {
    let own = [world.binaries.connecting, "wrap", "--instance", "x", "--"];
    let own = own.map(str::to_owned).into_iter();
    own.chain(tiny(world)).collect()
}

fn held_by(world: &World, front: &Front) -> usize {
    let holds = |session: &&Value| session["holder"] == front.pid();
    world.sessions().iter().filter(holds).count()
}

/// What the daemon and the kernel know of it.
#[test]
#[ignore = "needs a quiet machine"]
fn a_connect_that_is_dropped_anywhere_leaves_nothing_once_it_is_given_up() {
    let mut polls = 0;
    loop {
        polls += 1;
        let world = keeping("");
        let _daemon = world.daemon();
        let (former, connected) = dropped(&world, polls, false);
        if connected {
            break;
        }
        let given_up = Instant::now();
        let others = || {
            world
                .processes()
                .into_iter()
                .find(|pid| *pid != former.pid())
        };
        while let Some(left) = others() {
            gone(left);
        }
        assert!(given_up.elapsed() < LEFT, "{polls}");
        world.wait_backends(0);
        assert_eq!(held_by(&world, &former), 0, "{polls}");
        // The former process is still there.
        let mut next = Client::connected(world.front(&words(&world)));
        assert_eq!(next.count(), 1, "{polls}");
        assert_eq!(held_by(&world, &next.pipe), 1, "{polls}");
        assert_eq!(world.sessions().len(), 1, "{polls}");
        let said = next.pipe.errors.text();
        assert!(!said.contains("begins afresh"), "{polls}: {said}");
    }
    let world = keeping("");
    let _daemon = world.daemon();
    let (front, _) = dropped(&world, polls - 1, true);
    assert_eq!(held_by(&world, &front), 1);
    assert_eq!(world.backends().len(), 1);
}
