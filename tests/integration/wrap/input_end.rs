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
    Client::connected(world.front(&words))
}

/// What has a name outlives its host.
fn stop(world: &World, way: &str) {
    if way == "--name" {
        let stopped = world.sessiond(&["stop", "mine"]).output();
        assert!(stopped.expect("it runs").status.success());
    }
}

#[test]
fn what_is_answered_in_time_arrives_after_the_end_of_the_input() {
    for way in WAYS {
        let world = keeping("stop_wait_ms = 20000");
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
        let mut client = connect(&world, way);
        client.begin_slow(&gate(&world, "never"));
        client.pipe.close();
        assert!(client.pipe.wait().success(), "{way:?}");
        stop(&world, way);
    }
}

#[test]
fn a_front_ends_in_time_with_a_call_open_at_a_server_elsewhere() {
    let world = keeping("stop_wait_ms = 100");
    let _daemon = world.daemon();
    let server = express(&world, &[]);
    let mut client =
        Client::connected(world.front(&wrapped(&world, std::slice::from_ref(&server.url))));
    client.begin_slow(&gate(&world, "never"));
    client.pipe.close();
    assert!(client.pipe.wait().success());
}

/// The front is in the middle of a line, for which there is no room, and can't read the end.
#[test]
fn a_front_ends_in_time_with_lines_that_a_stopped_server_does_not_read() {
    // `--all` takes all lines that a server does not read.
    for way in WAYS.into_iter().filter(|way| *way != "--all") {
        let world = keeping("stop_wait_ms = 100\nping_wait_ms = 20000");
        let _daemon = world.daemon();
        let mut client = connect(&world, way);
        client.call("get", json!({}));
        let pid = world.backend().pid();
        signal(pid, Signal::SIGSTOP);
        fill(&mut client, 1 << 16);
        client.pipe.close();
        assert!(client.pipe.wait().success(), "{way:?}");
        signal(pid, Signal::SIGCONT);
        stop(&world, way);
    }
}

/// Writes requests with so many bytes of text until nobody reads them any more.
pub(super) fn fill(client: &mut Client<Front>, bytes: usize) {
    let mut input = client.pipe.input();
    fcntl(&input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("set");
    let text = "x".repeat(bytes);
    for id in 1_000_u32.. {
        let params = json!({"name": "echo", "arguments": {"text": text}});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let line = format!("{request}\n");
        let mut left = line.as_bytes();
        while !left.is_empty() {
            match input.write(left) {
                Ok(written) => left = &left[written..],
                Err(_) => {
                    let mut awaited = [PollFd::new(input.as_fd(), PollFlags::POLLOUT)];
                    // Nothing tells that nobody reads.
                    if poll(&mut awaited, PollTimeout::from(500_u16)).expect("polled") == 0 {
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
    let mut second = Client::new(world.front(&words));
    second.begin_initialize("test");
    until("it waits", || {
        (world.stat("claims_waiting") == 1).then_some(())
    });
    second.pipe.close();
    second.pipe.wait();
    assert_eq!(holder.count(), 2);
    stop(&world, "--name");
}
