//! Another program writes to `contents.db`: what that keeps waiting is done once, and what is not
//! known is said.

use std::path::Path;

use mcp_sessiond_tests::{Daemon, Peer, RetryingPeer, World, assert_refused};
use serde_json::{Value, json};

use super::Curious;
use crate::{BINARIES, world};

/// A world with a daemon and a service's session. Without a redo log, wherever the world is: each
/// change waits for the database.
fn with_session() -> (World, Daemon, Peer) {
    let world = world("storage.durability = \"power\"");
    begun(world)
}

fn begun(world: World) -> (World, Daemon, Peer) {
    let daemon = world.daemon();
    let mut peer = world.peer();
    peer.call("create_session", json!({"service": "web", "session": "s"}))
        .expect("made");
    (world, daemon, peer)
}

fn of() -> Value {
    json!({"service": "web", "session": "s"})
}

fn append(text: &str) -> Value {
    json!({"of": of(), "stream": "_GET_stream", "messages": [json!(text).to_string()]})
}

/// What has been appended.
fn said(world: &World) -> Vec<String> {
    let mut caller = RetryingPeer::new(world.socket());
    let page = caller.done("replay", json!({"of": of(), "after": {"number": "0"}}));
    let events = page["events"].as_array().expect("events").iter();
    events
        .map(|event| event["message"].as_str().expect("a text").to_owned())
        .collect()
}

#[test]
#[ignore = "needs python3"]
fn what_waits_for_another_program_is_not_refused() {
    let (world, _daemon, mut peer) = with_session();
    // It works in a transaction, works outside of it, and begins again, until its input ends.
    let writes = "count = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT max(i) FROM n'\n\
                  while True:\n\
                  \x20   base.execute(count, (50_000,)).fetchall()\n\
                  \x20   base.execute('COMMIT')\n\
                  \x20   base.execute(count, (25_000,)).fetchall()\n\
                  \x20   if select.select([sys.stdin], [], [], 0)[0]: break\n\
                  \x20   base.execute('BEGIN IMMEDIATE')";
    let _curious = Curious::runs(&world.directory().join("contents.db"), writes);
    for number in 0..20 {
        peer.call("append", append(&number.to_string()))
            .expect("appended, however long it took");
    }
    let expected: Vec<String> = (0..20).map(|number| format!("\"{number}\"")).collect();
    assert_eq!(said(&world), expected);
}

#[test]
#[ignore = "needs python3"]
fn what_may_be_done_later_is_not_told_as_refused_and_is_done_once() {
    let (world, _daemon, mut peer) = with_session();
    let curious = Curious::runs(&world.directory().join("contents.db"), "sys.stdin.read()");
    let mut twice = append("with a request");
    twice["request"] = json!("r1");
    let mut beside = world.peer();
    let other = std::thread::spawn(move || beside.call("append", append("without one")));
    let unknown = assert_refused(peer.call("append", twice.clone()), "outcome_unknown");
    assert_refused(other.join().expect("no panic"), "outcome_unknown");
    assert!(unknown["retry_after_ms"].is_u64(), "{unknown}");
    // Now it is known that it would not be kept: nothing has begun.
    assert_refused(peer.call("append", append("too late")), "unavailable");
    drop(curious);
    RetryingPeer::new(world.socket()).done("append", twice);
    let mut said = said(&world);
    said.sort();
    assert_eq!(said, ["\"with a request\"", "\"without one\""]);
}

/// Where there is a redo log, a change is kept there, for some time.
#[test]
#[cfg(target_os = "linux")]
#[ignore = "needs python3"]
fn what_another_program_holds_up_is_kept_in_the_redo_log_and_then_not_known() {
    let (world, mut daemon, mut peer) = begun(World::within(&BINARIES, Path::new("/dev/shm")));
    let database = world.directory().join("contents.db");
    let curious = Curious::runs(&database, "sys.stdin.read()");
    peer.call("append", append("first")).expect("kept");
    daemon.kill();
    drop(curious);
    daemon.start_again();
    assert_eq!(said(&world), ["\"first\""]);
    let curious = Curious::runs(&database, "sys.stdin.read()");
    let mut peer = world.peer();
    let (mut kept, mut refused) = (1, None);
    while refused.is_none() {
        kept += 1;
        refused = peer.call("append", append("more")).err();
    }
    assert_eq!(refused.expect("refused")["code"], "outcome_unknown");
    drop(curious);
    let after = RetryingPeer::new(world.socket()).done("append", append("after"));
    // That whose outcome was unknown was done later, once.
    assert_eq!(after[0]["number"], (kept + 1).to_string());
}
