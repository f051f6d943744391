//! A storage that fails, at any moment: it is said so, and nothing that was told is lost.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mcp_sessiond_daemon::config::Limits;
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::sessions::Status;
use mcp_sessiond_proto::state::{StateEntry, StateVersion, StateWrite};
use mcp_sessiond_proto::streams::Cursor;

use super::bench::{Bench, json, request, set, start_of, texts};
use super::pruning::counted;
use super::relay::Relay;
use super::visit::Visit;
use crate::contract::backends::Backend;

/// A call that is made until it succeeds.
type Call = fn(Visit) -> BoxFuture<'static, Result<(), Error>>;

/// A bench whose storage goes through a relay, with a session in it.
async fn relayed<B: Backend>(bench: &Bench<B>) -> (Arc<Relay>, Visit) {
    let relay = Relay::new(bench.store());
    let session = bench.session("s").await.through(&bench.over(relay.clone()));
    session.set("k", "1").await.expect("written");
    session.open_stream("a").await.expect("opened");
    session.append("a", &["1", "2"]).await.expect("appended");
    (relay, session)
}

/// Every call, one after the other; each of them works on what the ones before have left.
fn every() -> [Call; 18] {
    [
        |visit| async move { visit.get().await.map(drop) }.boxed(),
        |visit| async move { visit.open().await.map(drop) }.boxed(),
        |visit| async move { visit.touch().await }.boxed(),
        |visit| {
            async move {
                visit
                    .contents
                    .list(&visit.access.place.owner, None, |_| true)
                    .await
                    .map(drop)
            }
            .boxed()
        },
        |visit| async move { visit.attach().await }.boxed(),
        |visit| async move { visit.set("k", "2").await.map(drop) }.boxed(),
        |visit| async move { visit.read(&["k"]).await.map(drop) }.boxed(),
        |visit| async move { visit.list_state(None).await.map(drop) }.boxed(),
        |visit| async move { visit.open_stream("b").await.map(drop) }.boxed(),
        |visit| async move { visit.list_streams(None).await.map(drop) }.boxed(),
        |visit| async move { visit.replay(start_of("a"), None).await.map(drop) }.boxed(),
        |visit| async move { visit.replay(Cursor::Number(1), Some(1)).await.map(drop) }.boxed(),
        |visit| async move { visit.wait(&[start_of("a")], 0).await.map(drop) }.boxed(),
        |visit| async move { visit.orphan_stream("b").await.map(drop) }.boxed(),
        |visit| async move { visit.close_stream("b").await.map(drop) }.boxed(),
        |visit| async move { visit.set_status(Status::ready()).await.map(drop) }.boxed(),
        |visit| async move { visit.mint(None).await.map(drop) }.boxed(),
        |visit| {
            async move {
                visit
                    .append_all("a", Some(request("r")), vec![Some(json("3"))])
                    .await
                    .map(drop)
            }
            .boxed()
        },
    ]
}

pub(crate) async fn at_any_moment<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let (relay, session) = relayed(&bench).await;
    // Long ago, so that reading notes that the session is in use.
    bench.clock.advance(10 * 60_000);
    for (at, call) in every().into_iter().enumerate() {
        let mut failures = 0;
        loop {
            relay.fail_after(failures);
            let called = call(session.clone()).await;
            relay.recover();
            match called {
                Ok(()) if failures > 0 => break,
                Ok(()) => panic!("call {at} asks nothing of the storage"),
                Err(Error::Unavailable { .. }) => failures += 1,
                Err(other) => panic!("call {at} after {failures}: {other:?}"),
            }
            assert!(failures < 30, "call {at} never succeeds");
        }
    }
    assert_eq!(session.value("k").await.1.as_deref(), Some("2"));
    let (events, gaps) = session.replay_all(start_of("a"), None).await;
    assert_eq!((texts(&events), gaps.len()), (vec!["1", "2", "3"], 0));
    let seen = session.get().await.expect("a session");
    assert_eq!(
        (seen.status, seen.streams, seen.events, seen.state_keys),
        (Status::ready(), 2, 3, 1)
    );
    relay.fail_after(0);
    assert_eq!(
        session.terminate().await.expect_err("failing").code(),
        "unavailable"
    );
    assert_eq!(
        session.reset().await.expect_err("failing").code(),
        "unavailable"
    );
    assert_eq!(
        session
            .contents
            .sweep(|_| mcp_sessiond_daemon::contents::OwnerStatus::Service)
            .await
            .expect_err("failing")
            .code(),
        "unavailable"
    );
    let missing = super::bench::visit(&session.contents, "shop", "never")
        .get()
        .await;
    assert_eq!(
        missing.expect_err("failing").code(),
        "unavailable",
        "never unknown"
    );
    let handle = mcp_sessiond_proto::sessions::Handle("A".repeat(43));
    let opened = session
        .contents
        .session_of(&session.access.place.owner, &handle)
        .await;
    assert_eq!(opened.expect_err("failing").code(), "unavailable");
    relay.recover();
    assert!(session.get().await.is_ok());
}

pub(crate) async fn answers_that_are_lost<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let (relay, session) = relayed(&bench).await;
    relay.lose_answers();
    let append = || {
        session.append_all(
            "a",
            Some(request("r")),
            vec![Some(json("3")), Some(json("4"))],
        )
    };
    assert_eq!(append().await.expect_err("lost").code(), "outcome_unknown");
    let new = bench.visit("new").through(&session.contents);
    let asked = || mcp_sessiond_proto::sessions::CreateRequest {
        request: Some(request("r")),
        ..super::bench::endless()
    };
    assert_eq!(
        new.create_with(asked()).await.expect_err("lost").code(),
        "outcome_unknown"
    );
    relay.recover();
    // Whoever repeats the request gets the answer that was lost, and nothing happens twice.
    let appended = append().await.expect("appended");
    assert_eq!(
        appended
            .iter()
            .map(|event| event.position)
            .collect::<Vec<_>>(),
        [3, 4]
    );
    assert!(new.create_with(asked()).await.is_ok());
    let (events, _) = session.replay_all(start_of("a"), None).await;
    assert_eq!(texts(&events), ["1", "2", "3", "4"]);
}

pub(crate) async fn writes_whose_answers_are_lost<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let (relay, session) = relayed(&bench).await;
    let (version, _) = session.value("k").await;
    relay.lose_answers();
    let writes = [
        StateWrite {
            expected: Some(StateVersion(version)),
            ..set("k", "2")
        },
        StateWrite {
            value: None,
            ..set("none", "0")
        },
        set("l", "3"),
    ];
    let write = || session.write_by(Some(request("w")), &writes);
    assert_eq!(write().await.expect_err("lost").code(), "outcome_unknown");
    relay.recover();
    // It does not meet itself, nor what was written over it since.
    session.set("l", "4").await.expect("written");
    let versions =
        |entries: Vec<StateEntry>| entries.iter().map(|one| one.version.0).collect::<Vec<_>>();
    assert_eq!(
        versions(write().await.expect("the first answer")),
        [version + 1, 0, version + 2]
    );
    assert_eq!(session.value("l").await.1.as_deref(), Some("4"));
    // Nor is anything emptied twice.
    relay.lose_answers();
    let reset = || session.reset_by(Some(request("e")));
    assert_eq!(reset().await.expect_err("lost").code(), "outcome_unknown");
    relay.recover();
    session.set("m", "5").await.expect("written");
    assert_eq!(reset().await.expect("as it is now").state_keys, 1);
    assert_eq!(session.value("m").await.1.as_deref(), Some("5"));
    assert_eq!(session.value("k").await, (0, None));
    // What was written before is remembered over that, and over one that says no request.
    assert_eq!(
        versions(write().await.expect("the first answer")),
        [version + 1, 0, version + 2]
    );
    session.reset().await.expect("emptied");
    assert_eq!(
        versions(write().await.expect("the first answer")),
        [version + 1, 0, version + 2]
    );
    assert_eq!(session.get().await.expect("a session").state_keys, 0);
    // A refusal is none to be remembered: the same may go well later.
    let first = [StateWrite {
        expected: Some(StateVersion(0)),
        ..set("n", "6")
    }];
    session.set("n", "0").await.expect("written");
    assert!(session.write_by(Some(request("f")), &first).await.is_err());
    session
        .write(&[StateWrite {
            value: None,
            ..set("n", "0")
        }])
        .await
        .expect("removed");
    session
        .write_by(Some(request("f")), &first)
        .await
        .expect("written");
    // So many are remembered, and not more.
    for number in 0..48 {
        session
            .write_by(Some(request(&format!("x{number}"))), &[set("x", "1")])
            .await
            .expect("written");
    }
    let (version, _) = session.value("x").await;
    session
        .write_by(Some(request("x0")), &[set("x", "2")])
        .await
        .expect("the first answer");
    assert_eq!(session.value("x").await, (version, Some("1".into())));
    let conflict = session.write_by(Some(request("f")), &first).await;
    assert_eq!(conflict.expect_err("forgotten").code(), "version_conflict");
}

pub(crate) async fn what_is_forgotten_late<B: Backend>(backend: B) {
    let limits = Limits {
        events: 40,
        stream_events: 12,
        streams: 6,
        ..Limits::default()
    };
    let bench = Bench::with(backend, limits.clone());
    let relay = Relay::new(bench.store());
    relay.forget_late();
    let session = bench.session("s").await.through(&bench.over(relay));
    // Streams come and go, under names that there were before, and their events are still there for
    // a while.
    for round in 0..60 {
        let name = format!("s{}", round % 7);
        let opened = session.open_stream(&name).await.expect("opened");
        assert_eq!(
            (opened.last_position, opened.events),
            (0, 0),
            "nothing of a former stream"
        );
        let repeated = Some(request(&format!("r{}", round % 5)));
        for at in 0..round % 9 + 1 {
            session
                .append_all(
                    &name,
                    repeated.clone().filter(|_| at == 0),
                    vec![Some(json("1")); at % 3 + 1],
                )
                .await
                .expect("appended");
        }
        session.close_stream(&name).await.expect("closed");
        counted(&session, &limits).await;
    }
}
