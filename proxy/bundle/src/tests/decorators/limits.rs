//! Limits of calls under way and of time.

use std::future::Future as _;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use serde_json::{Value, json};

use super::{decorated, two};
use crate::decorate::{CallEnd, CallLog};
use crate::lock::lock;
use crate::*;

/// Lets everybody who can go on do so: the clock is paused, and goes on only once all of them wait.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// As in toolhive (`pkg/vmcp`): `session/optimizerdec`, `codemode`, `internal/compositetools`,
/// `ratelimit`, `internal/backendtelemetry`.
#[tokio::test(start_paused = true)]
async fn calls_above_a_limit_wait_and_can_be_cancelled() {
    let (world, two) = decorated(two(), json!([{"calls": {"server": "a", "most": 2}}])).await;
    world.server("a").answers("tools/call", Value::Null);
    let two = Arc::new(two);
    let call = |id: u64| {
        let two = two.clone();
        tokio::spawn(async move { two.calls(id, "a_add").await })
    };
    let mut calls = Vec::new();
    for id in 1..=4 {
        calls.push(call(id));
        settle().await;
    }
    for id in [1, 2] {
        assert_eq!(world.server("a").hears().await["id"], id);
    }
    // The other server is not concerned.
    assert_eq!(
        two.calls(10, "b_search").await.expect("an answer"),
        "b search 1"
    );
    let twice = two.calls(3, "a_add").await.expect_err("twice");
    assert_eq!(
        (twice.code, &*twice.message),
        (-32600, "a request with the id 3 is not answered yet")
    );

    two.cancels(3).await;
    let error = calls
        .remove(2)
        .await
        .expect("a task")
        .expect_err("cancelled");
    assert_eq!(
        error.message,
        "the call was cancelled before a server had got it"
    );
    assert_eq!(error.data.expect("data").get(), r#"{"outcome":"not_sent"}"#);
    world
        .server("a")
        .says(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"done"}]}}"#)
        .await;
    assert_eq!(
        calls.remove(0).await.expect("a task").expect("an answer"),
        "done"
    );
    // Neither call nor cancellation of the one that waited has reached a server, and the next has
    // its turn.
    assert_eq!(world.server("a").hears().await["id"], 4);
    two.cancels(2).await;
    assert_eq!(world.server("a").hears().await["params"]["requestId"], 2);
    assert_eq!(world.server("b").hears().await["id"], 10);
    two.bundle.tell(Message::notification("last")).await;
    assert_eq!(world.server("b").hears().await["method"], "last");
    calls.into_iter().for_each(|call| call.abort());
}

/// As in toolhive (`pkg/vmcp`): `session/optimizerdec`, `codemode`, `internal/compositetools`,
/// `ratelimit`, `internal/backendtelemetry`.
#[tokio::test(start_paused = true)]
async fn so_many_calls_may_wait() {
    let (world, two) = decorated(two(), json!([{"calls": {"most": 1}}])).await;
    world.server("a").answers("tools/call", Value::Null);
    let mut calls: Vec<_> = (0..1001)
        .map(|id| Box::pin(two.calls(id, "a_add")))
        .collect();
    for call in &mut calls {
        assert!(
            call.as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    let error = two.calls(2000, "a_add").await.expect_err("too many");
    assert_eq!(
        error.message,
        "1000 calls wait already for the setting \"calls.most\"; this one was not made"
    );
    // Whoever is dropped makes room.
    calls.pop();
    let mut call = Box::pin(two.calls(2000, "a_add"));
    assert!(
        call.as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
}

/// As in toolhive (`pkg/vmcp`): `session/optimizerdec`, `codemode`, `internal/compositetools`,
/// `ratelimit`, `internal/backendtelemetry` `CallTool_ToolCallTimeout`.
#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_is_cancelled_and_never_answered_twice() {
    let with = json!([{"time": {"server": "a", "timeout_ms": 5_000}}, "log"]);
    let (world, mut two) = decorated(two(), with).await;
    two.made.heard();
    world.server("a").answers("tools/call", Value::Null);
    let began = tokio::time::Instant::now();
    let error = two.calls(7, "a_add").await.expect_err("too long");
    assert!(
        (5..6).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
    let why = "the setting \"time.timeout_ms\" of the server \"a\"";
    assert_eq!(
        error.message,
        format!(
            "the call took more than 5000 ms, the limit in {why}; the server was asked to cancel it, and it is not known what it has done"
        )
    );
    assert_eq!(
        (error.code, error.data.expect("data").get()),
        (-32001, r#"{"outcome":"unknown"}"#)
    );
    assert_eq!(world.server("a").hears().await["id"], 7);
    let cancelled = world.server("a").hears().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]),
        (
            &json!("notifications/cancelled"),
            &json!({"requestId": 7, "reason": format!("it took more than 5000 ms, the limit in {why}")})
        )
    );
    assert_eq!(lock(&two.notes.0)[0].ended, CallEnd::TooLong);
    // It answers nevertheless: the host hears what comes next, and not that.
    world
        .server("a")
        .says(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)
        .await;
    world
        .server("a")
        .says(r#"{"jsonrpc":"2.0","method":"next"}"#)
        .await;
    assert_eq!(two.made.hears().await["method"], "next");
    // Who closes does not wait for it.
    two.bundle.close().await;
}

#[tokio::test(start_paused = true)]
async fn time_counts_while_a_call_waits_where_its_limit_is_the_outer_one() {
    let outcome = |error: RpcError| error.data.expect("data").get().to_owned();
    let (time, calls) = (
        json!({"time": {"server": "a", "timeout_ms": 5_000}}),
        json!({"calls": {"most": 1}}),
    );
    for with in [json!([time, calls]), json!([calls, time])] {
        let is_outer = with[1] == time;
        let (world, two) = decorated(two(), with).await;
        for server in &world.servers {
            server.answers("tools/call", Value::Null);
        }
        let first = async {
            world.server("b").hears().await;
            tokio::time::sleep(Duration::from_secs(8)).await;
            world
                .server("b")
                .says(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"text":"done"}]}}"#)
                .await;
        };
        let second = async {
            settle().await;
            let began = tokio::time::Instant::now();
            (
                two.calls(2, "a_add").await.expect_err("too long"),
                began.elapsed().as_secs(),
            )
        };
        let (answer, (), (error, took)) = tokio::join!(two.calls(1, "b_search"), first, second);
        assert_eq!(answer.expect("an answer"), "done");
        if is_outer {
            assert!(
                error
                    .message
                    .ends_with("; it had to wait, and no server has got it"),
                "{error}"
            );
            assert_eq!(
                (outcome(error), took),
                (r#"{"outcome":"not_sent"}"#.to_owned(), 5)
            );
        } else {
            assert_eq!(
                (outcome(error), took),
                (r#"{"outcome":"unknown"}"#.to_owned(), 12)
            );
        }
        // No slot is lost.
        world
            .server("b")
            .answers("tools/call", json!({"content": [{"text": "again"}]}));
        assert_eq!(two.calls(3, "b_search").await.expect("an answer"), "again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cancels_a_waiting_call_gets_no_answer_to_it() {
    let world = two();
    world.server("a").answers("tools/call", Value::Null);
    let sources = world.sources(&["a"]);
    let (out, mut said) = tokio::sync::mpsc::channel(WAITING);
    let speaker = BundleServer::new(out, move |handshake, host| {
        let with = serde_json::from_value(json!([{"calls": {"most": 1}}])).expect("decorations");
        let bundle = Backends::start(sources, handshake, host, Arc::new(()), Settings::default());
        let log: Arc<dyn CallLog> = Arc::new(());
        decorate(Arc::new(bundle), &with, &log)
    });
    let says = async |line: Value| speaker.receive(line.to_string().as_bytes()).await;
    says(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})).await;
    let answer = said.recv().await.expect("an answer");
    assert!(answer.line.starts_with(br#"{"jsonrpc":"2.0","id":0"#));
    for id in [1, 2] {
        says(
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "add"}}),
        )
        .await;
        settle().await;
    }
    says(
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}),
    )
    .await;
    settle().await;
    world
        .server("a")
        .says(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#)
        .await;
    says(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/list"})).await;
    let mut ids = Vec::new();
    while ids.len() < 2 {
        let line: Value =
            serde_json::from_slice(&said.recv().await.expect("a message").line).expect("JSON");
        ids.extend(line["id"].as_u64());
    }
    ids.sort_unstable();
    assert_eq!(ids, [1, 3]);
}
