//! What is large: messages up to the bound, and a flood that nobody reads.

use mcp_sessiond_proto::backends::RELAYED_MAX;
use mcp_sessiond_tests::{Backend, Pipe as _, Raw, signal, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{connect, connect_raw, keeping, raw_backend, tiny};

/// A request of so many bytes.
fn padded(id: u64, bytes: usize) -> String {
    let (start, end) = (
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x","params":{{"pad":""#),
        r#""}}"#,
    );
    let padding = "x".repeat(bytes - start.len() - end.len());
    start + &padding + end
}

#[track_caller]
fn assert_too_large(answer: &Value) {
    assert!(
        answer["error"]["message"]
            .as_str()
            .is_some_and(|why| why.contains("`wrap.message_max_mib`")),
        "{answer}"
    );
}

#[test]
fn a_message_of_the_largest_size_arrives_and_one_byte_more_is_refused() {
    for (settings, max) in [
        ("", RELAYED_MAX),
        ("[wrap]\nmessage_max_mib = 20", 20 * 1024 * 1024),
    ] {
        a_message_of_so_many_bytes_arrives_and_one_byte_more_is_refused(settings, max);
    }
}

fn a_message_of_so_many_bytes_arrives_and_one_byte_more_is_refused(settings: &str, max: usize) {
    let world = keeping(settings);
    let _daemon = world.daemon();
    let (raw, mut client) = connect_raw(&world);
    let longest = |raw: &Raw| raw.heard().iter().map(Vec::len).max();

    client.last = 100;
    client.pipe.write(&padded(100, max));
    assert!(client.answer(100).get("result").is_some());
    assert_eq!(longest(&raw), Some(max + 1), "with its newline");
    client.pipe.write(&padded(101, max + 1));
    assert_too_large(&client.answer(101));
    assert_eq!(longest(&raw), Some(max + 1), "the server has not heard it");

    client.last = 101;
    let pad = client.request("pad", json!({"bytes": max}));
    let answer = client.answer(pad);
    assert!(
        answer["result"]["pad"]
            .as_str()
            .is_some_and(|pad| pad.len() > max - 100),
        "{pad}"
    );
    let pad = client.request("pad", json!({"bytes": max + 1}));
    let answer = client.answer(pad);
    assert_too_large(&answer);
    // It was carried out.
    assert_eq!(answer["error"]["data"]["outcome"], "not_kept", "{answer}");

    // It goes on with the same server.
    client.ping();
    assert_eq!(world.backend().status().restarts, 0);
}

/// What a process has allocated, in KiB. The pages of its program are the file's own, and come and
/// go.
fn allocated_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let kib = |name: &str| -> u64 {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .expect(name);
        line.trim()
            .trim_end_matches(" kB")
            .parse()
            .expect("a number")
    };
    kib("RssAnon:") + kib("VmSwap:")
}

/// Some buffers of each kind: 4.4 MiB were measured. What flows through is 20 MB at least.
const BOUND_KIB: u64 = 12 * 1024;

/// Asserts that neither the keeper nor its front is larger than that: when all of their buffers are
/// full, and afterwards.
#[track_caller]
fn assert_small(backend: &Backend, front: u32) {
    let allocated = [allocated_kib(backend.keeper), allocated_kib(front)];
    assert!(
        allocated.iter().all(|kib| *kib < BOUND_KIB),
        "{allocated:?} KiB"
    );
}

/// Waits until a count has been the same for 200 looks. Returns it.
fn until_it_stands_still(what: &str, count: impl Fn() -> u64) -> u64 {
    // A pipe that is full tells nobody that it is.
    let (mut seen, mut looks) = (0, 0);
    until(what, || {
        let now = count();
        looks = if now == seen { looks + 1 } else { 0 };
        seen = now;
        (looks > 200).then_some(seen)
    })
}

#[test]
fn a_flood_that_nobody_reads_costs_no_memory_and_arrives_whole() {
    const LINES: u64 = 20_000;
    let (_world, _daemon, _raw, mut client, backend) = raw_backend();
    let flood = client.request("flood", json!({"lines": LINES, "bytes": 10_000}));
    let seen = until_it_stands_still("the server has to wait", || {
        backend.status().from_backend.bytes
    });
    assert!((1..100 * 10_000).contains(&seen), "{seen} bytes were read");
    assert_small(&backend, client.pipe.pid());
    for n in 0..LINES {
        let line = client.pipe.line().expect("a line");
        assert!(line.len() > 10_000);
        let told: Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(told["params"]["n"], n);
    }
    assert!(client.answer(flood).get("result").is_some());
    assert_small(&backend, client.pipe.pid());
}

/// The other way: a server that does not read.
#[test]
fn a_server_that_does_not_read_costs_no_memory() {
    const LINES: u64 = 2_000;
    let (_world, _daemon, raw, mut client, backend) = raw_backend();
    let server = backend.pid();
    signal(server, Signal::SIGSTOP);
    let front = client.pipe.pid();
    std::thread::scope(|scope| {
        // Whoever writes has to wait as well.
        let line = format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "method": "n", "params": "x".repeat(10_000)})
        );
        let mut input = client.pipe.input();
        let writing = scope.spawn(move || {
            (0..LINES).for_each(|_| {
                std::io::Write::write_all(&mut input, line.as_bytes()).expect("the front reads on");
            });
        });
        until_it_stands_still("the host has to wait", || backend.status().to_backend.bytes);
        assert!(!writing.is_finished());
        assert_small(&backend, front);
        signal(server, Signal::SIGCONT);
        writing.join().expect("written");
    });
    client.ping();
    assert_small(&backend, client.pipe.pid());
    let arrived = raw
        .heard()
        .iter()
        .filter(|line| line.len() > 10_000)
        .count() as u64;
    assert_eq!(arrived, LINES);
}

/// Nothing says when: it happens once nobody has said anything for two seconds, and once the daemon
/// has run for five.
#[test]
#[cfg(target_os = "linux")]
fn what_front_keeper_and_daemon_needed_only_to_start_is_given_back() {
    let world = keeping("");
    let daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    // In KiB: now, or at its highest (proc_pid_status(5)).
    let held = |pid: u32, what: &str| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(what))
            .expect("a line");
        line.split_whitespace()
            .next()
            .and_then(|kib| kib.parse().ok())
            .expect("a number")
    };
    for pid in [client.pipe.pid(), world.backend().keeper, daemon.pid()] {
        until("it has less than two thirds of it", || {
            (held(pid, "VmRSS:") * 3 < held(pid, "VmHWM:") * 2).then_some(())
        });
    }
    assert_eq!(client.count(), 2, "what is needed again comes back");
}

/// The inodes of the sockets that a process watches for room (epoll(7), proc_pid_fdinfo(5)).
#[cfg(target_os = "linux")]
fn watched_for_room(pid: u32) -> Vec<String> {
    const EPOLLOUT: u32 = 4;
    let (infos, fds) = (format!("/proc/{pid}/fdinfo"), format!("/proc/{pid}/fd"));
    let mut found = Vec::new();
    for info in std::fs::read_dir(infos).expect("it lives").flatten() {
        // It may have been closed since.
        let text = std::fs::read_to_string(info.path()).unwrap_or_default();
        for line in text.lines().filter(|line| line.starts_with("tfd:")) {
            let mut words = line.split_whitespace();
            let (Some(fd), Some(events)) = (words.nth(1), words.nth(1)) else {
                panic!("{line}")
            };
            let events = u32::from_str_radix(events, 16).expect("a mask");
            let what = std::fs::read_link(format!("{fds}/{fd}")).unwrap_or_default();
            let what = what.to_string_lossy();
            if events & EPOLLOUT > 0
                && let Some(inode) = what.strip_prefix("socket:[")
            {
                found.push(inode.trim_end_matches(']').into());
            }
        }
    }
    found
}

/// The inodes of the connections that processes have accepted in this directory (proc_net_unix(5)).
#[cfg(target_os = "linux")]
fn accepted_in(directory: &std::path::Path) -> Vec<String> {
    const CONNECTED: &str = "03";
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("sockets");
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., state, inode, path] = words[..] else {
            return None;
        };
        let is_there = state == CONNECTED && std::path::Path::new(path).starts_with(directory);
        is_there.then(|| inode.to_owned())
    };
    sockets.lines().filter_map(of).collect()
}

/// Who watches a socket for room is woken whenever the other end has read something, which is twice
/// for each call.
#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs root"]
fn no_connection_is_watched_for_room_while_there_is_room() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let keepers = world.directory().join("keepers");
    until("the front has closed what it needs to attach", || {
        watched_for_room(client.pipe.pid()).is_empty().then_some(())
    });
    let accepted = until("it is attached", || {
        Some(accepted_in(&keepers)).filter(|accepted| !accepted.is_empty())
    });
    assert_eq!(client.count(), 2);
    assert_eq!(watched_for_room(client.pipe.pid()), [""; 0]);
    let watched = watched_for_room(world.backend().keeper);
    let of_front = |inode: &&String| accepted.contains(inode);
    assert_eq!(watched.iter().find(of_front), None);
}
