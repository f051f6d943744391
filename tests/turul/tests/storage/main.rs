//! The session storage for turul, against a daemon that is killed.

mod world;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use mcp_sessiond_client::turul::SessiondStorage;
use mcp_sessiond_client::{Options, Sessions, Start};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use turul_mcp_protocol::ServerCapabilities;
use turul_mcp_session_storage::{SessionInfo, SessionStorage as _, SessionStorageError, SseEvent};

use world::World;

fn of_service(world: &World, service: &str) -> SessiondStorage {
    let options = Options::default()
        .directory(world.directory())
        .start(Start::Never);
    SessiondStorage::new(Sessions::of_service(
        service.parse().expect("a name"),
        options,
    ))
}

/// Another one each time, as another process has it.
fn storage(world: &World) -> SessiondStorage {
    of_service(world, "turul")
}

async fn made(world: &World) -> String {
    storage(world)
        .create_session(ServerCapabilities::default())
        .await
        .expect("created")
        .session_id
}

async fn got(world: &World, id: &str) -> SessionInfo {
    storage(world)
        .get_session(id)
        .await
        .expect("asked")
        .expect("it is there")
}

fn state(pairs: &[(&str, Value)]) -> HashMap<String, Value> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
        .collect()
}

async fn say(world: &World, id: &str, number: u64) -> u64 {
    let event = SseEvent::new("notifications/progress".into(), json!({"number": number}));
    storage(world)
        .store_event(id, event)
        .await
        .expect("stored")
        .id
}

#[tokio::test]
async fn a_session_with_all_that_it_has_is_there_after_every_kill() {
    let world = World::new();
    let mut daemon = world.daemon();
    let id = made(&world).await;
    let mut info = got(&world, &id).await;
    assert!(!info.is_initialized);
    info.is_initialized = true;
    info.client_capabilities = Some(Default::default());
    info.metadata.insert("__meta__:agent".into(), json!("curl"));
    storage(&world).update_session(info).await.expect("updated");
    storage(&world)
        .set_session_state(&id, "cart", json!(["apples"]))
        .await
        .expect("set");
    let mut event = SseEvent::new(
        "message".into(),
        json!({"method": "notifications/tools/list_changed"}),
    );
    event.retry = Some(5_000);
    let stored = storage(&world)
        .store_event(&id, event)
        .await
        .expect("stored");
    daemon.restart();
    let info = got(&world, &id).await;
    assert_eq!(
        (info.session_id.as_str(), info.is_initialized),
        (id.as_str(), true)
    );
    assert!(info.client_capabilities.is_some() && info.server_capabilities.is_some());
    assert_eq!(info.state, state(&[("cart", json!(["apples"]))]));
    assert_eq!(info.metadata["__meta__:agent"], json!("curl"));
    let events = storage(&world)
        .get_events_after(&id, 0)
        .await
        .expect("replayed");
    assert_eq!(json!(events), json!([stored]));
    assert_eq!(
        storage(&world).list_sessions().await.expect("listed"),
        std::slice::from_ref(&id)
    );
    let counts = (
        storage(&world).session_count().await,
        storage(&world).event_count().await,
    );
    assert!(matches!(counts, (Ok(1), Ok(1))), "{counts:?}");

    assert!(storage(&world).delete_session(&id).await.expect("deleted"));
    assert!(
        !storage(&world)
            .delete_session(&id)
            .await
            .expect("it is gone already")
    );
    daemon.restart();
    assert!(
        storage(&world)
            .get_session(&id)
            .await
            .expect("asked")
            .is_none()
    );
    assert_eq!(
        storage(&world)
            .get_session_state(&id, "cart")
            .await
            .expect("asked"),
        None
    );
    assert!(
        storage(&world)
            .get_events_after(&id, 0)
            .await
            .expect("asked")
            .is_empty()
    );
    assert!(
        storage(&world)
            .list_sessions()
            .await
            .expect("listed")
            .is_empty()
    );
    // No late write brings it back, nor does its id.
    let late = storage(&world)
        .update_session(info)
        .await
        .expect_err("it is gone");
    assert!(
        matches!(late, SessionStorageError::SessionNotFound(_)),
        "{late:?}"
    );
    let late = storage(&world)
        .set_session_state(&id, "cart", json!(1))
        .await
        .expect_err("it is gone");
    assert!(
        matches!(late, SessionStorageError::SessionNotFound(_)),
        "{late:?}"
    );
    let again = storage(&world)
        .create_session_with_id(id, ServerCapabilities::default())
        .await;
    assert!(
        matches!(again, Err(SessionStorageError::InvalidData(_))),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_late_update_undoes_nothing_that_others_have_written() {
    let world = World::new();
    let _daemon = world.daemon();
    let id = made(&world).await;
    storage(&world)
        .set_session_state(&id, "old", json!(1))
        .await
        .expect("set");
    storage(&world)
        .set_session_state(&id, "gone", json!(1))
        .await
        .expect("set");
    let (mut one, mut two) = (got(&world, &id).await, got(&world, &id).await);
    storage(&world)
        .set_session_state(&id, "old", json!(2))
        .await
        .expect("set");
    storage(&world)
        .set_session_state(&id, "new", json!(2))
        .await
        .expect("set");
    one.is_initialized = true;
    one.state.insert("one".into(), json!(1));
    one.state.remove("gone");
    storage(&world).update_session(one).await.expect("updated");
    two.state.insert("two".into(), json!(2));
    storage(&world).update_session(two).await.expect("updated");
    let info = got(&world, &id).await;
    assert!(info.is_initialized);
    let all = [
        ("old", json!(2)),
        ("new", json!(2)),
        ("one", json!(1)),
        ("two", json!(2)),
    ];
    assert_eq!(info.state, state(&all));
    // An info that was not got from here takes the place of all.
    let mut own = SessionInfo::with_id(id.clone());
    own.state.insert("own".into(), json!(3));
    storage(&world).update_session(own).await.expect("updated");
    let info = got(&world, &id).await;
    assert_eq!(
        (info.is_initialized, info.state),
        (false, state(&[("own", json!(3))]))
    );
}

#[tokio::test]
async fn concurrent_writers_lose_nothing() {
    let world = World::new();
    let mut daemon = world.daemon();
    let id = made(&world).await;
    let mut writers = JoinSet::new();
    for number in 0..200_u64 {
        let (storage, id) = (storage(&world), id.clone());
        writers.spawn(async move {
            storage
                .set_session_state(&id, &format!("key {number}"), json!(number))
                .await
                .expect("set");
            let event = SseEvent::new("message".into(), json!(number));
            storage.store_event(&id, event).await.expect("stored").id
        });
    }
    let ids: BTreeSet<u64> = writers.join_all().await.into_iter().collect();
    assert_eq!(ids, (1..=200).collect());
    daemon.restart();
    assert_eq!(got(&world, &id).await.state.len(), 200);
    let events = storage(&world)
        .get_events_after(&id, 0)
        .await
        .expect("replayed");
    assert!(events.iter().map(|event| event.id).eq(1..=200));
    let said: BTreeSet<u64> = events
        .iter()
        .filter_map(|event| event.data.as_u64())
        .collect();
    assert_eq!(said, (0..200).collect());
    // A value is removed once.
    let mut removers = JoinSet::new();
    for _ in 0..20 {
        let (storage, id) = (storage(&world), id.clone());
        removers.spawn(async move {
            storage
                .remove_session_state(&id, "key 7")
                .await
                .expect("removed")
        });
    }
    let removed: Vec<Value> = removers.join_all().await.into_iter().flatten().collect();
    assert_eq!(removed, [json!(7)]);
}

#[tokio::test]
async fn events_come_in_order_from_any_place_and_deleted_ones_do_not_come() {
    let world = World::new();
    let mut daemon = world.daemon();
    let (id, other) = (made(&world).await, made(&world).await);
    for number in 1..=9 {
        assert_eq!(say(&world, &id, number).await, number);
    }
    say(&world, &other, 1).await;
    let after = async |number| {
        let events = storage(&world)
            .get_events_after(&id, number)
            .await
            .expect("replayed");
        events.iter().map(|event| event.id).collect::<Vec<_>>()
    };
    assert_eq!(after(6).await, [7, 8, 9]);
    assert!(
        after(9).await.is_empty() && after(99).await.is_empty() && after(u64::MAX).await.is_empty()
    );
    let recent = storage(&world)
        .get_recent_events(&id, 2)
        .await
        .expect("replayed");
    assert_eq!(
        recent.iter().map(|event| event.id).collect::<Vec<_>>(),
        [8, 9]
    );
    assert_eq!(
        storage(&world)
            .delete_events_before(&id, 5)
            .await
            .expect("deleted"),
        4
    );
    assert_eq!(
        storage(&world)
            .delete_events_before(&id, 4)
            .await
            .expect("deleted"),
        0
    );
    daemon.restart();
    assert_eq!(after(0).await, [5, 6, 7, 8, 9]);
    assert_eq!(after(7).await, [8, 9]);
    assert_eq!(say(&world, &id, 10).await, 10);
    assert_eq!(after(8).await, [9, 10]);
    // Those that come later are not deleted, wherever the end was put.
    assert_eq!(
        storage(&world)
            .delete_events_before(&id, u64::MAX)
            .await
            .expect("deleted"),
        6
    );
    assert!(after(0).await.is_empty());
    assert_eq!(
        storage(&world)
            .delete_events_before(&id, u64::MAX)
            .await
            .expect("deleted"),
        0
    );
    assert_eq!(say(&world, &id, 11).await, 11);
    assert_eq!(after(0).await, [11]);
}

#[tokio::test]
async fn events_that_several_delete_at_once_stay_deleted() {
    let world = World::new();
    let _daemon = world.daemon();
    let id = made(&world).await;
    for number in 1..=30 {
        say(&world, &id, number).await;
    }
    let mut deleting = JoinSet::new();
    for number in 2..=30 {
        let (storage, id) = (storage(&world), id.clone());
        deleting.spawn(async move {
            storage
                .delete_events_before(&id, number)
                .await
                .expect("deleted")
        });
    }
    assert_eq!(
        deleting.join_all().await.into_iter().sum::<u64>(),
        29,
        "each is deleted once"
    );
    let left = storage(&world)
        .get_events_after(&id, 0)
        .await
        .expect("replayed");
    assert_eq!(left.iter().map(|event| event.id).collect::<Vec<_>>(), [30]);
}

#[tokio::test]
async fn sessions_of_another_service_are_not_there() {
    let world = World::new();
    let _daemon = world.daemon();
    let id = made(&world).await;
    storage(&world)
        .set_session_state(&id, "cart", json!("secret"))
        .await
        .expect("set");
    say(&world, &id, 1).await;
    let other = of_service(&world, "other");
    assert!(other.get_session(&id).await.expect("asked").is_none());
    assert_eq!(
        other.get_session_state(&id, "cart").await.expect("asked"),
        None
    );
    assert!(
        other
            .get_events_after(&id, 0)
            .await
            .expect("asked")
            .is_empty()
    );
    assert!(other.list_sessions().await.expect("listed").is_empty());
    assert!(!other.delete_session(&id).await.expect("asked"));
    let later = SystemTime::now() + Duration::from_secs(3_600);
    assert!(
        other
            .expire_sessions(later)
            .await
            .expect("asked")
            .is_empty()
    );
    let refused = other
        .set_session_state(&id, "cart", json!(1))
        .await
        .expect_err("it is another's");
    assert!(
        matches!(refused, SessionStorageError::SessionNotFound(_)),
        "{refused:?}"
    );
    assert_eq!(got(&world, &id).await.state["cart"], json!("secret"));
}

#[tokio::test]
async fn sessions_that_nobody_has_used_since_end_and_others_stay() {
    let world = World::new();
    let _daemon = world.daemon();
    let id = made(&world).await;
    assert!(
        storage(&world)
            .expire_sessions(SystemTime::now())
            .await
            .expect("asked")
            .is_empty()
    );
    assert!(
        storage(&world)
            .get_session(&id)
            .await
            .expect("asked")
            .is_some()
    );
    let later = SystemTime::now() + Duration::from_secs(3_600);
    assert_eq!(
        storage(&world).expire_sessions(later).await.expect("asked"),
        std::slice::from_ref(&id)
    );
    assert!(
        storage(&world)
            .get_session(&id)
            .await
            .expect("asked")
            .is_none()
    );
    assert_eq!(storage(&world).session_count().await.expect("counted"), 0);
}

#[tokio::test]
async fn what_can_not_be_kept_and_a_daemon_that_is_away_are_errors() {
    let world = World::new();
    let mut daemon = world.daemon();
    let id = made(&world).await;
    let long = "k".repeat(241);
    for key in ["", "mcp.handshake", "a\nb", &long] {
        let refused = storage(&world)
            .set_session_state(&id, key, json!(1))
            .await
            .expect_err("it is no key");
        assert!(
            matches!(refused, SessionStorageError::InvalidData(_)),
            "{refused:?}"
        );
    }
    for id in ["", "a b"] {
        let refused = storage(&world)
            .create_session_with_id(id.into(), ServerCapabilities::default())
            .await;
        assert!(
            matches!(refused, Err(SessionStorageError::InvalidData(_))),
            "{refused:?}"
        );
        assert!(
            storage(&world)
                .get_session(id)
                .await
                .expect("asked")
                .is_none()
        );
    }
    let taken = storage(&world)
        .create_session_with_id(id.clone(), ServerCapabilities::default())
        .await;
    assert!(
        matches!(taken, Err(SessionStorageError::InvalidData(_))),
        "{taken:?}"
    );
    let secret = "hunter2".repeat(300_000);
    let refused = storage(&world)
        .set_session_state(&id, "cart", json!(secret))
        .await
        .expect_err("too large");
    assert!(!refused.to_string().contains("hunter2"), "it tells a value");
    daemon.kill();
    let options = Options::default()
        .directory(world.directory())
        .start(Start::Never);
    let options = options.timeout(Duration::from_millis(100));
    let away = SessiondStorage::new(Sessions::of_service(
        "turul".parse().expect("a name"),
        options,
    ));
    let failed = away.get_session(&id).await.expect_err("there is no daemon");
    assert!(
        matches!(failed, SessionStorageError::ConnectionError(_)),
        "{failed:?}"
    );
    let failed = away
        .store_event(&id, SseEvent::new("message".into(), json!(1)))
        .await;
    assert!(
        matches!(failed, Err(SessionStorageError::ConnectionError(_))),
        "{failed:?}"
    );
    let failed = away.create_session(ServerCapabilities::default()).await;
    assert!(
        matches!(failed, Err(SessionStorageError::ConnectionError(_))),
        "{failed:?}"
    );
}
