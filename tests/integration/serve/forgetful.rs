//! `serve --upstream`, whose server forgets a session, or whose daemon has lost its records.

use std::fs::OpenOptions;
use std::io::Write as _;

use mcp_sessiond_tests::{Daemon, HttpClient, Serve, Upstream, World};
use serde_json::json;

use crate::{fixture, world};

/// A server that takes `notifications/initialized` of its second session once this bench lets it.
struct Bench {
    world: World,
    daemon: Daemon,
    server: Upstream,
    serve: Serve,
    held: String,
}

impl Bench {
    fn new() -> Self {
        let world = world("");
        let daemon = world.daemon();
        let held = world
            .root()
            .join("held")
            .into_os_string()
            .into_string()
            .expect("UTF-8");
        nix::unistd::mkfifo(&*held, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        let program = ["python3", "-I", "-S", &fixture("python/forgetful.py")].map(str::to_owned);
        let server = world.upstream(&program, &[&held]);
        let serve = world.serve(&["--name", "test", "--upstream", &server.url], &[]);
        Self {
            world,
            daemon,
            server,
            serve,
            held,
        }
    }

    /// The server takes one `notifications/initialized`.
    fn let_through(&self) {
        // This waits until the server reads.
        let mut held = OpenOptions::new()
            .write(true)
            .open(&self.held)
            .expect("a FIFO");
        held.write_all(b"1").expect("the server reads");
    }
}

/// Makes a call that the server answers at once.
fn call(client: &mut HttpClient, method: &str) {
    let answer = client.request(method, &json!({})).answer();
    assert_eq!(answer["result"], json!({}), "{answer}");
}

#[test]
#[ignore = "needs python3"]
fn a_new_session_of_the_server_is_used_once_the_server_has_taken_initialized() {
    let bench = Bench::new();
    let mut client = bench.serve.connected("2025-11-25");
    call(&mut client, "forget");
    let begin = |method: &'static str, last| {
        let mut client = HttpClient {
            last,
            ..client.clone()
        };
        std::thread::spawn(move || call(&mut client, method))
    };
    let mut calls = vec![begin("first", 100), begin("second", 200)];
    // The server keeps `serve` waiting. A call that comes now is refused in the new session.
    bench
        .server
        .told
        .wait("session-2 notifications/initialized");
    calls.push(begin("third", 300));
    bench.server.told.wait(" third");
    bench.let_through();
    for call in calls {
        call.join().expect("the call is answered by its result");
    }
    assert_eq!(bench.server.told.lines("None initialize").len(), 2);
}

#[test]
#[ignore = "needs python3"]
fn a_call_of_a_forgotten_session_is_not_answered_by_an_event_of_the_next_one() {
    let mut bench = Bench::new();
    let mut client = bench.serve.connected("2025-11-25");
    let mut former = client.request("stream", &json!({"_meta": {"progressToken": "t"}}));
    let event = former.said().id.expect("an id");
    let former_id = client.last;
    call(&mut client, "forget");
    let next = std::thread::spawn(move || {
        call(&mut client, "next");
        client
    });
    bench.let_through();
    let mut client = next.join().expect("answered");
    // In the next session another call's event has the same id.
    let _other = client
        .request("stream", &json!({"_meta": {"progressToken": "t"}}))
        .said();
    bench.serve.kill();
    bench.serve.start_again();
    let answer = client.resume(&event).answer();
    assert_eq!(answer["id"], former_id, "{answer}");
    assert_eq!(answer["error"]["data"]["outcome"], "unknown", "{answer}");
}

#[test]
#[ignore = "needs python3"]
fn the_name_is_leased_again_when_the_daemon_has_lost_its_records() {
    let mut bench = Bench::new();
    bench.daemon.kill();
    bench.world.lose_records();
    bench.daemon.start_again();
    let mut client = bench.serve.connected("2025-11-25");
    call(&mut client, "ping");
    let second = ["serve", "--name", "test", "--upstream", &bench.server.url];
    let output = bench.world.sessiond(&second).output().expect("serve");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{said}");
    assert!(said.contains(&bench.serve.pid().to_string()), "{said}");
}
