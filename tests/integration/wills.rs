//! Last wills: processes that have opened streams are killed, with and without the daemon.

use mcp_sessiond_process::fault::{CONTENTS_COMMIT, VARIABLE};
use mcp_sessiond_tests::{Instance, Peer, World, assert_refused, until};
use serde_json::{Value, json};

use crate::sessions::{create, of};
use crate::world;

const WILL: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"gone"}}"#;

/// Opens a stream of the session `web`/`s`, with a will.
fn open(instance: &mut Instance, stream: &str) -> Result<Value, Value> {
    instance.call(
        "open_stream",
        json!({"of": of("web", "s"), "stream": stream, "will": WILL}),
    )
}

/// Waits until the stream has said its will, which is all that it has said. Nothing can be appended
/// to it any more.
fn assert_carried_out(peer: &mut Peer, stream: &str) {
    let mut said = Value::Null;
    while said["events"].as_array().is_none_or(Vec::is_empty) {
        let after = json!([{"stream": stream}]);
        said = peer
            .call("wait", json!({"of": of("web", "s"), "after": after}))
            .expect("waited");
    }
    assert_eq!(
        (
            said["events"].as_array().map(Vec::len),
            &said["events"][0]["message"]
        ),
        (Some(1), &json!(WILL))
    );
    assert_eq!(said["ended"], json!([stream]));
    let late = json!({"of": of("web", "s"), "stream": stream, "messages": ["{}"]});
    assert_refused(peer.call("append", late), "stream_closed");
}

fn is_closed(peer: &mut Peer, stream: &str) -> bool {
    let streams = peer
        .call("list_streams", json!({"of": of("web", "s")}))
        .expect("a list");
    let streams = streams.as_array().expect("a list");
    streams
        .iter()
        .any(|one| one["stream"] == stream && one["closed"] == true)
}

fn with_session(world: &World) -> Peer {
    let mut peer = world.peer();
    create(&mut peer, "web", "s");
    peer
}

#[test]
fn a_will_is_carried_out_when_its_author_is_killed() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = with_session(&world);
    let host = world.host();
    let (mut author, mut other) = (host.instance(&[]), host.instance(&["other"]));
    for stream in ["a", "closed", "taken"] {
        open(&mut author, stream).expect("opened");
    }
    author
        .call(
            "close_stream",
            json!({"of": of("web", "s"), "stream": "closed"}),
        )
        .expect("closed");
    open(&mut other, "taken").expect("it has another will now");
    assert!(!is_closed(&mut peer, "a"));
    author.kill();
    assert_carried_out(&mut peer, "a");
    assert!(
        !is_closed(&mut peer, "taken"),
        "the author of this one lives"
    );
    let closed = json!({"of": of("web", "s"), "after": {"stream": "closed"}});
    assert_eq!(
        peer.call("replay", closed).expect("replayed")["events"],
        json!([])
    );
    other.kill();
    assert_carried_out(&mut peer, "taken");
}

#[test]
fn the_next_daemon_carries_out_the_will_of_a_process_that_was_killed_while_none_ran() {
    let world = world("");
    let mut daemon = world.daemon();
    with_session(&world);
    let host = world.host();
    let (mut author, mut other) = (host.instance(&[]), host.instance(&["other"]));
    open(&mut author, "a").expect("opened");
    open(&mut other, "b").expect("opened");
    daemon.kill();
    author.kill();
    daemon.start_again();
    let mut peer = world.peer();
    assert_carried_out(&mut peer, "a");
    assert!(
        !is_closed(&mut peer, "b"),
        "its author lives, and is watched again"
    );
    other.kill();
    assert_carried_out(&mut peer, "b");
}

#[test]
fn a_will_has_room_although_the_quota_of_its_owner_is_used_up() {
    let world = world("limits.owner_bytes = 100000");
    let _daemon = world.daemon();
    let mut peer = with_session(&world);
    let host = world.host();
    let mut author = host.instance(&[]);
    open(&mut author, "a").expect("opened");
    create(&mut peer, "web", "full");
    for message in [format!("\"{}\"", "x".repeat(10_000)), "\"x\"".into()] {
        let more = json!({"of": of("web", "full"), "stream": "_GET_stream", "messages": [message]});
        while peer.call("append", more.clone()).is_ok() {}
    }
    author.kill();
    assert_carried_out(&mut peer, "a");
}

#[test]
fn a_will_ends_with_its_session_and_has_a_limit() {
    let world = world("limits.message_bytes = 100");
    let _daemon = world.daemon();
    let mut peer = with_session(&world);
    let host = world.host();
    let mut author = host.instance(&[]);
    open(&mut author, "a").expect("opened");
    let large =
        json!({"of": of("web", "s"), "stream": "b", "will": format!("\"{}\"", "x".repeat(100))});
    assert_refused(author.call("open_stream", large), "quota_exceeded");
    peer.call("terminate_session", of("web", "s"))
        .expect("terminated");
    create(&mut peer, "web", "t");
    let other = json!({"of": of("web", "t"), "stream": "a", "will": WILL});
    author.call("open_stream", other).expect("opened");
    author.kill();
    let after = json!([{"stream": "a"}]);
    let said = peer
        .call("wait", json!({"of": of("web", "t"), "after": after}))
        .expect("waited");
    assert_eq!(said["events"][0]["message"], WILL);
}

/// An answer closes its stream in the commit that puts it on record: there is no moment at which
/// only one of the two is true.
#[test]
fn no_will_follows_on_an_answer_that_closes_its_stream_whoever_is_killed() {
    let world = world("");
    let mut daemon = world.daemon();
    with_session(&world);
    let host = world.host();
    let mut author = host.instance(&[]);
    open(&mut author, "a").expect("opened");
    daemon.kill();
    daemon.start_with(&[(VARIABLE, CONTENTS_COMMIT)]);
    daemon.ready();
    let of = of("web", "s");
    let answer = json!({"of": of, "stream": "a", "messages": ["\"answer\""], "close": true});
    author.begin(&format!("call append {answer}"));
    until(
        "the daemon dies after the commit, before anybody is told",
        || daemon.ended(),
    );
    author.kill();
    daemon.start_again();
    let mut peer = world.peer();
    let after = json!([{"stream": "a"}]);
    let said = peer
        .call("wait", json!({"of": of, "after": after}))
        .expect("waited");
    assert_eq!(said["ended"], json!(["a"]));
    let messages: Vec<_> = said["events"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|event| &event["message"])
        .collect();
    assert_eq!(messages, ["\"answer\""]);
}
