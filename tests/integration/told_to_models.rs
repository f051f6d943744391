//! `wrap.tell = "error"`: the first call after the loss of a used server, while its host was connected, is
//! refused with the reason, by every way to a server that one host has; by the other ways, and between
//! two connections, a log tells it.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use mcp_sessiond_tests::{Backend, Client, Front, Reply, World, signal, suspend, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::remote::express;
use crate::wrap::{counter, tiny};
use crate::{shared, world};

/// The options of a way, and whether the server stands in `servers.json`.
pub(crate) type Door = (&'static [&'static str], bool);

pub(crate) const DOORS: [Door; 5] = [
    (&[], false),
    (&["--lazy"], false),
    (&["--name", "n"], false),
    (&[], true),
    (&["--all"], true),
];

/// Further ways, where the server starts at its first call or has a name.
const LISTED_DOORS: [Door; 3] = [
    (&["--lazy"], true),
    (&["--all", "--lazy"], true),
    (&["--name", "n"], true),
];

pub(crate) const SETTINGS: &str = "[wrap]\ntell = \"error\"\n";

/// A server that is slow to answer a ping hangs.
const HANGS_SOON: &str = "[backends]\nping_wait_ms = 100\ncloses = 1000\n";

/// The command line of a way to a server that counts.
pub(crate) fn wrapping(world: &World, door: Door) -> Vec<String> {
    wrapping_of(world, door, &tiny(world))
}

/// The command line of a way to this server.
pub(crate) fn wrapping_of(
    world: &World,
    (options, is_listed): Door,
    server: &[String],
) -> Vec<String> {
    if !is_listed {
        return world.wrapping(options, server);
    }
    let file = json!({"mcpServers": {"t": {"command": server[0], "args": server[1..]}}});
    fs::write(world.root().join("servers.json"), file.to_string()).expect("servers.json");
    if !options.contains(&"--all") {
        return world.wrapping(options, &["@t".to_owned()]);
    }
    let mut words = world.wrapping(options, &[]);
    words.pop();
    words
}

const BEGINS_AFRESH: &str =
    "this server begins afresh, and what the previous one had in memory is lost";

/// How a server is lost.
type Kill = fn(&World);

fn kill_server(world: &World) {
    signal(world.backend().pid(), Signal::SIGKILL);
}

fn kill_keeper(world: &World) {
    let backend = world.backend();
    backend.kill_keeper();
    backend.ended();
}

/// The call was not made, since the server begins afresh, and for this reason.
#[track_caller]
pub(crate) fn assert_refused(error: &Value, reason: &str) {
    assert_eq!(error["data"]["outcome"], "not_sent", "{error}");
    let words = error["message"].as_str().unwrap_or_default();
    for part in ["begins afresh", reason, "repeat the call"] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn the_first_call_after_a_loss_is_refused_with_the_reason_where_that_is_wanted() {
    for door in DOORS.into_iter().chain(LISTED_DOORS) {
        let kills: [(Kill, &str); 2] = [
            (kill_server, "the previous server has ended"),
            (kill_keeper, "the process that kept the previous server"),
        ];
        for (kill, reason) in kills {
            let world = world(SETTINGS);
            let _daemon = world.daemon();
            let mut client = Client::connected(world.front(&wrapping(&world, door)));
            assert_eq!(client.count(), 1, "{door:?}");
            kill(&world);
            client.pipe.errors.wait_from(0, &["has ended", "had ended"]);
            // What is no call of a model's is answered.
            let list = client.request("tools/list", json!({}));
            assert!(
                client.answer(list)["result"]["tools"].is_array(),
                "{door:?}"
            );
            let refused = client.try_call("increment", json!({}));
            assert_refused(&refused.expect_err("it is not made"), reason);
            // It is refused once, and was not made.
            assert_eq!([client.count(), client.count()], [1, 2], "{door:?}");
        }
    }
}

/// So it is whatever was lost, and by each way; standard error has it once, too.
#[test]
fn the_log_of_a_host_that_was_there_is_told_once() {
    let kills: [(Kill, &str, &str); 2] = [
        (
            kill_server,
            "the previous server has ended (",
            "the server has ended (",
        ),
        (
            kill_keeper,
            "the process that kept the previous server has ended",
            "the keeper of the server had ended",
        ),
    ];
    let cases = DOORS
        .into_iter()
        .flat_map(|door| kills.map(|kill| (door, kill)));
    for (door, (kill, reason, printed)) in cases {
        let world = world("");
        let _daemon = world.daemon();
        let words = wrapping_of(&world, door, &counter(&world));
        let mut client = Client::connected(world.front(&words));
        assert_eq!(client.count(), 1, "{door:?}");
        kill(&world);
        client.pipe.errors.wait(printed);
        assert_eq!([client.count(), client.count()], [1, 2], "{door:?}");
        let is_log = |said: &Value| said["method"] == "notifications/message";
        let told = client.said(is_log);
        let text = told["params"]["data"].as_str().unwrap_or_default();
        let begins = format!("{BEGINS_AFRESH}: {reason}");
        assert!(text.starts_with(&begins), "{door:?}: {told}");
        client.ping();
        let rest = client.rest();
        assert!(!rest.iter().any(is_log), "{door:?}: {rest:?}");
        let errors = client.pipe.errors.text();
        assert_eq!(errors.matches(printed).count(), 1, "{door:?}: {errors}");
        assert!(!errors.contains("begins afresh"), "{door:?}: {errors}");
    }
}

/// Does this for each way, both where models are told and where they are not. Most of it is waiting,
/// so all of it is done at once.
fn everywhere(act: impl Fn(Door, bool) + Sync) {
    let act = &act;
    std::thread::scope(|scope| {
        for door in DOORS {
            for tells_models in [true, false] {
                let name = format!("{door:?} {tells_models}");
                let named = std::thread::Builder::new().name(name);
                let run = named.spawn_scoped(scope, move || act(door, tells_models));
                run.expect("a thread");
            }
        }
    });
}

/// The client's next call is the first one to a fresh server, and is made: the former connection's host
/// has lost nothing by this one, or has read of the loss by a call that was open.
#[track_caller]
fn assert_made(client: &mut Client<Front>, door: Door) {
    assert_eq!([client.count(), client.count()], [1, 2], "{door:?}");
}

/// A server that counts, and makes a file when it is asked whether it lives.
fn telling_pings(world: &World) -> (Vec<String>, PathBuf) {
    let pinged = world.root().join("pinged");
    let words = [
        world.binaries.counter,
        "--pinged",
        pinged.to_str().expect("UTF-8"),
    ];
    (words.map(str::to_owned).into(), pinged)
}

/// The server was known to answer pings, and is stopped when the next front attaches.
#[test]
fn nothing_is_refused_where_a_server_that_hung_is_replaced_for_the_next_front() {
    everywhere(|door, tells_models| {
        let settings = if tells_models { SETTINGS } else { "" };
        let world = world(&format!("{settings}{HANGS_SOON}"));
        let _daemon = world.daemon();
        let (server, pinged) = telling_pings(&world);
        let words = wrapping_of(&world, door, &server);
        let mut first = Client::connected(world.front(&words));
        assert_eq!(first.count(), 1, "{door:?}");
        let backend = world.backend();
        // Its keeper asks it by itself, once nothing is under way.
        until("it was asked", || {
            fs::exists(&pinged).ok().filter(|there| *there)
        });
        assert_eq!(first.count(), 2, "{door:?}: and has answered before");
        suspend(backend.pid());
        first.pipe.close();
        first.pipe.wait();
        let mut next = Client::connected(world.front(&words));
        let why = "the running server did not answer a ping within 100 ms";
        assert_made(&mut next, door);
        let errors = &next.pipe.errors;
        errors.wait(&format!("{why}; a fresh server is started"));
        assert_eq!(world.backend().keeper, backend.keeper, "{door:?}");
    });
}

/// Connections that say nothing, so many that the keeper answers nobody else for a while, although it
/// could.
fn occupy(backend: &Backend) -> Vec<UnixStream> {
    let connect = |_| UnixStream::connect(backend.socket()).expect("it listens");
    (0..64).map(connect).collect()
}

const HUNG: &str = "the process that kept the previous server did not answer";

#[test]
fn nor_is_it_for_the_front_after_a_keeper_that_hung_was_ended() {
    everywhere(|door, tells_models| {
        let world = world(if tells_models { SETTINGS } else { "" });
        let _daemon = world.daemon();
        let words = wrapping(&world, door);
        let mut first = Client::connected(world.front(&words));
        assert_eq!(first.count(), 1, "{door:?}");
        let backend = world.backend();
        backend.cut_off(&mut first.pipe);
        let _mute = occupy(&backend);
        let mut next = Client::connected(world.front(&words));
        assert_made(&mut next, door);
        next.pipe.errors.wait(&format!("begins afresh: {HUNG}"));
        backend.ended();
    });
}

/// Nothing comes of a call, since the server is stopped, so the front asks the keeper whether it
/// lives.
#[test]
fn nor_is_it_where_a_call_was_open_when_a_keeper_was_ended_that_hung() {
    everywhere(|door, tells_models| {
        let world = world(if tells_models { SETTINGS } else { "" });
        let _daemon = world.daemon();
        let mut client = Client::connected(world.front(&wrapping(&world, door)));
        assert_eq!(client.count(), 1, "{door:?}");
        let backend = world.backend();
        suspend(backend.pid());
        let _mute = occupy(&backend);
        let open = client.begin("increment", json!({}));
        let error = client.text(open).expect_err("the server is lost");
        assert_eq!(error["data"]["outcome"], "unknown", "{door:?}: {error}");
        assert_made(&mut client, door);
        let errors = &client.pipe.errors;
        errors.wait("the keeper of the server had ended");
        backend.ended();
    });
}

/// The next front tells of what its predecessor could not; and of a server that nobody has used
/// there is nothing to tell.
#[test]
fn nor_is_it_between_two_connections_or_where_nobody_had_used_the_server() {
    let world = world(SETTINGS);
    let _daemon = world.daemon();
    let words = wrapping(&world, DOORS[0]);
    let mut client = Client::connected(world.front(&words));
    kill_server(&world);
    client.pipe.errors.wait("the server has ended (");
    assert_eq!(client.count(), 1, "nobody had used it");
    let backend = world.backend();
    backend.cut_off(&mut client.pipe);
    kill_keeper(&world);
    let mut next = Client::connected(world.front(&words));
    assert_eq!(next.count(), 1);
    let reason = "the process that kept the previous server";
    next.pipe.errors.wait(reason);
}

/// Another server of its key lives, which is no loss of a server, though it is said on standard error.
#[test]
fn the_first_call_of_a_twin_is_made() {
    let world = world(&format!("claim_wait_ms = 100\n{SETTINGS}"));
    let _daemon = world.daemon();
    let words = wrapping(&world, DOORS[0]);
    let mut first = Client::connected(world.front(&words));
    assert_eq!(first.count(), 1);
    let mut twin = Client::connected(world.front(&words));
    twin.pipe
        .errors
        .wait("another server with the same command");
    assert_eq!((twin.count(), first.count()), (1, 2));
}

/// A way by which a loss is told in a log alone: the server is used and lost, and its next call is
/// made.
type LoggingWay = fn(&World);

/// Each host is told by its front.
fn shared_server(world: &World) {
    shared::write_down(world, &json!({"crowd": shared::entry(world)}));
    let mut hosts = [shared::connect(world), shared::connect(world)];
    assert_eq!(hosts.each_mut().map(Client::count), [1, 2]);
    let kills: [(Kill, &str); 2] = [
        (kill_server, "the server has ended ("),
        (kill_keeper, "this server begins afresh"),
    ];
    for (kill, told) in kills {
        kill(world);
        for host in &hosts {
            host.pipe.errors.wait(told);
        }
        assert_eq!(hosts.each_mut().map(Client::count), [1, 2]);
        for host in &hosts {
            assert_eq!(host.pipe.errors.text().matches(told).count(), 1, "{told}");
        }
    }
}

fn server_of_a_url(world: &World) {
    let mut server = express(world, &["events"]);
    let words = world.wrapping(&[], std::slice::from_ref(&server.url));
    let mut client = Client::connected(world.front(&words));
    assert_eq!(client.count(), 1);
    server.kill();
    server.start_again();
    assert_eq!(client.count(), 1);
    let told = "a new session was begun, since the server has forgotten the previous session";
    client.pipe.errors.wait(told);
    assert_eq!(client.count(), 2);
    assert_eq!(client.pipe.errors.text().matches(told).count(), 1);
}

/// What a stream says for the client's log, and the answer.
fn logged(reply: &mut Reply) -> (Vec<String>, Value) {
    let mut logged = Vec::new();
    loop {
        let said = reply.said().message();
        match said["method"].as_str() {
            Some("notifications/message") => {
                let data = said["params"]["data"].as_str();
                logged.push(data.expect("a sentence").to_owned());
            }
            Some(_) => {}
            None => return (logged, said),
        }
    }
}

fn served(world: &World) {
    let serve = world.serve(&["--name", "test"], &counter(world));
    let mut client = serve.connected("2025-11-25");
    assert_eq!(client.text("increment", &json!({})), "1");
    let lost = [
        "what the previous one had in memory is lost: the previous server has ended (exit status 3)",
        "begins afresh: the process that kept the previous server has ended, and the server with it",
    ];
    for why in lost {
        let mut told = Vec::new();
        if why == lost[1] {
            kill_keeper(world);
        } else {
            // It may be told with the call that fails of it.
            told = logged(&mut client.call("die", &json!({"code": 3}))).0;
        }
        let (then, answer) = logged(&mut client.call("increment", &json!({})));
        told.extend(then);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(why), "{told:?}");
        assert_eq!(answer["result"]["content"][0]["text"], "1");
        let (told, answer) = logged(&mut client.call("increment", &json!({})));
        assert_eq!(told, [""; 0]);
        assert_eq!(answer["result"]["content"][0]["text"], "2");
    }
}

#[test]
#[ignore = "needs node"]
fn by_ways_that_tell_in_a_log_nothing_is_refused() {
    let ways: [LoggingWay; 3] = [shared_server, server_of_a_url, served];
    for way in ways {
        let world = world(SETTINGS);
        let _daemon = world.daemon();
        way(&world);
    }
}

/// By default nothing is refused.
#[test]
fn nothing_is_refused_where_nobody_wants_that() {
    let world = world("");
    let _daemon = world.daemon();
    let mut client = Client::connected(world.front(&wrapping(&world, DOORS[0])));
    client.count();
    kill_server(&world);
    client.pipe.errors.wait("the server has ended (");
    assert_eq!(client.count(), 1);
}
