//! What a client comes back with where there are no sessions on the wire.

use std::collections::HashSet;

use mcp_sessiond_daemon::config::Limits;
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::sessions::{HANDLE_LEN, Handle, Lifetimes};

use super::bench::{Bench, START_MS, endless, id};
use crate::contract::backends::Backend;

pub(crate) async fn minted_and_opened<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    let owner = session.access.place.owner.clone();
    let first = session.mint(Some(1_000)).await.expect("minted");
    assert_eq!(
        (first.expires_ms, first.handle.0.len()),
        (START_MS + 1_000, HANDLE_LEN)
    );
    let mut seen = HashSet::from([first.handle.0.clone()]);
    for _ in 0..20 {
        assert!(seen.insert(session.mint(None).await.expect("minted").handle.0));
    }
    assert_eq!(
        bench.contents.session_of(&owner, &first.handle).await,
        Ok(id("s"))
    );
    if B::DURABLE {
        bench.reopen().await;
        assert_eq!(
            bench.contents.session_of(&owner, &first.handle).await,
            Ok(id("s"))
        );
    }
    let other = bench
        .contents
        .session_of("service bank", &first.handle)
        .await;
    assert_eq!(other, Err(Error::UnknownHandle), "another owner's");
    for wrong in [
        "",
        "x",
        &"A".repeat(HANDLE_LEN),
        &"A".repeat(10_000),
        &first.handle.0[1..],
    ] {
        let opened = bench
            .contents
            .session_of(&owner, &Handle(wrong.into()))
            .await;
        assert_eq!(opened, Err(Error::UnknownHandle));
    }
}

pub(crate) async fn good_for_its_life<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let owner = &session.access.place.owner;
    let handle = session.mint(Some(1_000)).await.expect("minted").handle;
    let open = || bench.contents.session_of(owner, &handle);
    bench.clock.advance(999);
    assert_eq!(open().await, Ok(id("s")));
    bench.clock.advance(1);
    assert_eq!(open().await, Err(Error::HandleExpired));
    bench.clock.advance(999);
    bench.sweep().await;
    assert_eq!(open().await, Err(Error::HandleExpired));
    bench.clock.advance(1);
    assert_eq!(
        open().await,
        Err(Error::UnknownHandle),
        "it is forgotten that it was one"
    );
    bench.sweep().await;
    assert_eq!(open().await, Err(Error::UnknownHandle));
    assert_eq!(
        bench
            .store()
            .list_all(None, 10)
            .await
            .map(|left| left.len()),
        Ok(1),
        "the session"
    );
    let longest = bench.bounds.sessions.handle_life_ms;
    for wrong in [0, longest + 1, u64::MAX] {
        let sentence = format!("`life_ms` is 1 to {longest}");
        assert_eq!(
            session.mint(Some(wrong)).await.err(),
            Some(Error::InvalidArgument { sentence })
        );
    }
    let minted = session.mint(None).await.expect("minted");
    assert_eq!(minted.expires_ms, bench.clock.now_ms() + longest);
}

pub(crate) async fn as_many_as_are_good<B: Backend>(backend: B) {
    let bench = Bench::with(
        backend,
        Limits {
            handles: 3,
            ..Limits::default()
        },
    );
    let session = bench.session("s").await;
    for life_ms in [1_000, 2_000, 3_000] {
        session.mint(Some(life_ms)).await.expect("minted");
    }
    let what = "the number of handles of this session that are good".into();
    let full = Some(Error::QuotaExceeded { what, limit: 3 });
    assert_eq!(session.mint(None).await.err(), full);
    assert!(
        bench.session("other").await.mint(None).await.is_ok(),
        "each session has its own"
    );
    bench.clock.advance(1_000);
    session
        .mint(None)
        .await
        .expect("in the place of one that has expired");
    assert_eq!(session.mint(None).await.err(), full);
}

pub(crate) async fn of_sessions_that_have_ended<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let owner = &session.access.place.owner;
    let handle = session.mint(None).await.expect("minted").handle;
    session.reset().await.expect("reset");
    assert_eq!(
        bench.contents.session_of(owner, &handle).await,
        Ok(id("s")),
        "the same session"
    );
    session.terminate().await.expect("terminated");
    assert_eq!(
        session.mint(None).await.err(),
        Some(Error::SessionTerminated)
    );
    assert_eq!(session.open().await, Err(Error::SessionTerminated));
    // What ends by itself leaves its id to others, but not its handles.
    let session = bench.session("t").await;
    let handle = session.mint(None).await.expect("minted").handle;
    session
        .live(Lifetimes {
            idle_ms: Some(1),
            ..Lifetimes::default()
        })
        .await
        .expect("updated");
    bench.clock.advance(1);
    session.create_with(endless()).await.expect("another one");
    assert_eq!(
        bench.contents.session_of(owner, &handle).await,
        Err(Error::UnknownHandle)
    );
}
