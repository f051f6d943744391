//! A full disk: what was set aside is used up first; then it is said at once, and got over once
//! there is room.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use mcp_sessiond_tests::{SmallDisk, World, assert_refused, until};
use serde_json::json;

use super::{assert_bad, assert_tokens_are_kept, is_well};
use crate::wrap::{connect, tiny};
use crate::{needs_root, world};

const MIB: u64 = 1024 * 1024;

const NO_ROOM: &str = "No space left on device (os error 28)";

/// A world whose runtime directory has a file system of its own. What sessions contain is
/// elsewhere.
fn small() -> World {
    needs_root("to mount a small file system");
    let world = world("storage.url = \"memory:\"\nclaim_wait_ms = 200\n");
    fs::create_dir(world.directory()).expect("made");
    world
}

/// Leaves no byte free.
fn fill(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    let mut file = fs::File::create(&path).expect("a file");
    let full = std::io::copy(&mut std::io::repeat(1), &mut file).expect_err("no disk is endless");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    path
}

fn ballast(world: &World) -> u64 {
    fs::metadata(world.directory().join("ballast")).map_or(0, |found| found.len())
}

#[test]
#[ignore = "needs root"]
fn claims_go_on_for_a_while_then_it_is_said_and_then_got_over() {
    let world = small();
    let directory = world.directory();
    let _disk = SmallDisk::mount(&directory, "4m");
    let daemon = world.daemon();
    assert_eq!(ballast(&world), MIB);
    let host = world.host();
    let mut holder = host.instance(&["holder"]);
    let session = holder.first_run("one").session();
    let mut peer = world.peer();
    let claimed = peer.claim();
    let first = fill(&directory, "first");
    // There is room for this, in what was set aside.
    let (_, other) = host.loaded(&["other"]);
    other.assert_fresh();
    let mut stored = 0;
    let mut fillers = vec![first];
    let refused = loop {
        match peer.store(&claimed, "AAAA") {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        // Whoever fills the disk goes on with it.
        fillers.push(fill(&directory, &format!("filler-{stored}")));
        assert!(stored < 10_000, "a full disk has to show");
    };
    assert!(stored > 10, "{stored}");
    assert_eq!(ballast(&world), 0);
    assert_eq!(
        (&refused["code"], &refused["sentence"]),
        (&json!("write_failed"), &json!(NO_ROOM))
    );
    daemon.log().wait("space that it had reserved");
    daemon.log().wait("could not write sessions.db");
    // Whoever claims is told so, and does not wait.
    let refused = assert_refused(
        world.peer().call("claim", json!({"label": "new"})),
        "unavailable",
    )
    .to_string();
    assert!(refused.contains("is full"), "{refused}");
    assert!(
        refused.contains("the daemon can't write its records (sessions.db): the disk of "),
        "{refused}"
    );
    let disabled = host.instance(&["late"]).load().disabled.expect("disabled");
    assert!(disabled.contains("is full"), "{disabled}");
    assert_eq!(world.stat("records_failing"), 1);
    assert!(assert_bad(&world, "records").contains("is full"));
    // The server says what it always said.
    assert!(!holder.try_store("two").done);
    host.log
        .wait(&format!("Failed to write token file: {NO_ROOM}"));
    assert_eq!(
        host.log.lines("Resume token not stored"),
        Vec::<String>::new()
    );
    // So does the command, which has to claim first.
    let mut command = world.sessiond(&["token", "store"]);
    let mut command = command
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("token");
    command
        .stdin
        .take()
        .expect("piped")
        .write_all(b"four")
        .expect("it reads");
    let said = command.wait_with_output().expect("token");
    let (code, said) = (
        said.status.code(),
        String::from_utf8_lossy(&said.stderr).into_owned(),
    );
    assert!(
        said.contains("Failed to write token file: ") && said.contains("is full"),
        "{said}"
    );
    assert_eq!((code, said.lines().count()), (Some(4), 1), "{said}");

    for filler in fillers {
        fs::remove_file(filler).expect("room again");
    }
    // Nothing tells of room on a disk, nor of what is set aside, which is a new file.
    until("it goes on", || peer.store(&claimed, "BBBB").ok());
    until("it is set aside again", || {
        (ballast(&world) == MIB).then_some(())
    });
    assert!(is_well(&world, "records"));
    assert_eq!(world.stat("records_failing"), 0);
    until("the holder stores", || {
        holder.try_store("three").done.then_some(())
    });
    holder.kill();
    host.instance(&["holder"])
        .load()
        .assert_resumed(&session, Some("three"));
    assert_eq!(
        daemon.log().lines(" ready ").len(),
        1,
        "it is the same daemon"
    );
}

/// The daemon's ballast also makes room for a database that has to be made again.
#[test]
#[ignore = "needs root"]
fn records_that_are_deleted_on_a_full_disk_are_made_again() {
    let world = small();
    let directory = world.directory();
    let _disk = SmallDisk::mount(&directory, "4m");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut holder = host.instance(&["holder"]);
    let session = holder.first_run("one").session();
    fill(&directory, "filler");
    fs::remove_file(directory.join("sessions.db-shm")).expect("it was there");
    let (_, other) = host.loaded(&["other"]);
    other.assert_fresh();
    assert!(ballast(&world) < MIB);
    daemon.restart();
    holder.kill();
    host.instance(&["holder"])
        .load()
        .assert_resumed(&session, Some("one"));
}

/// One that is started on demand has its log on the same disk. It starts there before there is
/// anything, too.
#[test]
#[ignore = "needs root"]
fn a_daemon_that_is_started_on_demand_on_a_full_disk() {
    let world = small();
    let directory = world.directory();
    let _disk = SmallDisk::mount(&directory, "4m");
    let filler = fill(&directory, "filler");
    let host = world.host();
    let disabled = host
        .instance(&["--start"])
        .load()
        .disabled
        .expect("disabled");
    assert!(disabled.contains("is full"), "{disabled}");
    assert!(assert_bad(&world, "records").contains("is full"));
    let daemon = world.daemon_pid();
    // A server can't be kept then, and runs.
    let mut client = connect(&world, &tiny(&world));
    assert_eq!(client.count(), 1);
    client.pipe.errors.wait("is full");
    client.pipe.close();
    fs::remove_file(filler).expect("room again");
    // Nothing tells of room on a disk, nor of what is set aside, which is a new file.
    until("it goes on", || world.peer().call("claim", json!({})).ok());
    assert_tokens_are_kept(&world);
    assert_eq!(world.daemon_pid(), daemon);
    world.kill_any_daemon();
}

/// What is set aside is enough for the next daemon to start, too.
#[test]
#[ignore = "needs root"]
fn a_daemon_that_is_killed_on_a_full_disk_is_followed_by_another() {
    let world = small();
    let directory = world.directory();
    let _disk = SmallDisk::mount(&directory, "4m");
    for is_killed in [true, false] {
        let mut daemon = world.daemon();
        let host = world.host();
        let mut holder = host.instance(&[]);
        let session = holder.first_run("one").session();
        // A file that is yet to be made can't be watched.
        until("it is set aside", || (ballast(&world) == MIB).then_some(()));
        let filler = fill(&directory, "filler");
        if is_killed {
            daemon.kill();
        } else {
            assert!(daemon.stop().success());
        }
        daemon.start_again();
        holder.kill();
        host.instance(&[])
            .load()
            .assert_resumed(&session, Some("one"));
        fs::remove_file(filler).expect("room again");
    }
}

/// Not even an empty database fits: the daemon starts, says so, and goes on when there is room.
#[test]
#[ignore = "needs root"]
fn a_first_start_on_a_full_disk() {
    let world = small();
    let directory = world.directory();
    let _disk = SmallDisk::mount(&directory, "4m");
    let filler = fill(&directory, "filler");
    let daemon = world.daemon();
    let host = world.host();
    let disabled = host.instance(&[]).load().disabled.expect("disabled");
    assert!(disabled.contains("is full"), "{disabled}");
    assert!(assert_bad(&world, "records").contains("is full"));
    // Nothing was claimed; what can't be stored is said as ever.
    let mut late = host.instance(&["late"]);
    assert!(!late.try_store("one").done);
    host.log.wait("Failed to write token file: ");
    fs::remove_file(filler).expect("room again");
    // Nothing tells of room on a disk, nor of what is set aside, which is a new file.
    until("it goes on", || world.peer().call("claim", json!({})).ok());
    until("it is set aside", || (ballast(&world) == MIB).then_some(()));
    assert_tokens_are_kept(&world);
    assert_eq!(
        daemon.log().lines(" ready ").len(),
        1,
        "it is the same daemon"
    );
}

/// Freeing ballast can't help here, and the daemon does not try for ever.
#[test]
fn a_database_that_can_not_be_opened_is_reported_at_once() {
    let world = world("");
    fs::create_dir_all(world.directory().join("sessions.db/in the way")).expect("made");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(world.directory(), mode).expect("it is ours");
    let output = world.sessiond(&["run"]).output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("sessions.db"),
        "{said}"
    );
}
