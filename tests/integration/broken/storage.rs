//! A storage of contents that can't be used: claims, tokens and backends don't need it.

use std::fs;

use mcp_sessiond_tests::{Client, World, assert_refused, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{assert_bad, assert_tokens_are_kept, is_well};
use crate::world;
use crate::wrap::{connect, tiny, wrapped};

const GARBAGE: &str = "no database at all, and longer than a header of SQLite's is, by far: ";

fn create(world: &World) -> Result<Value, Value> {
    world
        .peer()
        .call("create_session", json!({"service": "web", "session": "s"}))
}

/// Everything but the contents goes on, and the contents' calls say what is wrong.
#[track_caller]
fn assert_contents_alone_are_away(world: &World, why: &str) {
    assert_tokens_are_kept(world);
    let mut client = connect(world, &tiny(world));
    assert_eq!(client.count(), 1);
    let backend = world.backend();
    backend.cut_off(&mut client.pipe);
    let mut client = connect(world, &tiny(world));
    assert_eq!(client.count(), 2, "it was kept");
    client.pipe.close();
    let refused = assert_refused(create(world), "unavailable").to_string();
    assert!(refused.contains(why), "{refused}");
    assert!(
        refused.contains("what sessions contain can't be read or written now: "),
        "{refused}"
    );
    let bad = assert_bad(world, "storage");
    assert!(bad.contains(why), "{bad}");
    assert_eq!(world.stat("storage_failing"), 1);
    // What is known without the contents is shown.
    let shown = world
        .sessiond(&["debug", "sessions", "--json"])
        .output()
        .expect("debug");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert!(!shown.as_array().expect("sessions").is_empty(), "{shown}");
    assert_eq!(
        world
            .log
            .lines("the storage of the sessions' contents can't be used")
            .len(),
        1
    );
    world
        .sessiond(&["stop", &world.backend().session])
        .output()
        .expect("stopped");
    world.nothing_left();
}

#[test]
fn a_damaged_database_stops_nothing_else_and_comes_back_once_it_is_gone() {
    let world = world("");
    world.daemon().stop();
    let file = world.directory().join("contents.db");
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(world.directory().join(format!("contents.db{suffix}")));
    }
    fs::write(&file, GARBAGE.repeat(99)).expect("ours");
    let daemon = world.daemon();
    assert_contents_alone_are_away(&world, "move the file away");
    fs::rename(&file, world.directory().join("damaged.db")).expect("moved");
    // The daemon tries again in its own time, and tells nobody.
    until("the contents are back", || create(&world).ok());
    assert!(is_well(&world, "storage"));
    assert_eq!(world.stat("storage_failing"), 0);
    assert_eq!(daemon.log().lines(" ready ").len(), 1, "without a restart");
}

#[test]
fn a_database_where_there_is_no_directory_stops_nothing_else() {
    let world = world("");
    let missing = world.root().join("missing");
    world.configure(&format!(
        "storage.url = \"sqlite:{}\"",
        missing.join("contents.db").display()
    ));
    let _daemon = world.daemon();
    assert_contents_alone_are_away(&world, "No such file or directory");
    fs::create_dir(missing).expect("made");
    // The daemon tries again in its own time, and tells nobody.
    until("the contents are there", || create(&world).ok());
}

#[test]
#[ignore = "needs python3"]
fn what_a_newer_daemon_has_written_is_left_alone_and_stops_nothing_else() {
    let world = world("");
    world.daemon().stop();
    let file = world.directory().join("contents.db");
    let script =
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA user_version = 99')";
    let mut newer = std::process::Command::new("python3");
    assert!(
        newer
            .args(["-c", script])
            .arg(&file)
            .status()
            .expect("python3")
            .success()
    );
    let _daemon = world.daemon();
    assert_contents_alone_are_away(&world, "version 99");
}

/// As a shared storage that can't be reached, or that this build does not have.
#[test]
fn a_shared_storage_that_can_not_be_had_stops_nothing_else() {
    for (url, why) in [
        ("postgres://nobody@127.0.0.1:1/nowhere", "storage.url"),
        // Where there is a region, there is no such endpoint.
        ("dynamodb:nowhere?endpoint=http://127.0.0.1:1", ""),
    ] {
        let world = world(&format!("storage.url = \"{url}\""));
        let daemon = world.daemon();
        daemon
            .log()
            .wait("the storage of the sessions' contents can't be used");
        assert_contents_alone_are_away(&world, why);
    }
}

/// Wherever in a URL a password may stand, with whatever in it.
#[test]
fn no_password_in_a_url_is_shown() {
    for url in [
        "postgres://me@127.0.0.1:1/nowhere?password=hunter@2",
        "postgres://127.0.0.1:1/nowhere?user=me&password=hunter@2",
        "postgres://me:hunter@2@127.0.0.1:1/nowhere",
    ] {
        let world = world(&format!("storage.url = \"{url}\""));
        let daemon = world.daemon();
        daemon
            .log()
            .wait("the storage of the sessions' contents can't be used");
        for verb in [&["config"][..], &["debug", "about"], &["doctor"]] {
            for form in [verb.to_vec(), [verb, &["--json"]].concat()] {
                let shown = world.sessiond(&form).output().expect("the command");
                let shown =
                    String::from_utf8_lossy(&[shown.stdout, shown.stderr].concat()).into_owned();
                assert!(!shown.contains("hunter"), "{url}, {form:?}: {shown}");
                assert!(
                    shown.contains("127.0.0.1:1") || verb == ["doctor"],
                    "{url}, {form:?}: {shown}"
                );
            }
        }
        assert!(daemon.log().lines("hunter").is_empty());
    }
}

#[test]
fn a_corrected_url_counts_without_a_restart() {
    let world = world("storage.url = \"sqlite:/no/such/directory/contents.db\"");
    let daemon = world.daemon();
    assert_refused(create(&world), "unavailable");
    let better = world.root().join("better.db");
    world.configure(&format!("storage.url = \"sqlite:{}\"", better.display()));
    daemon.signal(Signal::SIGHUP);
    // The daemon tries again in its own time, and tells nobody.
    until("the contents are there", || create(&world).ok());
    assert!(better.exists());
    assert_eq!(
        world.about()["storage"],
        format!("sqlite:{}", better.display())
    );
}

/// `run` refuses it; behind a daemon that a client starts there is a host that waits.
#[test]
fn a_configuration_that_can_not_be_read_is_no_reason_to_keep_a_host_waiting() {
    for (text, is_known) in [
        ("claim_wait_ms = \n", false),
        ("idle_exit_ms = 61234\nlinger = 5\n", true),
    ] {
        let world = world(text);
        let run = world.sessiond(&["run"]).output().expect("run");
        assert_eq!(run.status.code(), Some(64));
        let mut client = Client::connected(world.front(&wrapped(&world, &tiny(&world))));
        assert_eq!(client.count(), 1);
        assert_eq!(world.backends().len(), 1, "it is kept");
        let bad = assert_bad(&world, "config");
        assert!(
            bad.contains("config.toml: line ") && bad.contains("kill -HUP"),
            "{bad}"
        );
        assert!(
            bad.contains("; settings that can't be read have their defaults"),
            "{bad}"
        );
        // Where the contents are kept is known, or nothing of them is written anywhere else.
        let created = create(&world);
        assert_eq!(created.is_ok(), is_known, "{created:?}");
        assert_eq!(world.directory().join("contents.db").exists(), is_known);
        let config = world
            .peer()
            .call("settings", json!({}))
            .expect("settings")
            .to_string();
        assert_eq!(config.contains("61234"), is_known, "{config}");
        world.configure("");
        let daemon = nix::unistd::Pid::from_raw(world.daemon_pid().cast_signed());
        nix::sys::signal::kill(daemon, Signal::SIGHUP).expect("ours");
        // The daemon tells nobody that it has read it, nor that the storage is there.
        until("it is corrected", || {
            is_well(&world, "config").then_some(())
        });
        until("the contents are there", || {
            world.peer().call("list_contents", json!({})).ok()
        });
        client.pipe.close();
        world.kill_any_daemon();
    }
}
