//! The token files: what can't be trusted is deleted, told, and never offered to a broker; what can't be written is
//! refused, and the former token stays.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use mcp_sessiond_tests::{World, until};
use nix::sys::stat::Mode;
use serde_json::json;

use crate::{needs_root, world};

#[test]
fn a_file_holds_the_token_and_nothing_else() {
    let world = world("");
    let _daemon = world.daemon();
    let (host, other) = (world.host(), world.host());
    let mut names = Vec::new();
    for (of, number) in [(&host, 1), (&host, 2), (&host, 3), (&other, 1)] {
        let mut instance = of.instance(&[&number.to_string()]);
        instance.load().assert_fresh();
        let session = instance.store("the token").session();
        let file = world.token_file(&session);
        assert_eq!(fs::read(&file).expect("readable"), b"the token");
        let found = fs::symlink_metadata(&file).expect("there");
        assert!(found.is_file() && found.uid() == nix::unistd::geteuid().as_raw());
        assert_eq!(found.permissions().mode() & 0o7777, 0o600);
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let start = start_of(of.pid());
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        assert_eq!(name, format!("token-{}-{start}{suffix}", of.pid()));
        names.push(name);
    }
    for directory in [world.directory(), world.directory().join("tokens")] {
        assert_eq!(fs::metadata(directory).expect("there").permissions().mode() & 0o7777, 0o700);
    }
    assert_eq!(world.token_files().len(), names.len(), "nothing else is left there");
}

/// Field 22 of /proc/PID/stat.
fn start_of(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19)).expect("22 fields").to_owned()
}

/// What can happen to a file, each with a name.
type Mishap = (&'static str, fn(&Path));

const MISHAPS: [Mishap; 14] = [
    ("other content", |file| overwrite(file, b"hunter4")),
    ("a token of its past", |file| overwrite(file, b"hunter1")),
    ("cut off", |file| overwrite(file, b"hunter")),
    ("more behind it", |file| overwrite(file, b"hunter2\n")),
    ("empty", |file| overwrite(file, b"")),
    ("one byte too large", |file| overwrite(file, &[b'x'; 65_537])),
    ("huge", |file| {
        let file = fs::File::options().write(true).open(file);
        file.and_then(|file| file.set_len(1 << 40)).expect("sparse");
    }),
    ("readable by the group", |file| mode(file, 0o640)),
    ("writable by all", |file| mode(file, 0o622)),
    ("set-uid", |file| mode(file, 0o4600)),
    ("not writable", |file| mode(file, 0o400)),
    ("a symlink to the very token", |file| {
        let elsewhere = file.with_extension("elsewhere");
        fs::rename(file, &elsewhere).expect("moved");
        symlink(&elsewhere, file).expect("a link");
    }),
    ("a directory", |file| {
        fs::remove_file(file).expect("removed");
        fs::create_dir(file).expect("made");
    }),
    ("a pipe that nobody writes to", |file| {
        fs::remove_file(file).expect("removed");
        nix::unistd::mkfifo(file, Mode::S_IRUSR | Mode::S_IWUSR).expect("made");
    }),
];

fn overwrite(file: &Path, content: &[u8]) {
    fs::write(file, content).expect("written");
}

fn mode(file: &Path, mode: u32) {
    fs::set_permissions(file, Permissions::from_mode(mode)).expect("changed");
}

/// Stores a token, has something happen to its file, and starts the next instance: it must not be offered anything.
fn assert_corrupted(world: &World, mishaps: &[Mishap]) {
    let host = world.host();
    for (count, (name, mishap)) in (1..).zip(mishaps) {
        let mut instance = host.instance(&[name]);
        let session = instance.load().assert_fresh().session();
        instance.store("hunter1");
        instance.store("hunter2");
        let file = world.token_file(&session);
        instance.kill();
        mishap(&file);
        let mut next = host.instance(&[name]);
        let loaded = next.load();
        assert_eq!((loaded.token.as_deref(), loaded.session()), (None, session), "{name}");
        assert!(fs::symlink_metadata(&file).is_err(), "{name}: it was not deleted");
        assert_eq!(world.stat("tokens_corrupted_total"), count, "{name}");
        until("both have said so", || {
            let theirs = host.log.lines("Token file corrupted, treating as stale").len();
            let ours = world.log.lines("Token file corrupted, treating as stale").len();
            (theirs == usize::try_from(count).ok()? && ours == theirs).then_some(())
        });
        // And all goes on.
        next.store("hunter3");
        next.kill();
        assert_eq!(host.instance(&[name]).load().token.as_deref(), Some("hunter3"), "{name}");
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
fn a_file_of_another_user_is_not_trusted() {
    needs_root("to give a file away");
    let world = world("");
    let _daemon = world.daemon();
    assert_corrupted(
        &world,
        &[("somebody else's", |file| chown(file, Some(65_534), Some(65_534)).expect("root"))],
    );
}

#[test]
fn a_file_that_is_gone_is_told_as_corrupted() {
    let world = world("");
    let _daemon = world.daemon();
    assert_corrupted(&world, &[("gone", |file| fs::remove_file(file).expect("removed"))]);
}

#[test]
fn files_that_belong_to_nobody_are_swept_at_the_start() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut instance = host.instance(&[]);
    instance.load().assert_fresh();
    let session = instance.store("mine").session();
    let tokens = world.directory().join("tokens");
    for name in ["token-1-1", "token-4194304-7-2", "new-token-1-1"] {
        fs::write(tokens.join(name), "left over").expect("written");
    }
    daemon.restart();
    assert_eq!(world.token_files().len(), 1);
    assert_eq!(fs::read(world.token_file(&session)).expect("there"), b"mine");
}

#[test]
fn a_token_directory_that_is_removed_is_made_again() {
    let world = world("");
    let _daemon = world.daemon();
    let host = world.host();
    let mut instance = host.instance(&[]);
    instance.load().assert_fresh();
    instance.store("one");
    fs::remove_dir_all(world.directory().join("tokens")).expect("removed");
    assert_eq!(instance.load().token, None);
    host.log.wait("Token file corrupted, treating as stale");
    instance.store("two");
    assert_eq!(instance.load().token.as_deref(), Some("two"));
    assert_eq!(
        fs::metadata(world.directory().join("tokens")).expect("made").permissions().mode() & 0o7777,
        0o700
    );
}

#[test]
fn a_token_directory_that_others_may_enter_is_not_used() {
    let world = world("");
    let mut daemon = world.daemon();
    let host = world.host();
    let mut instance = host.instance(&[]);
    instance.load().assert_fresh();
    instance.store("one");
    let tokens = world.directory().join("tokens");
    mode(&tokens, 0o755);
    assert!(!instance.try_store("two").done);
    host.log.wait("Failed to write token file: ");
    daemon.kill();
    // Never repaired.
    let mut refused = world.start(&[]);
    assert_eq!(refused.wait().code(), Some(70));
    assert!(world.log.text().contains("0755 instead of 0700"), "{}", world.log.text());
    mode(&tokens, 0o700);
    daemon.start_again();
    assert_eq!(instance.load().token.as_deref(), Some("one"));
}

/// A small file system, until this is dropped.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path, size: &str) -> Self {
        let options = format!("size={size},mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).status();
        assert!(mounted.expect("mount").success());
        Self(at)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn on_a_full_disk_the_former_token_stays() {
    needs_root("to mount a small file system");
    let world = world("");
    let _daemon = world.daemon();
    let tokens = world.directory().join("tokens");
    let _disk = SmallDisk::mount(&tokens, "64k");
    let host = world.host();
    let mut instance = host.instance(&[]);
    instance.load().assert_fresh();
    let large = "x".repeat(40_000);
    instance.store(&large);
    for _ in 0..5 {
        assert!(!instance.try_store(&"y".repeat(40_000)).done, "there is no room for a second one");
        assert_eq!(instance.load().token.as_ref(), Some(&large));
        assert_eq!(world.token_files().len(), 1, "nothing unfinished is left");
    }
    host.log.wait("Failed to write token file: No space left on device");
    world.log.wait("Failed to write token file: No space left on device");
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
        let mut instance = host.instance(&[]);
        instance.load();
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
fn on_a_disk_that_is_full_for_the_ledger_too_nothing_acknowledged_is_lost() {
    needs_root("to mount a small file system");
    let world = world("");
    let directory = world.directory();
    fs::create_dir(&directory).expect("made");
    let _disk = SmallDisk::mount(&directory, "2m");
    let mut daemon = world.daemon();
    let mut peer = world.peer();
    let claimed = peer.call("claim", json!({})).expect("a session");
    let store = |peer: &mut mcp_sessiond_tests::Peer, token: &str| {
        let request = json!({"session": claimed["session"], "epoch": claimed["epoch"], "token": token});
        peer.call("store_token", request)
    };
    assert!(store(&mut peer, "AAAA").is_ok());
    let filler = directory.join("filler");
    let mut bytes = vec![0; 4 << 20];
    bytes.fill(1);
    assert!(fs::write(&filler, &bytes).is_err(), "the disk is full now");
    let mut kept = "AAAA";
    let mut refused = 0;
    // The ledger may have some room in its own files still.
    for n in 0..2_000 {
        let token = if n % 2 == 0 { "BBBB" } else { "CCCC" };
        match store(&mut peer, token) {
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
    let again = peer.call("claim", json!({}));
    assert!(again.is_err() || again.is_ok_and(|held| held["token"] == kept));
    fs::remove_file(&filler).expect("room again");
    until("it goes on", || store(&mut peer, "DDDD").ok());
    daemon.restart();
    let held = world.peer().call("claim", json!({})).expect("the same session");
    assert_eq!((&held["session"], &held["token"]), (&claimed["session"], &json!("DDDD")));
}

#[test]
fn a_token_of_version_1_is_adopted_once() {
    let world = world("");
    let old = world.root().join("version-1");
    fs::create_dir(&old).expect("made");
    mode(&old, 0o700);
    world.configure(&format!("adopt_version_1 = {:?}", old.display().to_string()));
    let _daemon = world.daemon();
    let host = world.host();
    let name = format!("token-{}-{}", host.pid(), start_of(host.pid()));
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
    assert_eq!(host.instance(&["first"]).load().token.as_deref(), Some("of version 2"));
}
