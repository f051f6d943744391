//! Who gets what is said.

use serde_json::json;

use super::world::World;
use crate::*;

#[tokio::test(start_paused = true)]
async fn a_request_of_a_backend_is_answered_to_it() {
    let world = World::new(&[("a", &[]), ("b", &[])]);
    let mut made = world.made().await;
    made.heard();
    for server in ["a", "b"] {
        let ask = r#"{"jsonrpc":"2.0","id":3,"method":"sampling/createMessage","params":{"_meta":{"progressToken":"t"}}}"#;
        world.server(server).says(ask).await;
        let asked = made.hears().await;
        assert_eq!(asked["id"], format!("{server}:3"));
        assert_eq!(
            asked["params"]["_meta"]["progressToken"],
            format!("{server}:\"t\"")
        );
    }
    made.tells(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"b:\"t\"","progress":1}}"#).await;
    made.tells(r#"{"jsonrpc":"2.0","id":"b:3","result":{"role":"user"}}"#)
        .await;
    assert_eq!(
        world.server("b").hears().await["method"],
        "notifications/initialized"
    );
    assert_eq!(
        world.server("b").hears().await["params"],
        json!({"progressToken": "t", "progress": 1})
    );
    assert_eq!(world.server("b").hears().await["id"], 3);
    // Its own cancellation names the request as the host knows it.
    world
        .server("a")
        .says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#)
        .await;
    assert_eq!(made.hears().await["params"]["requestId"], "a:3");
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_reaches_who_works_on_the_call_alone() {
    let world = World::new(&[("a", &["x"]), ("b", &["y"])]);
    let made = world.made().await;
    for server in &world.servers {
        server.answers("tools/call", serde_json::Value::Null);
        assert_eq!(server.hears().await["method"], "notifications/initialized");
    }
    let cancelled = async {
        assert_eq!(world.server("b").hears().await["id"], 9);
        made.tells(
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#,
        )
        .await;
        assert_eq!(
            world.server("b").hears().await["method"],
            "notifications/cancelled"
        );
        made.tells(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#)
            .await;
        for server in &world.servers {
            assert_eq!(
                server.hears().await["method"],
                "notifications/roots/list_changed"
            );
        }
        world
            .server("b")
            .says(r#"{"jsonrpc":"2.0","id":9,"error":{"code":-1,"message":"no"}}"#)
            .await;
    };
    let (answer, ()) = tokio::join!(made.calls(9, "y"), cancelled);
    assert_eq!(answer.expect_err("cancelled").message, "no");
}

#[tokio::test(start_paused = true)]
async fn progress_comes_before_its_answer() {
    let world = World::new(&[("a", &["x"])]);
    let mut made = world.made().await;
    made.heard();
    world
        .server("a")
        .answers("tools/call", serde_json::Value::Null);
    let answered = async {
        while world.server("a").hears().await["method"] != "tools/call" {}
        for n in 0..10 {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": n}});
            world.server("a").says(&progress.to_string()).await;
        }
        world
            .server("a")
            .says(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"done"}]}}"#)
            .await;
    };
    let (answer, ()) = tokio::join!(made.calls(1, "x"), answered);
    assert_eq!(answer.expect("an answer"), "done");
    assert_eq!(made.heard(), ["notifications/progress"; 10]);
}

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
async fn a_resource_is_read_where_it_is() {
    let world = World::new(&[("a", &[]), ("b", &[])]);
    let made = world.made().await;
    let read = |uri: &'static str| {
        let bundle = made.bundle.clone();
        async move {
            let answer = bundle
                .call(Call::read_resource(Id::number(1), uri))
                .await
                .map_err(RpcError::from)?;
            let value: serde_json::Value =
                serde_json::from_str(answer.outcome?.get()).expect("JSON");
            Ok::<_, RpcError>(
                value["contents"][0]["text"]
                    .as_str()
                    .expect("a text")
                    .to_owned(),
            )
        }
    };
    // Listed, by a template, and by neither.
    for uri in ["b://x", "b://all/7", "b://other"] {
        assert_eq!(read(uri).await.expect("a text"), "b");
    }
    let error = read("c://x").await.expect_err("nobody has it");
    assert_eq!(
        (error.code, &*error.message),
        (-32002, "Unknown resource: c://x")
    );
}

#[tokio::test(start_paused = true)]
async fn the_level_of_logs_is_set_for_all_and_for_who_comes_again() {
    let world = World::new(&[("a", &[]), ("b", &[])]);
    let made = world.made().await;
    let level: Box<serde_json::value::RawValue> =
        serde_json::from_str(r#"{"level":"debug"}"#).expect("JSON");
    let call = Call::read(Id::number(1), "logging/setLevel", Some(&level)).expect("a call");
    assert_eq!(
        made.bundle
            .call(call)
            .await
            .expect("an answer")
            .outcome
            .expect("a result")
            .get(),
        "{}"
    );
    for server in &world.servers {
        while server.hears().await["method"] != "logging/setLevel" {}
    }
    world.server("b").dies();
    while world.server("b").hears().await["method"] != "logging/setLevel" {}
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
        r#"{"jsonrpc":"2.0","id":9,"result":{"content":[{"text":"x"}],"n":NaN}}"#,
        r#"[7,{"jsonrpc":"2.0","id":9,"result":{"n":NaN}},{"jsonrpc":"2.0","method":"x"}]"#,
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
        .says(r#"{"jsonrpc":"2.0","id":3,"method":"sampling/createMessage","params":{"n":NaN}}"#)
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
        std::sync::Arc::new(Backends::start(
            "s".to_owned(),
            sources,
            handshake,
            host,
            memory,
            settings,
        ))
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
            r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"n":NaN}}"#,
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
        .receive(br#"{"jsonrpc":"2.0","id":"a:3","result":{"n":NaN}}"#)
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
