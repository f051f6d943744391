//! Mistakes get the same error whichever backend is below, and nobody learns of another owner's
//! sessions.

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::sessions::{Lifetimes, Part, PartState, Status};
use mcp_sessiond_proto::streams::{Cursor, EventId};

use super::bench::{Bench, after, id, json, large, start_of, visit};
use super::visit::Visit;
use crate::contract::backends::Backend;

/// What every call but `create`, `get`, `terminate` and `detach` comes to; those have answers for a
/// tombstone too.
pub(super) async fn refused_by_all(session: &Visit, event: &EventId, with: &Error) {
    assert_eq!(session.open().await.as_ref(), Err(with));
    assert_eq!(
        session.set_status(Status::ready()).await.as_ref(),
        Err(with)
    );
    assert_eq!(session.live(Lifetimes::default()).await.as_ref(), Err(with));
    assert_eq!(session.touch().await.as_ref(), Err(with));
    assert_eq!(session.attach().await.as_ref(), Err(with));
    assert_eq!(session.reset().await.as_ref(), Err(with));
    assert_eq!(session.rotate([1; 32], None).await.as_ref(), Err(with));
    assert_eq!(session.mint(None).await.as_ref(), Err(with));
    assert_eq!(session.set("k", "1").await.as_ref(), Err(with));
    assert_eq!(session.read(&["k"]).await.as_ref(), Err(with));
    assert_eq!(session.list_state(None).await.as_ref(), Err(with));
    assert_eq!(session.open_stream("a").await.as_ref(), Err(with));
    assert_eq!(session.close_stream("a").await.as_ref(), Err(with));
    assert_eq!(session.orphan_stream("a").await.as_ref(), Err(with));
    assert_eq!(session.list_streams(None).await.as_ref(), Err(with));
    for stream in ["a", "_GET_stream"] {
        assert_eq!(session.append(stream, &["1"]).await.as_ref(), Err(with));
    }
    for cursor in [
        after(event),
        start_of("a"),
        Cursor::Number(0),
        Cursor::Event(EventId("x".into())),
    ] {
        assert_eq!(
            session.replay(cursor.clone(), None).await.as_ref(),
            Err(with)
        );
        assert_eq!(session.wait(&[cursor], 0).await.as_ref(), Err(with));
    }
    assert_eq!(session.detach().await, Ok(()));
}

pub(crate) async fn another_owners_is_not_there<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.set("k", "1").await.expect("written");
    session.open_stream("a").await.expect("opened");
    let event = session.say("a", "1").await;
    let before = session.get().await;
    let stranger = visit(&bench.contents, "bank", "s");
    let never = bench.visit("never");
    for visit in [&stranger, &never] {
        refused_by_all(visit, &event, &Error::UnknownSession).await;
        assert_eq!(visit.get().await, Err(Error::UnknownSession));
        assert_eq!(visit.terminate().await, Err(Error::UnknownSession));
    }
    // Nor is its tombstone, nor what has expired.
    bench.visit("t").create().await.expect("created");
    bench.visit("t").terminate().await.expect("terminated");
    let stranger = visit(&bench.contents, "bank", "t");
    refused_by_all(&stranger, &event, &Error::UnknownSession).await;
    assert_eq!(stranger.get().await, Err(Error::UnknownSession));
    assert_eq!(
        bench.contents.list("service bank", None, |_| true).await,
        Ok(Vec::new())
    );
    assert_eq!(session.get().await, before);
    let other = visit(&bench.contents, "bank", "s");
    other.create().await.expect("the stranger's own");
    other.terminate().await.expect("terminated");
    assert_eq!(session.get().await, before);
}

pub(crate) async fn mistakes<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let invalid = |sentence: &str| Error::InvalidArgument {
        sentence: sentence.into(),
    };
    let terminated = "`terminated` can't be set; `terminate_session` ends a session";
    assert_eq!(
        session.set_status(Status::Terminated).await,
        Err(invalid(terminated))
    );
    let request = mcp_sessiond_proto::sessions::CreateRequest {
        status: Status::Terminated,
        ..super::bench::endless()
    };
    assert_eq!(
        bench.visit("t").create_with(request).await,
        Err(invalid(terminated))
    );
    let part = Part {
        part: "x".repeat(20_000),
        is: PartState::NotTried,
        since_ms: None,
        code: None,
        message: None,
    };
    let status = Status::Failed { parts: vec![part] };
    assert_eq!(
        session.set_status(status).await,
        Err(invalid("a status has at most 16384 bytes"))
    );
    let metadata = Some(large(65_537));
    let updated = session
        .update(None, metadata.clone(), Lifetimes::default())
        .await;
    assert_eq!(
        updated,
        Err(invalid(
            "`metadata` has at most 65536 bytes, and this has 65537"
        ))
    );
    session
        .update(None, Some(large(65_536)), Lifetimes::default())
        .await
        .expect("as much as there may be");
    let opened_by = "`opened_by` is a JSON-RPC id: a string or a number of at most 256 bytes";
    for wrong in ["{}", " [1]", large(257).as_str()] {
        assert_eq!(
            session.open_stream_by("a", json(wrong)).await,
            Err(invalid(opened_by))
        );
    }
    assert_eq!(
        session
            .open_stream_by("a", large(256))
            .await
            .map(|stream| stream.closed),
        Ok(false)
    );
    assert_eq!(
        session.replay(start_of("b"), None).await,
        Err(Error::UnknownStream)
    );
    assert_eq!(
        session.wait(&[start_of("a"), start_of("b")], 0).await,
        Err(Error::UnknownStream)
    );
    assert_eq!(
        session.get().await.map(|seen| seen.last_number),
        Ok(0),
        "none of them did anything"
    );
}

pub(crate) async fn what_debug_is_told<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    for at in 0..120 {
        let session = visit(
            &bench.contents,
            ["bank", "shop"][at % 2],
            &format!("s{at:03}"),
        );
        session.create().await.expect("created");
        session.mint(None).await.expect("minted");
    }
    let session = bench.visit("s001");
    session.open_stream("a").await.expect("opened");
    session.append("a", &["1", "22"]).await.expect("appended");
    let (mut found, mut last) = (Vec::new(), None);
    loop {
        let page = bench
            .contents
            .inventory(last.as_ref(), 50)
            .await
            .expect("readable");
        let Some((end, _)) = page.last() else { break };
        last = Some(end.clone());
        found.extend(page);
    }
    assert_eq!(found.len(), 120);
    assert!(
        found.windows(2).all(|two| two[0].0 < two[1].0)
            && found.iter().all(|(_, info)| info.handles == 1)
    );
    let seen = bench
        .contents
        .inspect(&session.access.place)
        .await
        .expect("readable")
        .expect("a session");
    let (info, streams) = (seen.content.expect("it has contents"), seen.streams);
    assert_eq!(
        (
            info.session,
            info.events,
            info.event_bytes,
            info.last_number
        ),
        (id("s001"), 2, 3, 2)
    );
    assert_eq!(
        (streams.len(), streams[0].events, streams[0].bytes),
        (1, 2, 3)
    );
    let missing = visit(&bench.contents, "bank", "s001").access.place;
    assert!(
        bench
            .contents
            .inspect(&missing)
            .await
            .expect("readable")
            .is_none()
    );
}
