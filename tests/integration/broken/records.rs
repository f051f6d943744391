//! `sessions.db` is damaged, gone, or of another version, while keepers hold servers: there is
//! never a second server beside the first.

use std::fs;
use std::path::Path;

use mcp_sessiond_proto::backends::{Attach, KeeperReply, KeeperRequest, Remembered};
use mcp_sessiond_proto::{Epoch, Error};
use mcp_sessiond_proxy::keeper::dial::{DialError, dial};
use mcp_sessiond_tests::{Client, Host, Server, assert_refused, gone, lives, signal, until};
use nix::sys::signal::Signal;
use serde_json::json;

use super::{Curious, is_well, noted};
use crate::world;
use crate::wrap::{connect, servers, tiny};

const DATABASE: &str = "sessions.db";

fn remove(directory: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(directory.join(format!("{DATABASE}{suffix}")));
    }
}

fn is_garbage(directory: &Path) {
    remove(directory);
    fs::write(
        directory.join(DATABASE),
        "no database at all, and longer than a header: ".repeat(99),
    )
    .expect("ours");
}

fn is_newer(directory: &Path) {
    let script =
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version = 99')";
    let mut newer = std::process::Command::new("python3");
    let done = newer
        .args(["-c", script])
        .arg(directory.join(DATABASE))
        .status();
    assert!(done.expect("python3").success());
}

/// What a keeper is when a daemon begins that has lost its records.
#[derive(Clone, Copy, PartialEq)]
enum Keeps {
    /// Its front is there.
    Attached,
    /// Its front has gone, and may come back: nothing tells any more who else might.
    Waiting,
}

/// Has the records spoilt while a keeper holds a server, starts a daemon, and looks at what there
/// is.
#[track_caller]
fn assert_one_server(spoil: fn(&Path), why: &str, keeps: Keeps) {
    let world = world("claim_wait_ms = 5000\n");
    let mut daemon = world.daemon();
    let mut first = connect(&world, &tiny(&world));
    assert_eq!(first.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    if keeps != Keeps::Attached {
        backend.cut_off(&mut first.pipe);
    }
    daemon.kill();
    spoil(&world.directory());
    let was_there = world.directory().join(DATABASE).exists();
    daemon.start_again();
    let is_kept = keeps == Keeps::Attached;
    let (adopted, ended) = if is_kept { (1, 0) } else { (0, 1) };
    let line = daemon.log().wait(&format!(
        "servers_found_again={adopted} servers_ended={ended}"
    ));
    assert!(line.contains(why), "{line}");
    let aside = world.directory().join("sessions.db.set-aside");
    assert_eq!(aside.exists(), was_there);
    let is_gone = !lives(server) && !lives(backend.keeper);
    assert_eq!(
        is_gone, !is_kept,
        "what is not kept is gone before anybody is answered"
    );
    let mut client = if is_kept {
        first
    } else {
        connect(&world, &tiny(&world))
    };
    let next = if is_kept { 2 } else { 1 };
    assert_eq!(client.count(), next, "the host has its server");
    assert_eq!(servers(&world).len(), 1);
    assert_eq!(world.backends().len(), 1);
    let noted = noted(&world, "records");
    assert!(
        noted.contains(why) && noted.contains(&format!("{adopted} kept servers were found again")),
        "{noted}"
    );
    assert!(
        noted.contains("sessions.db was not what an earlier daemon had left "),
        "{noted}"
    );
    let sockets = fs::read_dir(world.directory().join("keepers"))
        .expect("there")
        .filter(|entry| entry.as_ref().expect("readable").file_name() != "locks")
        .count();
    assert_eq!(sockets, 1, "no socket of a former keeper is left");
    // The next daemon has good records, and finds the server that there is; and so does the next
    // front, unless the server was only kept for the former one.
    daemon.restart();
    assert!(is_well(&world, "records"));
    assert_eq!((client.count(), servers(&world).len()), (next + 1, 1));
    let backend = world.backend();
    client.pipe.kill();
    if is_kept {
        backend.ended();
    } else {
        backend.wait_alone();
    }
    assert_eq!(
        connect(&world, &tiny(&world)).count(),
        if is_kept { 1 } else { next + 2 }
    );
}

#[test]
fn garbage() {
    assert_one_server(is_garbage, "file is not a database", Keeps::Waiting);
}

#[test]
#[ignore = "needs python3"]
fn another_version() {
    assert_one_server(is_newer, "version is 99", Keeps::Waiting);
}

#[test]
fn gone_altogether() {
    assert_one_server(remove, "it was missing", Keeps::Waiting);
}

#[test]
fn a_front_that_is_attached_keeps_its_server() {
    assert_one_server(is_garbage, "file is not a database", Keeps::Attached);
}

/// A keeper that is stopped can't say whose its server is. It is left alone; once it goes on, it
/// goes on for its front, too.
#[test]
fn a_keeper_that_is_stopped_is_not_ended() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    daemon.kill();
    is_garbage(&world.directory());
    signal(backend.keeper, Signal::SIGSTOP);
    daemon.start_again();
    let from = daemon.log();
    from.wait("servers_found_again=0 servers_ended=0");
    from.wait("does not answer, and is waited for");
    assert!(lives(backend.keeper) && lives(server));
    signal(backend.keeper, Signal::SIGCONT);
    from.wait("has a wrapper, and ends with it");
    assert_eq!(client.count(), 2);
    assert!(lives(server));
}

/// Without a front nobody could come back to it.
#[test]
fn a_keeper_that_was_stopped_is_ended_once_it_goes_on_without_a_front() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    let server = backend.pid();
    backend.cut_off(&mut client.pipe);
    daemon.kill();
    is_garbage(&world.directory());
    signal(backend.keeper, Signal::SIGSTOP);
    daemon.start_again();
    daemon.log().wait("does not answer, and is waited for");
    assert_eq!(connect(&world, &tiny(&world)).count(), 1);
    assert!(lives(backend.keeper));
    signal(backend.keeper, Signal::SIGCONT);
    gone(backend.keeper);
    gone(server);
}

/// A front that has its lease from the daemon before, and attaches only now, claims again: nobody
/// else knows of that lease.
#[test]
fn leases_of_the_former_daemon_are_stale_once_a_keeper_was_asked_whose_it_is() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    daemon.kill();
    let asked =
        |request: &KeeperRequest| dial(backend.socket(), request).map(|dialled| dialled.reply);
    let Ok(KeeperReply::Remembered(Remembered {
        record: Some(_),
        epoch,
        front: Some(front),
        ..
    })) = asked(&KeeperRequest::Remember {})
    else {
        panic!("it has a copy")
    };
    assert_eq!(front.pid, client.pipe.pid());
    let session = backend.session.parse().expect("an id");
    // The next one after that of the front. While the daemon is away it would do.
    let stale = Epoch(epoch.0 - 999);
    let attach = Attach {
        session,
        epoch: stale,
        initialize: None,
        service: None,
        continues: false,
        refuses_after_loss: false,
        lost_is_told: false,
        lost: None,
    };
    let refused = asked(&KeeperRequest::Attach(attach));
    let is_stale = |error: &DialError| matches!(error, DialError::Refused(Error::StaleEpoch { newest, .. }) if *newest == epoch);
    assert!(refused.as_ref().is_err_and(is_stale), "{refused:?}");
    assert_eq!(
        client.count(),
        2,
        "and the front that is there notices nothing"
    );
}

/// What keepers give back belongs to whom it belonged: nobody else is led to it, whether its front
/// is there or not.
#[test]
fn what_is_found_again_is_its_hosts_and_its_fronts() {
    let world =
        world("claim_wait_ms = 50\n[backends]\nlinger_ms = 600000\nclosed_linger_ms = 600000\n");
    let mut daemon = world.daemon();
    let (mut gone, lasting) = (world.host(), world.host());
    // A front that leaves would start a daemon before the test does.
    let wrapping = world.wrapping(&["--no-start"], &tiny(&world));
    let start = |host: &Host| Client::<Server>::connected(host.front(&wrapping));
    let mut of_gone = start(&gone);
    assert_eq!((of_gone.count(), of_gone.count()), (1, 2));
    let mut of_lasting = start(&lasting);
    assert_eq!(of_lasting.count(), 1);
    // The user's own is nobody's, and belongs to no host.
    let named = world.wrapping(&["--no-start", "--name", "own"], &tiny(&world));
    let mut users: Client<Server> = Client::connected(gone.front(&named));
    assert_eq!((users.count(), users.count(), users.count()), (1, 2, 3));
    daemon.kill();
    gone.kill();
    is_garbage(&world.directory());
    daemon.start_again();
    // What is on the page comes from keepers' sockets, too.
    until("what belonged to the host that is gone is gone", || {
        (servers(&world).len() == 2).then_some(())
    });
    let mut users: Client<Server> = Client::connected(lasting.front(&named));
    assert_eq!(users.count(), 4);
    // Its front is there, so it is nobody's who comes second.
    let mut second = start(&lasting);
    assert_eq!(second.count(), 1);
    assert_eq!(of_lasting.count(), 2);
}

/// Only what leads a session of processes, as a keeper does, is ended.
#[test]
#[ignore = "needs perl"]
fn somebody_else_who_listens_there_is_left_alone() {
    let world = world("");
    world.daemon().stop();
    let path = world.directory().join("keepers").join("0000000a");
    let script = "use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die; \
                  $| = 1; print 'x'; <STDIN>";
    let mut command = std::process::Command::new("perl");
    command.args(["-e", script]).arg(&path);
    command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut other = command.spawn().expect("perl");
    let mut said = [0];
    std::io::Read::read_exact(other.stdout.as_mut().expect("piped"), &mut said)
        .expect("it listens");
    let daemon = world.daemon();
    daemon.log().wait("was left alone");
    assert!(lives(other.id()) && path.symlink_metadata().is_ok());
    drop(other.stdin.take());
    other.wait().expect("ours");
    gone(other.id());
}

/// A claim is not kept waiting by whoever holds the database.
#[test]
#[ignore = "needs python3"]
fn records_that_can_not_be_written_are_said_and_got_over() {
    let world = world("");
    let _daemon = world.daemon();
    let curious = Curious::holds(&world);
    let mut peer = world.peer();
    let refused = assert_refused(peer.call("claim", json!({})), "unavailable").to_string();
    let said = "the daemon can't write its records (sessions.db): the disk does not answer";
    assert!(refused.contains(said), "{refused}");
    drop(curious);
    // The daemon tries again in its own time, and tells nobody.
    until("it goes on", || peer.call("claim", json!({})).ok());
    until("it is well", || is_well(&world, "records").then_some(()));
}
