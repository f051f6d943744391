//! Lists, and their changes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;

use super::world::*;
use crate::*;

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `NewSessionFactory_MakeSession`,
/// `BuildRoutingTable`; `session/connector_integration_test.go` `CapabilityDiscovery`, `CallTool`,
/// `ReadResource`, `GetPrompt`; `aggregator` `QueryCapabilities`, `QueryAllCapabilities`,
/// `ResolveConflicts`, `MergeCapabilities`, `AggregateCapabilities`.
#[tokio::test(start_paused = true)]
async fn what_a_bundle_lists_is_what_its_backends_list() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let tool = json!({
        "name": "search", "title": "S", "description": "\u{e9}", "inputSchema": {"type": "object", "$defs": {}}, "outputSchema": {},
        "annotations": {"readOnlyHint": true, "own": 1}, "_meta": {"k": [1.50, null]}, "icons": [], "unheard_of": {},
    });
    let prompt = json!({"name": "review", "arguments": [{"name": "x", "required": true}]});
    let resource = json!({"uri": "file:///x", "name": "x", "mimeType": "text/plain", "size": 3});
    let template =
        json!({"uriTemplate": "file:///{y}", "name": "y", "annotations": {"priority": 0.5}});
    a.items(List::Tools, std::slice::from_ref(&tool))
        .items(List::Prompts, std::slice::from_ref(&prompt));
    b.items(List::Resources, std::slice::from_ref(&resource))
        .items(List::Templates, std::slice::from_ref(&template));
    let mut second = tool.clone();
    b.items(List::Tools, std::slice::from_ref(&tool));
    second["name"] = json!("b_search");
    let world = World::of(&[&a, &b]).await;
    for (list, expected) in [
        (List::Tools, vec![tool, second]),
        (List::Prompts, vec![prompt]),
        (List::Resources, vec![resource]),
        (List::Templates, vec![template]),
    ] {
        let items = world.bundle.list(list).await.expect("a list");
        let items: Vec<_> = items
            .iter()
            .map(|item| parsed(&item.members.write()))
            .collect();
        assert_eq!(items, expected);
    }
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `Accessors`.
#[tokio::test(start_paused = true)]
async fn returned_lists_are_copies() {
    let a = Fake::new("a");
    a.tools(&["search", "add"]);
    let world = World::of(&[&a]).await;
    let mut items = world.bundle.list(List::Tools).await.expect("a list");
    items[0].name = "other".into();
    items[0].members.set_text("description", "other");
    items.truncate(1);
    let again = world.bundle.list(List::Tools).await.expect("a list");
    assert_eq!(
        (
            again.len(),
            &*again[0].name,
            again[0].members.text("description")
        ),
        (2, "search", None)
    );
}

/// As in toolhive (`pkg/vmcp`): `session/internal/backend` `FollowsToolPagination`; `aggregator`
/// `DuplicateAtPageBoundary`.
#[tokio::test(start_paused = true)]
async fn all_pages_of_a_list_are_fetched() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let tools = |numbers: std::ops::Range<usize>| {
        numbers
            .map(|number| json!({"name": format!("t{number}")}))
            .collect::<Vec<_>>()
    };
    a.pages(
        List::Tools,
        vec![tools(0..100), vec![], tools(100..200), tools(200..250)],
    );
    // What is there twice at the end of a page takes nothing with it.
    b.pages(
        List::Resources,
        vec![
            vec![json!({"uri": "x:1"}), json!({"uri": "x:2"})],
            vec![json!({"uri": "x:2"}), json!({"uri": "x:3"})],
        ],
    );
    let world = World::of(&[&a, &b]).await;
    let names: Vec<String> = (0..250).map(|number| format!("t{number}")).collect();
    assert_eq!(world.names(List::Tools).await, names);
    assert_eq!(a.count("tools/list"), 4);
    assert_eq!(world.names(List::Resources).await, ["x:1", "x:2", "x:3"]);
}

/// As in toolhive (`pkg/vmcp`): `session/internal/backend` `RecoversFromMethodNotFound`,
/// `FatalErrors`.
#[tokio::test(start_paused = true)]
async fn a_list_that_a_backend_declares_and_does_not_have_is_empty() {
    let (a, b, c) = (Fake::new("a"), Fake::new("b"), Fake::new("c"));
    let no_method = || Reply::Error(json!({"code": -32601, "message": "Method not found"}));
    a.tools(&["search"])
        .reply("resources/list", no_method())
        .reply("resources/templates/list", no_method())
        .reply("prompts/list", no_method());
    b.resources(&["file:///x"]).reply("tools/list", no_method());
    c.tools(&["not declared"])
        .capabilities(json!({"prompts": {}}))
        .prompts(&["review"]);
    let world = World::of(&[&a, &b, &c]).await;
    assert_eq!(
        ["a", "b", "c"].map(|name| world.state(name)),
        [
            BackendState::Ready,
            BackendState::Ready,
            BackendState::Ready
        ]
    );
    assert_eq!(world.names(List::Tools).await, ["search"]);
    assert_eq!(world.names(List::Resources).await, ["file:///x"]);
    assert_eq!(world.names(List::Prompts).await, ["review"]);
    assert_eq!(
        (c.count("tools/list"), c.count("resources/list")),
        (0, 0),
        "what is not declared is not asked for"
    );
}

/// As in toolhive (`pkg/vmcp`): `session/internal/backend`.
#[tokio::test(start_paused = true)]
async fn an_error_of_a_list_leaves_that_list_out_until_it_is_there() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.tools(&["search"]).reply(
        "resources/list",
        Reply::Error(json!({"code": -32603, "message": "no database"})),
    );
    b.tools(&["find"])
        .reply("prompts/list", Reply::Result(json!({"prompts": 7})));
    let world = World::of(&[&a, &b]).await;
    assert_eq!(world.names(List::Tools).await, ["search", "find"]);
    let instructions = world.bundle.instructions();
    for says in [
        r#""a" did not give one of its lists: resources/list: no database."#,
        r#""b" did not give one"#,
    ] {
        assert!(instructions.contains(says), "{instructions}");
    }
    a.reply(
        "resources/list",
        Reply::Result(json!({"resources": [{"uri": "file:///x", "name": "x"}]})),
    );
    assert_eq!(
        world.told().await["method"],
        "notifications/resources/list_changed"
    );
    assert_eq!(world.names(List::Resources).await, ["file:///x"]);
    assert!(!world.bundle.instructions().contains("no database"));
}

/// As in toolhive (`pkg/vmcp`): `session/internal/backend`.
#[tokio::test(start_paused = true)]
async fn an_error_of_all_that_a_backend_lists_leaves_it_out() {
    let a = Fake::new("a");
    a.reply(
        "tools/list",
        Reply::Error(json!({"code": -32603, "message": "no database"})),
    );
    let world = World::of(&[&a]).await;
    let BackendState::Failed(failure) = world.state("a") else {
        panic!("it is used")
    };
    assert_eq!(
        (failure.code, &*failure.message),
        (FailureCode::Refused, "tools/list: no database")
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_ends_where_its_cursor_leads_nowhere_and_one_without_end_is_cut() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.reply(
        "tools/list",
        Reply::Result(json!({"tools": [{"name": "x"}], "nextCursor": "0"})),
    );
    let page = |n| vec![json!({"name": format!("t{n}")})];
    b.pages(List::Tools, (0..1_002).map(page).collect());
    let world = World::of(&[&a, &b]).await;
    let names = world.names(List::Tools).await;
    assert_eq!((&*names[0], names.len()), ("x", 1_001));
    assert_eq!(
        world.bundle.status().missing(),
        ["The server \"b\" has more in tools/list than is listed: it was cut after page 1000."]
    );
    // What was cut may be whole the next time.
    b.changes(List::Tools, &["search"]).await;
    while world.names(List::Tools).await != ["x", "search"] {
        world.told().await;
    }
    assert_eq!(world.bundle.status().missing(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_too_long_is_cut() {
    let (a, next) = (Fake::new("a"), Arc::new(Notify::new()));
    a.tools(&["x"])
        .reply("tools/list", Reply::When(next.clone()));
    a.pages(
        List::Tools,
        vec![vec![json!({"name": "x"})], vec![json!({"name": "y"})]],
    );
    next.notify_one();
    let world = World::of(&[&a]).await;
    assert_eq!(world.names(List::Tools).await, ["x"]);
    assert_eq!(
        world.bundle.status().missing(),
        ["The server \"a\" has more in tools/list than is listed: it was cut after page 1."]
    );
}

/// As in toolhive (`pkg/vmcp`): `aggregator` `ResourceAndTemplateDedup`,
/// `MergeCapabilities_FirstWinsOnDuplicates`, `DuplicateAtPageBoundary`.
#[tokio::test(start_paused = true)]
async fn what_a_backend_lists_twice_is_listed_once() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let first = json!({"name": "search", "description": "first"});
    a.items(
        List::Tools,
        &[
            first.clone(),
            json!({"name": "search", "description": "second"}),
            json!({"nameless": 1}),
            json!(7),
        ],
    );
    b.resources(&["x:1", "x:1"])
        .templates(&["x:{y}", "x:{y}"])
        .prompts(&["p", "p"]);
    let world = World::of(&[&a, &b]).await;
    let tools = world.bundle.list(List::Tools).await.expect("a list");
    assert_eq!(
        tools
            .iter()
            .map(|tool| parsed(&tool.members.write()))
            .collect::<Vec<_>>(),
        [first]
    );
    for list in [List::Resources, List::Templates, List::Prompts] {
        assert_eq!(world.names(list).await.len(), 1, "{list:?}");
    }
}

/// As in toolhive (`pkg/vmcp`): `aggregator` `DeterministicToolOrder`.
#[tokio::test(start_paused = true)]
async fn lists_have_the_order_of_the_file_and_then_that_of_the_backend() {
    let (z, a) = (Fake::new("z"), Fake::new("a"));
    let until = Arc::new(Notify::new());
    z.tools(&["second", "first"])
        .opening(Opening::Hangs(until.clone()));
    a.tools(&["open", "close", "again"]);
    let world = World::start(
        &[&z, &a],
        Settings {
            init_concurrency: 2,
            ..settings()
        },
        Arc::new(()),
    );
    a.hears("prompts/list", 1).await;
    world.settle().await;
    until.notify_one();
    world.bundle.ready().await;
    assert_eq!(
        world.names(List::Tools).await,
        ["second", "first", "open", "close", "again"]
    );
}

/// As in toolhive (`pkg/vmcp`): `session/factory_metadata_test.go`
/// `ThreadsListChangedSinkToConnector`; `session/internal/backend`
/// `ListChangedNotificationHandler_DispatchesByMethod`,
/// `ListChangedSink_FiresOnBackendNotification`.
#[tokio::test(start_paused = true)]
async fn a_change_of_one_backends_list_is_one_change_of_the_whole() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.tools(&["search"]);
    b.tools(&["search"]);
    let world = World::of(&[&a, &b]).await;
    for (list, names) in [
        (List::Tools, ["search", "add"]),
        (List::Prompts, ["p", "q"]),
        (List::Resources, ["x:1", "x:2"]),
        (List::Templates, ["x:{y}", "x:{z}"]),
    ] {
        b.changes(list, &names).await;
        let changed = world.told().await;
        assert_eq!(changed, json!({"jsonrpc": "2.0", "method": list.changed()}));
        // The host may ask at once.
        let names = if list == List::Tools {
            ["b_search", "add"]
        } else {
            names
        };
        assert!(
            world.names(list).await.ends_with(&names.map(str::to_owned)),
            "{list:?}"
        );
        world.hears_nothing().await;
    }
    assert_eq!(a.count("tools/list"), 1, "the other is not asked again");
    assert_eq!(
        (b.count("tools/list"), b.count("prompts/list")),
        (2, 2),
        "one list is fetched, and no other"
    );
}

#[tokio::test(start_paused = true)]
async fn a_changed_list_replaces_the_former_one() {
    let a = Fake::new("a");
    a.tools(&["search", "add"]);
    let world = World::of(&[&a]).await;
    a.changes(List::Tools, &["add", "find"]).await;
    world.told().await;
    assert_eq!(world.names(List::Tools).await, ["add", "find"]);
    assert!(world.tool("1", "find").await.is_ok());
    a.changes(List::Tools, &[]).await;
    world.told().await;
    assert!(world.names(List::Tools).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_changes_are_fetched_as_few() {
    let a = Fake::new("a");
    let permission = Arc::new(Notify::new());
    let world = World::of(&[&a]).await;
    a.reply("tools/list", Reply::When(permission.clone()));
    a.changes(List::Tools, &["t0"]).await;
    a.hears("tools/list", 2).await;
    for number in 1..50 {
        a.changes(List::Tools, &[&format!("t{number}")]).await;
    }
    world.settle().await;
    permission.notify_one();
    a.hears("tools/list", 3).await;
    permission.notify_one();
    for _ in 0..2 {
        world.told().await;
    }
    world.hears_nothing().await;
    assert_eq!(
        (a.count("tools/list"), world.names(List::Tools).await),
        (3, vec!["t49".into()])
    );
}

/// As in toolhive (`pkg/vmcp`): `session/internal/backend`
/// `ListChangedSink_DoesNotStallInFlightCall`.
#[tokio::test(start_paused = true)]
async fn while_a_changed_list_is_being_fetched_calls_go_on() {
    let a = Fake::new("a");
    a.tools(&["search"]);
    let world = World::of(&[&a]).await;
    a.reply("tools/list", Reply::Never);
    a.changes(List::Tools, &["search", "add"]).await;
    a.hears("tools/list", 2).await;
    assert_eq!(
        world.tool("1", "search").await.expect("an answer"),
        "a has run search"
    );
    assert_eq!(world.names(List::Tools).await, ["search"]);
    // A list that never comes is no reason to look away for ever.
    tokio::time::advance(Duration::from_secs(600)).await;
    world.settle().await;
    a.reply(
        "tools/list",
        Reply::Result(json!({"tools": [{"name": "add"}]})),
    );
    a.says(&json!({"jsonrpc": "2.0", "method": List::Tools.changed()}))
        .await;
    while world.told().await["method"] != List::Tools.changed() {}
    assert_eq!(world.names(List::Tools).await, ["add"]);
}

/// Some servers say that a list has changed while they are being asked for it.
#[tokio::test(start_paused = true)]
async fn a_change_before_a_backend_is_ready_is_not_lost() {
    let a = Fake::new("a");
    let permission = Arc::new(Notify::new());
    a.tools(&["search"])
        .reply("prompts/list", Reply::When(permission.clone()));
    let world = World::start(&[&a], settings(), Arc::new(()));
    a.hears("prompts/list", 1).await;
    a.changes(List::Tools, &["search", "add"]).await;
    permission.notify_one();
    a.hears("tools/list", 2).await;
    world.settle().await;
    assert_eq!(world.names(List::Tools).await, ["search", "add"]);
}

/// Others say so each time.
#[tokio::test(start_paused = true)]
async fn a_backend_that_always_says_its_list_has_changed_is_asked_now_and_then() {
    let a = Fake::new("a");
    let world = Arc::new(World::of(&[&a]).await);
    let (again, backend) = (world.clone(), a.clone());
    let telling = tokio::spawn(async move {
        for count in 2.. {
            backend.hears("tools/list", count).await;
            backend
                .says(&json!({"jsonrpc": "2.0", "method": List::Tools.changed()}))
                .await;
            again.settle().await;
        }
    });
    let (began, time) = (tokio::time::Instant::now(), Duration::from_secs(600));
    a.changes(List::Tools, &["search"]).await;
    a.hears("tools/list", 300).await;
    assert!(began.elapsed() <= time, "{:?}", began.elapsed());
    a.hears("tools/list", 320).await;
    assert!(began.elapsed() > time, "{:?}", began.elapsed());
    assert_eq!(
        world.tool("1", "search").await.expect("an answer"),
        "a has run search"
    );
    // When it is quiet again, a change is fetched at once.
    telling.abort();
    // First what was announced last is fetched.
    tokio::time::advance(time).await;
    world.settle().await;
    tokio::time::advance(time).await;
    let began = tokio::time::Instant::now();
    a.changes(List::Tools, &["add"]).await;
    world.told().await;
    assert_eq!(
        (began.elapsed(), world.names(List::Tools).await),
        (Duration::ZERO, vec!["add".into()])
    );
}

/// Names that are made up for each session, as servers do that put an id into them.
#[tokio::test(start_paused = true)]
async fn names_without_end_do_not_keep_a_change_from_being_heard() {
    let memory = Arc::new(Remembered::default());
    let a = Fake::new("a");
    let world = World::start(&[&a], settings(), memory);
    world.bundle.ready().await;
    for round in 0..4 {
        let names: Vec<String> = (0..names::REMEMBERED_MAX)
            .map(|number| format!("t{round}_{number}"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        a.changes(List::Tools, &names).await;
        let heard = tokio::time::timeout(Duration::from_secs(60), world.told()).await;
        assert_eq!(heard.expect("a change")["method"], List::Tools.changed());
        assert_eq!(world.names(List::Tools).await, names);
    }
}
