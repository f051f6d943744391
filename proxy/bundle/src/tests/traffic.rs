//! Who gets what is said.

use serde_json::json;

use super::world::World;
use crate::*;

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_request_of_a_former_process_is_heard_and_to_ours_is_not() {
    let mut world = World::new(&[("a", &[])]);
    world.settings.has_former = true;
    let mut made = world.made().await;
    made.heard();
    world
        .server("a")
        .says(r#"{"jsonrpc":"2.0","id":"mcp-sessiond/0/1","result":{}}"#)
        .await;
    world
        .server("a")
        .says(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#)
        .await;
    assert_eq!(made.hears().await["id"], 5);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_answered_by_the_server_that_it_was_made_at_and_by_no_other() {
    for has_former in [false, true] {
        let mut world = World::new(&[("a", &["x"]), ("b", &["y"])]);
        world.settings.has_former = has_former;
        let mut made = world.made().await;
        made.heard();
        world
            .server("a")
            .answers("tools/call", serde_json::Value::Null);
        let bundle = made.bundle.clone();
        let progress = |n: u64| json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t", "progress": n}});
        let answered = async {
            while world.server("a").hears().await["method"] != "tools/call" {}
            let b = world.server("b");
            b.says(r#"{"jsonrpc":"2.0","id":9,"result":{"content":[{"text":"b's"}]}}"#)
                .await;
            b.says(&progress(1).to_string()).await;
            b.says(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#)
                .await;
            // All before it was heard.
            assert_eq!(
                made.hears().await["method"],
                "notifications/message",
                "{has_former}"
            );
            world.server("a").says(&progress(2).to_string()).await;
            assert_eq!(made.hears().await["params"]["progress"], 2, "{has_former}");
            world
                .server("a")
                .says(r#"{"jsonrpc":"2.0","id":9,"result":{"content":[{"text":"a's"}]}}"#)
                .await;
        };
        let params: Box<serde_json::value::RawValue> =
            serde_json::from_str(r#"{"name":"x","_meta":{"progressToken":"t"}}"#).expect("JSON");
        let call = Call::read(Id::number(9), "tools/call", Some(&params)).expect("a call");
        let called = async move {
            bundle
                .call(call)
                .await
                .expect("an answer")
                .outcome
                .expect("a result")
        };
        let (answer, ()) = tokio::join!(called, answered);
        assert_eq!(
            answer.get(),
            r#"{"content":[{"text":"a's"}]}"#,
            "{has_former}"
        );
        // Afterwards it is nobody's call.
        world
            .server("b")
            .says(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#)
            .await;
        world
            .server("b")
            .says(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#)
            .await;
        assert_eq!(made.hears().await["id"] == 9, has_former);
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_reads_nothing_keeps_nobody_waiting() {
    let world = World::new(&[("a", &["x"]), ("b", &["y"])]);
    let made = world.made().await;
    world.server("b").stops_reading();
    // More than its channel holds.
    for _ in 0..3 * WAITING {
        made.tells(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#)
            .await;
    }
    assert_eq!(made.calls(1, "x").await.expect("an answer"), "a x 1");
    let level: Box<serde_json::value::RawValue> =
        serde_json::from_str(r#"{"level":"debug"}"#).expect("JSON");
    let call = Call::read(Id::number(2), "logging/setLevel", Some(&level)).expect("a call");
    assert!(
        made.bundle
            .call(call)
            .await
            .expect("an answer")
            .outcome
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_answer_can_not_be_read_has_failed() {
    let world = World::new(&[("a", &["x"])]);
    let made = world.made().await;
    let server = world.server("a");
    server.answers("tools/call", serde_json::Value::Null);
    for odd in [
        r#"{"jsonrpc":"2.0","id":9,"result":{"content":[{"text":"x"}],"n":NaN"#,
        r#"[7,{"jsonrpc":"2.0","id":9,"result":{"n":Nan}},{"jsonrpc":"2.0","method":"x"}]"#,
        r#"{"jsonrpc":"2.0","id":9,"result":{},"result":{}}"#,
    ] {
        let answered = async {
            while server.hears().await["method"] != "tools/call" {}
            server.says(odd).await;
        };
        let (answer, ()) = tokio::join!(made.calls(9, "x"), answered);
        let error = answer.expect_err(odd);
        let data = error.data.as_ref().map(|data| data.get());
        let why = "the server has answered this call, and its answer can't be read as JSON";
        assert_eq!(
            (error.code, &*error.message, data),
            (-32000, why, Some(r#"{"outcome":"not_kept"}"#))
        );
    }
    // It waits for an answer, too.
    server
        .says(r#"{"jsonrpc":"2.0","id":3,"method":"sampling/createMessage","params":{"n":Nan}}"#)
        .await;
    let answer = server.hears().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(3), &json!(-32700))
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_is_told_what_can_not_be_read_and_so_is_a_server_that_waits_for_it() {
    let world = std::sync::Arc::new(World::new(&[("a", &["x"])]));
    let (out, mut spoken) = tokio::sync::mpsc::channel::<TrackedLine>(WAITING);
    let sources = world.sources(&["a"]);
    let settings = world.settings.clone();
    let speaker = BundleServer::new(out, move |handshake, host| {
        let memory = std::sync::Arc::new(());
        std::sync::Arc::new(Backends::start(sources, handshake, host, memory, settings))
    });
    let mut told = async || {
        let line = spoken.recv().await.expect("a line").line;
        serde_json::from_slice::<serde_json::Value>(&line).expect("JSON")
    };
    speaker
        .receive(br#"{"jsonrpc":2.0,"id":0,"method":"initialize","params":{}}"#)
        .await;
    assert_eq!(told().await["id"], 0);
    for (line, id, code) in [
        (
            r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"n":Nan}}"#,
            json!(4),
            -32700,
        ),
        (r#"{"id":5,"method":"x","method":"y"}"#, json!(5), -32600),
        ("nonsense", json!(null), -32700),
    ] {
        speaker.receive(line.as_bytes()).await;
        let answer = told().await;
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&id, &json!(code)),
            "{line}"
        );
    }
    speaker
        .receive(br#"[7,{"jsonrpc":"2.0","id":6,"method":"ping"}]"#)
        .await;
    assert_eq!(told().await["error"]["code"], -32600);
    assert_eq!(
        told().await,
        json!({"jsonrpc": "2.0", "id": 6, "result": {}})
    );
    let server = world.server("a");
    server
        .says(r#"{"jsonrpc":"2.0","id":3,"method":"sampling/createMessage"}"#)
        .await;
    assert_eq!(told().await["id"], "a:3");
    speaker
        .receive(br#"{"jsonrpc":"2.0","id":"a:3","result":{"n":Nan}}"#)
        .await;
    loop {
        let heard = server.hears().await;
        if heard["id"] == 3 {
            assert_eq!(
                heard["error"]["message"],
                "the host's answer can't be read as JSON-RPC"
            );
            break;
        }
    }
}
