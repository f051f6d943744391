//! Several daemons on one database: what was made through one is continued through another.

mod serving;
pub(crate) mod signs;

use mcp_sessiond_tests::OwnPort;
use mcp_sessiond_tests::{Daemon, World, assert_refused, random, until};
use serde_json::{Value, json};

use crate::sessions::leased;
use crate::tasks_rmcp::machines::workers_on_two_machines_share_their_tasks;
use crate::world;
use crate::writers::{check, some_progress, write_under};

/// Two machines, as far as their daemons can tell.
fn machines(url: &str) -> [World; 2] {
    let configuration = format!(
        "[storage]\nurl = \"{url}\"\n[limits]\nevents = 1000000\nstream_events = 1000000\n[sessions]\npoll_ms = 10\n"
    );
    [world(&configuration), world(&configuration)]
}

fn of() -> Value {
    json!({"service": "web", "session": "s"})
}

fn a_session_goes_from_daemon_to_daemon(url: &str) {
    let [here, there] = machines(url);
    let _daemons = [here.daemon(), there.daemon()];
    let (mut here, mut there) = (here.peer(), there.peer());
    here.call(
        "create_session",
        json!({"service": "web", "session": "s", "metadata": "{}"}),
    )
    .expect("created");
    assert_refused(there.call("create_session", of()), "already_exists");
    let write = |value: &str, expected: &Value| json!({"of": of(), "writes": [{"key": "k", "value": value, "expected": expected}]});
    let written = here
        .call("write_state", write("1", &json!("0")))
        .expect("written");
    let version = written[0]["version"].clone();
    let read = there
        .call("read_state", json!({"of": of(), "keys": ["k"]}))
        .expect("read");
    assert_eq!(
        (&read[0]["value"], &read[0]["version"]),
        (&json!("1"), &version)
    );
    there
        .call("write_state", write("2", &version))
        .expect("written");
    // Who has read before that does not overwrite it.
    assert_refused(
        here.call("write_state", write("3", &version)),
        "version_conflict",
    );
    let append = |message: &str| json!({"of": of(), "stream": "_GET_stream", "messages": [message], "request": format!("r{message}")});
    let first = here.call("append", append("1")).expect("appended");
    let second = there.call("append", append("2")).expect("appended");
    assert_eq!(
        (&first[0]["number"], &second[0]["number"]),
        (&json!("1"), &json!("2"))
    );
    // Whoever answers it: a request that is repeated is the same request.
    assert_eq!(here.call("append", append("2")), Ok(second));
    let replayed = there
        .call(
            "replay",
            json!({"of": of(), "after": {"event": first[0]["id"]}}),
        )
        .expect("replayed");
    assert_eq!(replayed["events"][0]["message"], "2");
    // Who waits through one is told of what comes through the other.
    let wait = json!({"of": of(), "after": replayed["next"], "timeout_ms": 20_000});
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || there.call("wait", wait).expect("an answer"));
        here.call("append", append("3")).expect("appended");
        assert_eq!(
            waiting.join().expect("it waited")["events"][0]["message"],
            "3"
        );
    });
    here.call("terminate_session", of()).expect("terminated");
}

fn a_termination_counts_everywhere(url: &str) {
    let [here, there] = machines(url);
    let _daemons = [here.daemon(), there.daemon()];
    let (mut here, mut there) = (here.peer(), there.peer());
    here.call("create_session", of()).expect("created");
    there.call("get_session", of()).expect("there");
    here.call("terminate_session", of()).expect("terminated");
    for method in [
        "open_session",
        "touch_session",
        "reset_session",
        "create_session",
    ] {
        assert_refused(there.call(method, of()), "session_terminated");
    }
}

/// Leases stay local: what a host's session holds is its daemon's affair, though the database is
/// shared.
fn a_host_s_session_is_its_own_daemon_s(url: &str) {
    let [here, there] = machines(url);
    let mut daemons = [here.daemon(), there.daemon()];
    let host = here.host();
    let (mut server, loaded) = host.loaded(&[]);
    let lease = leased(&loaded);
    let write = json!({"of": lease, "writes": [{"key": "k", "value": "1"}]});
    server.call("write_state", write).expect("written");
    assert_refused(
        there.peer().call("get_session", lease.clone()),
        "unknown_session",
    );
    // Neither daemon's sweep ends it.
    for world in [&here, &there] {
        assert_eq!(world.peer().call("sweep", json!({})), Ok(json!([])));
    }
    daemons[0].restart();
    let read = server
        .call("read_state", json!({"of": lease, "keys": ["k"]}))
        .expect("read");
    assert_eq!(read[0]["value"], "1");
    // With the host it goes, from the database too.
    drop((server, host));
    // What the reaper deletes, it deletes unasked, and tells nobody.
    until("nothing is left", || {
        there.listed("list_contents").is_empty().then_some(())
    });
}

fn the_kill_of_either_loses_nothing(url: &str, kills: usize) {
    let [here, there] = machines(url);
    let mut daemons: [Daemon; 2] = [here.daemon(), there.daemon()];
    let mut random = random();
    let written = write_under(&[&here, &there], &mut random, |random, done| {
        for _ in 0..kills {
            some_progress(done, random);
            daemons[random.usize(0..2)].restart();
        }
        // Both were at it together as well.
        some_progress(done, random);
    });
    check(&there, &written);
    check(&here, &written);
}

/// The same for each kind of database, and how often one daemon or the other is killed on it.
macro_rules! fleet {
    ($($(#[$only:meta])* $name:ident($needs:ident): $database:expr, $kills:literal kills;)*) => {$(
        $(#[$only])*
        mod $name {
            fleet! { @tests $needs $database,
                a_session_goes_from_daemon_to_daemon()
                a_termination_counts_everywhere()
                a_host_s_session_is_its_own_daemon_s()
                the_kill_of_either_loses_nothing($kills)
                workers_on_two_machines_share_their_tasks()
            }
            crate::fleet::signs::signs! { $needs $database }
        }
    )*};
    (@tests $needs:ident $database:expr, $($case:ident($($kills:literal)?))*) => {$(
        crate::needs! { $needs
            #[test]
            fn $case() {
                let database = $database;
                super::$case(&database.url() $(, $kills)?);
            }
        }
    )*};
}

fleet! {
    postgres(postgresql): crate::postgres::Schema::new(), 30 kills;
    #[cfg(feature = "dynamodb")]
    dynamodb_dynalite(nothing): crate::dynamodb::Table::<crate::dynamodb::Dynalite>::new(), 20 kills;
    // It answers some two hundred requests in a second.
    #[cfg(feature = "dynamodb")]
    dynamodb_moto(nothing): crate::dynamodb::Table::<crate::dynamodb::Moto>::new(), 5 kills;
}

/// Directories on one file system, of whose inodes the first one's, in hexadecimal, begins the
/// other's.
fn alike(disk: &std::path::Path, configuration: &str) -> [World; 2] {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    let inode = |world: &World| {
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(world.directory())
            .expect("made");
        format!(
            "{:x}",
            std::fs::metadata(world.directory()).expect("there").ino()
        )
    };
    let made = || {
        let world = World::within(&crate::BINARIES, disk);
        world.configure(configuration);
        world
    };
    let first = made();
    let digits = inode(&first);
    let other = (0..100_000).find_map(|_| {
        let world = made();
        inode(&world).starts_with(&digits).then_some(world)
    });
    [
        first,
        other.expect("its inodes are small numbers, one after the other"),
    ]
}

/// The first one's directory, as far as a daemon with half an eye can tell, is the other's.
#[test]
#[ignore = "needs root and postgresql"]
fn a_daemon_ends_no_session_of_another_whose_directory_is_called_alike() {
    crate::needs_root("to mount a small file system");
    let database = crate::postgres::Schema::new();
    let mount = tempfile::tempdir_in("/tmp").expect("a directory");
    let _disk = mcp_sessiond_tests::SmallDisk::mount(mount.path(), "64m");
    let [here, there] = alike(
        mount.path(),
        &format!(
            "storage.url = \"{}\"\nsessions.host_grace_ms = 0\n",
            database.url()
        ),
    );
    // The one that is at home in both, and the one whose session it is.
    let _daemons = [here.daemon(), there.daemon()];
    let host = there.host();
    let (mut server, loaded) = host.loaded(&[]);
    let lease = leased(&loaded);
    server
        .call(
            "write_state",
            json!({"of": lease, "writes": [{"key": "k", "value": "1"}]}),
        )
        .expect("written");
    // It is due at once, and stays, since it is held.
    server
        .call(
            "update_session",
            json!({"of": lease, "lifetimes": {"idle_ms": "1"}}),
        )
        .expect("updated");
    for _ in 0..50 {
        assert_eq!(here.peer().call("sweep", json!({})), Ok(json!([])));
    }
    let read = server
        .call("read_state", json!({"of": lease, "keys": ["k"]}))
        .expect("read");
    assert_eq!(read[0]["value"], "1");
}

#[test]
#[ignore = "needs postgresql"]
fn what_others_have_deleted_does_not_read_as_if_it_had_never_been() {
    let database = crate::postgres::Schema::new();
    let world = world(&format!("storage.url = \"{}\"\n", database.url()));
    let _daemon = world.daemon();
    let mut server = world.peer();
    let claimed = server.claim();
    let lease = json!({"session": claimed["session"], "epoch": claimed["epoch"]});
    let read = || json!({"of": lease, "keys": ["k"]});
    assert_eq!(
        server.call("read_state", read()).expect("nothing so far")[0]["version"],
        "0"
    );
    server
        .call(
            "write_state",
            json!({"of": lease, "writes": [{"key": "k", "value": "1"}]}),
        )
        .expect("written");
    assert_eq!(
        server.call("read_state", read()).expect("read")[0]["version"],
        "1"
    );
    database.empty();
    // Each call fails, not only the first.
    for id in 0..20 {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "read_state", "params": read()});
        server.send(call.to_string().as_bytes()).expect("sent");
    }
    for _ in 0..20 {
        let answer = server.answer();
        let code = &answer["error"]["data"]["code"];
        assert!(
            ["unknown_session", "lease_ended"]
                .map(Some)
                .contains(&code.as_str()),
            "{answer}"
        );
    }
    assert_ne!(server.claim()["session"], claimed["session"]);
}

/// The daemon starts without its database, serves what needs none, and says what it is waiting for.
#[test]
#[ignore = "needs postgresql"]
fn a_database_that_is_away_keeps_no_daemon_from_starting() {
    let nobody = OwnPort::take();
    let world = world(&format!(
        "[storage]\nurl = \"postgres://me:hunter2@127.0.0.1:{}/x?sslmode=disable\"\n",
        nobody.number
    ));
    let _daemon = world.daemon();
    let mut host = world.host();
    let _holder = host.holder(&[], "token");
    let refused = assert_refused(world.peer().call("create_session", of()), "unavailable");
    assert_eq!(refused["http_status"], 503);
    assert!(
        refused["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0),
        "{refused}"
    );
    let about = world.about();
    assert!(about["storage_failure"].is_string(), "{about}");
    let check = world.sessiond(&["doctor"]).output().expect("doctor");
    let text = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(
        text.contains("problem  storage") && !text.contains("hunter2"),
        "{text}"
    );
    assert!(
        !world.log.text().contains("hunter2"),
        "{}",
        world.log.text()
    );
    host.kill();
}
