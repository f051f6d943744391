//! `sessions.db` is damaged, gone, or of another version, while keepers hold servers: there is never a second server beside the first.

use std::fs;
use std::path::Path;

use mcp_sessiond_tests::{World, assert_refused, gone, lives, signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{Curious, assert_bad, is_well};
use crate::world;
use crate::wrap::{connect, tiny};

const DATABASE: &str = "sessions.db";

fn remove(directory: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(directory.join(format!("{DATABASE}{suffix}")));
    }
}

fn is_garbage(directory: &Path) {
    remove(directory);
    fs::write(directory.join(DATABASE), "no database at all, and longer than a header: ".repeat(99))
        .expect("ours");
}

fn is_newer(directory: &Path) {
    let script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version = 99')";
    let mut newer = std::process::Command::new("python3");
    let done = newer.args(["-c", script]).arg(directory.join(DATABASE)).status();
    assert!(done.expect("python3").success());
}

/// The servers that run in this world, without fronts and keepers.
fn servers(world: &World) -> Vec<u32> {
    let is_server = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
        program.windows(6).any(|part| part == b"python")
    };
    world.processes().into_iter().filter(is_server).collect()
}

/// Has the records spoilt while a keeper holds a server, starts a daemon, and looks at what there is.
#[track_caller]
fn assert_one_server(spoil: fn(&Path), why: &str, is_attached: bool, is_hung: bool) {
    let world = world("claim_wait_ms = 5000\n");
    let mut daemon = world.daemon();
    let mut first = connect(&world, &tiny(&world));
    assert_eq!(first.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    if !is_attached {
        backend.cut_off(&mut first.pipe);
    }
    daemon.kill();
    spoil(&world.directory());
    if is_hung {
        signal(backend.keeper, Signal::SIGSTOP);
    }
    daemon.start_again();
    assert!(!lives(server) && !lives(backend.keeper), "they are gone before anybody is answered");
    let line = daemon.log().wait("servers_ended=1");
    assert!(line.contains(why), "{line}");
    let mut client = if is_attached { first } else { connect(&world, &tiny(&world)) };
    assert_eq!(client.count(), 1, "the host has a server, a fresh one");
    assert_eq!(servers(&world).len(), 1);
    assert_eq!(world.backends().len(), 1);
    let bad = assert_bad(&world, "records");
    assert!(bad.contains(why) && bad.contains("1 kept servers were ended"), "{bad}");
    let sockets = fs::read_dir(world.directory().join("keepers")).expect("there").count();
    assert_eq!(sockets, 1, "no socket of the former keeper is left");
    // The next daemon has good records, and finds the server that there is.
    daemon.restart();
    assert!(is_well(&world, "records"));
    assert_eq!((client.count(), servers(&world).len()), (2, 1));
}

#[test]
fn garbage() {
    assert_one_server(is_garbage, "file is not a database", false, false);
}

#[test]
fn another_version() {
    assert_one_server(is_newer, "version is 99", false, false);
}

#[test]
fn gone_altogether() {
    assert_one_server(remove, "not on record", false, false);
}

#[test]
fn a_front_that_is_attached_gets_a_fresh_server() {
    assert_one_server(is_garbage, "file is not a database", true, false);
}

#[test]
fn a_keeper_that_hangs_is_ended_too() {
    assert_one_server(is_garbage, "file is not a database", false, true);
}

/// Only what leads a session of processes, as a keeper does, is ended.
#[test]
fn somebody_else_who_listens_there_is_left_alone() {
    let world = world("");
    world.daemon().stop();
    let path = world.directory().join("keepers").join("0000000a");
    let script = "use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die; \
                  $| = 1; print 'x'; <STDIN>";
    let mut command = std::process::Command::new("perl");
    command.args(["-e", script]).arg(&path);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut other = command.spawn().expect("perl");
    let mut said = [0];
    std::io::Read::read_exact(other.stdout.as_mut().expect("piped"), &mut said).expect("it listens");
    let daemon = world.daemon();
    daemon.log().wait("was left alone");
    assert!(lives(other.id()) && path.symlink_metadata().is_ok());
    drop(other.stdin.take());
    other.wait().expect("ours");
    gone(other.id());
}

/// A claim is not kept waiting by whoever holds the database.
#[test]
fn records_that_can_not_be_written_are_said_and_got_over() {
    let world = world("");
    let _daemon = world.daemon();
    let curious = Curious::holds(&world);
    let mut peer = world.peer();
    let refused = assert_refused(peer.call("claim", json!({})), "unavailable").to_string();
    assert!(refused.contains("sessions.db"), "{refused}");
    drop(curious);
    until("it goes on", || peer.call("claim", json!({})).ok());
    until("it is well", || is_well(&world, "records").then_some(()));
}
