//! What is added to a bundle, in front of real ones.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::world::{Made, Start, World, call};
use crate::decorate::{CallEnd, CallEntry, CallLog};
use crate::lock::lock;
use crate::names::{Namespace, Origin};
use crate::*;

mod limits;

/// A log that is a list.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<CallEntry>>);

impl CallLog for Notes {
    fn note(&self, entry: CallEntry) {
        lock(&self.0).push(entry);
    }
}

/// A bundle with decorations, and what it noted.
struct Decorated {
    made: Made,
    bundle: Arc<dyn Bundle>,
    notes: Arc<Notes>,
}

/// Names with their backends: which of two comes first is not what these tests are about.
async fn decorated(mut world: World, with: Value) -> (World, Decorated) {
    world.settings.names = Style::Always;
    decorated_with(world, &read(with)).await
}

fn read(with: Value) -> Decorations {
    serde_json::from_value(with).expect("decorations")
}

async fn decorated_with(world: World, with: &Decorations) -> (World, Decorated) {
    let made = world.made().await;
    let notes = Arc::<Notes>::default();
    let log: Arc<dyn CallLog> = notes.clone();
    let bundle = decorate(made.bundle.clone(), with, &log);
    for server in &world.servers {
        assert_eq!(server.hears().await["method"], "notifications/initialized");
    }
    (
        world,
        Decorated {
            made,
            bundle,
            notes,
        },
    )
}

fn two() -> World {
    World::new(&[("a", &["search", "add"]), ("b", &["search", "drop"])])
}

/// What an answer to a tool's call says.
fn text(answer: Result<Answer, Error>) -> Result<String, RpcError> {
    let value: Value = serde_json::from_str(answer?.outcome?.get()).expect("JSON");
    Ok(value["content"][0]["text"]
        .as_str()
        .expect("a text")
        .to_owned())
}

impl Decorated {
    async fn names(&self, list: List) -> Vec<String> {
        let items = self.bundle.list(list).await.expect("a list");
        let members = items
            .iter()
            .map(|item| item.members.text(list.name()).expect("a name"));
        assert!(members.eq(items.iter().map(|item| item.name.clone())));
        items.into_iter().map(|item| item.name).collect()
    }

    async fn calls(&self, id: u64, tool: &str) -> Result<String, RpcError> {
        let params = json!({"name": tool, "arguments": {"secret": "contents"}});
        text(self.bundle.call(call(id, "tools/call", &params)).await)
    }

    async fn reads(&self, uri: &str) -> Result<Box<serde_json::value::RawValue>, RpcError> {
        let call = call(99, "resources/read", &json!({"uri": uri}));
        self.bundle.call(call).await?.outcome
    }

    async fn cancels(&self, id: u64) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        for message in Message::read(line.as_bytes()) {
            self.bundle.tell(message).await;
        }
    }
}

/// As in toolhive (`pkg/vmcp`): `aggregator` `AdvertisingFilterPreservesBackendID`,
/// `ExcludeAllTools`, `DefaultToolVisibilityDenyMixedBackends`.
#[tokio::test(start_paused = true)]
async fn what_is_filtered_out_is_as_unknown_as_what_there_never_was() {
    let with =
        json!([{"filter": {"only": ["*_search", "b_*", "?://*"], "without": ["b_d*", "b://*"]}}]);
    let (world, two) = decorated(two(), with).await;
    world.server("a").will(Start::Works);
    assert_eq!(two.names(List::Tools).await, ["a_search", "b_search"]);
    assert_eq!(two.names(List::Prompts).await, ["b_greet"]);
    assert_eq!(two.names(List::Resources).await, ["a://x"]);
    assert_eq!(two.names(List::Templates).await, ["a://all/{id}"]);
    assert_eq!(
        two.calls(1, "b_search").await.expect("an answer"),
        "b search 1"
    );
    let filtered = two.calls(2, "b_drop").await.expect_err("filtered");
    let unknown = two.calls(3, "b_none").await.expect_err("unknown");
    assert_eq!(
        (filtered.code, &*filtered.message),
        (-32602, "Unknown tool: b_drop")
    );
    assert_eq!(
        (
            unknown.code,
            unknown.message,
            unknown.data.map(|data| data.to_string())
        ),
        (
            filtered.code,
            filtered.message.replace("drop", "none"),
            filtered.data.map(|data| data.to_string())
        ),
    );
    assert!(two.reads("a://all/7").await.is_ok());
    let error = two.reads("b://all/7").await.expect_err("filtered");
    assert_eq!(
        (error.code, &*error.message),
        (-32002, "Unknown resource: b://all/7")
    );
    let prompt = call(4, "prompts/get", &json!({"name": "a_greet"}));
    let prompt = two.bundle.call(prompt);
    assert_eq!(
        prompt.await.expect_err("filtered").to_string(),
        "Unknown prompt: a_greet"
    );
    let target = Target::Tool("b_drop".into());
    assert_eq!(
        (
            two.bundle.origin_of(&target),
            two.made.bundle.origin_of(&target).is_some()
        ),
        (None, true)
    );
    // No filtered call has reached its server.
    assert_eq!(world.server("b").hears().await["params"]["name"], "search");
    world
        .server("b")
        .says(r#"{"jsonrpc":"2.0","method":"x"}"#)
        .await;
    two.bundle.tell(Message::notification("last")).await;
    assert_eq!(world.server("b").hears().await["method"], "last");
}

/// As in toolhive (`pkg/vmcp`): `aggregator` `AdvertisingFilterPreservesBackendID`.
#[tokio::test(start_paused = true)]
async fn a_filter_of_one_server_is_for_its_own_names() {
    let with = json!([{"filter": {"server": "a", "only": ["add", "a://all/{id}"]}}]);
    let (_, two) = decorated(two(), with).await;
    assert_eq!(
        two.names(List::Tools).await,
        ["a_add", "b_search", "b_drop"]
    );
    assert_eq!(two.names(List::Resources).await, ["b://x"]);
    assert!(two.calls(1, "a_search").await.is_err());
    // A URI that its template lists; one that nobody does could be anybody's.
    assert!(two.reads("a://all/7").await.is_ok());
    assert!(two.reads("a://x").await.is_err());
    assert!(two.reads("a://other").await.is_err());
    assert!(two.reads("b://x").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_out_where_there_are_several_is_kept_out_where_there_is_one() {
    let with = read(json!([
        {"rename": {"tools": {"b_add": "plus"}}},
        {"filter": {"without": ["b_drop", "plus", "b_greet", "b_b:*"]}},
    ]));
    let several = World::new(&[
        ("a", &["search", "add", "drop"]),
        ("b", &["search", "add", "drop"]),
    ]);
    let (_, several) = decorated(several, json!(with)).await;
    assert_eq!(
        several.names(List::Tools).await,
        ["a_search", "a_add", "a_drop", "b_search"]
    );
    let alone = || World::new(&[("b", &["search", "add", "drop"])]);
    let (_, one) = decorated_with(alone(), &with.alone("b")).await;
    assert_eq!(one.names(List::Tools).await, ["search"]);
    assert_eq!(one.names(List::Prompts).await, [""; 0]);
    // A URI is the same everywhere.
    assert_eq!(one.names(List::Resources).await, ["b://x"]);
    assert!(one.calls(1, "search").await.is_ok());
    for tool in ["drop", "add"] {
        let error = one.calls(2, tool).await.expect_err("filtered");
        assert_eq!(*error.message, format!("Unknown tool: {tool}"));
    }
    // What is let in there is let in here, and the bare name still counts.
    for only in ["b_search", "search"] {
        let with = read(json!([{"filter": {"only": [only]}}]));
        let (_, one) = decorated_with(alone(), &with.alone("b")).await;
        assert_eq!(one.names(List::Tools).await, ["search"], "{only}");
    }
}

/// As in toolhive (`pkg/vmcp`): `aggregator` `ManualConflictResolver`, `ProcessBackendTools`.
#[tokio::test(start_paused = true)]
async fn a_name_that_is_given_is_nobody_elses() {
    let with = json!([
        {"rename": {"server": "a", "tools": {"search": "b_drop"}, "prompts": {"greet": "hello"}}},
        {"rename": {"tools": {"a_add": "plus"}}},
    ]);
    let (world, two) = decorated(two(), with).await;
    let names = two.names(List::Tools).await;
    let [search, plus, b_search, displaced] = &names[..] else {
        panic!("{names:?}")
    };
    assert_eq!([search, plus, b_search], ["b_drop", "plus", "b_search"]);
    assert!(
        displaced.starts_with("b_drop_") && displaced.len() == "b_drop_".len() + 8,
        "{displaced}"
    );
    assert_eq!(two.names(List::Prompts).await, ["hello", "b_greet"]);
    for (id, name, said) in [
        (1, "b_drop", "a search 1"),
        (2, displaced, "b drop 1"),
        (3, "plus", "a add 1"),
        (4, "b_search", "b search 1"),
    ] {
        assert_eq!(
            two.calls(id, name).await.expect("an answer"),
            said,
            "{name}"
        );
    }
    for (id, name) in [(5, "a_search"), (6, "a_add")] {
        let error = two.calls(id, name).await.expect_err("a former name");
        assert_eq!(error.message, format!("Unknown tool: {name}"));
    }
    let own = Origin {
        backend: "a".into(),
        name: "search".into(),
    };
    assert_eq!(
        two.bundle.origin_of(&Target::Tool("b_drop".into())),
        Some(own.clone())
    );
    assert_eq!(
        two.bundle.listed_as(Namespace::Tool, &own).as_deref(),
        Some("b_drop")
    );

    // It does not pass to the other one while its bearer is away.
    world.server("a").will(Start::IsMissing);
    world.server("a").dies();
    two.made
        .until("a", |state| matches!(state, BackendState::Failed(_)))
        .await;
    assert_eq!(
        two.names(List::Tools).await,
        [b_search.clone(), displaced.clone()]
    );
    let error = two.calls(7, "b_drop").await.expect_err("away");
    assert!(error.message.contains("\"a\" is not available"), "{error}");
    assert_eq!(
        two.calls(8, displaced).await.expect("an answer"),
        "b drop 1"
    );
}

/// As in toolhive (`pkg/vmcp`): `session/decorating_factory_test.go` `NoDecorators_ReturnBase`,
/// `DecoratorsAppliedInOrder`, `HappyPath_ReturnsFinalSession`, `RestoreSession`.
#[tokio::test(start_paused = true)]
async fn the_order_of_decorations_counts() {
    let filter = json!({"filter": {"without": ["find"]}});
    let rename = json!({"rename": {"tools": {"a_add": "find"}}});
    let (_, first) = decorated(two(), json!([filter, rename])).await;
    assert!(first.names(List::Tools).await.contains(&"find".to_owned()));
    assert_eq!(first.calls(1, "find").await.expect("an answer"), "a add 1");
    let (_, then) = decorated(two(), json!([rename, filter])).await;
    assert_eq!(
        then.names(List::Tools).await,
        ["a_search", "b_search", "b_drop"]
    );
    assert!(then.calls(1, "find").await.is_err());
}

#[test]
fn mistakes_are_told_when_decorations_are_read() {
    for (with, expected) in [
        (
            json!([{"rename": {"tools": {"x": "n", "y": "n"}}}]),
            "two tools would be called \"n\"",
        ),
        (
            json!([{"rename": {"tools": {"x": "n"}}}, {"rename": {"server": "a", "tools": {"y": "n"}}}]),
            "two tools would be called \"n\"",
        ),
        (
            json!([{"rename": {"prompts": {"x": "n", "y": "n"}}}]),
            "two prompts would be called \"n\"",
        ),
        (
            json!([{"rename": {"tools": {"x": "n n"}}}]),
            "\"n n\" can't be the name of a tool: use 1 to 64 of",
        ),
        (
            json!([{"rename": {"tools": {"x": "n".repeat(65)}}}]),
            "can't be the name of a tool",
        ),
        (
            json!([{"rename": {"prompts": {"x": ""}}}]),
            "the new name of the prompt \"x\" is empty",
        ),
        (json!([{"filter": {"only": [""]}}]), "a pattern is empty"),
        (json!([{"filter": {"onyl": ["x"]}}]), "unknown field `onyl`"),
        (json!([{"time": {"timeout_ms": 0}}]), "nonzero"),
        (json!([{"calls": {}}]), "missing field `most`"),
        (json!(["logs"]), "unknown variant `logs`"),
    ] {
        let error = serde_json::from_value::<Decorations>(with)
            .expect_err("a mistake")
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
    let fine = json!([{"filter": {"server": "a", "without": ["x"]}}, "log", {"calls": {"most": 1}}, "cache"]);
    let read: Decorations = serde_json::from_value(fine.clone()).expect("decorations");
    assert_eq!(read.servers().into_iter().collect::<Vec<_>>(), ["a"]);
    assert_eq!(serde_json::to_value(read).expect("JSON"), fine);
}

#[tokio::test(start_paused = true)]
async fn descriptions() {
    let with = json!([
        {"describe": {"server": "a", "tools": {"search": "Origin."}, "resources": {"a://x": "R.", "a://all/{id}": "T."}}},
        {"describe": {"tools": {"b_search": "Listed.", "search": "Nobody."}, "prompts": {"b_greet": "P."}}},
    ]);
    let (_, two) = decorated(two(), with).await;
    let mut described = Vec::new();
    for list in List::ALL {
        for item in two.bundle.list(list).await.expect("a list") {
            described.extend(
                item.members
                    .text("description")
                    .map(|text| (item.name, text)),
            );
        }
    }
    let described: Vec<(&str, &str)> = described
        .iter()
        .map(|(name, text)| (&**name, &**text))
        .collect();
    let expected = [
        ("a_search", "Origin."),
        ("b_search", "Listed."),
        ("a://x", "R."),
        ("a://all/{id}", "T."),
        ("b_greet", "P."),
    ];
    assert_eq!(described, expected);
}

/// As in toolhive (`pkg/vmcp`): `session/optimizerdec`, `codemode`, `internal/compositetools`,
/// `ratelimit`, `internal/backendtelemetry`.
#[tokio::test(start_paused = true)]
async fn calls_are_noted_without_contents() {
    let (world, two) = decorated(two(), json!([{"filter": {"without": ["b_drop"]}}, "log"])).await;
    two.calls(1, "a_add").await.expect("an answer");
    world.server("b").answers(
        "tools/call",
        json!({"isError": true, "content": [{"text": "contents"}]}),
    );
    two.calls(2, "b_search").await.expect("an answer");
    two.calls(3, "b_drop").await.expect_err("filtered");
    two.reads("a://all/7?secret=contents")
        .await
        .expect("an answer");
    two.reads("c://me:contents@x/y").await.expect_err("unknown");
    world.server("a").answers("tools/call", Value::Null);
    let waited = tokio::time::timeout(Duration::from_secs(3), two.calls(4, "a_search")).await;
    assert!(waited.is_err());
    let notes = lock(&two.notes.0).clone();
    let noted: Vec<_> = notes
        .iter()
        .map(|entry| {
            (
                entry.name.as_deref().expect("a name"),
                entry.server.as_deref(),
                entry.ended,
            )
        })
        .collect();
    assert_eq!(
        noted,
        [
            ("a_add", Some("a"), CallEnd::Done),
            ("b_search", Some("b"), CallEnd::ToolError),
            ("b_drop", None, CallEnd::Unknown),
            ("a://all/7", Some("a"), CallEnd::Done),
            ("c://x/y", None, CallEnd::Unknown),
            ("a_search", Some("a"), CallEnd::Cancelled),
        ]
    );
    assert_eq!(
        (&*notes[3].method, notes[5].took),
        ("resources/read", Duration::from_secs(3))
    );
    let written = serde_json::to_string(&notes).expect("JSON");
    assert!(
        !written.contains("contents") && !format!("{notes:?}").contains("contents"),
        "{written}"
    );
}

/// Counts how often lists are made.
struct Counting {
    inner: Arc<dyn Bundle>,
    lists: Mutex<usize>,
}

impl decorate::Decorator for Counting {
    fn inner(&self) -> &dyn Bundle {
        &*self.inner
    }

    fn list(&self, list: List) -> futures::future::BoxFuture<'_, Result<Vec<Item>, Error>> {
        *lock(&self.lists) += 1;
        self.inner.list(list)
    }
}

/// As in toolhive (`pkg/vmcp`): `aggregator` `CachingAggregator`, `InvalidateAll`.
#[tokio::test(start_paused = true)]
async fn a_list_is_kept_until_it_changes() {
    let (world, mut two) = decorated(two(), json!([])).await;
    let counting = Arc::new(Counting {
        inner: two.bundle.clone(),
        lists: Mutex::default(),
    });
    let with: Decorations = serde_json::from_value(json!(["cache"])).expect("decorations");
    let log: Arc<dyn CallLog> = Arc::new(());
    two.bundle = decorate(counting.clone(), &with, &log);
    two.made.heard();
    for _ in 0..3 {
        two.bundle.list(List::Tools).await.expect("a list").clear();
        assert_eq!(
            two.names(List::Tools).await,
            ["a_search", "a_add", "b_search", "b_drop"]
        );
    }
    assert_eq!(*lock(&counting.lists), 1);
    world.server("b").lists(&["new"]).await;
    assert_eq!(
        two.made.hears().await["method"],
        "notifications/tools/list_changed"
    );
    assert_eq!(two.names(List::Tools).await, ["a_search", "a_add", "b_new"]);
    world.server("a").will(Start::IsMissing);
    world.server("a").dies();
    while two.made.hears().await["method"] != "notifications/tools/list_changed" {}
    assert_eq!(two.names(List::Tools).await, ["b_new"]);
    two.made.bundle.set_sources(world.sources(&[]), |_| true);
    assert_eq!(two.names(List::Tools).await, [""; 0]);
    two.made.bundle.close().await;
    assert!(matches!(
        two.bundle.list(List::Tools).await,
        Err(Error::Closed)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_filter_waits_for_who_may_have_a_uri() {
    let mut world = World::new(&[("late", &[]), ("quick", &[])]);
    world.settings.ready_wait = Duration::from_secs(1);
    world
        .server("late")
        .will(Start::Takes(Duration::from_secs(3)));
    let made = world.made().await;
    let with = json!([{"filter": {"server": "late", "without": ["late://all/{id}"]}}]);
    let with: Decorations = serde_json::from_value(with).expect("decorations");
    let bundle = decorate(
        made.bundle.clone(),
        &with,
        &(Arc::new(()) as Arc<dyn CallLog>),
    );
    let read = bundle
        .call(call(1, "resources/read", &json!({"uri": "late://all/7"})))
        .await;
    assert!(matches!(read, Err(Error::Unknown { .. })), "{read:?}");
    assert!(
        bundle
            .call(call(2, "resources/read", &json!({"uri": "late://x"})))
            .await
            .is_ok()
    );
}
