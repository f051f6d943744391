//! State values that expire.

use std::time::Duration;

use mcp_sessiond_daemon::config::Limits;
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::state::{StateVersion, StateWrite};

use super::bench::{Bench, START_MS, set, set_at, unset};
use super::visit::Visit;
use crate::contract::backends::Backend;

fn brief(name: &str, text: &str, ms: u64) -> StateWrite {
    set(name, text).expires(Duration::from_millis(ms))
}

/// Values and their bytes, as the session counts them.
async fn counted(session: &Visit) -> (u32, u64) {
    let seen = session.get().await.expect("a session");
    (seen.state_keys, seen.state_bytes)
}

async fn keys(session: &Visit) -> Vec<String> {
    let listed = session.list_state(None).await.expect("a list");
    listed.iter().map(|one| one.key.to_string()).collect()
}

pub(crate) async fn a_value_that_has_expired_is_not_there<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    assert_eq!(session.write_one(brief("k", "1", 1_000)).await, Ok(1));
    session.set("stays", "1").await.expect("written");
    bench.clock.advance(600);
    if B::DURABLE {
        bench.reopen().await;
    }
    let session = if B::DURABLE {
        bench.visit("s")
    } else {
        session
    };
    bench.clock.advance(399);
    assert_eq!(session.value("k").await, (1, Some("1".into())));
    let listed = session.list_state(None).await.expect("a list");
    let times: Vec<_> = listed.iter().map(|one| one.expires_ms).collect();
    assert_eq!(times, [Some(START_MS + 1_000), None]);
    let conflict = session.write_one(set_at("k", "2", 0)).await;
    assert!(
        matches!(
            conflict,
            Err(Error::VersionConflict {
                current: StateVersion(1),
                ..
            })
        ),
        "{conflict:?}"
    );
    bench.clock.advance(1);
    assert_eq!(session.value("k").await, (0, None));
    assert_eq!(keys(&session).await, ["stays"]);
    let late = session.write_one(set_at("k", "2", 1)).await;
    assert!(
        matches!(
            late,
            Err(Error::VersionConflict {
                current: StateVersion(0),
                ..
            })
        ),
        "{late:?}"
    );
    assert_eq!(
        session.write_one(set_at("k", "2", 0)).await,
        Ok(3),
        "versions go on"
    );
    assert_eq!(counted(&session).await, (2, 2 + 6));
    bench.clock.advance(1_000_000);
    assert_eq!(
        session.value("k").await,
        (3, Some("2".into())),
        "it was written to stay"
    );
}

pub(crate) async fn the_sweep_deletes_what_has_expired<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    for round in 0..4 {
        let writes: Vec<_> = (0..30)
            .map(|at| brief(&format!("k{round}-{at}"), "1", 1_000 + round))
            .collect();
        session.write(&writes).await.expect("written");
    }
    session
        .write(&[
            brief("later", "1", 5_000),
            brief("stays", "1", 1_000),
            brief("gone", "1", 1_000),
        ])
        .await
        .expect("written");
    session
        .write(&[brief("later", "1", 9_000), set("stays", "1"), unset("gone")])
        .await
        .expect("written");
    assert_eq!(counted(&session).await.0, 122);
    bench.clock.advance(1_001);
    bench.sweep().await;
    assert_eq!(counted(&session).await.0, 62);
    bench.clock.advance(4_000);
    bench.sweep().await;
    assert_eq!(keys(&session).await, ["later", "stays"]);
    assert_eq!(counted(&session).await, (2, 12));
    bench.clock.advance(4_000);
    bench.sweep().await;
    assert_eq!(
        (keys(&session).await, counted(&session).await),
        (vec!["stays".into()], (1, 6))
    );
    // Nothing of what expires is left behind by a reset.
    session
        .write_one(brief("k", "1", 1_000))
        .await
        .expect("written");
    session.reset().await.expect("emptied");
    session.set("k", "2").await.expect("written");
    bench.clock.advance(1_000);
    bench.sweep().await;
    assert_eq!(
        (keys(&session).await, counted(&session).await),
        (vec!["k".into()], (1, 2))
    );
}

pub(crate) async fn what_has_expired_makes_room<B: Backend>(backend: B) {
    let limits = Limits {
        state_keys: 130,
        ..Limits::default()
    };
    let bench = Bench::with(backend, limits);
    let session = bench.session("s").await;
    for round in 0..13 {
        let writes: Vec<_> = (0..10)
            .map(|at| brief(&format!("k{round}-{at}"), "1", 1_000))
            .collect();
        session.write(&writes).await.expect("written");
    }
    assert_eq!(
        session.set("one more", "1").await.expect_err("full").code(),
        "quota_exceeded"
    );
    bench.clock.advance(1_000);
    session.set("one more", "1").await.expect("written");
    assert_eq!(counted(&session).await, (1, 9));
}

pub(crate) async fn pages_are_full_although_some_have_expired<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    for round in 0..6 {
        let write = |at: u64| {
            let name = format!("k{round}{at:02}");
            if at.is_multiple_of(2) {
                brief(&name, "1", 1_000)
            } else {
                set(&name, "1")
            }
        };
        session
            .write(&(0..50).map(write).collect::<Vec<_>>())
            .await
            .expect("written");
    }
    bench.clock.advance(1_000);
    let first = session.list_state(None).await.expect("a page");
    assert_eq!(
        (first.len(), first[0].key.to_string()),
        (100, "k001".into())
    );
    let second = session
        .list_state(first.last().map(|last| last.key.as_str()))
        .await
        .expect("a page");
    assert_eq!(second.len(), 50);
}

pub(crate) async fn a_time_of_nought_or_without_a_value_is_refused<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let nought = StateWrite {
        expires_ms: Some(0),
        ..set("k", "1")
    };
    let none = StateWrite {
        expires_ms: Some(1),
        ..unset("k")
    };
    for wrong in [nought, none] {
        let refused = session.write_one(wrong).await;
        assert!(
            matches!(refused, Err(Error::InvalidArgument { .. })),
            "{refused:?}"
        );
    }
    session
        .write_one(StateWrite {
            expires_ms: Some(u64::MAX),
            ..set("k", "1")
        })
        .await
        .expect("written");
    assert_eq!(session.value("k").await.0, 1);
}
