//! What is done by hand, or by whoever knows better: ending, pruning, finding out where an event
//! is.

use mcp_sessiond_daemon::config::Limits;
use mcp_sessiond_daemon::contents::{Contents, Why};
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::streams::{Cursor, EventId};

use super::bench::{Bench, SERVICE, after, gap, start_of, texts, visit};
use super::pruning::counted;
use crate::contract::backends::Backend;

const MINUTE_MS: u64 = 60_000;

async fn end_unused(contents: &Contents, service: &str, older_than_ms: u64) -> Vec<(String, Why)> {
    let service = service.parse().expect("a service");
    let ended = contents
        .end_unused(&service, older_than_ms)
        .await
        .expect("ended");
    ended
        .into_iter()
        .map(|ended| (ended.place.name, ended.why))
        .collect()
}

pub(crate) async fn what_nobody_has_used_ends_by_hand<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let mut sessions = Vec::new();
    for name in ["attached", "gone", "read", "touched", "unused"] {
        sessions.push(bench.session(name).await);
    }
    let [attached, gone, read, touched, unused] = &sessions[..] else {
        unreachable!("five")
    };
    let other = visit(&bench.contents, "other", "unused");
    other.create().await.expect("created");
    attached.attach().await.expect("attached");
    bench.clock.advance(10 * MINUTE_MS);
    touched.touch().await.expect("touched");
    gone.terminate().await.expect("terminated");
    // A read is no change, and a use all the same.
    read.read(&["k"]).await.expect("read");
    bench.clock.advance(30_000);
    read.read(&["k"]).await.expect("read");
    bench.clock.advance(5 * MINUTE_MS - 30_000);
    // Where others share the storage, only they know what was read within the last minute.
    let ended = end_unused(&bench.contents, SERVICE, 7 * MINUTE_MS).await;
    assert_eq!(ended, [("unused".to_owned(), Why::Unused)]);
    assert_eq!(unused.get().await, Err(Error::UnknownSession));
    for alive in [attached, read, touched] {
        alive.get().await.expect("it was used");
    }
    assert_eq!(
        gone.open().await,
        Err(Error::SessionTerminated),
        "its tombstone stays"
    );
    other.get().await.expect("another service's");
    assert_eq!(
        end_unused(&bench.contents, SERVICE, 7 * MINUTE_MS).await,
        []
    );
    end_unused(&bench.contents, SERVICE, 5 * MINUTE_MS - 15_000).await;
    read.get()
        .await
        .expect("it was read since, though that is not on record");
}

pub(crate) async fn events_are_pruned_by_hand<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    for name in ["a", "b"] {
        session.open_stream(name).await.expect("opened");
    }
    let first = session.say("a", "1").await;
    for at in 2..=20 {
        session
            .say(if at % 2 == 1 { "a" } else { "b" }, &at.to_string())
            .await;
    }
    let limits = Limits::default();
    let nothing = session.prune(None, None, None).await;
    assert!(
        matches!(nothing, Err(Error::InvalidArgument { .. })),
        "{nothing:?}"
    );
    assert_eq!(
        session.prune(Some("c"), Some(0), None).await,
        Err(Error::UnknownStream)
    );
    assert_eq!(session.prune(Some("a"), Some(4), None).await, Ok(6));
    let (events, gaps) = session.replay_all(after(&first), None).await;
    assert_eq!(
        (texts(&events), gaps),
        (vec!["13", "15", "17", "19"], vec![gap("a", 2, 6)])
    );
    assert_eq!(
        session.prune(Some("a"), Some(4), None).await,
        Ok(0),
        "it is done"
    );
    counted(&session, &limits).await;
    // Of what is left, the oldest go: 2, 4, 6, 8, 10, 12, 13.
    assert_eq!(session.prune(None, Some(7), None).await, Ok(7));
    let (events, gaps) = session.replay_all(start_of("b"), None).await;
    assert_eq!(
        (texts(&events), gaps),
        (vec!["14", "16", "18", "20"], vec![gap("b", 1, 6)])
    );
    counted(&session, &limits).await;
    bench.clock.advance(1_000);
    session.say("b", "21").await;
    assert_eq!(
        session.prune(None, Some(3), Some(1_001)).await,
        Ok(0),
        "they are not as old"
    );
    assert_eq!(
        session.prune(None, Some(3), Some(1_000)).await,
        Ok(5),
        "three stay"
    );
    assert_eq!(
        session.prune(None, None, Some(1_000)).await,
        Ok(2),
        "one is younger"
    );
    assert_eq!(session.prune(None, Some(0), None).await, Ok(1));
    assert_eq!(counted(&session, &limits).await, Vec::<u64>::new());
    // What was appended at once stays or goes as a whole.
    session
        .append("a", &["22", "23", "24"])
        .await
        .expect("appended");
    assert_eq!(session.prune(None, Some(2), None).await, Ok(0));
    assert_eq!(session.prune(None, Some(0), None).await, Ok(3));
    assert_eq!(
        session.say("a", "25").await,
        session.replay_all(start_of("a"), None).await.0[0].id
    );
}

pub(crate) async fn an_orphan_whose_reader_is_back<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    session.orphan_stream("a").await.expect("an orphan");
    let notice = "{\"jsonrpc\":\"2.0\",\"method\":\"m\"}";
    let lost = session.append("a", &[notice]).await.expect("appended");
    assert_eq!(lost[0].stream.as_str(), "_GET_stream");
    for _ in 0..2 {
        let back = session
            .unorphan_stream("a")
            .await
            .expect("its reader is back");
        assert!(!back.orphaned && !back.closed, "{back:?}");
    }
    let said = session.append("a", &[notice]).await.expect("appended");
    assert_eq!((said[0].stream.as_str(), said[0].position), ("a", 1));
    assert_eq!(
        session.unorphan_stream("b").await,
        Err(Error::UnknownStream)
    );
    let standalone = session.unorphan_stream("_GET_stream").await;
    assert!(
        matches!(standalone, Err(Error::InvalidArgument { .. })),
        "{standalone:?}"
    );
}

pub(crate) async fn an_event_leads_to_its_stream<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    session.say("_GET_stream", "0").await;
    let first = session.say("a", "1").await;
    let last = session.say("a", "2").await;
    let found = session.find_event(&first).await.expect("found");
    assert_eq!(
        (found.stream.stream.as_str(), found.position, found.number),
        ("a", 1, 2)
    );
    assert!(
        !found.ended && !session.find_event(&last).await.expect("found").ended,
        "it is open"
    );
    assert_eq!(
        session
            .replay(after(&last), None)
            .await
            .expect("replayed")
            .ended,
        []
    );
    session.close_stream("a").await.expect("closed");
    let found = session.find_event(&first).await.expect("found");
    assert!(
        found.stream.closed && !found.ended,
        "there is more: {found:?}"
    );
    assert!(session.find_event(&last).await.expect("found").ended);
    // Whoever replays is told so, too, once all was said.
    let some = session
        .replay(start_of("a"), Some(1))
        .await
        .expect("replayed");
    assert_eq!((some.more, some.ended.len()), (true, 0));
    for cursor in [start_of("a"), after(&first), after(&last)] {
        let all = session.replay(cursor, None).await.expect("replayed");
        assert_eq!(
            (all.more, all.ended),
            (false, vec!["a".parse().expect("an id")])
        );
    }
    let waited = session
        .wait(&[after(&first), start_of("_GET_stream")], 0)
        .await
        .expect("waited");
    assert_eq!(waited.ended, ["a".parse().expect("an id")]);
    assert_eq!(
        session
            .replay(Cursor::Number(0), None)
            .await
            .expect("replayed")
            .ended,
        []
    );
    let other = bench.session("other").await;
    for unknown in [first, EventId("made-up".into())] {
        assert_eq!(other.find_event(&unknown).await, Err(Error::UnknownCursor));
    }
}
