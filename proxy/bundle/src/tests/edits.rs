//! What a server was told goes to no other one that gets its name.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::world::{Made, World};
use crate::lock::lock;
use crate::*;

/// A session whose processes follow each other.
#[derive(Debug, Default)]
struct Session(Mutex<Told>);

impl BundleStore for Session {
    fn load(&self) -> BoxFuture<'_, Names> {
        Box::pin(std::future::ready(Names::default()))
    }

    fn save(&self, _: Names) -> BoxFuture<'_, Option<Names>> {
        Box::pin(std::future::ready(None))
    }

    fn told(&self) -> BoxFuture<'_, Told> {
        Box::pin(std::future::ready(lock(&self.0).clone()))
    }

    fn keep_told(&self, told: Told) -> BoxFuture<'_, ()> {
        *lock(&self.0) = told;
        Box::pin(std::future::ready(()))
    }
}

async fn asks(made: &Made, method: &str, params: Value) -> Result<Value, RpcError> {
    let params = serde_json::value::to_raw_value(&params).expect("JSON");
    let answer = made
        .bundle
        .call(Call::read(Id::number(1), method, Some(&params))?)
        .await?;
    Ok(serde_json::from_str(answer.outcome?.get()).expect("JSON"))
}

/// What the server has heard so far: methods.
async fn heard(world: &World, made: &Made, server: &str) -> Vec<String> {
    made.tells(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#)
        .await;
    let mut methods = Vec::new();
    loop {
        let method = world.server(server).hears().await["method"]
            .as_str()
            .expect("a method")
            .to_owned();
        if method == "notifications/roots/list_changed" {
            return methods;
        }
        methods.push(method);
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_not_repeated_at_another_server_of_its_name() {
    let world = World::new(&[("a", &[]), ("b", &[])]);
    let made = world.made().await;
    asks(&made, "resources/subscribe", json!({"uri": "a://all/7"}))
        .await
        .expect("a result");
    assert_eq!(
        heard(&world, &made, "a").await,
        ["notifications/initialized", "resources/subscribe"]
    );
    world.server("a").dies();
    while world.server("a").hears().await["method"] != "resources/subscribe" {}
    made.until("a", |state| *state == BackendState::Ready).await;
    made.bundle
        .set_sources(world.sources(&["a", "b"]), |name| name != "a");
    made.until("a", |state| *state == BackendState::Ready).await;
    assert_eq!(
        heard(&world, &made, "a").await,
        ["notifications/initialized"]
    );
    // Nor when it has left and come again.
    asks(&made, "resources/subscribe", json!({"uri": "a://all/7"}))
        .await
        .expect("a result");
    made.bundle.set_sources(world.sources(&["b"]), |_| true);
    made.bundle
        .set_sources(world.sources(&["a", "b"]), |_| true);
    made.until("a", |state| *state == BackendState::Ready).await;
    while world.server("a").hears().await["method"] != "resources/subscribe" {}
    assert_eq!(
        heard(&world, &made, "a").await,
        ["notifications/initialized"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_subscription_of_a_former_process_is_repeated_at_the_same_server_alone() {
    let world = World::new(&[("a", &[]), ("b", &[])]);
    let session = Arc::new(Session::default());
    let begins = async |identity: &str| {
        *lock(&world.server("a").identity) = Some(identity.to_owned());
        let made = world.with(session.clone());
        made.bundle.ready().await;
        made
    };
    let made = begins("one").await;
    asks(&made, "resources/subscribe", json!({"uri": "a://all/7"}))
        .await
        .expect("a result");
    assert_eq!(
        heard(&world, &made, "a").await,
        ["notifications/initialized", "resources/subscribe"]
    );
    made.bundle.close().await;
    let made = begins("one").await;
    assert_eq!(
        heard(&world, &made, "a").await,
        ["notifications/initialized", "resources/subscribe"]
    );
    made.bundle.close().await;
    let made = begins("two").await;
    assert_eq!(
        heard(&world, &made, "a").await,
        ["notifications/initialized"]
    );
}

/// Who has refused a subscription does not get what is read there.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_is_refused_again_routes_nothing() {
    let world = World::new(&[("a", &[]), ("b", &[])]);
    let made = world.made().await;
    asks(&made, "resources/subscribe", json!({"uri": "a://all/7"}))
        .await
        .expect("a result");
    let of = |made: &Made| {
        made.bundle
            .origin_of(&Target::Read("a://all/7".to_owned()))
            .map(|own| own.backend)
    };
    // Nobody has its template any more.
    for server in &world.servers {
        server.answers("resources/templates/list", json!({"resourceTemplates": []}));
        server.dies();
    }
    while world.server("a").hears().await["method"] != "resources/subscribe" {}
    for server in ["a", "b"] {
        made.until(server, |state| *state == BackendState::Ready)
            .await;
    }
    assert_eq!(of(&made).as_deref(), Some("a"));
    world.server("a").refuses("resources/subscribe");
    world.server("a").dies();
    while world.server("a").hears().await["method"] != "resources/subscribe" {}
    made.until("a", |state| *state == BackendState::Ready).await;
    assert_eq!(of(&made), None);
}

#[tokio::test(start_paused = true)]
async fn a_call_from_a_former_list_does_not_reach_another_server() {
    let world = World::new(&[("a", &["search"]), ("b", &["search"])]);
    let made = world.made().await;
    let called = made
        .names(List::Tools)
        .await
        .into_iter()
        .find(|name| name.ends_with("_search"))
        .expect("two");
    let server = called.strip_suffix("_search").expect("a prefix");
    world.server(server).sets_tools(&["delete"]);
    made.bundle
        .set_sources(world.sources(&["a", "b"]), |name| name != server);
    let error = made
        .calls(2, &called)
        .await
        .expect_err("it has no such tool");
    assert_eq!(
        (error.code, error.message),
        (-32602, format!("Unknown tool: {called}"))
    );
    assert!(
        !heard(&world, &made, server)
            .await
            .contains(&"tools/call".to_owned())
    );
}
