//! How the backends of a bundle come up.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::world::{Start, World};
use crate::*;

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

#[tokio::test(start_paused = true)]
async fn twelve_backends_of_which_four_do_not_come_up() {
    let servers: Vec<(&str, &[&str])> = NAMES.iter().map(|name| (*name, &["search"][..])).collect();
    let mut world = World::new(&servers);
    world.settings.init_concurrency = 4;
    world.settings.init_timeout = Duration::from_secs(1);
    for (name, start) in [
        ("a", Start::Hangs),
        ("d", Start::Crashes),
        ("f", Start::Hangs),
        ("k", Start::IsMissing),
    ] {
        world.server(name).will(start);
    }
    let began = tokio::time::Instant::now();
    let mut made = world.made().await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    let status = made.bundle.status();
    assert_eq!(status.status, BundleState::Ready);
    let code = |name: &str| match &status
        .backends
        .iter()
        .find(|(of, _)| of == name)
        .expect("a backend")
        .1
    {
        BackendState::Failed(failure) => Some(failure.code),
        BackendState::Ready => None,
        state => panic!("{state:?}"),
    };
    let codes = NAMES.map(code);
    let (timed_out, exited, missing) = (
        Some(FailureCode::TimedOut),
        Some(FailureCode::Exited),
        Some(FailureCode::NotFound),
    );
    assert_eq!(
        codes,
        [
            timed_out, None, None, exited, None, timed_out, None, None, None, None, missing, None
        ]
    );
    assert!(world.starting.most.load(Ordering::SeqCst) <= 4);
    assert_eq!(made.names(List::Tools).await.len(), 8);
    let instructions = made.bundle.instructions();
    for sentence in [
        "The server \"a\" is not available: it was not ready within 1 s.",
        "The server \"d\" is not available: it ended before it was ready.",
        "The server \"k\" is not available: there is no such program.",
        "# b\n\nAbout b.",
    ] {
        assert!(instructions.contains(sentence), "{instructions}");
    }
    // A model that knows the name from before is told the same.
    let error = made.calls(1, "k_search").await.expect_err("no such tool");
    assert!(
        error
            .message
            .contains("\"k\" is not available: there is no such program"),
        "{error}"
    );

    // One is mended, and joins.
    made.heard();
    world.server("k").will(Start::Works);
    assert!(made.bundle.retry("k"));
    assert_eq!(
        made.hears().await["method"],
        "notifications/prompts/list_changed"
    );
    assert_eq!(
        made.hears().await["method"],
        "notifications/resources/list_changed"
    );
    assert_eq!(
        made.hears().await["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(made.names(List::Tools).await.len(), 9);
    assert_eq!(
        made.calls(2, "k_search").await.expect("an answer"),
        "k search 1"
    );
    assert!(world.starting.most.load(Ordering::SeqCst) <= 4);
    assert!(!made.bundle.retry("nobody"));
}

#[tokio::test(start_paused = true)]
async fn who_comes_late_joins() {
    let mut world = World::new(&[("slow", &["x"]), ("quick", &["y"])]);
    world.settings.ready_wait = Duration::from_secs(1);
    world
        .server("slow")
        .will(Start::Takes(Duration::from_secs(3)));
    let mut made = world.made().await;
    assert_eq!(made.bundle.status().status, BundleState::Initializing);
    assert_eq!(
        made.bundle.status().missing(),
        ["The server \"slow\" is still starting."]
    );
    assert_eq!(made.names(List::Tools).await, ["y"]);
    made.heard();
    assert_eq!(
        made.hears().await["method"],
        "notifications/prompts/list_changed"
    );
    made.until("slow", |state| *state == BackendState::Ready)
        .await;
    // In the order of the file.
    assert_eq!(made.names(List::Tools).await, ["x", "y"]);
    assert_eq!(made.bundle.status().status, BundleState::Ready);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_not_begun_is_told_from_one_that_has_failed() {
    let mut world = World::new(&[("a", &[]), ("b", &[]), ("c", &[])]);
    world.settings.init_concurrency = 1;
    world.settings.init_timeout = Duration::from_secs(2);
    world.settings.ready_wait = Duration::from_secs(1);
    world.server("a").will(Start::IsMissing);
    world.server("b").will(Start::Hangs);
    let made = world.made().await;
    let states: Vec<_> = made
        .bundle
        .status()
        .backends
        .into_iter()
        .map(|(_, state)| state)
        .collect();
    assert!(
        matches!(
            &states[..],
            [
                BackendState::Failed(_),
                BackendState::Initializing,
                BackendState::NeverTried
            ]
        ),
        "{states:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn where_all_have_failed_the_whole_has() {
    let world = World::new(&[("a", &[]), ("b", &[])]);
    world
        .servers
        .iter()
        .for_each(|server| server.will(Start::IsMissing));
    assert_eq!(
        world.made().await.bundle.status().status,
        BundleState::Failed
    );
    assert_eq!(
        World::new(&[]).made().await.bundle.status().status,
        BundleState::Ready
    );
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_is_lost_is_started_again_and_changes_nothing_for_the_other() {
    let mut world = World::new(&[("a", &["search"]), ("b", &["search"])]);
    world.settings.init_concurrency = 1;
    let mut made = world.made().await;
    made.heard();
    world
        .server("b")
        .answers("tools/call", serde_json::Value::Null);
    let call = made.calls(1, "b_search");
    let lost = async {
        while world.server("b").hears().await["method"] != "tools/call" {}
        world.server("b").dies();
    };
    let (lost, ()) = tokio::join!(call, lost);
    let lost = lost.expect_err("lost");
    assert_eq!(
        (lost.code, lost.data.expect("data").get()),
        (-32000, r#"{"outcome":"unknown"}"#)
    );
    assert_eq!(made.names(List::Tools).await, ["search"]);
    assert_eq!(
        made.calls(2, "search").await.expect("an answer"),
        "a search 1"
    );
    let error = made.calls(3, "b_search").await.expect_err("it is away");
    assert_eq!(
        (error.code, error.data.expect("data").get()),
        (-32000, r#"{"outcome":"not_sent"}"#)
    );
    world.server("b").answers(
        "tools/call",
        serde_json::json!({"content": [{"text": "again"}]}),
    );
    made.until("b", |state| *state == BackendState::Ready).await;
    assert_eq!(made.calls(4, "b_search").await.expect("an answer"), "again");
    assert_eq!(world.server("a").started.load(Ordering::SeqCst), 1);
    assert_eq!(world.server("b").started.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn the_file_is_edited() {
    let world = World::new(&[("a", &["x"]), ("b", &["y"]), ("c", &["z"])]);
    let mut made = world.made().await;
    made.heard();
    made.bundle
        .set_sources(world.sources(&["c", "a"]), |name| name != "a");
    made.until("a", |state| *state == BackendState::Ready).await;
    assert_eq!(made.names(List::Tools).await, ["z", "x"]);
    assert!(
        made.heard()
            .contains(&"notifications/tools/list_changed".to_owned())
    );
    let started = ["a", "b", "c"].map(|name| world.server(name).started.load(Ordering::SeqCst));
    assert_eq!(started, [2, 1, 1]);
    made.bundle
        .set_sources(world.sources(&["c", "b"]), |_| true);
    made.until("b", |state| *state == BackendState::Ready).await;
    assert_eq!(made.names(List::Tools).await, ["z", "y"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_after_close_is_an_error_and_close_waits_for_what_runs() {
    let world = World::new(&[("a", &["x"])]);
    let made = world.made().await;
    world
        .server("a")
        .answers("tools/call", serde_json::Value::Null);
    let bundle = made.bundle.clone();
    let call = made.calls(7, "x");
    let closed = async {
        while world.server("a").hears().await["method"] != "tools/call" {}
        let mut closing = tokio::spawn(async move { bundle.close().await });
        let early = tokio::time::timeout(Duration::from_secs(60), &mut closing).await;
        assert!(early.is_err(), "it waits for the call");
        assert_eq!(
            made.calls(8, "x").await.expect_err("closed").message,
            "the session was closed"
        );
        world
            .server("a")
            .says(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"text":"done"}]}}"#)
            .await;
        closing.await.expect("closed");
    };
    let (answer, ()) = tokio::join!(call, closed);
    assert_eq!(answer.expect("an answer"), "done");
    assert!(matches!(
        made.bundle.list(List::Tools).await,
        Err(Error::Closed)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_call_at_a_backend_that_leaves_the_file_is_lost_and_keeps_no_close_waiting() {
    let world = World::new(&[("a", &["x"]), ("b", &["y"])]);
    let made = world.made().await;
    world
        .server("b")
        .answers("tools/call", serde_json::Value::Null);
    let removed = async {
        while world.server("b").hears().await["method"] != "tools/call" {}
        made.bundle.set_sources(world.sources(&["a"]), |_| true);
    };
    let (lost, ()) = tokio::join!(made.calls(1, "y"), removed);
    assert_eq!(
        lost.expect_err("lost").data.expect("data").get(),
        r#"{"outcome":"unknown"}"#
    );
    made.bundle.close().await;
}

/// Remembers nothing, and takes as long as it is told to.
#[derive(Debug, Default)]
struct Slow {
    /// How often it was asked.
    asked: tokio::sync::watch::Sender<u32>,
    answers: tokio::sync::watch::Sender<bool>,
}

impl BundleStore for Slow {
    fn load(&self) -> futures::future::BoxFuture<'_, Names> {
        Box::pin(async {
            self.asked.send_modify(|asked| *asked += 1);
            let _ = self.answers.subscribe().wait_for(|answers| *answers).await;
            Names::default()
        })
    }

    fn save(&self, _: Names) -> futures::future::BoxFuture<'_, Option<Names>> {
        Box::pin(std::future::ready(None))
    }
}

#[tokio::test(start_paused = true)]
async fn a_memory_that_is_slow_is_asked_once_for_all() {
    let servers: Vec<(&str, &[&str])> = NAMES.iter().map(|name| (*name, &[][..])).collect();
    let world = World::new(&servers);
    let slow = std::sync::Arc::new(Slow::default());
    let made = world.with(slow.clone());
    let answering = async {
        let asked = slow
            .asked
            .subscribe()
            .wait_for(|asked| *asked > 0)
            .await
            .is_ok();
        assert!(asked, "it is asked");
        slow.answers.send_replace(true);
    };
    tokio::join!(made.bundle.ready(), answering);
    assert_eq!(*slow.asked.borrow(), 1, "once for all servers");
    assert_eq!(made.bundle.status().missing(), [""; 0]);
}
