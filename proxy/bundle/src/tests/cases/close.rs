//! The end of a bundle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use mcp_sessiond_jsonrpc::code;
use serde_json::json;
use tokio::sync::Notify;

use super::world::*;
use crate::*;

/// As in toolhive (`pkg/vmcp`): `session/admission_test.go` `TryAdmit_Open`, `TryAdmit_AfterClose`;
/// `session/default_session_test.go` `Close`.
#[tokio::test(start_paused = true)]
async fn a_call_after_close_is_an_error() {
    let a = Fake::new("a");
    a.tools(&["search"])
        .resources(&["file:///x"])
        .prompts(&["review"]);
    let world = World::of(&[&a]).await;
    world.bundle.close().await;
    for (method, params) in [
        ("tools/call", json!({"name": "search"})),
        ("resources/read", json!({"uri": "file:///x"})),
        ("prompts/get", json!({"name": "review"})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "review"}}),
        ),
        ("logging/setLevel", json!({"level": "info"})),
        ("tools/call", json!({"name": "nobody has this"})),
    ] {
        let error = world.ask("1", method, params).await.expect_err("closed");
        assert_eq!(
            (error.code, &*error.message),
            (code::CONNECTION, "the session was closed"),
            "{method}"
        );
        assert_eq!(a.count(method), 0);
    }
    for list in List::ALL {
        assert!(matches!(world.bundle.list(list).await, Err(Error::Closed)));
    }
    let is_closed = || {
        let status = world.bundle.status();
        status.status == BundleState::Closed
            && status
                .backends
                .iter()
                .all(|(_, state)| matches!(state, BackendState::Failed(_)))
    };
    assert!(is_closed());
    world
        .bundle
        .set_sources(vec![Arc::new(Fake::new("late"))], |_| true);
    assert!(is_closed() && world.bundle.status().backends.len() == 1);
}

/// As in toolhive (`pkg/vmcp`): `session/admission_test.go` `CloseAndDrain_BlocksUntilDone`,
/// `MultipleRequests_AllMustComplete`, `DoneCalledAfterDrainReturns_NoPanic`;
/// `session/default_session_test.go` `Close`.
#[tokio::test(start_paused = true)]
async fn close_waits_for_every_call_that_runs() {
    let a = Fake::new("a");
    let permission = Arc::new(Notify::new());
    a.tools(&["slow"])
        .reply("slow", Reply::When(permission.clone()));
    let world = Arc::new(World::of(&[&a]).await);
    let calls: Vec<_> = (0..10)
        .map(|id| world.spawn_tool(&id.to_string(), "slow"))
        .collect();
    a.hears("tools/call", 10).await;
    let mut close = world.bundle.close();
    for _ in 0..10 {
        assert!(is_pending(&mut close).await);
        permission.notify_one();
    }
    close.await;
    for call in calls {
        assert_eq!(
            call.await.expect("a call").expect("an answer"),
            "a has run slow"
        );
    }
    // None runs any more.
    world.bundle.close().await;
}

/// As in toolhive (`pkg/vmcp`): `session/admission_test.go` `CloseAndDrain_Idempotent`;
/// `session/default_session_test.go` `Close`.
#[tokio::test(start_paused = true)]
async fn a_second_close_waits_for_the_same_and_does_nothing() {
    let a = Fake::new("a");
    let permission = Arc::new(Notify::new());
    a.tools(&["slow"])
        .reply("slow", Reply::When(permission.clone()));
    let world = Arc::new(World::of(&[&a]).await);
    let call = world.spawn_tool("1", "slow");
    a.hears("tools/call", 1).await;
    let (mut first, mut second) = (world.bundle.close(), world.bundle.close());
    assert!(is_pending(&mut first).await && is_pending(&mut second).await);
    permission.notify_one();
    first.await;
    second.await;
    call.await.expect("a call").expect("an answer");
    world.bundle.close().await;
}

/// What lives on finds the next process as it was: a keeper, or a server elsewhere.
///
/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `Close`,
/// `Close_AllBackendsAttemptedOnError`.
#[tokio::test(start_paused = true)]
async fn close_hangs_up_on_every_backend_and_ends_none() {
    let (a, b, c, d) = (
        Fake::new("a"),
        Fake::new("b"),
        Fake::new("c"),
        Fake::new("d"),
    );
    b.reply("initialize", Reply::Never);
    c.opening(Opening::Hangs(Arc::default()));
    let world = World::start(
        &[&a, &b, &c, &d],
        Settings {
            init_concurrency: 4,
            ..settings()
        },
        Arc::new(()),
    );
    b.hears("initialize", 1).await;
    a.hears("prompts/list", 1).await;
    d.hears("prompts/list", 1).await;
    world.settle().await;
    // One that is being asked for its list again.
    d.reply("tools/list", Reply::Never)
        .changes(List::Tools, &["x"])
        .await;
    d.hears("tools/list", 2).await;
    world.bundle.close().await;
    for backend in [&a, &b, &d] {
        backend.is_alone().await;
    }
    assert_eq!([a.ends(), b.ends(), c.ends(), d.ends()], [0; 4]);
    assert_eq!([&a, &b, &c, &d].map(Fake::starts), [1; 4]);
    world.hears_nothing().await;
    assert_eq!(
        [&a, &b, &c, &d].map(Fake::starts),
        [1; 4],
        "none is started again"
    );
}

/// As in toolhive (`pkg/vmcp`): `session/admission_test.go` `ConcurrentTryAdmitAndClose_NoRaces`;
/// `router/session_router_test.go` `ConcurrentAccess`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_calls_and_a_close_at_once_each_is_answered_or_refused() {
    for _ in 0..50 {
        let a = Fake::new("a");
        a.tools(&["search"]);
        let world = Arc::new(World::of(&[&a]).await);
        let answered = Arc::new(AtomicUsize::new(0));
        let calls = (0..50).map(|id| {
            let (world, answered) = (world.clone(), answered.clone());
            tokio::spawn(async move {
                match world.tool(&id.to_string(), "search").await {
                    Ok(text) => assert_eq!(text, "a has run search"),
                    Err(error) => return assert_eq!(error.message, "the session was closed"),
                }
                answered.fetch_add(1, SeqCst);
            })
        });
        let calls: Vec<_> = calls.collect();
        world.bundle.close().await;
        let made = a.count("tools/call");
        for call in calls {
            call.await.expect("answered or refused");
        }
        // Whatever was made before the close was answered, and nothing was made after it.
        assert_eq!((answered.load(SeqCst), a.count("tools/call")), (made, made));
        a.is_alone().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_becomes_ready_in_the_moment_of_a_close_is_hung_up_on() {
    for round in 0..400 {
        let all = ["a", "b", "c", "d"].map(Fake::new);
        let world = World::start(
            &all.each_ref(),
            Settings {
                init_concurrency: 4,
                ..settings()
            },
            Arc::new(()),
        );
        // Somewhere between the first message and the last.
        let (method, count) =
            [("initialize", 1), ("tools/list", 1), ("prompts/list", 1)][round % 3];
        all[round % 4].hears(method, count).await;
        world.bundle.close().await;
        for backend in &all {
            assert_ne!(
                world.state(backend.name()),
                BackendState::Ready,
                "round {round}"
            );
            backend.is_alone().await;
        }
    }
}
