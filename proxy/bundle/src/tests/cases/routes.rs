//! Which name and which URI leads to whom.

use std::sync::Arc;

use serde_json::json;

use super::world::*;
use crate::*;

/// As in toolhive (`pkg/vmcp`): `session/connector_integration_test.go` `MultipleBackends`;
/// `aggregator` `AdvertisedCapabilitiesCarryBackendID`, `CollisionRouting`, `MergeCapabilities`.
#[tokio::test(start_paused = true)]
async fn calls_of_one_name_reach_the_backend_that_it_is_listed_for() {
    let (a, b, c) = (Fake::new("a"), Fake::new("b"), Fake::new("c"));
    for backend in [&a, &b, &c] {
        backend.tools(&["search"]).prompts(&["review"]);
    }
    let world = World::start(&[&a, &b, &c], settings(), Arc::new(()));
    world.bundle.ready().await;
    assert_eq!(
        world.names(List::Tools).await,
        ["search", "b_search", "c_search"]
    );
    assert_eq!(
        world.names(List::Prompts).await,
        ["review", "b_review", "c_review"]
    );
    for (prefix, backend) in [("", &a), ("b_", &b), ("c_", &c)] {
        let text = world
            .tool("1", &format!("{prefix}search"))
            .await
            .expect("an answer");
        assert_eq!(text, format!("{} has run search", backend.name()));
        let prompt = json!({"name": format!("{prefix}review")});
        let prompt = world
            .ask("2", "prompts/get", prompt)
            .await
            .expect("a prompt");
        assert_eq!(
            prompt["messages"][0]["content"]["text"],
            format!("{}: review", backend.name())
        );
        assert_eq!(
            (backend.count("tools/call"), backend.count("prompts/get")),
            (1, 1)
        );
    }
}

/// As in toolhive (`pkg/vmcp`): `aggregator` `PromptConflicts`,
/// `PromptAmbiguityDropsEveryClaimant`.
#[tokio::test(start_paused = true)]
async fn names_that_compose_to_the_same_text_stay_apart() {
    let all = [
        ("b1", vec!["x_y_z", "same"]),
        ("b1_x", vec!["y_z", "same"]),
        ("b1_x_y", vec!["z", "same"]),
        ("b2", vec!["b1_same", "same"]),
    ];
    for style in [Style::Bare, Style::Always] {
        let fakes: Vec<Fake> = all
            .iter()
            .map(|(name, tools)| {
                let fake = Fake::new(name);
                fake.tools(tools).prompts(tools);
                fake
            })
            .collect();
        let settings = Settings {
            names: style,
            ..settings()
        };
        let world = World::start(&fakes.iter().collect::<Vec<_>>(), settings, Arc::new(()));
        world.bundle.ready().await;
        let names = world.names(List::Tools).await;
        assert_eq!(names.len(), 8, "{names:?}");
        for (number, name) in names.iter().enumerate() {
            let (backend, tools) = &all[number / 2];
            let text = world.tool("1", name).await.expect("an answer");
            assert_eq!(text, format!("{backend} has run {}", tools[number % 2]));
        }
        assert_eq!(world.names(List::Prompts).await.len(), 8);
    }
}

/// As in toolhive (`pkg/vmcp`): `session/default_session_test.go`
/// `CapabilityNameConflictIsResolvedDeterministically`; `aggregator` `ResourceAndTemplateDedup`,
/// `MergeCapabilities_FirstWinsOnDuplicates`.
#[tokio::test(start_paused = true)]
async fn of_two_backends_with_one_uri_the_first_in_the_file_has_it() {
    let (b, a) = (Fake::new("b"), Fake::new("a"));
    for backend in [&b, &a] {
        backend
            .resources(&["file:///README.md"])
            .templates(&["log:{day}"]);
    }
    let world = World::of(&[&b, &a]).await;
    assert_eq!(
        (
            world.names(List::Resources).await.len(),
            world.names(List::Templates).await.len()
        ),
        (1, 1)
    );
    for _ in 0..5 {
        assert_eq!(
            world.read("file:///README.md").await.expect("a resource"),
            "b"
        );
        assert_eq!(world.read("log:monday").await.expect("a resource"), "b");
    }
    // While that one is away the other's is listed.
    b.opening(Opening::Fails(Failure::new(FailureCode::NotFound, "gone")))
        .dies();
    b.is_ended(1).await;
    assert_eq!(
        world.read("file:///README.md").await.expect("a resource"),
        "a"
    );
}

/// As in toolhive (`pkg/vmcp`): `aggregator` `ResolveConflicts`, `MergeCapabilities`,
/// `AggregateCapabilities`; `router/session_router_test.go` `TemplateFallback`.
#[tokio::test(start_paused = true)]
async fn a_uri_of_a_template_goes_to_who_listed_the_template() {
    let (a, b, c) = (Fake::new("a"), Fake::new("b"), Fake::new("c"));
    a.templates(&["file:///logs/{date}.txt", "://{bad", "{"]);
    b.templates(&["db:///users/{id}", "file:///{+path}"])
        .resources(&["file:///logs/exact.txt"]);
    c.templates(&["file:///logs/{date}.txt"]);
    let world = World::of(&[&a, &b, &c]).await;
    for (uri, backend) in [
        ("file:///logs/2025-01-01.txt", &a),
        ("db:///users/42", &b),
        ("file:///logs/2025/01.txt", &b),
        ("file:///logs/exact.txt", &b),
    ] {
        assert_eq!(
            world.read(uri).await.expect("a resource"),
            backend.name(),
            "{uri}"
        );
        assert_eq!(
            backend.hears("resources/read", 1).await["uri"],
            uri,
            "as it was written"
        );
    }
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        world
            .ask("1", method, json!({"uri": "db:///users/42"}))
            .await
            .expect("a result");
        assert_eq!((a.count(method), b.count(method)), (0, 1));
    }
}

/// As in toolhive (`pkg/vmcp`): `router/session_router_test.go` `TemplateDeterminism`.
#[tokio::test(start_paused = true)]
async fn of_two_templates_that_fit_the_closer_one_counts() {
    for turned in [false, true] {
        let (a, b) = (Fake::new("a"), Fake::new("b"));
        a.templates(&["file:///{+path}"]);
        b.templates(&["file:///{a}/{b}"]);
        let both = if turned { [&b, &a] } else { [&a, &b] };
        let world = World::of(&both).await;
        assert_eq!(
            world.read("file:///logs/foo").await.expect("a resource"),
            "b"
        );
        assert_eq!(
            world.read("file:///logs/foo/x").await.expect("a resource"),
            "a"
        );
    }
}

/// As in toolhive (`pkg/vmcp`): `router/session_router_test.go` `TemplateFallback`.
#[tokio::test(start_paused = true)]
async fn a_completion_goes_to_who_listed_the_prompt_or_the_template() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.prompts(&["review"]).templates(&["x:{y}"]);
    b.prompts(&["review"])
        .templates(&["file:///logs/{date}.txt"])
        .resources(&["file:///x"]);
    let world = World::of(&[&a, &b]).await;
    for (of, backend, own) in [
        (
            json!({"type": "ref/prompt", "name": "review"}),
            &a,
            json!({"type": "ref/prompt", "name": "review"}),
        ),
        (
            json!({"type": "ref/prompt", "name": "b_review", "title": "R"}),
            &b,
            json!({"type": "ref/prompt", "name": "review", "title": "R"}),
        ),
        (
            json!({"type": "ref/resource", "uri": "x:{y}"}),
            &a,
            json!({"type": "ref/resource", "uri": "x:{y}"}),
        ),
        (
            json!({"type": "ref/resource", "uri": "file:///logs/{date}.txt"}),
            &b,
            json!({"type": "ref/resource", "uri": "file:///logs/{date}.txt"}),
        ),
        (
            json!({"type": "ref/resource", "uri": "file:///x"}),
            &b,
            json!({"type": "ref/resource", "uri": "file:///x"}),
        ),
    ] {
        let argument = json!({"name": "x", "value": "v"});
        let result = world
            .ask(
                "1",
                "completion/complete",
                json!({"ref": of, "argument": argument}),
            )
            .await
            .expect("a result");
        assert_eq!(result["completion"]["values"][0], backend.name());
        let heard = backend.hears("completion/complete", 1).await;
        assert_eq!(heard, json!({"ref": own, "argument": argument}));
    }
}

/// A backend that hangs at its start keeps nobody from what the others have.
#[tokio::test(start_paused = true)]
async fn a_resource_that_is_listed_is_read_while_another_backend_starts() {
    let (a, b) = (Fake::new("a"), Fake::new("b"));
    a.opening(Opening::Hangs(Arc::default()));
    b.resources(&["file:///x"]).templates(&["log:{day}"]);
    let world = World::start(
        &[&a, &b],
        Settings {
            init_concurrency: 2,
            ..settings()
        },
        Arc::new(()),
    );
    b.hears("prompts/list", 1).await;
    world.settle().await;
    let began = tokio::time::Instant::now();
    assert_eq!(world.read("file:///x").await.expect("a resource"), "b");
    assert_eq!(world.read("log:monday").await.expect("a resource"), "b");
    assert_eq!(began.elapsed(), std::time::Duration::ZERO);
}
