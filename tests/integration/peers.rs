//! Peers that misbehave are refused within their bounds, while others are served.

mod footprint;
mod malformed;

use std::io::Write;
use std::os::unix::net::UnixStream;

use mcp_sessiond_proto::hello::{Answer, Codec, FRAME_MAX, Hello};
use mcp_sessiond_tests::{Peer, until};
use serde_json::{Value, json};

use self::footprint::{Footprint, ROOMY, assert_serves, ping, serving};
use self::malformed::MALFORMED;
use crate::world;

#[test]
fn whoever_does_not_speak_the_protocol_is_hung_up_on() {
    let (world, daemon, before) = serving(ROOMY);
    for _ in 0..50 {
        let mut peer = Peer::connect(&world.socket());
        assert!(
            peer.hello(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
                .is_none()
        );
        // Cut off in the middle of the hello, and before it.
        for part in [0, 1, 31] {
            let mut peer = Peer::connect(&world.socket());
            peer.stream
                .write_all(&Hello::client(Codec::JsonRpc).encode()[..part])
                .expect("written");
        }
    }
    assert_serves(&world);
    before.assert_flat(&daemon);
}

#[test]
fn a_mismatch_is_a_typed_refusal() {
    let world = world("");
    let _daemon = world.daemon();
    let ours = Hello::client(Codec::MessagePack);
    for (hello, answer) in [
        (Hello { version: 0, ..ours }, Answer::Version),
        (Hello { version: 3, ..ours }, Answer::Version),
        (Hello { codec: 0, ..ours }, Answer::Codec),
        (Hello { codec: 255, ..ours }, Answer::Codec),
    ] {
        let mut peer = Peer::connect(&world.socket());
        let answered = peer.hello(&hello.encode()).expect("an answer");
        assert_eq!(answered.answer, answer as u8, "{hello:?}");
        assert_eq!(
            (answered.version, answered.peer_version),
            (2, hello.version),
            "both versions are told"
        );
        assert!(peer.is_ended(), "{hello:?}");
    }
    // What is 0 here is ignored: another version may say something there.
    let mut bytes = ours.encode();
    bytes[24..].fill(0xff);
    let mut peer = Peer::connect(&world.socket());
    let answered = peer.hello(&bytes).expect("an answer");
    assert_eq!(answered.answer, Answer::Welcome as u8);
}

#[test]
fn malformed_json_is_answered_and_the_connection_goes_on() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    for (text, code) in MALFORMED {
        peer.send(text.as_bytes()).expect("sent");
        let answer = peer.answer();
        assert_eq!(answer["error"]["code"], code, "{text}: {answer}");
    }
    // A deep one must not overflow a stack.
    peer.send("[".repeat(1_000_000).as_bytes()).expect("sent");
    let answer = peer.answer();
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    assert_eq!(peer.call("ping", json!({})), Ok(Value::Null));
    // What was sent is never quoted: it might have been a token.
    let secret = json!({"session": "x", "epoch": "1", "token": "hunter2!", "hunter2": "hunter2"});
    let refused = peer
        .call("store_token", secret)
        .expect_err("no base64")
        .to_string();
    assert!(!refused.contains("hunter2"), "{refused}");
    assert!(!world.log.text().contains("hunter2"));
}

#[test]
fn a_token_is_1_to_65536_bytes() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer();
    let claimed = peer.claim();
    let mut store = |base64: &str| peer.store(&claimed, base64);
    assert!(store("").is_err());
    assert!(store(&"AAAA".repeat(21_846)).is_err(), "65,538 bytes");
    assert!(
        store(&format!("{}AA==", "AAAA".repeat(21_845))).is_ok(),
        "65,536 bytes"
    );
    assert!(store("AA==").is_ok(), "one byte, and that 0");
}

#[test]
fn malformed_message_pack_ends_at_most_its_own_connection() {
    let (world, daemon, before) = serving(ROOMY);
    // An array that says it has four thousand million elements, and a map, a string and bytes that
    // do.
    for garbage in [
        &b""[..],
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    ] {
        let mut peer = world.peer_in(Codec::MessagePack);
        peer.send(garbage).expect("sent");
        assert!(peer.is_ended(), "{garbage:?}");
    }
    let mut deep = world.peer_in(Codec::MessagePack);
    deep.send(&vec![0x91; 1_000_000]).expect("sent");
    assert!(deep.is_ended());
    // A call that can be read as such is answered, whatever it is.
    let mut peer = world.peer_in(Codec::MessagePack);
    for call in [
        json!({"id": 1, "call": {"Explode": {}}}),
        json!({"id": 1, "call": 7}),
        json!({"id": 1, "call": {"Release": {}}}),
    ] {
        let answer = peer.ask_packed(&call).expect("an answer");
        assert!(answer["refused"].is_string(), "{call}: {answer}");
    }
    assert_eq!(ping(&mut peer, 1_000)["reply"], json!({"Ping": null}));
    drop(peer);
    drop(deep);
    assert_serves(&world);
    before.assert_flat(&daemon);
}

#[test]
fn any_deadline_is_taken() {
    let world = world("");
    let _daemon = world.daemon();
    let mut peer = world.peer_in(Codec::MessagePack);
    for deadline_ms in [u64::MAX, u64::MAX / 1_000, i64::MAX.unsigned_abs(), 1_000] {
        assert_eq!(
            ping(&mut peer, deadline_ms)["reply"],
            json!({"Ping": null}),
            "{deadline_ms}"
        );
    }
    assert!(
        !world.log.text().contains("panicked"),
        "{}",
        world.log.text()
    );
    assert_serves(&world);
}

#[test]
fn oversized_and_truncated_frames_end_their_own_connection() {
    let (world, daemon, before) = serving(ROOMY);
    for length in [FRAME_MAX + 1, u32::MAX] {
        for codec in [Codec::JsonRpc, Codec::MessagePack] {
            let mut peer = world.peer_in(codec);
            // Nothing of it has to be sent for that.
            peer.announce(length, b"");
            assert!(peer.is_ended(), "{length}");
        }
    }
    for _ in 0..50 {
        for sent in [0, 1, 100_000] {
            // And gone.
            world.peer().announce(FRAME_MAX, &vec![b' '; sent]);
        }
    }
    // The largest frame that there is may be sent.
    let mut peer = world.peer();
    let mut largest = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    largest.push_str(&" ".repeat(FRAME_MAX as usize - largest.len()));
    peer.send(largest.as_bytes()).expect("sent");
    assert!(peer.receive().is_some());
    drop(peer);
    assert_serves(&world);
    before.assert_flat(&daemon);
}

#[test]
fn slow_peers_keep_nobody_waiting() {
    let (world, daemon, before) = serving(ROOMY);
    let mut slow = Vec::new();
    for _ in 0..200 {
        // One that never finishes its hello, one that never finishes a frame, one that announces
        // the largest.
        let mut peer = Peer::connect(&world.socket());
        peer.stream.write_all(b"mcps").expect("written");
        slow.push(peer);
        for length in [100_u32, FRAME_MAX] {
            let mut peer = world.peer();
            peer.announce(length, b"{");
            slow.push(peer);
        }
    }
    (0..20).for_each(|_| assert_serves(&world));
    let each = before.more_for_each(&daemon, 600);
    assert!(each < 32, "600 slow peers cost {each} KiB each");
    // Of the largest frames, no more are received at once than the limit allows: the others were
    // hung up on.
    assert!(world.stat("connections_broken_total") >= 200 - 16);
    drop(slow);
    before.assert_flat(&daemon);
}

#[test]
fn peers_that_never_read_are_stopped_and_cost_little() {
    let (world, daemon, before) = serving(ROOMY);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "settings"}).to_string();
    let length = u32::try_from(call.len()).expect("short").to_be_bytes();
    let call = [&length[..], call.as_bytes()].concat();
    let deaf: Vec<Peer> = (0..20)
        .map(|_| {
            let mut peer = world.peer();
            let sent = send_until_it_would_block(&mut peer.stream, &call);
            assert!(
                sent < 16 << 20,
                "{sent} bytes were taken from a peer that reads nothing"
            );
            peer
        })
        .collect();
    (0..20).for_each(|_| assert_serves(&world));
    let each = before.more_for_each(&daemon, 20);
    assert!(each < 2 * 1024, "a peer that never reads costs {each} KiB");
    drop(deaf);
    before.assert_flat(&daemon);
}

/// Writes the same again and again, until the other side has taken nothing for a while.
fn send_until_it_would_block(stream: &mut UnixStream, call: &[u8]) -> usize {
    // The socket itself tells: a write that does not go on within this time will not go on.
    stream
        .set_write_timeout(Some(std::time::Duration::from_millis(200)))
        .expect("a timeout");
    let mut sent = 0;
    loop {
        match stream.write(&call[sent % call.len()..]) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return sent,
            Err(error) => panic!("{error}"),
        }
        if sent > 64 << 20 {
            return sent;
        }
    }
}

#[test]
fn a_process_has_so_many_connections_and_no_more() {
    let world = world("[limits]\nconnections_per_process = 4\n");
    let _daemon = world.daemon();
    let mut peers: Vec<Peer> = (0..4).map(|_| world.peer()).collect();
    let hello = Hello::client(Codec::JsonRpc).encode();
    for _ in 0..10 {
        let refused = Peer::connect(&world.socket())
            .hello(&hello)
            .expect("an answer");
        assert_eq!(refused.answer, Answer::Busy as u8);
    }
    // Another process has its own.
    let debug = world
        .sessiond(&["stats", "--json"])
        .output()
        .expect("debug");
    assert!(debug.status.success(), "{debug:?}");
    peers.pop();
    // The daemon closes connections after the other end; nothing tells when.
    until("there is a place again", || {
        let answer = Peer::connect(&world.socket()).hello(&hello)?;
        (answer.answer == Answer::Welcome as u8).then_some(())
    });
}

#[test]
fn a_host_has_so_many_sessions_and_no_more() {
    let world = world("claim_wait_ms = 0\n[limits]\nsessions_per_host = 4\n");
    let _daemon = world.daemon();
    let host = world.host();
    let mut holders: Vec<_> = (0..4).map(|n| host.instance(&[&n.to_string()])).collect();
    for holder in &mut holders {
        holder.load().assert_fresh();
    }
    let refused = host.instance(&["one too many"]).load();
    assert!(
        refused
            .disabled
            .is_some_and(|why| why.contains("the limit of 4"))
    );
    // Another host has its own.
    world.host().instance(&[]).load().assert_fresh();
}

#[test]
fn many_calls_at_once_on_one_connection_are_all_answered() {
    let (world, daemon, before) = serving("");
    let mut peer = world.peer();
    let mut writing = peer.twin();
    let calls = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for id in 0..calls {
                let call = json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string();
                writing.send(call.as_bytes()).expect("sent");
            }
        });
        let mut answered = vec![false; calls];
        for _ in 0..calls {
            let answer = peer.answer();
            let id = answer["id"]
                .as_u64()
                .and_then(|id| usize::try_from(id).ok())
                .expect("an id");
            assert!(
                !std::mem::replace(&mut answered[id], true),
                "{id} was answered twice"
            );
            // Too many in flight is an answer too, and says when to try again.
            assert!(
                answer["result"].is_null() || answer["error"]["data"]["code"] == "unavailable",
                "{answer}"
            );
        }
    });
    drop(peer);
    before.assert_flat(&daemon);
}

#[test]
fn a_caller_that_hangs_up_leaves_the_former_token_or_the_new_one() {
    let world = world("");
    let daemon = world.daemon();
    let mut peer = world.peer();
    let claimed = peer.claim();
    peer.store(&claimed, "0000").expect("stored");
    let before = Footprint::of(&daemon);
    let mut kept = json!("0000");
    let mut carried_out = 0;
    for number in 1..=300 {
        let token = format!("{number:04}");
        let request =
            json!({"session": claimed["session"], "epoch": claimed["epoch"], "token": token});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "store_token", "params": request});
        let mut caller = world.peer();
        caller.send(call.to_string().as_bytes()).expect("sent");
        drop(caller);
        let now = peer.claim();
        assert_eq!(now["token_status"], "present", "{now}");
        // It may still be on its way to the daemon, and be found later.
        let found: u32 = now["token"]
            .as_str()
            .and_then(|token| token.parse().ok())
            .expect("a number");
        assert!(found <= number, "{now}");
        carried_out += u32::from(now["token"] != kept);
        kept = now["token"].clone();
    }
    assert!(carried_out > 0);
    before.assert_flat(&daemon);
}
