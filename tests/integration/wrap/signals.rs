//! A host that blocks signals which we need: its servers have its mask, and everything else works.

use mcp_sessiond_tests::{Client, gone, signal};
use nix::sys::signal::Signal;

use super::{keeping, tiny, wrapped};

/// Runs what follows as a host does that has these signals blocked.
const BLOCKING: &str = "import os, signal, sys\n\
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})\n\
    os.execvp(sys.argv[1], sys.argv[1:])";

/// The signals that a process has blocked.
fn blocked(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigBlk:"))
        .expect("a line");
    u64::from_str_radix(line.trim(), 16).expect("a mask")
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as u32 - 1)
}

#[test]
fn a_host_that_blocks_sigterm_and_sigchld_has_its_server_kept() {
    let world = keeping("stop_wait_ms = 20000");
    let _daemon = world.daemon();
    let prefix = ["python3", "-I", "-S", "-c", BLOCKING].map(String::from);
    let command = [&prefix[..], &wrapped(&world, &tiny(&world))].concat();
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    let mask = bit(Signal::SIGTERM) | bit(Signal::SIGCHLD);
    assert_eq!(blocked(backend.pid()), mask, "what its host gave it");
    assert_eq!(blocked(backend.keeper) & mask, 0);

    // Its end is seen, and the next one has the same mask.
    signal(backend.pid(), Signal::SIGKILL);
    backend.wait("it is started again", |status| {
        status.restarts == 1 && status.pid.is_some()
    });
    assert_eq!(client.count(), 1);
    assert_eq!(blocked(backend.pid()), mask);

    signal(client.pipe.pid(), Signal::SIGTERM);
    client.pipe.wait();
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 2);
    let server = backend.pid();
    signal(backend.keeper, Signal::SIGTERM);
    backend.ended();
    gone(server);
}
