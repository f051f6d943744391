//! Hosts that start a server twice from one process, as Claude Desktop does for its chat and for
//! its agent panel, and whatever else makes a former server unreachable.

use mcp_sessiond_tests::{Client, Front, World, gone, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{tiny, wrapped};
use crate::world;

/// What Claude Desktop calls itself (a published probe of September 2026).
const CHAT: &str = "claude-ai";
const PANEL: &str = "local-agent-mode-counter";

/// How a host ends a server.
#[derive(Clone, Copy, Debug)]
enum Way {
    Close,
    Signal(Signal),
}

const WAYS: [Way; 3] = [
    Way::Close,
    Way::Signal(Signal::SIGTERM),
    Way::Signal(Signal::SIGKILL),
];

type Server = Client<Front>;

fn end(server: &mut Server, way: Way) {
    match way {
        Way::Close => server.pipe.close(),
        Way::Signal(signal) => server.pipe.signal(signal),
    }
    server.pipe.wait();
}

/// A world in which nobody waits long for a sibling, and no number of reloads is too many.
fn twins(claim_wait_ms: u64) -> World {
    world(&format!(
        "claim_wait_ms = {claim_wait_ms}\n[backends]\ncloses = 1000\n"
    ))
}

fn start(world: &World, options: &[&str], name: &str) -> Server {
    Client::connected_as(name, world.front(&world.wrapping(options, &tiny(world))))
}

/// Waits until there are so many backends. There were never more: a claim is answered only after
/// what it ends was told to end.
fn backends(world: &World, number: usize) {
    world.wait_backends(number);
}

#[test]
fn two_that_say_who_they_are_find_their_own_in_every_order() {
    // Nobody gets a server at all who waits for so long.
    let world = twins(5_000);
    let _daemon = world.daemon();
    let names = [CHAT, PANEL];
    let mut servers = names.map(|name| start(&world, &[], name));
    let mut counts = [0; 2];
    // The one counts faster, so that they can be told apart.
    let mut count = |servers: &mut [Server; 2], which: usize| {
        for _ in 0..=which {
            counts[which] += 1;
            assert_eq!(servers[which].count(), counts[which], "{}", names[which]);
        }
    };
    for way in WAYS {
        for order in [&[0][..], &[1], &[0, 1], &[1, 0]] {
            (0..2).for_each(|which| count(&mut servers, which));
            order
                .iter()
                .for_each(|which| end(&mut servers[*which], way));
            for which in order.iter().rev() {
                servers[*which] = start(&world, &[], names[*which]);
                count(&mut servers, *which);
            }
            assert_eq!(world.backends().len(), 2, "{way:?} {order:?}");
        }
    }
}

#[test]
fn of_two_that_are_alike_a_single_one_that_is_reloaded_begins_afresh_and_says_why() {
    let world = twins(50);
    let _daemon = world.daemon();
    let mut servers = [CHAT, CHAT].map(|name| start(&world, &[], name));
    for way in WAYS {
        servers
            .iter_mut()
            .for_each(|server| assert_ne!(server.count(), 0));
        end(&mut servers[0], way);
        servers[0] = start(&world, &[], CHAT);
        assert_eq!(servers[0].count(), 1);
        let why = servers[0].pipe.errors.wait("this server begins afresh");
        assert!(
            why.contains("--instance") && why.contains("--siblings successor"),
            "{why}"
        );
        backends(&world, 2);
    }
}

#[test]
fn of_two_that_are_alike_and_go_together_neither_gets_the_other_s() {
    for options in [&[][..], &["--siblings", "successor"]] {
        let world = twins(50);
        let _daemon = world.daemon();
        for way in WAYS {
            let mut servers = [CHAT, CHAT].map(|name| start(&world, options, name));
            for server in &mut servers {
                assert_eq!((server.count(), server.count()), (1, 2), "{way:?}");
            }
            backends(&world, 2);
            servers.iter_mut().for_each(|server| end(server, way));
        }
    }
}

#[test]
fn a_successor_is_resumed_while_its_sibling_lives() {
    let world = twins(5_000);
    let _daemon = world.daemon();
    let options = ["--siblings", "successor"];
    let mut servers = [CHAT, CHAT].map(|name| start(&world, &options, name));
    let mut counts = [0; 2];
    for (round, way) in WAYS.into_iter().cycle().take(6).enumerate() {
        let which = round % 2;
        end(&mut servers[which], way);
        servers[which] = start(&world, &options, CHAT);
        for _ in 0..=which {
            counts[which] += 1;
            assert_eq!(servers[which].count(), counts[which], "{way:?}");
        }
        assert_eq!(world.backends().len(), 2);
    }
}

/// It starts the new one before it closes the old one.
#[test]
fn a_manager_never_gets_the_sibling_s_of_what_it_replaces() {
    let world = twins(50);
    let _daemon = world.daemon();
    let mut servers = [CHAT, CHAT].map(|name| start(&world, &[], name));
    servers
        .iter_mut()
        .for_each(|server| assert_ne!(server.count(), 0));
    let mut next = start(&world, &[], CHAT);
    end(&mut servers[0], Way::Close);
    assert_eq!(next.count(), 1);
    assert_eq!(servers[1].count(), 2);
}

/// Claude Code starts some servers twice, and drops one of the two after seconds.
#[test]
fn a_twin_that_only_said_hello_and_listed_costs_the_other_nothing() {
    let world = twins(50);
    let _daemon = world.daemon();
    for (way, first) in [(Way::Close, 0), (Way::Signal(Signal::SIGKILL), 1)] {
        let mut servers = [CHAT, CHAT].map(|name| start(&world, &[], name));
        let (used, twin) = (first, 1 - first);
        assert_eq!((servers[used].count(), servers[used].count()), (1, 2));
        let id = servers[twin].request("tools/list", json!({}));
        servers[twin].answer(id);
        servers[twin].ping();
        end(&mut servers[twin], way);
        backends(&world, 1);
        end(&mut servers[used], way);
        servers[used] = start(&world, &[], CHAT);
        assert_eq!(servers[used].count(), 3);
        end(&mut servers[used], way);
        let backend = world.backend();
        world
            .sessiond(&["stop", &backend.session])
            .status()
            .expect("it runs");
        backend.ended();
    }
}

#[test]
fn a_log_level_and_a_subscription_are_a_use() {
    let world = twins(50);
    let _daemon = world.daemon();
    for (method, params) in [
        ("logging/setLevel", json!({"level": "debug"})),
        ("resources/subscribe", json!({"uri": "test:x"})),
    ] {
        let mut servers = [CHAT, CHAT].map(|name| start(&world, &[], name));
        servers.iter_mut().for_each(|server| {
            let id = server.request(method, params.clone());
            server.answer(id);
        });
        let front = Some(servers[1].pipe.pid());
        let backend = world
            .backends()
            .into_iter()
            .find(|backend| backend.status().front == front);
        let backend = backend.expect("a backend with that front");
        end(&mut servers[1], Way::Close);
        backend.wait_alone();
        assert_eq!(world.backends().len(), 2, "{method}");
        end(&mut servers[0], Way::Close);
        // Of neither it could be told whose it is.
        backends(&world, 0);
    }
}

#[test]
fn a_conversation_that_was_left_takes_its_server_along() {
    let world = twins(50);
    let _daemon = world.daemon();
    let start = |conversation: &str| {
        let front = world.front_with(
            &wrapped(&world, &tiny(&world)),
            &[("CLAUDE_CODE_SESSION_ID", conversation)],
        );
        Client::connected(front)
    };
    let mut server = start("1");
    assert_eq!(server.count(), 1);
    let former = world.backend().pid();
    end(&mut server, Way::Signal(Signal::SIGTERM));
    let mut server = start("1");
    assert_eq!(server.count(), 2);
    end(&mut server, Way::Signal(Signal::SIGTERM));
    let mut server = start("2");
    assert_eq!(server.count(), 1);
    gone(former);
    backends(&world, 1);
}

/// How often keepers have told the daemon how a front has left.
fn leavings(world: &World) -> usize {
    const COUNT: &str = "mcp_sessiond_request_seconds_count{method=\"front_left\"} ";
    let stats = world
        .sessiond(&["stats", "--prometheus"])
        .output()
        .expect("it runs");
    let stats = String::from_utf8(stats.stdout).expect("text");
    stats
        .lines()
        .find_map(|line| line.strip_prefix(COUNT))
        .map_or(0, |count| count.parse().expect("a number"))
}

/// `setup` writes the name of an entry into it while its server is kept.
#[test]
fn a_name_that_an_entry_gets_finds_the_server_that_it_had() {
    let world = twins(50);
    let _daemon = world.daemon();
    let start =
        |options: &[&str]| Client::connected(world.front(&world.wrapping(options, &tiny(&world))));
    let mut server = start(&[]);
    assert_eq!(server.count(), 1);
    let kept = world.backend().pid();
    end(&mut server, Way::Close);
    for (count, options) in [
        (2, &["--entry", "browser"][..]),
        (3, &["--entry=browser"]),
        (4, &["--entry", "browser"]),
    ] {
        let mut server = start(options);
        assert_eq!(server.count(), count, "{options:?}");
        assert_eq!(world.backend().pid(), kept);
        end(&mut server, Way::Close);
    }
    // Another name with the same command is another server.
    let mut server = start(&["--entry", "other"]);
    assert_eq!(server.count(), 1);
}

#[test]
fn an_entry_that_was_edited_ends_its_former_server() {
    let world = twins(50);
    let _daemon = world.daemon();
    for options in [&["--entry", "counter"][..], &[]] {
        let start = |more: &[&str]| {
            let mut command = tiny(&world);
            command.extend(more.iter().map(|word| (*word).to_owned()));
            Client::connected(world.front(&world.wrapping(options, &command)))
        };
        let mut server = start(&[]);
        assert_eq!(server.count(), 1);
        let former = world.backend().pid();
        let said = leavings(&world);
        end(&mut server, Way::Close);
        until(
            "the keeper has told the daemon how its front has left",
            || (leavings(&world) > said).then_some(()),
        );
        let mut server = start(&["--edited"]);
        assert_eq!(server.count(), 1);
        server.pipe.errors.wait("configuration was edited");
        gone(former);
        backends(&world, 1);
        end(&mut server, Way::Close);
        let backend = world.backend();
        world
            .sessiond(&["stop", &backend.session])
            .status()
            .expect("it runs");
        backend.ended();
    }
}

/// What a host waits for is another matter: the time that a former server takes to end is that
/// server's.
#[test]
fn a_server_that_takes_its_time_to_end_is_waited_for() {
    let world =
        world("claim_wait_ms = 50\n[backends]\nstop_wait_ms = 2500\nping_wait_ms = 20000\n");
    let _daemon = world.daemon();
    let start = |conversation: &str| {
        let variables = [
            ("CLAUDE_CODE_SESSION_ID", conversation),
            ("MCP_SESSIOND_WRAP_KEEPER_WAIT_MS", "1500"),
        ];
        Client::connected(world.front_with(&wrapped(&world, &super::counter(&world)), &variables))
    };
    let mut server = start("1");
    assert_eq!(server.count(), 1);
    server.call("ignore", json!({}));
    let former = world.backend().pid();
    end(&mut server, Way::Signal(Signal::SIGKILL));
    let mut server = start("2");
    assert_eq!(server.count(), 1);
    gone(former);
    let said = server.pipe.errors.text();
    assert!(!said.contains("is run without being kept"), "{said}");
    end(&mut server, Way::Close);
    assert_eq!(start("2").count(), 2);
}
