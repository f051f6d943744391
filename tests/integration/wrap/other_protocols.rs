//! Input that is not JSON-RPC in lines of text: it reaches the command as it is, and so does what
//! the command says.

use mcp_sessiond_tests::{Client, Front, World};

use super::{keeping, tiny};
use crate::several::{entry, write_down};

/// HTTP/2 in cleartext: the preface, an empty SETTINGS frame, and a DATA frame in which are a
/// newline, a zero, and what is no UTF-8.
fn http2() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    bytes.extend([0, 0, 6, 0, 0, 0, 0, 0, 1, b'\n', b'\n', 0, 0xFF, 0xC3, b'{']);
    bytes
}

/// Messages behind their length, as the Language Server Protocol has them: no newline at the end.
fn framed() -> Vec<u8> {
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    format!("Content-Length: {}\r\n\r\n{message}", message.len()).into_bytes()
}

/// What this front gives its host of a command that says what it hears, also for bytes that come
/// later.
#[track_caller]
fn assert_passed_through(mut front: Front, bytes: &[u8]) {
    for _ in 0..2 {
        front.send(bytes);
        assert_eq!(front.bytes(bytes.len()), bytes);
    }
    front.close();
    assert!(front.wait().success(), "{}", front.errors.text());
    front.errors.wait("-- end of the front --");
    let lines = front.errors.text();
    let why = "mcp-sessiond: the host does not speak JSON-RPC in lines of text, so its bytes are passed on as they are; ";
    assert!(lines.starts_with(why), "{lines}");
    assert_eq!(front.errors.len(), 2, "{lines}");
}

#[test]
fn bytes_of_another_protocol_are_passed_on_as_they_are() {
    let world = keeping("");
    let _daemon = world.daemon();
    let cat = ["cat".to_owned()];
    write_down(&world, &[("one", entry(&["cat".to_owned()]))]);
    let doors = [
        world.wrapping(&[], &cat),
        world.wrapping(&["--lazy"], &cat),
        world.wrapping(&["--name", "mine"], &cat),
        world.wrapping(&["--no-start"], &cat),
        world.wrapping(&[], &["@one".to_owned()]),
    ];
    for words in doors {
        for bytes in [http2(), framed()] {
            assert_passed_through(world.front(&words), &bytes);
        }
    }
    assert_eq!(world.stat("leases"), 0);
    world.wait_backends(0);
}

/// The server is kept already when the host says its first word: the kept one ends first.
#[test]
fn bytes_that_come_after_the_server_was_started_are_passed_on_to_another_one() {
    let world = keeping("");
    let _daemon = world.daemon();
    let seen = world.root().join("seen");
    let script = "echo $$ >> \"$1\"; exec cat";
    let seen = seen.to_str().expect("UTF-8");
    let server = ["sh", "-c", script, "sh", seen].map(str::to_owned);
    let at_once = [("MCP_SESSIOND_WRAP_FIRST_LINE_WAIT_MS", "20")];
    for (options, lines) in [(&[][..], 2), (&["--name", "mine"], 4)] {
        let words = world.wrapping(options, &server);
        let mut front = world.front_with(&words, &at_once);
        world.wait_backends(1);
        let kept = world.backend();
        front.send(&http2());
        assert_eq!(front.bytes(http2().len()), http2());
        kept.ended();
        let started = std::fs::read_to_string(seen).expect("written");
        assert_eq!(started.lines().count(), lines);
        front.close();
        assert!(front.wait().success());
        front.errors.wait("passed on as they are");
    }
}

/// A name has one server at a time, whatever it speaks.
#[test]
fn another_protocol_gets_no_second_server_of_a_name() {
    let world = keeping("");
    let _daemon = world.daemon();
    let words = world.wrapping(&["--name", "mine"], &tiny(&world));
    let mut holder = Client::connected(world.front(&words));
    assert_eq!(holder.count(), 1);
    let exclusive = world.wrapping(&["--exclusive", "--name", "mine"], &tiny(&world));
    let refused = |world: &World, why: &str| {
        let mut front = world.front(&exclusive);
        front.send(&framed());
        assert_eq!(front.wait().code(), Some(75));
        front.errors.wait(why);
    };
    let wait = "that needs a server of its own, and ";
    refused(&world, wait);
    assert_eq!(holder.count(), 2);
    holder.pipe.close();
    holder.pipe.wait();
    refused(
        &world,
        "a server of this name is kept: `mcp-sessiond stop` ends it",
    );
    let stopped = world.sessiond(&["stop", "mine"]).output();
    assert!(stopped.expect("it runs").status.success());
}

#[test]
fn another_protocol_gets_no_second_server_of_a_name_without_a_daemon_either() {
    let world = keeping("");
    let words = |own: &[&str]| {
        let options = [own, &["--name", "mine"]].concat();
        world.wrapping(&options, &tiny(&world))
    };
    let mut holder = Client::connected(world.front(&words(&["--no-start"])));
    assert_eq!(holder.count(), 1);
    let why = format!(
        "(pid {}), which runs it without a daemon",
        holder.pipe.pid()
    );
    let is_refused = |words: &[String]| {
        let mut front = world.front(words);
        front.send(&framed());
        assert_eq!(front.wait().code(), Some(75));
        front.errors.wait(&why);
    };
    is_refused(&words(&["--no-start"]));
    // A daemon that has started since gives its lease, and does not know who has the name.
    let _daemon = world.daemon();
    is_refused(&words(&[]));
    assert_eq!(holder.count(), 2);
}

/// White space and a byte order mark may stand before a message.
#[test]
fn a_message_behind_space_or_a_mark_is_json_rpc() {
    let world = keeping("");
    let _daemon = world.daemon();
    for before in ["\n \t", "\u{feff}"] {
        let mut front = world.front(&world.wrapping(&[], &tiny(&world)));
        front.send(before.as_bytes());
        let mut client = Client::connected(front);
        assert_eq!(client.count(), 1, "{before:?}");
        assert!(!client.pipe.errors.text().contains("as they are"));
        world.wait_backends(1);
        client.pipe.close();
        client.pipe.wait();
        let stopped = world.sessiond(&["stop", "--all"]).output();
        drop(stopped);
    }
}
