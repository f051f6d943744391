//! Calls, and what backends ask and tell.

use std::sync::Arc;

use mcp_sessiond_jsonrpc::code;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::world::*;
use crate::*;

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `CallTool`, `ReadResource`,
/// `GetPrompt`; `session/connector_integration_test.go` `CapabilityDiscovery`, `CallTool`,
/// `ReadResource`, `GetPrompt`; `router/session_router_test.go` `RouteTool`, `RouteResource`,
/// `RoutePrompt`.
#[tokio::test(start_paused = true)]
async fn a_call_reaches_its_backend_and_the_result_comes_back_as_it_was_written() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.tools(&["search"])
        .prompts(&["review"])
        .resources(&["file:///x"]);
    b.tools(&["search"]).reply(
        "tools/call",
        Reply::Result(json!({"isError": true, "content": [], "own": [1.5, null]})),
    );
    let world = World::of(&[&a, &b]).await;
    let meta = json!({"progressToken": "t", "io.modelcontextprotocol/x": {"y": 1}, "own": 1});
    let params = json!({"_meta": meta, "arguments": {"deep": [1, {"z": null}]}, "name": "b_search", "more": 1});
    let result = world
        .ask("i", "tools/call", params.clone())
        .await
        .expect("a result");
    assert_eq!(
        result,
        json!({"isError": true, "content": [], "own": [1.5, null]})
    );
    let mut expected = params;
    expected["name"] = json!("search");
    assert_eq!(b.hears("tools/call", 1).await, expected);
    let id = b.heard().into_iter().find_map(|message| match message {
        Message::Request { id, method, .. } if method == "tools/call" => Some(id),
        _ => None,
    });
    assert_eq!(id, Some(Id::text("i")), "the host's own id");
    assert_eq!(world.read("file:///x").await.expect("a resource"), "a");
    let prompt = world
        .ask("p", "prompts/get", json!({"name": "review"}))
        .await
        .expect("a prompt");
    assert_eq!(prompt["messages"][0]["content"]["text"], "a: review");
    assert_eq!((a.count("tools/call"), b.count("resources/read")), (0, 0));
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go`; `router/session_router_test.go`
/// `RouteTool`, `RouteResource`, `RoutePrompt`.
#[tokio::test(start_paused = true)]
async fn what_nobody_lists_is_an_error_and_no_backend_hears_of_it() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.tools(&["search"]);
    b.tools(&["search"]);
    let world = World::of(&[&a, &b]).await;
    let said = (a.heard().len(), b.heard().len());
    for (method, params, message) in [
        ("tools/call", json!({"name": "find"}), "Unknown tool: find"),
        (
            "tools/call",
            json!({"name": "a_search"}),
            "Unknown tool: a_search",
        ),
        (
            "tools/call",
            json!({"name": "a.search"}),
            "Unknown tool: a.search",
        ),
        ("tools/call", json!({"name": ""}), "Unknown tool: "),
        (
            "prompts/get",
            json!({"name": "search"}),
            "Unknown prompt: search",
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "x"}}),
            "Unknown prompt: x",
        ),
    ] {
        let error = world.ask("1", method, params).await.expect_err("unknown");
        assert_eq!(
            (error.code, &*error.message),
            (code::INVALID_PARAMS, message)
        );
    }
    let error = world
        .ask("1", "tasks/list", json!({}))
        .await
        .expect_err("of whom?");
    assert_eq!(error.code, code::NO_METHOD);
    assert_eq!((a.heard().len(), b.heard().len()), said);
}

/// A tool may have given a URI that nobody lists.
///
/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go`.
#[tokio::test(start_paused = true)]
async fn a_uri_that_nobody_lists_is_read_by_whoever_can() {
    let (a, b, c) = (Fake::new("a"), Fake::new("b"), Fake::new("c"));
    let missing = json!({"code": -32002, "message": "Resource not found"});
    a.reply("resources/read", Reply::Error(missing.clone()));
    c.capabilities(json!({"tools": {}}));
    let world = World::of(&[&a, &b, &c]).await;
    assert_eq!(world.read("made-up:1").await.expect("a resource"), "b");
    b.reply("resources/read", Reply::Error(missing));
    let error = world.read("made-up:2").await.expect_err("nobody's");
    assert_eq!(
        (error.code, &*error.message),
        (code::NO_RESOURCE, "Unknown resource: made-up:2")
    );
    assert_eq!(
        [&a, &b, &c].map(|fake| fake.count("resources/read")),
        [2, 2, 0]
    );
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go`.
#[tokio::test(start_paused = true)]
async fn an_error_of_a_backend_keeps_its_code_and_its_data() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let own = json!({"code": -32050, "message": "my own", "data": {"d": [1.0]}});
    a.tools(&["errs"]).reply("errs", Reply::Error(own.clone()));
    a.prompts(&["p"]).reply("p", Reply::Error(own.clone()));
    a.resources(&["file:///x"])
        .reply("resources/read", Reply::Error(own.clone()));
    let world = World::of(&[&a, &b]).await;
    for (method, params) in [
        ("tools/call", json!({"name": "errs"})),
        ("prompts/get", json!({"name": "p"})),
        ("resources/read", json!({"uri": "file:///x"})),
    ] {
        let error = world.ask("1", method, params).await.expect_err("its error");
        assert_eq!(serde_json::to_value(error).expect("JSON"), own);
        assert_eq!(a.count(method), 1, "nothing is run twice");
    }
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go` `BackendCrashResilience`.
#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_cancelled_at_its_backend() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let permission = Arc::new(Notify::new());
    a.tools(&["slow"])
        .reply("slow", Reply::When(permission.clone()));
    b.tools(&["other"])
        .reply("other", Reply::When(permission.clone()));
    let world = Arc::new(World::of(&[&a, &b]).await);
    let calls = [
        world.spawn_tool("1", "slow"),
        world.spawn_tool("2", "other"),
    ];
    a.hears("tools/call", 1).await;
    b.hears("tools/call", 1).await;
    let cancelled = json!({"requestId": "2", "reason": "enough"});
    world
        .tell(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}))
        .await;
    assert_eq!(b.hears("notifications/cancelled", 1).await, cancelled);
    assert_eq!(a.count("notifications/cancelled"), 0);
    // A backend that answers all the same is heard.
    permission.notify_one();
    permission.notify_one();
    for call in calls {
        call.await.expect("a call").expect("an answer");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_backend_asks_reaches_the_host_and_the_answer_that_backend() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let world = World::of(&[&a, &b]).await;
    let ask = json!({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": {"message": "ok?", "_meta": {"progressToken": 3}}});
    let mut asked = Vec::new();
    for backend in [&a, &b] {
        backend.says(&ask).await;
        asked.push(world.told().await);
    }
    assert_ne!(asked[0]["id"], asked[1]["id"]);
    assert_ne!(asked[0]["params"]["_meta"], asked[1]["params"]["_meta"]);
    assert_eq!(
        (&asked[1]["method"], &asked[1]["params"]["message"]),
        (&ask["method"], &ask["params"]["message"])
    );
    let token = &asked[0]["params"]["_meta"]["progressToken"];
    world.tell(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})).await;
    assert_eq!(
        a.hears("notifications/progress", 1).await,
        json!({"progressToken": 3, "progress": 1})
    );
    world
        .tell(&json!({"jsonrpc": "2.0", "id": asked[1]["id"], "result": {"action": "accept"}}))
        .await;
    world
        .tell(&json!({"jsonrpc": "2.0", "id": asked[0]["id"], "error": {"code": -1, "message": "no"}}))
        .await;
    let answers = |backend: &Fake| -> Vec<Value> {
        let answers = backend
            .heard()
            .into_iter()
            .filter(|message| matches!(message, Message::Answer { .. }));
        answers
            .map(|answer| serde_json::from_slice(&answer.write()).expect("JSON"))
            .collect()
    };
    world.settle().await;
    assert_eq!(
        answers(&a),
        [json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": "no"}})]
    );
    assert_eq!(
        answers(&b),
        [json!({"jsonrpc": "2.0", "id": 7, "result": {"action": "accept"}})]
    );
    assert_eq!(b.count("notifications/progress"), 0);
    // It takes back what it has asked.
    b.says(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}),
    )
    .await;
    assert_eq!(world.told().await["params"]["requestId"], asked[1]["id"]);
    // An answer to nobody's question goes to nobody.
    world
        .tell(&json!({"jsonrpc": "2.0", "id": "c:7", "result": {}}))
        .await;
    world
        .tell(&json!({"jsonrpc": "2.0", "id": 7, "result": {}}))
        .await;
    world.settle().await;
    assert_eq!((answers(&a).len(), answers(&b).len()), (1, 1));
}

/// As in toolhive (`pkg/vmcp`): `session/internal/backend`
/// `ListChangedNotificationHandler_DispatchesByMethod`.
#[tokio::test(start_paused = true)]
async fn notifications_of_a_backend_reach_the_host_as_they_are() {
    let a = Fake::new("a");
    let world = World::of(&[&a, &Fake::new("b")]).await;
    for (method, params) in [
        (
            "notifications/message",
            json!({"level": "info", "data": ["x"]}),
        ),
        (
            "notifications/resources/updated",
            json!({"uri": "file:///x"}),
        ),
        (
            "notifications/progress",
            json!({"progressToken": "t", "progress": 0.5}),
        ),
        ("notifications/of/their/own", json!({})),
    ] {
        let said = json!({"jsonrpc": "2.0", "method": method, "params": params});
        a.says(&said).await;
        assert_eq!(world.told().await, said);
    }
    assert_eq!(
        a.count("tools/list"),
        1,
        "none of these is a change of a list"
    );
}

#[tokio::test(start_paused = true)]
async fn progress_reaches_the_host_before_the_answer() {
    let a = Fake::new("a");
    let permission = Arc::new(Notify::new());
    a.tools(&["slow"])
        .reply("slow", Reply::When(permission.clone()));
    let world = Arc::new(World::of(&[&a]).await);
    let call = world.spawn_tool("1", "slow");
    a.hears("tools/call", 1).await;
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t", "progress": 1}});
    a.says(&progress).await;
    permission.notify_one();
    call.await.expect("a call").expect("an answer");
    // It is there although nobody has waited for it.
    let mut told = Box::pin(world.told());
    assert_eq!(futures::poll!(&mut told), std::task::Poll::Ready(progress));
}

#[tokio::test(start_paused = true)]
async fn a_level_goes_to_all_that_log() {
    let (a, b, c) = (Fake::new("a"), Fake::new("b"), Fake::new("c"));
    b.capabilities(json!({"tools": {}}));
    let world = World::of(&[&a, &b, &c]).await;
    let level = json!({"level": "warning"});
    assert_eq!(
        world
            .ask("1", "logging/setLevel", level.clone())
            .await
            .expect("a result"),
        json!({})
    );
    assert_eq!(
        [
            a.hears("logging/setLevel", 1).await,
            c.hears("logging/setLevel", 1).await
        ],
        [level.clone(), level.clone()]
    );
    assert_eq!(b.count("logging/setLevel"), 0);
    // A later one, and one that is started again, are told as well.
    let d = Fake::new("d");
    world
        .bundle
        .set_sources(sources(&[&a, &b, &c, &d]), |_| true);
    assert_eq!(d.hears("logging/setLevel", 1).await, level);
    a.dies();
    assert_eq!(a.hears("logging/setLevel", 2).await, level);
}

#[tokio::test(start_paused = true)]
async fn a_backend_is_told_what_the_host_can_do() {
    let a = Fake::new("a");
    let world = World::of(&[&a]).await;
    let params = a.hears("initialize", 1).await;
    assert_eq!(
        params["capabilities"],
        json!({"roots": {"listChanged": true}, "elicitation": {}})
    );
    assert_eq!(params["clientInfo"]["name"], "host");
    assert_eq!(a.count("notifications/initialized"), 1);
    world
        .tell(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    world
        .tell(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}))
        .await;
    a.hears("notifications/roots/list_changed", 1).await;
    assert_eq!(a.count("notifications/initialized"), 1, "each has its own");
}

/// Each of them may have asked before its lists are known.
#[tokio::test(start_paused = true)]
async fn backends_that_ask_for_roots_at_once_are_one_question_to_the_host() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    let world = World::of(&[&a, &b]).await;
    let asks = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"});
    a.says(&asks(7)).await;
    b.says(&asks(8)).await;
    let asked = world.told().await;
    assert_eq!(asked["method"], "roots/list");
    let roots = json!({"roots": [{"uri": "file:///a"}]});
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": roots});
    world.tell(&answer).await;
    for (fake, id) in [(&a, 7), (&b, 8)] {
        assert_eq!(fake.is_answered(id).await, roots);
    }
    // What is asked later is another question.
    b.says(&asks(9)).await;
    let again = world.told().await;
    assert_eq!(again["method"], "roots/list");
    let answer = json!({"jsonrpc": "2.0", "id": again["id"], "result": roots});
    world.tell(&answer).await;
    assert_eq!(b.is_answered(9).await, roots);
}
