//! The daemon is killed with SIGKILL under writers of state and events: what was acknowledged is
//! there, no number is given twice, and nothing is missing in between, with a redo log and without
//! one. With `durability = "power"` the files are cut back to their last fsync, too.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use mcp_sessiond_process::fault::{CONTENTS_COMMIT, REDO_COMMITTED, REDO_WRITTEN, VARIABLE};
use mcp_sessiond_tests::{Daemon, RetryingPeer, World, gone, random, until};
use serde_json::json;

use crate::writers::{check, some_progress, write_under};
use crate::{BINARIES, fixture, world};

const KILLS: u32 = 200;

/// Nothing is pruned here, so every number must be found.
const NOTHING_PRUNED: &str =
    "[limits]\nevents = 1000000\nstream_events = 1000000\nstate_keys = 100000\n";

#[test]
#[ignore = "needs a quiet machine"]
fn nothing_acknowledged_is_lost_in_200_kills() {
    let world = world(NOTHING_PRUNED);
    kill_under_writers(&world, &[(CONTENTS_COMMIT, 60)]);
}

/// As in `/run/user/UID`: what was acknowledged is in the redo log, or in the database, or in both.
#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs a quiet machine"]
fn nothing_acknowledged_is_lost_in_200_kills_where_there_is_a_redo_log() {
    let world = in_memory();
    world.configure(NOTHING_PRUNED);
    // A commit has what came in 10 ms, so there are fewer.
    kill_under_writers(&world, &[(CONTENTS_COMMIT, 6), (REDO_WRITTEN, 60)]);
    let found = world.log.lines(FROM_THE_LOG).len();
    assert!(
        found > KILLS as usize / 10,
        "the log had something for the database {found} times"
    );
}

/// Until it happened some times, the daemon is killed at its start, too: the database has what the
/// log had, and the log is as it was.
#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs a quiet machine"]
fn what_the_redo_log_had_is_done_once_though_the_start_was_killed() {
    let world = in_memory();
    world.configure(NOTHING_PRUNED);
    let mut daemon = world.daemon();
    let mut random = random();
    let written = write_under(&[&world], &mut random, |random, done| {
        for _ in 0..KILLS / 10 {
            some_progress(done, random);
            daemon.restart_with(&[(VARIABLE, &format!("{REDO_WRITTEN}:{}", random.u32(0..60)))]);
            gone(daemon.pid());
            daemon.wait();
            // If the database happens to have everything, it is not killed.
            daemon.start_with(&[(VARIABLE, REDO_COMMITTED)]);
            until("it is killed at its start, or lets somebody in", || {
                daemon
                    .ended()
                    .map(drop)
                    .or_else(|| UnixStream::connect(world.socket()).ok().map(drop))
            });
            daemon.kill();
            daemon.start_again();
        }
    });
    daemon.restart();
    check(&world, &written);
    let found = world.log.lines(FROM_THE_LOG).len();
    assert!(
        found > KILLS as usize / 20,
        "the log had something for the database {found} times"
    );
}

/// What the daemon says when its redo log had something for the database.
const FROM_THE_LOG: &str = "the database got what its redo log had for it";

/// A world whose runtime directory is in the machine's memory.
#[cfg(target_os = "linux")]
fn in_memory() -> World {
    World::within(&BINARIES, Path::new("/dev/shm"))
}

/// The points, and how often each is passed at most.
fn kill_under_writers(world: &World, points: &[(&str, u32)]) {
    let mut daemon = world.daemon();
    let mut random = random();
    let written = write_under(&[world], &mut random, |random, done| {
        for round in 0..KILLS {
            if round % 2 == 0 {
                some_progress(done, random);
                daemon.kill();
            } else {
                gone(daemon.pid());
                daemon.wait();
            }
            let (point, most) = random.choice(points).expect("a point");
            let fault = format!("{point}:{}", random.u32(0..*most));
            let variables = [(VARIABLE, fault.as_str())];
            // The one that comes next is killed at its point, and the one after that at any moment.
            daemon.start_with(if round % 2 == 0 { &variables } else { &[] });
        }
    });
    daemon.restart();
    check(world, &written);
}

#[test]
#[ignore = "needs a quiet machine"]
fn nothing_acknowledged_is_lost_when_the_power_goes() {
    let world = power_world("power");
    let mut daemon = start_synced(&world);
    let mut random = random();
    let written = write_under(&[&world], &mut random, |random, done| {
        for _ in 0..KILLS {
            some_progress(done, random);
            daemon.kill();
            cut_back(&world);
            daemon.start_again();
        }
    });
    daemon.kill();
    cut_back(&world);
    daemon.start_again();
    check(&world, &written);
}

/// What the test above would find if nothing were synced.
#[test]
fn without_that_durability_the_power_takes_what_was_not_synced() {
    let world = power_world("process");
    let mut daemon = start_synced(&world);
    let mut caller = RetryingPeer::new(world.socket());
    caller.done("create_session", json!({"service": "web", "session": "s"}));
    daemon.restart();
    caller.done("get_session", json!({"service": "web", "session": "s"}));
    daemon.kill();
    cut_back(&world);
    daemon.start_again();
    let (lost, _) = caller.call("get_session", &json!({"service": "web", "session": "s"}));
    assert_eq!(
        lost.expect_err("it was not synced")["code"],
        "unknown_session"
    );
}

/// A world whose sessions are kept outside of the runtime directory.
fn power_world(durability: &str) -> World {
    let world = world("");
    let database = database(&world);
    for directory in [database.parent().expect("a directory"), &shadow(&world)] {
        std::fs::create_dir(directory).expect("a directory");
    }
    world.configure(&format!(
        "[storage]\nurl = \"sqlite:{}\"\ndurability = \"{durability}\"\n[limits]\nevents = 1000000\nstream_events = 1000000\n",
        database.display()
    ));
    world
}

fn database(world: &World) -> PathBuf {
    world.root().join("disk").join("contents.db")
}

/// Where files are as they were when they were synced last.
fn shadow(world: &World) -> PathBuf {
    world.root().join("synced")
}

/// A daemon whose every fsync is witnessed.
fn start_synced(world: &World) -> Daemon {
    let library = world.root().join("witness.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(fixture("harness/witness.c"))
        .arg("-ldl")
        .status()
        .expect("cc is installed");
    assert!(compiled.success());
    let mut command = world.sessiond(&["run"]);
    command
        .env("LD_PRELOAD", library)
        .env("WITNESS_OF", world.root().join("disk"))
        .env("WITNESS_IN", shadow(world));
    let daemon = world.spawn(command);
    daemon.ready();
    daemon
}

/// Leaves of each file what was synced last, as if the power had gone.
fn cut_back(world: &World) {
    let database = database(world);
    let directory = database.parent().expect("a directory");
    for name in ["contents.db", "contents.db-wal", "contents.db-shm"] {
        let (file, synced) = (directory.join(name), shadow(world).join(name));
        let _ = std::fs::remove_file(&file);
        if synced.exists() {
            copy(&synced, &file);
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("copied");
}
