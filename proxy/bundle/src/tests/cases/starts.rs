//! How backends are started, and what becomes of a bundle when they end.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use mcp_sessiond_jsonrpc::code;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::world::*;
use crate::life::FAILED_WAIT;
use crate::*;

fn missing() -> Failure {
    Failure::new(FailureCode::NotFound, "there is no program gone-mcp")
}

/// The host hears that lists have changed, until it hears of this one.
async fn hears_of(world: &World, list: List) {
    while world.told().await["method"] != list.changed() {}
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `PartialInitialisation`;
/// `aggregator` `QueryCapabilities`, `QueryAllCapabilities`.
#[tokio::test(start_paused = true)]
async fn what_comes_up_is_used_and_what_does_not_is_named_with_why() {
    let (a, gone, crashes, refuses) = (
        Fake::new("a"),
        Fake::new("gone"),
        Fake::new("crashes"),
        Fake::new("refuses"),
    );
    a.tools(&["search"]).instructions("Search first.");
    gone.opening(Opening::Fails(missing()));
    crashes.reply("initialize", Reply::Dies);
    refuses.reply(
        "initialize",
        Reply::Error(json!({"code": -32603, "message": "no license"})),
    );
    let world = World::of(&[&a, &gone, &crashes, &refuses]).await;
    assert_eq!(world.names(List::Tools).await, ["search"]);
    assert_eq!(
        world.tool("1", "search").await.expect("an answer"),
        "a has run search"
    );
    let status = world.bundle.status();
    assert_eq!(status.status, BundleState::Ready);
    let states = status.backends.iter().map(|(name, state)| match state {
        BackendState::Failed(failure) => (&**name, Some((failure.code, &*failure.message))),
        state => (
            &**name,
            (*state != BackendState::Ready).then(|| panic!("{state:?}")),
        ),
    });
    let states: Vec<_> = states.collect();
    assert_eq!(states[0], ("a", None));
    assert_eq!(
        states[1],
        (
            "gone",
            Some((FailureCode::NotFound, "there is no program gone-mcp"))
        )
    );
    assert_eq!(states[2].1.expect("it failed").0, FailureCode::Exited);
    assert_eq!(
        states[3],
        (
            "refuses",
            Some((
                FailureCode::Refused,
                "it refused to be initialised: no license"
            ))
        )
    );
    let instructions = world.bundle.instructions();
    for said in [
        "# a\n\nSearch first.",
        "The server \"gone\" is not available: there is no program gone-mcp.",
        "\"crashes\"",
        "no license",
    ] {
        assert!(instructions.contains(said), "{instructions}");
    }
    // A model that asks for what it had once is told so, too.
    let error = world.tool("2", "lookup").await.expect_err("unknown");
    assert!(
        error
            .message
            .starts_with("Unknown tool: lookup. The server \"gone\" is not available"),
        "{error}"
    );
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `AllBackendsFail`;
/// `session/factory_revision_test.go` `AllBackendsFailedWarning`; `aggregator` `QueryCapabilities`,
/// `QueryAllCapabilities`.
#[tokio::test(start_paused = true)]
async fn where_all_fail_the_bundle_is_failed_and_still_answers() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.opening(Opening::Fails(missing()));
    b.opening(Opening::Fails(missing()));
    let world = World::of(&[&a, &b]).await;
    assert_eq!(world.bundle.status().status, BundleState::Failed);
    for list in List::ALL {
        assert!(world.names(list).await.is_empty());
    }
    assert!(
        world
            .tool("1", "x")
            .await
            .expect_err("unknown")
            .message
            .contains("gone-mcp")
    );
    // It is tried again.
    b.opening(Opening::Ready).tools(&["search"]);
    hears_of(&world, List::Tools).await;
    assert_eq!(world.bundle.status().status, BundleState::Ready);
    assert_eq!(
        world.tool("2", "search").await.expect("an answer"),
        "b has run search"
    );
    a.opening(Opening::Ready).tools(&["find"]);
    hears_of(&world, List::Tools).await;
    assert_eq!(world.names(List::Tools).await, ["find", "search"]);
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `NewSessionFactory_MakeSession`;
/// `session/factory_revision_test.go` `AllBackendsFailedWarning`.
#[tokio::test(start_paused = true)]
async fn a_bundle_without_backends_is_ready_and_empty() {
    let world = World::of(&[]).await;
    assert_eq!(
        (world.bundle.status().status, &*world.bundle.instructions()),
        (BundleState::Ready, "")
    );
    for list in List::ALL {
        assert!(world.names(list).await.is_empty());
    }
    assert_eq!(
        world.tool("1", "x").await.expect_err("unknown").message,
        "Unknown tool: x"
    );
    assert_eq!(
        world.read("x:y").await.expect_err("unknown").code,
        code::NO_RESOURCE
    );
    assert_eq!(
        world
            .ask("1", "logging/setLevel", json!({"level": "info"}))
            .await
            .expect("a result"),
        json!({})
    );
    world.bundle.close().await;
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `BackendInitTimeout`.
#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_left_out_after_its_time_and_joins_when_it_comes() {
    let (a, hangs, mute) = (Fake::new("a"), Fake::new("hangs"), Fake::new("mute"));
    let until = Arc::new(Notify::new());
    a.tools(&["search"]);
    hangs
        .tools(&["search"])
        .opening(Opening::Hangs(until.clone()));
    mute.tools(&["find"]).reply("tools/list", Reply::Never);
    let (init_timeout, ready_wait) = (Duration::from_secs(5), Duration::from_secs(1));
    let settings = Settings {
        init_concurrency: 3,
        init_timeout,
        ready_wait,
        ..settings()
    };
    let began = Instant::now();
    let world = World::start(&[&a, &hangs, &mute], settings, Arc::new(()));
    world.bundle.ready().await;
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    assert_eq!(world.names(List::Tools).await, ["search"]);
    assert_eq!(
        (world.bundle.status().status, world.state("hangs")),
        (BundleState::Initializing, BackendState::Initializing)
    );
    assert!(
        world
            .bundle
            .instructions()
            .contains("The server \"hangs\" is still starting.")
    );
    mute.is_ended(1).await;
    tokio::task::yield_now().await;
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    for name in ["hangs", "mute"] {
        let BackendState::Failed(failure) = world.state(name) else {
            panic!("{name}")
        };
        assert_eq!(
            (failure.code, &*failure.message),
            (FailureCode::TimedOut, "it was not ready within 5 s")
        );
    }
    world.settle().await;
    until.notify_one();
    mute.reply("tools/list", Reply::Result(json!({"tools": []})));
    hears_of(&world, List::Tools).await;
    assert_eq!(world.names(List::Tools).await, ["search", "hangs_search"]);
    assert_eq!(world.state("hangs"), BackendState::Ready);
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `ParallelInit`.
#[tokio::test(start_paused = true)]
async fn never_more_start_at_once_than_allowed() {
    let starting = Arc::default();
    let until = Arc::new(Notify::new());
    let all: Vec<Fake> = (0..12)
        .map(|number| Fake::starting(&format!("b{number}"), &starting))
        .collect();
    for (number, backend) in all.iter().enumerate() {
        backend.tools(&["x"]).opening(Opening::Hangs(until.clone()));
        // Those that are slow to introduce themselves count as well.
        if number % 3 == 0 {
            backend
                .opening(Opening::Ready)
                .reply("initialize", Reply::When(until.clone()));
        }
    }
    let all: Vec<&Fake> = all.iter().collect();
    let settings = Settings {
        init_concurrency: 4,
        init_timeout: Duration::from_secs(1),
        ..settings()
    };
    let world = World::start(&all, settings, Arc::new(()));
    loop {
        world.settle().await;
        let is = |wanted: &BackendState| {
            world
                .bundle
                .status()
                .backends
                .iter()
                .filter(|(_, state)| state == wanted)
                .count()
        };
        assert!(is(&BackendState::Initializing) <= 4);
        if is(&BackendState::Ready) == all.len() {
            break;
        }
        until.notify_one();
    }
    assert!((3..=4).contains(&starting.most.load(SeqCst)));
    assert_eq!(world.names(List::Tools).await.len(), 12);
}

#[tokio::test(start_paused = true)]
async fn who_was_never_tried_is_told_apart_from_who_starts() {
    let all = ["a", "b", "c", "d", "e"].map(Fake::new);
    for backend in &all {
        backend.opening(Opening::Hangs(Arc::default()));
    }
    let settings = Settings {
        init_concurrency: 2,
        ..settings()
    };
    let world = World::start(&all.each_ref(), settings, Arc::new(()));
    world.settle().await;
    let states = world.bundle.status().backends;
    let is = |wanted: BackendState| states.iter().filter(|(_, state)| *state == wanted).count();
    assert_eq!(
        (is(BackendState::Initializing), is(BackendState::NeverTried)),
        (2, 3),
        "{states:?}"
    );
    assert_eq!(
        all.each_ref()
            .map(|backend| backend.starts())
            .iter()
            .sum::<usize>(),
        2
    );
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go`
/// `WithMaxBackendInitConcurrency_IgnoresNonPositive`, `WithBackendInitTimeout_IgnoresNonPositive`.
#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_starts_one_at_a_time() {
    let starting = Arc::default();
    let (a, b) = (
        Fake::starting("a", &starting),
        Fake::starting("b", &starting),
    );
    let until = Arc::new(Notify::new());
    a.tools(&["x"]).opening(Opening::Hangs(until.clone()));
    b.tools(&["y"]).opening(Opening::Hangs(until.clone()));
    let world = World::start(
        &[&a, &b],
        Settings {
            init_concurrency: 0,
            ..settings()
        },
        Arc::new(()),
    );
    for _ in 0..2 {
        until.notify_one();
        hears_of(&world, List::Tools).await;
    }
    assert_eq!(
        (
            world.names(List::Tools).await.len(),
            starting.most.load(SeqCst)
        ),
        (2, 1)
    );
}

/// What a failed start has opened, or what leaves the file while it starts, is ended and not
/// forgotten.
///
/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go`
/// `ConnectorReturnsNilWithoutError`, `ConnectorReturnsConnWithError`.
#[tokio::test(start_paused = true)]
async fn a_start_that_fails_leaves_no_backend_behind() {
    let fails = |name: &str, what: &str, reply: Reply| {
        let fake = Fake::new(name);
        fake.reply(what, reply);
        fake
    };
    let error = || Reply::Error(json!({"code": -32603, "message": "boom"}));
    let all = [
        fails("refuses", "initialize", error()),
        fails("mute", "initialize", Reply::Never),
        fails("odd", "initialize", Reply::Result(json!([]))),
        fails("boom", "resources/list", error()),
        fails("listless", "prompts/list", Reply::Result(json!({}))),
        fails("late", "tools/list", Reply::Never),
        fails("dies", "tools/list", Reply::Dies),
    ];
    let world = World::of(&all.each_ref()).await;
    for backend in &all {
        timeout(Duration::from_secs(60), backend.is_ended(1))
            .await
            .unwrap_or_else(|_| panic!("{:?}", world.state(backend.name())));
        assert!(
            matches!(world.state(backend.name()), BackendState::Failed(_)),
            "{}",
            backend.name()
        );
    }
    let (starts, used) = (
        fails("starts", "initialize", Reply::Never),
        Fake::new("used"),
    );
    world
        .bundle
        .set_sources(sources(&[&starts, &used]), |_| true);
    starts.hears("initialize", 1).await;
    used.hears("prompts/list", 1).await;
    world.settle().await;
    world.bundle.set_sources(Vec::new(), |_| true);
    for backend in [&used, &starts] {
        let ended = timeout(Duration::from_secs(60), backend.is_ended(1)).await;
        assert!(ended.is_ok(), "{} lives on", backend.name());
    }
}

/// As in toolhive (`pkg/vmcp`): `session/factory_revision_test.go` `RevisionAwareSkip`,
/// `ColdStartRecheckAvoidsWarning`.
#[tokio::test(start_paused = true)]
async fn a_backend_of_a_version_that_a_bundle_does_not_speak_is_named_with_its_version() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.version("2026-07-28");
    b.version("2024-11-05").tools(&["old"]);
    let world = World::of(&[&a, &b]).await;
    let BackendState::Failed(failure) = world.state("a") else {
        panic!("it is used")
    };
    assert_eq!(failure.code, FailureCode::Refused);
    assert!(failure.message.contains("2026-07-28"), "{failure}");
    assert_eq!(world.names(List::Tools).await, ["old"]);
}

/// As in toolhive (`pkg/vmcp`): `session/factory_metadata_test.go`
/// `RestoreSession_FreshlyPopulatesMetadataKeyBackendIDs`.
#[tokio::test(start_paused = true)]
async fn names_come_back_from_memory_before_a_backend_is_up() {
    let memory = Arc::new(Remembered::default());
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.tools(&["search"]);
    b.tools(&["search"]);
    let first = World::start(&[&a, &b], settings(), memory.clone());
    first.bundle.ready().await;
    assert_eq!(first.names(List::Tools).await, ["search", "b_search"]);
    first.bundle.close().await;
    // Now the other one is there first, and nobody has waited for either.
    let until = Arc::new(Notify::new());
    a.opening(Opening::Hangs(until.clone()));
    let second = Arc::new(World::start(
        &[&a, &b],
        Settings {
            init_concurrency: 2,
            ..settings()
        },
        memory,
    ));
    let calls = [
        second.spawn_tool("1", "search"),
        second.spawn_tool("2", "b_search"),
    ];
    b.hears("tools/call", 1).await;
    assert_eq!(second.names(List::Tools).await, ["b_search"]);
    until.notify_one();
    let [of_a, of_b] = calls;
    assert_eq!(
        of_a.await
            .expect("a call")
            .expect("it waits for its backend"),
        "a has run search"
    );
    assert_eq!(
        of_b.await.expect("a call").expect("an answer"),
        "b has run search"
    );
    assert_eq!(second.names(List::Tools).await, ["search", "b_search"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_failed_is_waited_for_a_second_the_next_time() {
    let memory = Arc::new(Remembered::default());
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.opening(Opening::Fails(missing())).tools(&["find"]);
    b.tools(&["search"]);
    let start = || World::start(&[&a, &b], settings(), memory.clone());
    start().bundle.ready().await;
    let until = Arc::new(Notify::new());
    a.opening(Opening::Hangs(until.clone()));
    let world = start();
    let began = Instant::now();
    world.bundle.ready().await;
    assert_eq!(began.elapsed(), FAILED_WAIT);
    let BackendState::Failed(failure) = world.state("a") else {
        panic!("it is used")
    };
    let why = "it failed at its last start: there is no program gone-mcp";
    assert_eq!(
        (failure.code, &*failure.message),
        (FailureCode::NotFound, why)
    );
    until.notify_one();
    while world.names(List::Tools).await != ["find", "search"] {
        world.told().await;
    }
    // It is waited for again.
    a.opening(Opening::Hangs(until));
    let (world, began) = (start(), Instant::now());
    world.bundle.ready().await;
    assert_eq!(began.elapsed(), settings().init_timeout);
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `ErrNoBackendClient`.
#[tokio::test(start_paused = true)]
async fn a_name_that_is_remembered_leads_to_a_backend_that_is_missing_and_the_error_says_so() {
    let memory = Arc::new(Remembered::default());
    let a = Fake::new("a");
    a.tools(&["search"]).prompts(&["review"]);
    World::start(&[&a], settings(), memory.clone())
        .bundle
        .ready()
        .await;
    a.opening(Opening::Fails(missing()));
    let world = World::start(&[&a], settings(), memory);
    world.bundle.ready().await;
    assert!(world.names(List::Tools).await.is_empty());
    for (method, name) in [("tools/call", "search"), ("prompts/get", "review")] {
        let error = world
            .ask("1", method, json!({"name": name}))
            .await
            .expect_err("missing");
        assert_eq!(error.code, code::CONNECTION);
        assert_eq!(
            error.message,
            "the server \"a\" is not available: there is no program gone-mcp"
        );
        assert_eq!(error.data.expect("data").get(), r#"{"outcome":"not_sent"}"#);
    }
}

/// As in toolhive (`pkg/vmcp`): `session/factory_metadata_test.go`
/// `RestoreSession_FreshlyPopulatesMetadataKeyBackendIDs`.
#[tokio::test(start_paused = true)]
async fn names_of_a_backend_that_left_the_file_are_free() {
    let memory = Arc::new(Remembered::default());
    let (a, b, c) = (Fake::new("a"), Fake::new("b"), Fake::new("c"));
    for backend in [&a, &b, &c] {
        backend.tools(&["search"]);
    }
    let world = World::start(&[&a, &b], settings(), memory.clone());
    world.bundle.ready().await;
    world.bundle.set_sources(sources(&[&c, &b]), |_| true);
    a.is_ended(1).await;
    world.bundle.ready().await;
    assert_eq!(world.names(List::Tools).await, ["search", "b_search"]);
    assert_eq!(
        world.tool("1", "search").await.expect("an answer"),
        "c has run search"
    );
    assert_eq!((b.starts(), b.ends()), (1, 0), "it was not touched");
    // Also in the next process.
    world.bundle.close().await;
    let world = World::start(&[&b, &c], settings(), memory);
    world.bundle.ready().await;
    assert_eq!(world.names(List::Tools).await, ["b_search", "search"]);
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `BackendCrashResilience`.
#[tokio::test(start_paused = true)]
async fn the_death_of_one_changes_nothing_for_the_other() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let permission = Arc::new(Notify::new());
    a.tools(&["dies", "search"]).reply("dies", Reply::Dies);
    b.tools(&["slow", "search"])
        .reply("slow", Reply::When(permission.clone()));
    let world = Arc::new(World::of(&[&a, &b]).await);
    let slow = world.spawn_tool("1", "slow");
    b.hears("tools/call", 1).await;
    let error = world.tool("2", "dies").await.expect_err("it died");
    assert_eq!(error.code, code::CONNECTION);
    assert_eq!(error.data.expect("data").get(), r#"{"outcome":"unknown"}"#);
    assert!(error.message.contains("\"a\""), "{}", error.message);
    hears_of(&world, List::Tools).await;
    assert_eq!(
        world.names(List::Tools).await,
        ["slow", "b_search"],
        "the name of the other is as it was"
    );
    assert_eq!(
        world.tool("3", "b_search").await.expect("an answer"),
        "b has run search"
    );
    permission.notify_one();
    slow.await.expect("a call").expect("an answer");
    // It is started again, and nothing was run twice.
    hears_of(&world, List::Tools).await;
    assert_eq!(
        world.tool("4", "search").await.expect("an answer"),
        "a has run search"
    );
    assert_eq!((a.starts(), b.starts(), a.count("tools/call")), (2, 1, 2));
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go`.
#[tokio::test(start_paused = true)]
async fn a_bundle_whose_backends_have_all_died_stays_open() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    for (backend, tool) in [(&a, "x"), (&b, "y")] {
        backend.tools(&[tool]).reply("tools/call", Reply::Dies);
    }
    let world = World::of(&[&a, &b]).await;
    for tool in ["x", "y"] {
        assert_eq!(
            world.tool(tool, tool).await.expect_err("it died").code,
            code::CONNECTION
        );
    }
    a.is_ended(1).await;
    b.is_ended(1).await;
    assert_eq!(world.bundle.status().status, BundleState::Failed);
    for tool in ["x", "y"] {
        let error = world.tool(tool, tool).await.expect_err("it is gone");
        assert_eq!(error.data.expect("data").get(), r#"{"outcome":"not_sent"}"#);
    }
    world.bundle.close().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_started_again_at_once_keeps_calls_waiting_and_nobody_else() {
    let a = Fake::new("a");
    a.tools(&["dies"]).reply("tools/call", Reply::Dies);
    let settings = Settings {
        retry_at_once: true,
        retry: (Duration::from_secs(3600), Duration::from_secs(3600)),
        ..settings()
    };
    let world = World::start(&[&a], settings, Arc::new(()));
    world.bundle.ready().await;
    let lost = world.tool("1", "dies").await.expect_err("it died");
    assert_eq!(lost.data.expect("data").get(), r#"{"outcome":"unknown"}"#);
    // It has got this one, too: it is there again, before any pause.
    let lost = world.tool("2", "dies").await.expect_err("it died again");
    assert_eq!(lost.data.expect("data").get(), r#"{"outcome":"unknown"}"#);
    // One that dies again and again is not.
    a.is_ended(2).await;
    let refused = world.tool("3", "dies").await.expect_err("it is away");
    assert_eq!(
        refused.data.expect("data").get(),
        r#"{"outcome":"not_sent"}"#
    );
    assert_eq!((a.starts(), a.count("tools/call")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn what_the_host_has_said_before_is_said_to_a_backend_that_is_started_again() {
    let a = Fake::new("a");
    a.resources(&["file:///x", "file:///y"]);
    let world = World::of(&[&a]).await;
    for (method, uri) in [
        ("resources/subscribe", "file:///x"),
        ("resources/subscribe", "file:///y"),
        ("resources/unsubscribe", "file:///y"),
    ] {
        world
            .ask("1", method, json!({"uri": uri}))
            .await
            .expect("a result");
    }
    world
        .ask("1", "logging/setLevel", json!({"level": "error"}))
        .await
        .expect("a result");
    // An answer to it is not what one waits for.
    a.reply("logging/setLevel", Reply::Never);
    a.dies();
    assert_eq!(
        a.hears("logging/setLevel", 2).await,
        json!({"level": "error"})
    );
    let again = timeout(Duration::from_secs(60), a.hears("resources/subscribe", 3)).await;
    assert_eq!(
        again.expect("it subscribes again"),
        json!({"uri": "file:///x"})
    );
    while world.state("a") != BackendState::Ready {
        hears_of(&world, List::Resources).await;
    }
    assert_eq!(a.count("resources/subscribe"), 3);
}
