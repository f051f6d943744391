//! The store of tower-sessions, against a daemon that is killed.

use std::time::Duration;

use mcp_sessiond_client::tower_sessions::SessiondStore;
use mcp_sessiond_client::{Options, Sessions, Start};
use mcp_sessiond_tests::World;
use serde_json::json;
use time::OffsetDateTime;
use tower_sessions_core::SessionStore as _;
use tower_sessions_core::session::{Id, Record};

use crate::world;

fn store(world: &World) -> SessiondStore {
    let options = Options::default()
        .directory(world.directory())
        .start(Start::Never);
    SessiondStore::new(Sessions::of_service(
        "web".parse().expect("a name"),
        options,
    ))
}

/// A record that is good for so long.
fn record(id: i128, life: Duration) -> Record {
    let data = [("user".to_owned(), json!("ada"))].into();
    Record {
        id: Id(id),
        data,
        expiry_date: OffsetDateTime::now_utc() + life,
    }
}

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_record_is_there_after_every_kill_and_gone_when_it_is_deleted() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut made = record(7, HOUR);
    store(&world).create(&mut made).await.expect("created");
    assert_eq!(made.id, Id(7));
    daemon.restart();
    let mut found = store(&world)
        .load(&Id(7))
        .await
        .expect("loaded")
        .expect("it is there");
    assert_eq!(found, made);
    found.data.insert("cart".into(), json!(["apples"]));
    store(&world).save(&found).await.expect("saved");
    daemon.restart();
    assert_eq!(
        store(&world).load(&Id(7)).await.expect("loaded"),
        Some(found.clone())
    );
    store(&world).delete(&Id(7)).await.expect("deleted");
    store(&world)
        .delete(&Id(7))
        .await
        .expect("it is gone already");
    // A late write does not bring it back.
    store(&world).save(&found).await.expect("dropped");
    assert_eq!(store(&world).load(&Id(7)).await.expect("loaded"), None);
    assert_eq!(store(&world).load(&Id(8)).await.expect("loaded"), None);
}

#[tokio::test]
async fn an_id_that_is_somebodys_is_drawn_again() {
    let world = world("");
    let _daemon = world.daemon();
    let (mut one, mut two) = (record(7, HOUR), record(7, HOUR));
    two.data.insert("user".into(), json!("bob"));
    store(&world).create(&mut one).await.expect("created");
    store(&world).create(&mut two).await.expect("created");
    assert_ne!(one.id, two.id);
    assert_eq!(
        store(&world).load(&one.id).await.expect("loaded"),
        Some(one)
    );
    assert_eq!(
        store(&world).load(&two.id).await.expect("loaded"),
        Some(two)
    );
}

#[tokio::test]
async fn a_record_that_has_expired_is_not_there() {
    let world = world("");
    let _daemon = world.daemon();
    store(&world).save(&record(7, HOUR)).await.expect("saved");
    assert!(store(&world).load(&Id(7)).await.expect("loaded").is_some());
    let mut expired = record(7, Duration::ZERO);
    expired.expiry_date -= HOUR;
    store(&world).save(&expired).await.expect("saved");
    assert_eq!(store(&world).load(&Id(7)).await.expect("loaded"), None);
}

#[tokio::test]
async fn the_daemon_gets_no_id_and_a_daemon_that_is_away_is_an_error() {
    let world = world("");
    let mut daemon = world.daemon();
    let mut made = record(7, HOUR);
    store(&world).create(&mut made).await.expect("created");
    let listed = world
        .peer()
        .call("list_own_sessions", json!({"service": "web"}))
        .expect("listed");
    let id = listed[0]["session"].as_str().expect("an id");
    assert_eq!(
        (id.len(), id.contains(&made.id.to_string())),
        (64, false),
        "{id}"
    );
    daemon.kill();
    let options = Options::default()
        .directory(world.directory())
        .start(Start::Never);
    let sessions = Sessions::of_service(
        "web".parse().expect("a name"),
        options.timeout(Duration::from_millis(100)),
    );
    let failed = SessiondStore::new(sessions)
        .load(&Id(7))
        .await
        .expect_err("there is no daemon");
    assert!(
        matches!(
            failed,
            tower_sessions_core::session_store::Error::Backend(_)
        ),
        "{failed:?}"
    );
}
