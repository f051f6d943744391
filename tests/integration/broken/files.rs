//! The files of the daemon's databases, while it runs: deleted, cut short, replaced; and what is in
//! them at the end.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::Path;

use mcp_sessiond_tests::{Daemon, Peer, World, assert_refused, until};
use serde_json::{Value, json};

use crate::world;

const CONTENTS: &str = "contents.db";
const RECORDS: &str = "sessions.db";

/// 64 KiB that are found nowhere else.
const SECRET: &str = "a value that nobody may find";

/// A world with a daemon and a service's session.
fn with_session() -> (World, Daemon, Peer) {
    let world = world("");
    let daemon = world.daemon();
    let mut peer = world.peer();
    peer.call("create_session", of()).expect("made");
    (world, daemon, peer)
}

fn of() -> Value {
    json!({"service": "web", "session": "s"})
}

fn set(peer: &mut Peer, key: &str, value: Option<&str>) -> Result<Value, Value> {
    let write = match value {
        Some(value) => json!({"key": key, "value": json!(value).to_string()}),
        None => json!({"key": key}),
    };
    peer.call("write_state", json!({"of": of(), "writes": [write]}))
}

/// The keys that have values.
fn keys(world: &World) -> Vec<String> {
    let listed = world
        .peer()
        .call("list_state", json!({"of": of()}))
        .expect("listed");
    let keys = listed.as_array().expect("keys").iter();
    keys.map(|one| one["key"].as_str().expect("a key").to_owned())
        .collect()
}

fn remove(directory: &Path, database: &str, suffixes: &[&str]) {
    for suffix in suffixes {
        fs::remove_file(directory.join(format!("{database}{suffix}"))).expect("it was there");
    }
}

/// What can be deleted of a database.
const PARTS: [&[&str]; 4] = [&["", "-wal", "-shm"], &[""], &["-wal"], &["-shm"]];

#[test]
fn contents_that_are_deleted_are_made_again() {
    for parts in PARTS {
        let (world, mut daemon, mut peer) = with_session();
        set(&mut peer, "before", Some("1")).expect("written");
        remove(&world.directory(), CONTENTS, parts);
        set(&mut peer, "after", Some("2")).expect("written");
        daemon.restart();
        assert_eq!(keys(&world), ["after", "before"], "{parts:?}");
        world.log.wait("a file of a database was deleted");
        daemon.stop();
        daemon.start_again();
        assert_eq!(keys(&world), ["after", "before"], "{parts:?}");
    }
}

/// SQLite puts its files beside the target of the symlink.
#[test]
fn deleted_files_are_made_again_also_behind_a_symlink() {
    for parts in PARTS {
        let world = world("");
        let elsewhere = tempfile::tempdir().expect("a directory");
        fs::DirBuilder::new()
            .mode(0o700)
            .create(world.directory())
            .expect("made");
        fs::File::create(elsewhere.path().join(CONTENTS)).expect("an empty one");
        symlink(
            elsewhere.path().join(CONTENTS),
            world.directory().join(CONTENTS),
        )
        .expect("made");
        let mut daemon = world.daemon();
        let mut peer = world.peer();
        peer.call("create_session", of()).expect("made");
        set(&mut peer, "before", Some("1")).expect("written");
        remove(elsewhere.path(), CONTENTS, parts);
        set(&mut peer, "after", Some("2")).expect("written");
        daemon.stop();
        daemon.start_again();
        assert_eq!(keys(&world), ["after", "before"], "{parts:?}");
    }
}

/// The daemon touches no file that it has not made.
#[test]
fn a_file_beside_a_database_is_left_alone() {
    let world = world("");
    let mut daemon = world.daemon();
    for database in [CONTENTS, RECORDS] {
        fs::write(
            world.directory().join(format!("{database}-new")),
            "a copy of the user's",
        )
        .expect("written");
    }
    daemon.restart();
    for database in [CONTENTS, RECORDS] {
        assert!(
            world.directory().join(format!("{database}-new")).exists(),
            "{database}"
        );
    }
}

#[test]
fn contents_that_are_deleted_are_made_again_though_nobody_writes() {
    let (world, mut daemon, mut peer) = with_session();
    set(&mut peer, "before", Some("1")).expect("written");
    remove(&world.directory(), CONTENTS, PARTS[0]);
    // A file that is made again is none that could be watched.
    until("it is there again", || {
        world
            .directory()
            .join("contents.db-wal")
            .exists()
            .then_some(())
    });
    daemon.restart();
    assert_eq!(keys(&world), ["before"]);
    // And though it is about to stop.
    remove(&world.directory(), CONTENTS, &[""]);
    daemon.stop();
    daemon.start_again();
    assert_eq!(keys(&world), ["before"]);
}

#[test]
fn records_that_are_deleted_are_made_again() {
    for parts in PARTS {
        let world = world("");
        let mut daemon = world.daemon();
        let host = world.host();
        let mut first = host.instance(&["--instance", "first"]);
        let session = first.first_run("a token").session();
        remove(&world.directory(), RECORDS, parts);
        let other = host.loaded(&["--instance", "other"]).1.session();
        daemon.restart();
        first.load().assert_resumed(&session, Some("a token"));
        assert!(
            world.sessions().iter().any(|one| one["session"] == other),
            "{parts:?}"
        );
        world.log.wait("a file of a database was deleted");
    }
}

#[test]
fn an_index_that_is_cut_short_kills_nobody() {
    let (world, mut daemon, mut peer) = with_session();
    let pid = daemon.pid();
    for (round, len) in [0, 4_096, 0].into_iter().enumerate() {
        for database in [CONTENTS, RECORDS] {
            let index = world.directory().join(format!("{database}-shm"));
            fs::OpenOptions::new()
                .write(true)
                .open(index)
                .expect("it is there")
                .set_len(len)
                .expect("cut");
        }
        set(&mut peer, &round.to_string(), Some("1")).expect("written");
        peer.claim();
    }
    assert_eq!(world.daemon_pid(), pid);
    daemon.restart();
    assert_eq!(keys(&world), ["0", "1", "2"]);
}

/// Whoever has put another file there wants that one.
#[test]
#[ignore = "needs python3"]
fn contents_that_are_replaced_are_left_alone_and_nothing_is_acknowledged() {
    let (world, mut daemon, mut peer) = with_session();
    let file = world.directory().join(CONTENTS);
    let copied = world.root().join("copy.db");
    let script =
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('VACUUM INTO ?', [sys.argv[2]])";
    let mut copy = std::process::Command::new("python3");
    assert!(
        copy.args(["-c", script])
            .arg(&file)
            .arg(&copied)
            .status()
            .expect("python3")
            .success()
    );
    fs::rename(&copied, &file).expect("replaced");
    let refused = set(&mut peer, "lost", Some("1"))
        .expect_err("it would be lost")
        .to_string();
    assert!(refused.contains("another file has replaced"), "{refused}");
    assert_refused(set(&mut peer, "lost", Some("1")), "unavailable");
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(world.directory().join(format!("{CONTENTS}{suffix}"))).expect("there");
    }
    daemon.stop();
    daemon.start_again();
    assert!(keys(&world).is_empty());
}

/// The files in which the secret is.
fn holding(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("there").flatten() {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        if bytes
            .windows(SECRET.len())
            .any(|part| part == SECRET.as_bytes())
        {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

#[test]
fn what_is_deleted_is_on_no_disk_once_the_daemon_has_stopped() {
    let (world, mut daemon, mut peer) = with_session();
    for round in 0..5 {
        set(&mut peer, "secret", Some(&format!("{round} {SECRET}"))).expect("written");
    }
    assert!(!holding(&world.directory()).is_empty(), "it is kept");
    daemon.stop();
    assert_eq!(
        holding(&world.directory()),
        [CONTENTS],
        "of what there is, there is one copy"
    );
    daemon.start_again();
    let mut peer = world.peer();
    set(&mut peer, "secret", None).expect("removed");
    daemon.stop();
    assert!(
        holding(&world.directory()).is_empty(),
        "{:?}",
        holding(&world.directory())
    );
}

/// Of two files, so nothing tells when both are smaller.
fn len(world: &World) -> u64 {
    let len = |suffix: &str| {
        fs::metadata(world.directory().join(format!("{CONTENTS}{suffix}")))
            .map_or(0, |found| found.len())
    };
    len("") + len("-wal")
}

const MIB: u64 = 1024 * 1024;

/// Writes 32 MiB into the session.
fn fill(peer: &mut Peer) {
    let large = "x".repeat(MIB as usize - 2);
    for round in 0..32 {
        let append =
            json!({"of": of(), "stream": "_GET_stream", "messages": [json!(large).to_string()]});
        peer.call("append", append)
            .unwrap_or_else(|error| panic!("{round}: {error}"));
    }
}

#[test]
#[ignore = "needs python3"]
fn contents_that_are_gone_take_no_room() {
    let limits = "[limits]\nevent_bytes = 67108864\nstream_event_bytes = 67108864\nmessage_bytes = 1048576\n";
    let world = world(limits);
    let mut daemon = world.daemon();
    let mut peer = world.peer();
    peer.call("create_session", of()).expect("made");
    fill(&mut peer);
    assert!(len(&world) > 32 * MIB);
    peer.call("reset_session", of()).expect("emptied");
    until("the file is smaller", || {
        (len(&world) < 4 * MIB).then_some(())
    });
    // A file of a former daemon, which could not be made smaller, is from the next start on.
    daemon.stop();
    let script = "import sqlite3, sys; base = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
                  base.execute('PRAGMA auto_vacuum = 0'); base.execute('VACUUM')";
    let mut former = std::process::Command::new("python3");
    let file = world.directory().join(CONTENTS);
    assert!(
        former
            .args(["-c", script])
            .arg(&file)
            .status()
            .expect("python3")
            .success()
    );
    daemon.start_again();
    let mut peer = world.peer();
    fill(&mut peer);
    assert!(len(&world) > 32 * MIB);
    peer.call("terminate_session", of()).expect("ended");
    until("the file is smaller", || {
        (len(&world) < 4 * MIB).then_some(())
    });
}
