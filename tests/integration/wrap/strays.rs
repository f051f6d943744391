//! What a server has started and leaves behind: as it would be if the host had started the server
//! itself.

use std::fs;

use mcp_sessiond_process::fault::LOOK_VARIABLE;
use mcp_sessiond_tests::{Client, Front, World, gone, lives, signal, until};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use super::{close, connect, counter, gate, keeping, tiny};
use crate::shared::{entry, write_down};

/// A process that a server has started.
struct Started {
    pid: u32,
    told: String,
}

impl Started {
    fn by(world: &World, client: &mut Client<Front>, how: &str) -> Self {
        let (file, told) = (
            gate(world, &format!("{how}.pid")),
            gate(world, &format!("{how}.told")),
        );
        client.call("spawn", json!({"how": how, "file": file, "told": told}));
        Self {
            pid: fs::read_to_string(file)
                .expect("a file")
                .parse()
                .expect("a pid"),
            told,
        }
    }

    /// It has had a SIGTERM, and is gone.
    fn ended(&self) {
        gone(self.pid);
        assert_eq!(
            fs::read_to_string(&self.told).ok().as_deref(),
            Some("SIGTERM")
        );
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if lives(self.pid) {
            signal(self.pid, Signal::SIGKILL);
        }
    }
}

fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.expect("a line").trim().parse().expect("a pid")
}

fn all(world: &World, client: &mut Client<Front>) -> [Started; 3] {
    ["child", "detached", "orphan"].map(|how| Started::by(world, client, how))
}

/// The user's browser, opened for a login, is nobody's child any more, and in a session of its own.
#[test]
fn a_server_that_exits_by_itself_leaves_its_orphans_behind() {
    let world = keeping("closed_linger_ms = 50\nstop_wait_ms = 20000");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    let [child, detached, orphan] = all(&world, &mut client);
    let backend = world.backend();
    close(client);
    backend.ended();
    child.ended();
    detached.ended();
    assert!(lives(orphan.pid) && !fs::exists(&orphan.told).expect("known"));
}

#[test]
fn a_server_that_is_killed_takes_everything_with_it() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    let started = all(&world, &mut client);
    signal(world.backend().pid(), Signal::SIGKILL);
    started.iter().for_each(Started::ended);
    assert_eq!(client.count(), 1, "there is a fresh one");
}

#[test]
fn a_server_that_has_to_be_ended_takes_everything_with_it() {
    let world = keeping("closed_linger_ms = 50\nstop_wait_ms = 200");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    let started = all(&world, &mut client);
    let told = gate(&world, "told");
    client.call("ignore", json!({"told": told}));
    let backend = world.backend();
    close(client);
    backend.ended();
    started.iter().for_each(Started::ended);
    assert_eq!(fs::read_to_string(told).ok().as_deref(), Some("SIGTERM"));
}

/// A keeper that is told to end while nobody is attached.
#[test]
fn what_nobody_can_come_back_to_ends_with_all_that_it_has_started() {
    let world = keeping("stop_wait_ms = 100");
    let _daemon = world.daemon();
    let mut client = connect(&world, &counter(&world));
    let started = all(&world, &mut client);
    let told = gate(&world, "told");
    client.call("ignore", json!({"told": told}));
    let backend = world.backend();
    close(client);
    backend.wait_alone();
    signal(backend.keeper, Signal::SIGTERM);
    backend.ended();
    started.iter().for_each(Started::ended);
    assert_eq!(fs::read_to_string(told).ok().as_deref(), Some("SIGTERM"));
}

/// A wrapper below a kept server has started a daemon, and servers that are the user's.
#[test]
fn a_keeper_or_a_daemon_that_a_kept_server_has_started_outlives_it() {
    let world = keeping("stop_wait_ms = 2000");
    let mut daemon = world.daemon();
    write_down(&world, &json!({"crowd": entry(&world)}));
    let quoted = |words: Vec<String>| words.join("' '");
    let named = quoted(world.wrapping(&["--name", "page"], &tiny(&world)));
    let shared = quoted(world.wrapping(&[], &["@crowd".into()]));
    let (server, own) = (quoted(tiny(&world)), world.binaries.daemon);
    let [go, started, orphan] = ["go", "started", "orphan"].map(|name| gate(&world, name));
    mkfifo(&*go, Mode::S_IRWXU).expect("a pipe with a name");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }});
    let script = format!(
        "(read go <'{go}'
          '{own}' run --on-demand
          echo '{hello}' | '{named}'
          echo '{hello}' | '{shared}'
          sh -c 'exec sh -c \"echo \\$\\$ >{orphan}; exec sleep 1000\" &'
          : >'{started}') >/dev/null 2>&1 &
         exec '{server}'"
    );
    let mut client = connect(&world, &["sh".into(), "-c".into(), script]);
    assert_eq!(client.count(), 1);
    let outer = world.backend();
    daemon.kill();
    fs::write(go, "\n").expect("somebody reads");
    until("all is started", || {
        fs::exists(&started).expect("known").then_some(())
    });
    world.wait_backends(3);
    let inner = world.backends().into_iter();
    let inner: Vec<_> = inner.filter(|one| one.keeper != outer.keeper).collect();
    let daemon = world.daemon_pid();
    for ours in inner.iter().map(|one| one.keeper).chain([daemon]) {
        assert_eq!(parent(ours), outer.keeper);
    }
    let orphan = until("it says its pid", || {
        fs::read_to_string(&orphan).ok()?.trim().parse().ok()
    });

    signal(outer.pid(), Signal::SIGKILL);
    gone(orphan);
    assert_eq!(client.count(), 1, "there is a fresh one");
    client.pipe.kill();
    signal(outer.keeper, Signal::SIGTERM);
    outer.ended();
    assert_eq!(world.daemon_pid(), daemon);
    assert_eq!(world.backends().len(), 2);
    for kept in inner {
        assert!(lives(kept.pid()));
    }
}

/// A server with a name waits 8 hours for a host, which could not find it.
#[test]
fn a_keeper_whose_directory_is_gone_ends_with_its_server() {
    let world = keeping("");
    let mut daemon = world.daemon();
    let words = world.wrapping(&["--name", "page"], &tiny(&world));
    let mut client = Client::connected(world.front_with(&words, &[(LOOK_VARIABLE, "50")]));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    backend.cut_off(&mut client.pipe);
    daemon.kill();
    fs::remove_dir_all(world.directory()).expect("it is ours");
    gone(backend.keeper);
    gone(server);
}

/// One with a host that works goes on until the host leaves.
#[test]
fn a_keeper_whose_directory_is_gone_goes_on_while_its_front_is_there() {
    let world = keeping("");
    let mut daemon = world.daemon();
    let words = world.wrapping(&["--name", "page"], &tiny(&world));
    let mut client = Client::connected(world.front_with(&words, &[(LOOK_VARIABLE, "50")]));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    daemon.kill();
    fs::remove_dir_all(world.directory()).expect("it is ours");
    // It would have looked by now, which nothing tells.
    assert_eq!((2..60).map(|_| client.count()).last(), Some(59));
    assert!(lives(backend.keeper));
    client.pipe.kill();
    gone(backend.keeper);
}

/// Nobody comes back for them.
#[test]
fn keepers_end_with_the_world_of_a_test() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    backend.cut_off(&mut client.pipe);
    signal(backend.keeper, Signal::SIGSTOP);
    drop(world);
    gone(backend.keeper);
}
