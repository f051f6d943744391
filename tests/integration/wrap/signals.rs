//! Signals that end fronts and keepers, and hosts that block or ignore some: their servers have
//! what they were given, and everything else works.

use std::os::unix::process::ExitStatusExt as _;

use mcp_sessiond_tests::{Client, Front, gone, signal, until};
use nix::sys::signal::Signal;

use super::{connect, keeping, tiny, wrapped};
use crate::several::{all, small, write_down};
use crate::world;

/// The signals by which somebody asks a program to end.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Those that end a front without a terminal: SIGHUP is its server's.
const ENDING_FRONTS: [Signal; 2] = [Signal::SIGTERM, Signal::SIGINT];

/// Runs what follows as a host does that has these signals blocked.
const BLOCKING: &str = "import os, signal, sys\n\
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})\n\
    os.execvp(sys.argv[1], sys.argv[1:])";

/// The command line that runs this one as a host does that has signals blocked.
fn blocking(command: &[String]) -> Vec<String> {
    let prefix = ["python3", "-I", "-S", "-c", BLOCKING].map(String::from);
    [&prefix[..], command].concat()
}

/// A set of signals in /proc/PID/status: `SigBlk`, `SigIgn`, `SigCgt`.
fn set(name: &str, pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .expect("a line");
    u64::from_str_radix(line.trim(), 16).expect("a mask")
}

/// The signals that a process has blocked.
fn blocked(pid: u32) -> u64 {
    set("SigBlk", pid)
}

/// Whether a process ignores SIGHUP.
fn ignores_sighup(pid: u32) -> bool {
    set("SigIgn", pid) & bit(Signal::SIGHUP) != 0
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as u32 - 1)
}

/// Waits until a front listens to signals, in a thread of its own. Nothing tells of that.
fn listens(front: &Front) {
    until("the front listens to signals", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", front.pid())).ok()?;
        let mut names = threads
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
        names.any(|name| name.trim_end() == "signals").then_some(())
    });
}

#[test]
#[ignore = "needs python3"]
fn a_host_that_blocks_sigterm_and_sigchld_has_its_server_kept() {
    let world = keeping("stop_wait_ms = 20000");
    let _daemon = world.daemon();
    let command = blocking(&wrapped(&world, &tiny(&world)));
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    let mask = bit(Signal::SIGTERM) | bit(Signal::SIGCHLD);
    assert_eq!(blocked(backend.pid()), mask, "what its host gave it");
    assert_eq!(blocked(backend.keeper) & mask, 0);

    // Its end is seen, and the next one has the same mask.
    signal(backend.pid(), Signal::SIGKILL);
    client.pipe.errors.wait("the server has ended (");
    assert_eq!(client.count(), 1);
    assert_eq!(blocked(backend.pid()), mask);

    signal(client.pipe.pid(), Signal::SIGTERM);
    let status = client.pipe.wait();
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32), "{status}");
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 2);
    let server = backend.pid();
    signal(backend.keeper, Signal::SIGTERM);
    backend.ended();
    gone(server);
}

#[test]
fn a_host_sees_that_its_front_has_died_of_the_signal() {
    for ending in ENDING_FRONTS {
        let world = keeping("");
        let _daemon = world.daemon();
        let mut client = connect(&world, &tiny(&world));
        assert_eq!(client.count(), 1);
        client.pipe.signal(ending);
        let status = client.pipe.wait();
        assert_eq!(status.signal(), Some(ending as i32), "{status}");
    }
}

#[test]
#[ignore = "needs python3"]
fn a_front_that_runs_its_server_as_it_is_dies_of_what_that_has_died_of() {
    let world = world("");
    let cat = world.wrapping(&["--no-start"], &["cat".into()]);
    for ending in ENDING {
        for command in [cat.clone(), blocking(&cat)] {
            let blocks = command != cat && ending == Signal::SIGTERM;
            let mut front = world.front(&command);
            front.send(b"{}\n");
            assert_eq!(front.line().as_deref(), Some(&b"{}"[..]), "cat runs");
            front.signal(ending);
            if blocks {
                // It was handed on to cat, which has it blocked as its host has.
                front.close();
                assert!(front.wait().success());
            } else {
                let status = front.wait();
                assert_eq!(status.signal(), Some(ending as i32), "{status}");
            }
        }
    }
}

#[test]
#[ignore = "needs python3"]
fn a_signal_that_comes_before_the_first_line_ends_a_front() {
    let world = keeping("");
    let _daemon = world.daemon();
    write_down(&world, &[("a", small(&world))]);
    let patient = [("MCP_SESSIOND_WRAP_FIRST_LINE_WAIT_MS", "600000")];
    for command in [wrapped(&world, &tiny(&world)), all(&world, &[])] {
        for command in [command.clone(), blocking(&command)] {
            for ending in ENDING_FRONTS {
                let mut front = world.front_with(&command, &patient);
                listens(&front);
                front.signal(ending);
                let status = front.wait();
                assert_eq!(status.signal(), Some(ending as i32), "{status}");
            }
        }
    }
    assert!(world.sessions().is_empty(), "nothing was claimed yet");
}

/// Linux has orphans adopted by whoever asks for them.
#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs a process of its own"]
fn a_keeper_ends_in_order_at_sigterm_and_dies_of_the_others() {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::Pid;

    nix::sys::prctl::set_child_subreaper(true).expect("Linux");
    for ending in ENDING {
        let world = keeping("");
        let _daemon = world.daemon();
        let mut client = connect(&world, &tiny(&world));
        assert_eq!(client.count(), 1);
        let backend = world.backend();
        let server = backend.pid();
        signal(backend.keeper, ending);
        gone(backend.keeper);
        let keeper = Pid::from_raw(backend.keeper.cast_signed());
        let status = waitpid(keeper, None).expect("it is our child");
        if ending == Signal::SIGTERM {
            assert_eq!(status, WaitStatus::Exited(keeper, 0));
        } else {
            assert!(
                matches!(status, WaitStatus::Signaled(_, by, _) if by == ending),
                "{status:?}"
            );
        }
        gone(server);
    }
}

#[test]
fn below_nohup_sighup_ends_nobody_and_the_server_ignores_it_too() {
    let world = keeping("");
    let _daemon = world.daemon();
    let command = [&["nohup".to_owned()][..], &wrapped(&world, &tiny(&world))].concat();
    let mut client = Client::connected(world.front(&command));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    let ignoring = |pid| assert!(ignores_sighup(pid), "{pid}");
    for pid in [client.pipe.pid(), backend.keeper, backend.pid()] {
        ignoring(pid);
        signal(pid, Signal::SIGHUP);
    }
    assert_eq!(client.count(), 2, "all three go on");

    // The next one has it from the same host.
    signal(backend.pid(), Signal::SIGKILL);
    client.pipe.errors.wait("the server has ended (");
    assert_eq!(client.count(), 1);
    ignoring(backend.pid());

    client.pipe.signal(Signal::SIGHUP);
    client.pipe.signal(Signal::SIGTERM);
    let status = client.pipe.wait();
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32), "{status}");
}

#[test]
fn below_nohup_a_server_that_is_run_as_it_is_and_a_front_with_several_ignore_sighup() {
    let world = keeping("");
    let nohup = |command: Vec<String>| [vec!["nohup".to_owned()], command].concat();
    let mut front = world.front(&nohup(world.wrapping(&["--no-start"], &["cat".into()])));
    front.send(b"{}\n");
    assert!(front.line().is_some(), "cat runs");
    front.signal(Signal::SIGHUP);
    front.send(b"[]\n");
    assert_eq!(front.line().as_deref(), Some(&b"[]"[..]), "cat runs still");
    front.close();
    assert!(front.wait().success());

    let _daemon = world.daemon();
    write_down(&world, &[("a", small(&world))]);
    let mut client = Client::connected(world.front(&nohup(all(&world, &[]))));
    client.pipe.signal(Signal::SIGHUP);
    client.ping();
    assert!(ignores_sighup(client.pipe.pid()));
}

/// A write beyond the limit of a file's size ends neither front nor keeper; the server has what its host
/// had set.
#[test]
fn the_limit_of_a_files_size_is_the_servers_alone() {
    for (trap, is_ignored) in [("", false), ("trap '' XFSZ; ", true)] {
        let world = keeping("");
        let _daemon = world.daemon();
        let limit = bit(Signal::SIGXFSZ);
        let script = format!("{trap}exec \"$0\" \"$@\"");
        let host = ["sh", "-c", &script].map(String::from);
        let file = world.root().join("heard").display().to_string();
        let server = [env!("CARGO_BIN_EXE_ending-server"), &file, "0"].map(String::from);
        let command = [&host[..], &wrapped(&world, &server)].concat();
        let mut client = Client::connected(world.front(&command));
        client.ping();
        let backend = world.backend();
        for pid in [client.pipe.pid(), backend.keeper] {
            let survives = set("SigCgt", pid) | set("SigIgn", pid);
            assert_eq!(survives & limit, limit, "{trap}");
        }
        let ignores = set("SigIgn", backend.pid()) & limit == limit;
        assert_eq!(ignores, is_ignored, "{trap}");
    }
}
