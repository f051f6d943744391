//! The host closes its end while something is under way: what is answered in time arrives, and the
//! front ends in time, whatever it waits for.

use std::io::Write as _;
use std::os::fd::AsFd as _;

use mcp_sessiond_tests::{Client, Front, World, signal, until};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{counter, gate, keeping, open, wrapped};
use crate::remote::express;
use crate::several::{able, all, write_down};

/// All ways to a server that a command starts.
const WAYS: [&str; 6] = ["", "--lazy", "--name", "@", "shared", "--all"];

/// This test as host of a server that does what it asks, reached this way.
fn connect(world: &World, way: &str) -> Client<Front> {
    connect_with(world, way, &[])
}

/// The wrapper waits so long for answers when its input has ended.
const SOON: [(&str, &str); 1] = [("MCP_SESSIOND_WRAP_INPUT_END_WAIT_MS", "100")];

/// The same, with these variables.
fn connect_with(world: &World, way: &str, variables: &[(&str, &str)]) -> Client<Front> {
    let server = counter(world);
    let mut entry = able(world);
    if way == "shared" {
        entry["shared"] = json!(true);
    }
    write_down(world, &[("one", entry)]);
    let words = match way {
        "" => wrapped(world, &server),
        "--lazy" => world.wrapping(&["--lazy"], &server),
        "--name" => world.wrapping(&["--name", "mine"], &server),
        "--all" => all(world, &[]),
        _ => world.wrapping(&[], &["@one".to_owned()]),
    };
    Client::connected(world.front_with(&words, variables))
}

/// The front has said that it leaves a call unanswered.
fn has_given_up(client: &mut Client<Front>, way: &str) {
    assert_eq!(client.pipe.wait().code(), Some(75), "{way:?}");
    client.pipe.errors.wait("1 call was not answered");
}

/// What has a name outlives its host.
fn stop(world: &World, way: &str) {
    if way == "--name" {
        let stopped = world.sessiond(&["stop", "mine"]).output();
        assert!(stopped.expect("it runs").status.success());
    }
}

#[test]
fn what_is_answered_after_the_end_of_the_input_arrives() {
    for way in WAYS {
        // The time that a server has to end is no limit for answers.
        let world = keeping("stop_wait_ms = 1");
        let _daemon = world.daemon();
        let mut client = connect(&world, way);
        let waits = gate(&world, "gate");
        let slow = client.begin_slow(&waits);
        client.pipe.close();
        open(&waits);
        assert_eq!(client.text(slow).as_deref(), Ok("1"), "{way:?}");
        assert!(client.pipe.wait().success(), "{way:?}");
        stop(&world, way);
    }
}

#[test]
fn a_front_ends_in_time_with_a_call_open_at_a_server_that_hangs() {
    for way in WAYS {
        let world = keeping("stop_wait_ms = 100");
        let _daemon = world.daemon();
        let mut client = connect_with(&world, way, &SOON);
        client.begin_slow(&gate(&world, "never"));
        client.pipe.close();
        has_given_up(&mut client, way);
        stop(&world, way);
    }
}

#[test]
#[ignore = "needs node"]
fn a_front_ends_in_time_with_a_call_open_at_a_server_elsewhere() {
    let world = keeping("stop_wait_ms = 100");
    let _daemon = world.daemon();
    let server = express(&world, &[]);
    let words = wrapped(&world, std::slice::from_ref(&server.url));
    let mut client = Client::connected(world.front_with(&words, &SOON));
    client.begin_slow(&gate(&world, "never"));
    client.pipe.close();
    has_given_up(&mut client, "URL");
}

/// Nobody could read the answer.
#[test]
fn a_front_ends_at_once_with_a_call_open_where_nobody_reads_its_output() {
    for way in WAYS {
        let world = keeping("stop_wait_ms = 100");
        let _daemon = world.daemon();
        let mut client = connect(&world, way);
        client.begin_slow(&gate(&world, "never"));
        client.pipe.close_output();
        client.pipe.close();
        client.pipe.wait();
        stop(&world, way);
    }
}

/// A server that ends with its host hears of the end at once, and answers all the same.
#[test]
fn a_server_that_ends_with_its_host_gets_the_end_of_its_input_with_a_call_open() {
    let world = keeping("stop_wait_ms = 1");
    let _daemon = world.daemon();
    // It answers the call when its input has ended, and not before.
    let script = "IFS= read -r first; echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"serverInfo\":{\"name\":\"sh\",\"version\":\"1\"}}}'; cat >/dev/null; echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":[]}}'";
    let server = ["sh", "-c", script].map(String::from);
    let mut front = world.front(&world.wrapping(&["--resume", "cut"], &server));
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    for line in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "x"}}),
    ] {
        front.send(format!("{line}\n").as_bytes());
    }
    front.close();
    let mut ids = Vec::new();
    while let Some(line) = front.line() {
        let line: serde_json::Value = serde_json::from_slice(&line).expect("JSON");
        assert!(line.get("result").is_some(), "{line}");
        ids.push(line["id"].clone());
    }
    assert_eq!(ids, [json!(1), json!(2)]);
    assert!(front.wait().success());
}

/// The front is in the middle of a line, for which there is no room, and can't read the end.
#[test]
fn a_front_ends_in_time_with_lines_that_a_stopped_server_does_not_read() {
    // `--all` takes all lines that a server does not read.
    for way in WAYS.into_iter().filter(|way| *way != "--all") {
        let world = keeping("stop_wait_ms = 100\nping_wait_ms = 20000");
        let _daemon = world.daemon();
        let mut client = connect_with(&world, way, &SOON);
        client.call("get", json!({}));
        let pid = world.backend().pid();
        signal(pid, Signal::SIGSTOP);
        fill(&mut client, 1 << 16);
        client.pipe.close();
        let code = client.pipe.wait().code();
        assert_eq!(code, Some(75), "{way:?}: {}", client.pipe.errors.text());
        signal(pid, Signal::SIGCONT);
        stop(&world, way);
    }
}

/// So many bytes a pipe takes that nobody reads: `pipe(7)`.
const PIPE_BYTES: usize = 1 << 16;

/// Writes requests with so many bytes of text until nobody reads them any more. Some of them were read
/// whole, so that the first one is under way.
pub(super) fn fill(client: &mut Client<Front>, bytes: usize) {
    let mut input = client.pipe.input();
    fcntl(&input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("set");
    let text = "x".repeat(bytes);
    let mut taken = 0;
    for id in 1_000_u32.. {
        let params = json!({"name": "echo", "arguments": {"text": text}});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let line = format!("{request}\n");
        let mut left = line.as_bytes();
        while !left.is_empty() {
            match input.write(left) {
                Ok(written) => {
                    taken += written;
                    left = &left[written..];
                }
                Err(_) => {
                    let mut awaited = [PollFd::new(input.as_fd(), PollFlags::POLLOUT)];
                    // Nothing tells that nobody reads.
                    let full = poll(&mut awaited, PollTimeout::from(500_u16)).expect("polled") == 0;
                    if full && taken > PIPE_BYTES + 3 * line.len() {
                        return;
                    }
                }
            }
        }
    }
}

/// A front that has no server, and a host that is gone.
#[test]
fn a_front_ends_in_time_while_its_server_is_another_s() {
    let world = keeping("stop_wait_ms = 100");
    let _daemon = world.daemon();
    let mut holder = connect(&world, "--name");
    assert_eq!(holder.count(), 1);
    let words = world.wrapping(&["--name", "mine"], &counter(&world));
    let mut second = Client::new(world.front_with(&words, &SOON));
    second.begin_initialize("test");
    until("it waits", || {
        (world.stat("claims_waiting") == 1).then_some(())
    });
    second.pipe.close();
    second.pipe.wait();
    assert_eq!(holder.count(), 2);
    stop(&world, "--name");
}
