//! The pipe: messages, kills on either side, and what a next process knows.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use mcp_sessiond_tests::{Connected, World};
use serde_json::{Value, json};

use super::{express, resumable};
use crate::world;
use crate::wrap::{gate, open};

fn file(world: &World) -> PathBuf {
    world.root().join("kept.json")
}

/// A process that has initialised a session.
fn initialized(world: &World, url: &str) -> Connected {
    let (mut connected, handshake) = world.connected(url, &file(world));
    assert_eq!(handshake, Value::Null, "nothing was kept");
    let answer = connected.initialize();
    assert!(answer["result"]["serverInfo"].is_object(), "{answer}");
    connected
}

/// What the next process finds.
fn next(world: &World, url: &str) -> Connected {
    let (connected, handshake) = world.connected(url, &file(world));
    assert!(
        handshake["serverInfo"].is_object(),
        "the handshake is kept: {handshake}"
    );
    connected
}

/// Waits until this call is not on record as open any more: whoever comes next has nothing to say
/// of it.
fn until_over(world: &World, id: u64) {
    let of = format!(r#"\"calls\":[\"{id}\"]"#);
    mcp_sessiond_tests::until(&format!("call {id} is on record no more"), || {
        (!std::fs::read_to_string(file(world))
            .expect("kept")
            .contains(&of))
        .then_some(())
    });
}

fn progress(line: &Value) -> Option<f64> {
    line["params"]["progress"].as_f64()
}

#[test]
#[ignore = "needs node"]
fn messages_pass_both_ways() {
    for options in [&[][..], &["events"], &["json"]] {
        let world = world("");
        let server = express(&world, options);
        let mut connected = initialized(&world, &server.url);
        assert_eq!(
            connected.text(1, "increment", &json!({})),
            "1",
            "{options:?}"
        );
        if options == ["json"] {
            continue;
        }
        connected.begin(2, "ask", &json!({"prompt": "Well?"}));
        let (_, asked) = connected.message(|line| line["method"] == "sampling/createMessage");
        let content = json!({"type": "text", "text": "Fine."});
        let result = json!({"role": "assistant", "model": "none", "content": content});
        connected.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
        assert_eq!(
            connected.answer(2).1["result"]["content"][0]["text"],
            "Fine."
        );
        let gate = gate(&world, "notify");
        assert_eq!(
            connected.text(3, "notify", &json!({"n": 2, "gate": gate})),
            "2"
        );
        open(&gate);
        for data in 1..=2 {
            let (_, said) = connected.message(|line| line["method"] == "notifications/message");
            assert_eq!(said["params"]["data"], data);
        }
        assert_eq!(server.handshakes(), 1);
    }
}

#[test]
#[ignore = "needs node"]
fn the_next_process_gets_the_rest_of_a_call_and_its_answer_once() {
    for at in 0..3 {
        let world = world("");
        let (sdk, server) = resumable(&world).swap_remove(at);
        let mut connected = initialized(&world, &server.url);
        assert_eq!(connected.text(1, "increment", &json!({})), "1", "{sdk}");
        let waits = gate(&world, "gate");
        connected.begin(2, "steps", &json!({"n": 3, "gate": waits}));
        let (first, said) = connected.message(|line| progress(line).is_some());
        assert_eq!(progress(&said), Some(1.0));
        connected.kill();
        let mut connected = next(&world, &server.url);
        if sdk == "Rust" {
            // What such a server says on a stream that has no connection is lost. This is the
            // second call's.
            server.told.wait_from(0, &["resumed 0/1", "resumed 1/1"]);
        }
        open(&waits);
        let mut numbers = BTreeMap::new();
        loop {
            let (number, line) =
                connected.message(|line| progress(line).is_some() || line["id"] == 2);
            // It may not have been confirmed when the former process was killed. Then it has the
            // same number.
            if number != first {
                assert_eq!(
                    numbers.insert(number, line.clone()),
                    None,
                    "{sdk}: no number comes twice"
                );
            }
            if line["id"] == 2 {
                assert_eq!(line["result"]["content"][0]["text"], "3", "{sdk}: {line}");
                break;
            }
        }
        let steps: Vec<f64> = numbers.values().filter_map(progress).collect();
        assert_eq!(steps, [2.0, 3.0], "{sdk}");
        assert_eq!(
            connected.text(3, "increment", &json!({})),
            "2",
            "{sdk}: the same session"
        );
        assert_eq!(
            connected.said.lines(r#""id":2,"#).len(),
            1,
            "{sdk}: one answer"
        );
        assert_eq!(server.handshakes(), 1, "{sdk}");
        connected.close();
        let mut connected = next(&world, &server.url);
        assert_eq!(
            connected.text(4, "increment", &json!({})),
            "3",
            "{sdk}: a process that has ended, too"
        );
        assert_eq!(
            connected.said.lines(r#""id":2,"#),
            [""; 0],
            "{sdk}: what was confirmed is not said again"
        );
    }
}

#[test]
#[ignore = "needs node"]
fn what_was_not_confirmed_comes_again_under_the_same_number() {
    let world = world("");
    let (_, server) = resumable(&world).swap_remove(0);
    let path = file(&world);
    let path = path.to_str().expect("UTF-8");
    let mut connected = world.remote(&["test", &server.url, path], &[("UNCONFIRMED", "1")]);
    connected.said_next();
    connected.initialize();
    let waits = gate(&world, "gate");
    open(&waits);
    connected.begin(1, "steps", &json!({"n": 3, "gate": waits}));
    let said: Vec<(u64, Value)> = std::iter::repeat_with(|| {
        connected.message(|line| progress(line).is_some() || line["id"] == 1)
    })
    .take(4)
    .collect();
    connected.kill();
    let mut connected = next(&world, &server.url);
    let again: Vec<(u64, Value)> = std::iter::repeat_with(|| {
        connected.message(|line| progress(line).is_some() || line["id"] == 1)
    })
    .take(4)
    .collect();
    assert_eq!(again, said);
}

#[test]
#[ignore = "needs node"]
fn a_call_that_can_not_be_resumed_is_answered_once_and_the_session_stays() {
    let world = world("");
    let server = express(&world, &[]);
    let mut connected = initialized(&world, &server.url);
    assert_eq!(connected.text(1, "increment", &json!({})), "1");
    let waits = gate(&world, "gate");
    connected.begin(2, "slow", &json!({"gate": waits}));
    connected.message(|line| line["params"]["logger"] == "slow");
    connected.kill();
    let mut connected = next(&world, &server.url);
    let (_, answer) = connected.answer(2);
    assert_eq!(
        (
            &answer["error"]["code"],
            &answer["error"]["data"]["outcome"]
        ),
        (&json!(-32000), &json!("unknown")),
        "{answer}"
    );
    open(&waits);
    assert_ne!(
        connected.text(3, "increment", &json!({})),
        "1",
        "the same session"
    );
    // It was said before that was confirmed.
    until_over(&world, 3);
    connected.close();
    let mut connected = next(&world, &server.url);
    connected.text(4, "increment", &json!({}));
    assert_eq!(connected.said.lines("unknown"), [""; 0], "it was answered");
    assert_eq!(server.handshakes(), 1);
}

#[test]
#[ignore = "needs node"]
fn a_server_that_was_started_again_gets_the_handshake_again_and_no_answer_of_former_days() {
    let world = world("");
    let mut server = express(&world, &["events"]);
    let mut connected = initialized(&world, &server.url);
    let ask = |connected: &mut Connected, id: u64| {
        connected.begin(id, "ask", &json!({"prompt": "Well?"}));
        connected
            .message(|line| line["method"] == "sampling/createMessage")
            .1["id"]
            .clone()
    };
    let former = ask(&mut connected, 1);
    server.kill();
    server.start_again();
    let (_, answer) = connected.answer(1);
    assert_eq!(answer["error"]["data"]["outcome"], "unknown", "{answer}");
    let asked = ask(&mut connected, 2);
    assert_ne!(former, asked);
    for (id, text) in [(former, "to the first"), (asked, "to the second")] {
        let result = json!({"role": "assistant", "model": "none", "content": {"type": "text", "text": text}});
        connected.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }
    assert_eq!(
        connected.answer(2).1["result"]["content"][0]["text"],
        "to the second"
    );
    assert_eq!(server.handshakes(), 1, "the recorded handshake, once");
    connected.said.wait("notifications/tools/list_changed");

    // It is forgotten between two processes, too.
    connected.kill();
    server.kill();
    server.start_again();
    let mut connected = next(&world, &server.url);
    assert_eq!(connected.text(3, "increment", &json!({})), "1");
    connected.said.wait("notifications/tools/list_changed");
    assert_eq!(server.handshakes(), 1);
}

#[test]
#[ignore = "needs node"]
fn a_call_to_nobody_was_not_made() {
    let world = world("");
    let mut server = express(&world, &[]);
    let mut connected = initialized(&world, &server.url);
    server.kill();
    connected.begin(1, "increment", &json!({}));
    let (_, answer) = connected.answer(1);
    assert_eq!(answer["error"]["data"]["outcome"], "not_sent", "{answer}");
    server.start_again();
    assert_eq!(connected.text(2, "increment", &json!({})), "1");
}

#[test]
#[ignore = "needs node"]
fn at_another_url_there_is_another_server() {
    let world = world("");
    let (first, second) = (express(&world, &["events"]), express(&world, &["events"]));
    let mut connected = initialized(&world, &first.url);
    connected.begin(1, "slow", &json!({"gate": gate(&world, "never")}));
    connected.message(|line| line["params"]["logger"] == "slow");
    connected.kill();
    let (mut connected, handshake) = world.connected(&second.url, &file(&world));
    assert_eq!(handshake, Value::Null, "it knows nothing of us");
    assert_eq!(connected.answer(1).1["error"]["data"]["outcome"], "unknown");
    connected.initialize();
    assert_eq!(connected.text(2, "increment", &json!({})), "1");
    assert_eq!((first.handshakes(), second.handshakes()), (1, 1));
}

#[test]
#[ignore = "needs node"]
fn a_call_that_is_cancelled_is_waited_for_no_more() {
    let world = world("");
    let server = express(&world, &["events"]);
    let mut connected = initialized(&world, &server.url);
    let waits = gate(&world, "gate");
    connected.begin(1, "slow", &json!({"gate": waits}));
    connected.message(|line| line["params"]["logger"] == "slow");
    connected.say(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    );
    assert!(!connected.text(2, "increment", &json!({})).is_empty());
    until_over(&world, 1);
    connected.kill();
    let mut connected = next(&world, &server.url);
    open(&waits);
    connected.text(3, "increment", &json!({}));
    assert_eq!(connected.said.lines(r#""id":1,"#), [""; 0]);
}

/// `serve` stands in front of a server that knows no HTTP. Both are killed.
#[test]
fn our_own_serve_is_such_a_server_too() {
    let world = world("http.hold_ms = 30000");
    let _daemon = world.daemon();
    let mut serve = world.serve(&["--name", "test"], &[world.binaries.tiny.into()]);
    let mut connected = initialized(&world, &serve.url());
    assert_eq!(connected.text(1, "increment", &json!({})), "1");
    connected.kill();
    let mut connected = next(&world, &serve.url());
    assert_eq!(
        connected.text(2, "increment", &json!({})),
        "2",
        "the same session"
    );
    serve.kill();
    serve.start_again();
    assert_eq!(
        connected.text(3, "increment", &json!({})),
        "3",
        "`serve` keeps it"
    );
    connected.kill();
    serve.kill();
    serve.start_again();
    let mut connected = next(&world, &serve.url());
    assert_eq!(connected.text(4, "increment", &json!({})), "4");
}

/// The client is killed again and again while calls run, when it has said as many of their messages
/// as was drawn: each is answered once in all, by number.
#[test]
#[ignore = "needs node"]
fn no_answer_is_lost_or_comes_twice_whenever_the_process_is_killed() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let world = world("");
    let (_, server) = resumable(&world).swap_remove(0);
    let mut connected = initialized(&world, &server.url);
    let waits = gate(&world, "gate");
    open(&waits);
    // Until the server has got `notifications/initialized`, the next process begins a session of
    // its own.
    connected.text(1000, "increment", &json!({}));
    let mut numbers = BTreeMap::new();
    let mut take = |connected: &Connected| {
        let text = connected.said.text();
        for said in text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        {
            if let (Some(number), Some(id)) = (said["number"].as_u64(), said["line"]["id"].as_u64())
            {
                let former = numbers.insert(number, said["line"].clone());
                assert!(
                    former.is_none_or(|former| former == said["line"]),
                    "seed {seed}: {number} is two messages"
                );
                assert!(
                    id == 0
                        || said["line"]["result"].is_object()
                        || said["line"]["error"].is_object()
                );
            }
        }
        numbers.clone()
    };
    for round in 0..25_u64 {
        let ids = [2 * round + 1, 2 * round + 2];
        let said = connected.said.len();
        for id in ids {
            connected.begin(id, "steps", &json!({"n": 5, "gate": waits}));
        }
        // Each call has five of progress and an answer.
        let drawn = random.usize(0..=12);
        if drawn > 0 {
            connected.said.wait_from(said + drawn - 1, &[""]);
        }
        connected.kill();
        take(&connected);
        connected = next(&world, &server.url);
        // What was answered before is not said again, unless it was not confirmed.
        connected.text(1001 + round, "increment", &json!({}));
        for id in ids {
            mcp_sessiond_tests::until(
                &format!("seed {seed}: call {id} is answered, or was never made"),
                || {
                    let answers = take(&connected);
                    let kept = std::fs::read_to_string(file(&world)).unwrap_or_default();
                    let is_open = kept.contains(&format!(r#"\"calls\":[\"{id}\"]"#));
                    let count = answers.values().filter(|line| line["id"] == id).count();
                    assert!(count <= 1, "seed {seed}: call {id} has {count} answers");
                    (count == 1 || !is_open).then_some(())
                },
            );
        }
    }
    assert_eq!(server.handshakes(), 1, "seed {seed}");
}

#[test]
fn a_redirect_is_told_and_not_followed() {
    let world = world("");
    let (first, second) = (
        TcpListener::bind("127.0.0.1:0"),
        TcpListener::bind("127.0.0.1:0"),
    );
    let (first, second) = (first.expect("a port"), second.expect("a port"));
    second.set_nonblocking(true).expect("set");
    let url = format!("http://{}/mcp", first.local_addr().expect("an address"));
    let elsewhere = format!("http://{}/mcp", second.local_addr().expect("an address"));
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = first.accept().expect("a connection");
        let mut request = BufReader::new(stream.try_clone().expect("a stream"));
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert!(request.read_line(&mut line).expect("a head") > 0);
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        request
            .take(length)
            .read_to_end(&mut Vec::new())
            .expect("a body");
        let head = "HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nConnection: close";
        write!(stream, "{head}\r\nLocation: {elsewhere}\r\n\r\n").expect("answered");
    });
    let (mut connected, _) = world.connected(&url, &file(&world));
    let answer = connected.initialize();
    let said = answer["error"]["message"].as_str().expect("a sentence");
    assert!(
        said.contains("it has moved to http://127.0.0.1:")
            && said.contains("/mcp, and `url` must name the new place"),
        "{said}"
    );
    answering.join().expect("answered");
    // Whoever follows has connected before it tells what came of it.
    assert_eq!(
        second.accept().expect_err("nobody has come").kind(),
        ErrorKind::WouldBlock
    );
}
