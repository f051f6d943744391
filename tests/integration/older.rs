//! What closes a stream with its last message, with this daemon and with older ones: the same comes
//! of it, and fewer calls.

use mcp_sessiond_client::{
    CreateOptions, Error, Json, Options, RequestId, SessionError, Sessions, Start,
};
use mcp_sessiond_proto::hello::CLOSES;
use mcp_sessiond_tests::{Older, PATIENCE, World, until};
use serde_json::{Value, json};

use crate::world;

/// This daemon, one of before appends could close, and one of before there were feature bits.
const DAEMONS: [u64; 3] = [u64::MAX, !CLOSES, 0];

fn service(older: &Older) -> Sessions {
    let options = Options::default()
        .directory(&older.directory)
        .start(Start::Never)
        .timeout(PATIENCE);
    Sessions::of_service("web".parse().expect("a name"), options)
}

/// How a stream is closed with its last message.
fn steps(features: u64) -> &'static [&'static str] {
    if features & CLOSES == 0 {
        &["append", "close_stream"]
    } else {
        &["append close"]
    }
}

/// Waits until what was asked about streams ends with this.
fn wait_calls(older: &Older, expected: &[&str]) {
    until("these calls", || {
        let mut calls = older.calls();
        calls.retain(|call| call.contains("append") || call.contains("stream"));
        calls
            .ends_with(&expected.iter().map(ToString::to_string).collect::<Vec<_>>())
            .then_some(())
    });
}

/// The streams of the service's only session, but for the standalone one.
fn streams(world: &World, service: &str) -> Vec<Value> {
    let mut peer = world.peer();
    let sessions = peer
        .call("list_own_sessions", json!({"service": service}))
        .expect("listed");
    let of = json!({"session": sessions[0]["session"], "service": service});
    let streams = peer
        .call("list_streams", json!({"of": of}))
        .expect("listed");
    let streams = streams.as_array().expect("a list").iter();
    streams
        .filter(|stream| stream["stream"] != "_GET_stream")
        .cloned()
        .collect()
}

#[tokio::test]
async fn the_library_closes_a_stream_with_its_last_message() {
    for features in DAEMONS {
        let world = world("");
        let _daemon = world.daemon();
        let older = world.older(features);
        let session = service(&older)
            .create(CreateOptions::default())
            .await
            .expect("made");
        let text = |text: &str| Json::new(text).expect("JSON");
        let id = "call".parse().expect("an id");
        let stream = session
            .open_stream_with_will(&id, None, text("\"will\""))
            .await
            .expect("opened");
        let appended = stream.append_and_close(text("1")).await.expect("appended");
        wait_calls(&older, &[&["open_stream"], steps(features)].concat());
        let found = session.find_event(&appended.id).await.expect("found");
        assert!(found.ended && found.stream.closed);
        let late = stream.append(text("2")).await;
        assert!(
            matches!(late, Err(SessionError::Refused(Error::StreamClosed))),
            "{late:?}"
        );

        let id = "again".parse().expect("an id");
        let stream = session.open_stream(&id, None).await.expect("opened");
        let request: RequestId = "r".parse().expect("an id");
        let again = async || {
            stream
                .append_and_close_as(request.clone(), vec![Some(text("1"))])
                .await
        };
        let first = again().await.expect("appended");
        assert_eq!(again().await.expect("a repetition"), first);
        let refused = session.standalone().append_and_close(text("3")).await;
        assert!(
            matches!(
                refused,
                Err(SessionError::Refused(Error::InvalidArgument { .. }))
            ),
            "{refused:?}"
        );
    }
}

#[test]
fn a_server_on_rmcp_answers_its_calls_with_every_daemon() {
    for features in DAEMONS {
        let world = world("");
        let _daemon = world.daemon();
        let older = world.older(features);
        let directory = older.directory.to_str().expect("a path");
        let server = world.durable_server(&[("MCP_SESSIOND_DIR", directory)]);
        let mut client = server.client();
        client.initialize("2025-11-25");
        assert_eq!(client.text("visit", &json!({})), "1");
        client.text("who", &json!({}));
        let call = [&["open_stream", "append"], steps(features)].concat();
        wait_calls(&older, &[call.as_slice(), &call].concat());
        assert!(
            streams(&world, "durable")
                .iter()
                .all(|stream| stream["closed"] == true)
        );
        assert!(
            server.errors.lines("not kept").is_empty(),
            "{}",
            server.errors.text()
        );
    }
}

#[test]
fn a_shell_script_closes_a_stream_with_its_last_message() {
    for features in DAEMONS {
        let world = world("");
        let _daemon = world.daemon();
        let older = world.older(features);
        for (messages, events) in [("{\"n\":1}\n{\"n\":2}\n", 2), ("", 0)] {
            let input = world.root().join("input");
            std::fs::write(&input, messages).expect("written");
            let stream = format!("call-{events}");
            let mut append = world.sessiond(&["stream", "append", &stream, "--close"]);
            append
                .args(["--service", "web", "--session", "s"])
                .env("MCP_SESSIOND_DIR", &older.directory);
            let append = append
                .stdin(std::fs::File::open(&input).expect("a file"))
                .output()
                .expect("run");
            assert!(append.status.success(), "{append:?}");
            assert_eq!(
                append.stdout.split(|byte| *byte == b'\n').count(),
                events + 1
            );
            let streams = streams(&world, "web");
            let found = streams
                .iter()
                .find(|one| one["stream"] == stream.as_str())
                .expect("the stream");
            assert_eq!(
                (&found["closed"], &found["events"]),
                (&json!(true), &json!(events))
            );
        }
        wait_calls(&older, &["open_stream", "close_stream"]);
        let closes = older.calls().contains(&"append close".into());
        assert_eq!(closes, features & CLOSES != 0);
    }
}
