//! The token files: what can't be trusted is deleted, told, and never offered to a broker; what
//! can't be written is refused, and the former token stays.

mod mishaps;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use mcp_sessiond_tests::{Peer, SmallDisk, World, start_time, until};
use serde_json::{Value, json};

use self::mishaps::{MISHAPS, Mishap, mode};
use crate::{needs_root, world};

/// Of a file or a directory, without its kind.
fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path)
        .expect("there")
        .permissions()
        .mode()
        & 0o7777
}

#[test]
fn a_file_holds_the_token_and_nothing_else() {
    let world = world("");
    let _daemon = world.daemon();
    let (host, other) = (world.host(), world.host());
    let mut names = Vec::new();
    for (of, number) in [(&host, 1), (&host, 2), (&host, 3), (&other, 1)] {
        let mut instance = of.instance(&[&number.to_string()]);
        let session = instance.first_run("the token").session();
        let file = world.token_file(&session);
        assert_eq!(fs::read(&file).expect("readable"), b"the token");
        let found = fs::symlink_metadata(&file).expect("there");
        assert!(found.is_file() && found.uid() == nix::unistd::geteuid().as_raw());
        assert_eq!(mode_of(&file), 0o600);
        let name = file
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let start = start_time(of.pid());
        let suffix = if number == 1 {
            String::new()
        } else {
            format!("-{number}")
        };
        assert_eq!(name, format!("token-{}-{start}{suffix}", of.pid()));
        names.push(name);
    }
    for directory in [world.directory(), world.directory().join("tokens")] {
        assert_eq!(mode_of(&directory), 0o700);
    }
    assert_eq!(
        world.token_files().len(),
        names.len(),
        "nothing else is left there"
    );
}

/// Returns when all records are kept. They are kept in order, and a store does not wait for its
/// last one: when the claim of another host is on record, so is that.
fn settled(world: &World) {
    drop(world.host().loaded(&[]));
}

/// Whether the file was there when the store ended has to be on record: else it might never have
/// been.
#[test]
fn a_first_token_that_goes_while_no_daemon_runs_was_there() {
    for restarts in [0, 1, 2] {
        let world = world("");
        let mut daemon = world.daemon();
        let host = world.host();
        let mut instance = host.instance(&[]);
        let session = instance.first_run("one").session();
        let file = world.token_file(&session);
        // Nothing else is put on record of the session meanwhile: its holder lives.
        for _ in 0..restarts {
            daemon.restart();
        }
        settled(&world);
        daemon.kill();
        fs::remove_file(&file).expect("it was there");
        daemon.start_again();
        instance.kill();
        let (_next, loaded) = host.loaded(&[]);
        assert_eq!(
            (loaded.token.as_deref(), loaded.session()),
            (None, session),
            "{restarts}"
        );
        assert_eq!(
            world.stat("tokens_corrupted_total"),
            1,
            "after {restarts} restarts"
        );
        host.log.wait("Token file corrupted, treating as stale");
    }
}

/// Somebody puts back what was stored before: that is not what was stored last.
#[test]
fn a_former_token_that_is_put_back_while_no_daemon_runs_is_not_offered() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut instance = host.instance(&[]);
    let session = instance.first_run("one").session();
    instance.store("two");
    let file = world.token_file(&session);
    settled(&world);
    daemon.kill();
    fs::write(file, "one").expect("written");
    daemon.start_again();
    instance.kill();
    let (_next, loaded) = host.loaded(&[]);
    assert_eq!(loaded.token, None);
    assert_eq!(world.stat("tokens_corrupted_total"), 1);
}

/// Stores a token, has something happen to its file, and starts the next instance: it must not be
/// offered anything.
fn assert_corrupted(world: &World, mishaps: &[Mishap]) {
    let host = world.host();
    for (count, (name, mishap)) in (1..).zip(mishaps) {
        let mut instance = host.instance(&[name]);
        let session = instance.first_run("hunter1").session();
        instance.store("hunter2");
        let file = world.token_file(&session);
        instance.kill();
        mishap(&file);
        let (mut next, loaded) = host.loaded(&[name]);
        assert_eq!(
            (loaded.token.as_deref(), loaded.session()),
            (None, session),
            "{name}"
        );
        assert!(
            fs::symlink_metadata(&file).is_err(),
            "{name}: it was not deleted"
        );
        assert_eq!(world.stat("tokens_corrupted_total"), count, "{name}");
        let said = "Token file corrupted, treating as stale";
        let times = usize::try_from(count).expect("few");
        for log in [&host.log, &world.log] {
            log.wait_count(said, times);
            assert_eq!(log.lines(said).len(), times, "{name}");
        }
        // And all goes on.
        next.store("hunter3");
        next.kill();
        assert_eq!(
            host.instance(&[name]).load().token.as_deref(),
            Some("hunter3"),
            "{name}"
        );
    }
    // Nothing of a token stands in any log.
    for log in [&world.log, &host.log] {
        assert!(log.lines("hunter").is_empty(), "{}", log.text());
    }
}

#[test]
fn what_can_not_be_trusted_is_deleted_and_never_offered() {
    let world = world("");
    let _daemon = world.daemon();
    assert_corrupted(&world, &MISHAPS);
}

#[test]
#[ignore = "needs root"]
fn a_file_of_another_user_is_not_trusted() {
    needs_root("to give a file away");
    let world = world("");
    let _daemon = world.daemon();
    assert_corrupted(
        &world,
        &[("somebody else's", |file| {
            chown(file, Some(65_534), Some(65_534)).expect("root");
        })],
    );
}

#[test]
fn a_file_that_is_gone_is_told_as_corrupted() {
    let world = world("");
    let _daemon = world.daemon();
    assert_corrupted(
        &world,
        &[("gone", |file| fs::remove_file(file).expect("removed"))],
    );
}

#[test]
fn files_that_belong_to_nobody_are_swept_at_the_start() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut instance = host.instance(&[]);
    let session = instance.first_run("mine").session();
    let tokens = world.directory().join("tokens");
    for name in ["token-1-1", "token-4194304-7-2", "new-token-1-1"] {
        fs::write(tokens.join(name), "left over").expect("written");
    }
    daemon.restart();
    assert_eq!(world.token_files().len(), 1);
    assert_eq!(
        fs::read(world.token_file(&session)).expect("there"),
        b"mine"
    );
}

#[test]
fn a_token_directory_that_is_removed_is_made_again() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut instance = host.holder(&[], "one");
    fs::remove_dir_all(world.directory().join("tokens")).expect("removed");
    assert_eq!(instance.load().token, None);
    host.log.wait("Token file corrupted, treating as stale");
    instance.store("two");
    assert_eq!(instance.load().token.as_deref(), Some("two"));
    assert_eq!(mode_of(&world.directory().join("tokens")), 0o700);
}

#[test]
fn a_token_directory_that_others_may_enter_is_not_used() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut instance = host.holder(&[], "one");
    let tokens = world.directory().join("tokens");
    mode(&tokens, 0o755);
    assert!(!instance.try_store("two").done);
    host.log.wait("Failed to write token file: ");
    daemon.kill();
    // Never repaired.
    let mut refused = world.start(&[]);
    assert_eq!(refused.wait().code(), Some(70));
    assert!(
        world.log.text().contains("0755 instead of 0700"),
        "{}",
        world.log.text()
    );
    mode(&tokens, 0o700);
    daemon.start_again();
    assert_eq!(instance.load().token.as_deref(), Some("one"));
}

#[test]
#[ignore = "needs root"]
fn on_a_full_disk_the_former_token_stays() {
    needs_root("to mount a small file system");
    let world = world("");
    let _daemon = world.daemon();
    let tokens = world.directory().join("tokens");
    let _disk = SmallDisk::mount(&tokens, "64k");
    let host = world.host();
    let large = "x".repeat(40_000);
    let mut instance = host.holder(&[], &large);
    for _ in 0..5 {
        assert!(
            !instance.try_store(&"y".repeat(40_000)).done,
            "there is no room for a second one"
        );
        assert_eq!(instance.load().token.as_ref(), Some(&large));
        assert_eq!(world.token_files().len(), 1, "nothing unfinished is left");
    }
    host.log
        .wait("Failed to write token file: No space left on device");
    world
        .log
        .wait("Failed to write token file: No space left on device");
    assert_eq!(world.stat("tokens_failed_total"), 5);
    instance.store("small");
    instance.kill();
    assert_eq!(host.instance(&[]).load().token.as_deref(), Some("small"));
}

/// What can be neither written nor read can't be settled either, until it is mended.
#[test]
fn where_the_files_cannot_be_used_for_a_while_the_former_token_stays() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let tokens = world.directory().join("tokens");
    for restarted in [false, true] {
        let (mut instance, _) = host.loaded(&[]);
        instance.store("one");
        mode(&tokens, 0o755);
        for late in ["two", "three"] {
            assert!(!instance.try_store(late).done);
        }
        mode(&tokens, 0o700);
        if restarted {
            daemon.restart();
        }
        assert_eq!(instance.load().token.as_deref(), Some("one"));
        instance.kill();
    }
}

#[test]
#[ignore = "needs root"]
fn on_a_disk_that_is_full_for_the_ledger_too_nothing_acknowledged_is_lost() {
    needs_root("to mount a small file system");
    let world = world("");
    let directory = world.directory();
    fs::create_dir(&directory).expect("made");
    let _disk = SmallDisk::mount(&directory, "2m");
    let mut daemon = world.daemon();
    let mut peer = world.peer();
    let claimed = peer.claim();
    peer.store(&claimed, "AAAA").expect("there is room");
    let filler = directory.join("filler");
    assert!(
        fs::write(&filler, vec![1; 4 << 20]).is_err(),
        "the disk is full now"
    );
    let kept = store_until_refused(&mut peer, &claimed, "AAAA");
    let again = peer.call("claim", json!({}));
    assert!(again.is_err() || again.is_ok_and(|held| held["token"] == kept));
    fs::remove_file(&filler).expect("room again");
    // Nothing tells of room on a disk.
    until("it goes on", || peer.store(&claimed, "DDDD").ok());
    daemon.restart();
    let held = world.peer().claim();
    assert_eq!(
        (&held["session"], &held["token"]),
        (&claimed["session"], &json!("DDDD"))
    );
}

/// Stores tokens until three were refused for want of room. Returns the last one that was stored,
/// at first `kept`.
fn store_until_refused<'a>(peer: &mut Peer, claimed: &Value, mut kept: &'a str) -> &'a str {
    let mut refused = 0;
    // The ledger may have some room in its own files still.
    for n in 0..2_000 {
        let token = if n % 2 == 0 { "BBBB" } else { "CCCC" };
        match peer.store(claimed, token) {
            Ok(_) => kept = token,
            Err(error) => {
                let code = error["code"].as_str().expect("text");
                assert!(["unavailable", "write_failed"].contains(&code), "{error}");
                refused += 1;
            }
        }
        if refused == 3 {
            break;
        }
    }
    assert_eq!(refused, 3, "a full disk has to show");
    kept
}

#[test]
fn a_token_of_version_1_is_adopted_once() {
    let world = world("");
    let old = world.root().join("version-1");
    fs::create_dir(&old).expect("made");
    mode(&old, 0o700);
    world.configure(&format!(
        "adopt_version_1 = {:?}",
        old.display().to_string()
    ));
    let _daemon = world.daemon();
    let host = world.host();
    let name = format!("token-{}-{}", host.pid(), start_time(host.pid()));
    let file = old.join(&name);
    fs::write(&file, "of version 1").expect("written");
    mode(&file, 0o600);
    let mut first = host.instance(&["first"]);
    assert_eq!(first.load().token.as_deref(), Some("of version 1"));
    assert!(!file.exists(), "it must not be had twice");
    first.store("of version 2");
    host.log.wait("Session resumed successfully");
    host.instance(&["second"]).load().assert_fresh();
    first.kill();
    assert_eq!(
        host.instance(&["first"]).load().token.as_deref(),
        Some("of version 2")
    );
}
