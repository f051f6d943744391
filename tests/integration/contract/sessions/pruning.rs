//! Caps: the oldest events go, and who comes for them is told of it once, exactly.

use mcp_sessiond_daemon::config::{Limits, Sessions};
use mcp_sessiond_daemon::contents::Bounds;
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::streams::Cursor;

use super::bench::{Bench, after, gap, gap_of_numbers, json, large, request, start_of, texts};
use super::visit::Visit;
use crate::contract::backends::Backend;

/// What the view counts is what can be replayed, and it is within the caps. Has the events'
/// numbers.
pub(super) async fn counted(session: &Visit, limits: &Limits) -> Vec<u64> {
    let seen = session.get().await.expect("a session");
    let (events, gaps) = session.replay_all(Cursor::Number(0), Some(33)).await;
    let bytes: usize = events.iter().map(|event| event.message.len()).sum();
    assert_eq!(
        (seen.events as usize, seen.event_bytes),
        (events.len(), bytes as u64)
    );
    assert!(
        events.len() <= limits.events && bytes <= limits.event_bytes,
        "{} with {bytes}",
        events.len()
    );
    let missing: u64 = gaps.iter().map(|gap| gap.last - gap.first + 1).sum();
    assert_eq!(
        missing + events.len() as u64,
        seen.last_number,
        "each is there, or told as missing"
    );
    let streams = session.list_streams(None).await.expect("listed");
    assert_eq!(seen.streams as usize, streams.len());
    for stream in streams {
        let (of, gaps) = session
            .replay_all(Cursor::Stream(stream.stream.clone()), Some(17))
            .await;
        let bytes: usize = of.iter().map(|event| event.message.len()).sum();
        assert_eq!(
            (stream.events as usize, stream.bytes),
            (of.len(), bytes as u64)
        );
        assert!(of.len() <= limits.stream_events && bytes <= limits.stream_event_bytes);
        let missing: u64 = gaps.iter().map(|gap| gap.last - gap.first + 1).sum();
        assert_eq!(missing + of.len() as u64, stream.last_position);
        assert!(
            of.iter().all(|event| events.contains(event)),
            "the same in both"
        );
    }
    events.into_iter().map(|event| event.number).collect()
}

pub(crate) async fn a_stream_over_its_count<B: Backend>(backend: B) {
    let limits = Limits {
        stream_events: 10,
        ..Limits::default()
    };
    let mut bench = Bench::with(backend, limits.clone());
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    let other = session.say("_GET_stream", "0").await;
    let mut ids = vec![session.say("a", "1").await];
    for at in 2..=25 {
        ids.push(session.say("a", &at.to_string()).await);
        counted(&session, &limits).await;
    }
    // What is told of the gap, is told once, from wherever one comes.
    let (events, gaps) = session.replay_all(after(&ids[3]), Some(4)).await;
    assert_eq!(gaps, [gap("a", 5, 15)]);
    assert_eq!(
        texts(&events),
        (16..=25).map(|at| at.to_string()).collect::<Vec<_>>()
    );
    let (_, gaps) = session.replay_all(after(&ids[14]), None).await;
    assert_eq!(gaps, [], "after the last that is missing");
    let (_, gaps) = session.replay_all(start_of("a"), None).await;
    assert_eq!(gaps, [gap("a", 1, 15)]);
    let (events, gaps) = session.replay_all(Cursor::Number(0), None).await;
    assert_eq!((events.len(), gaps), (11, vec![gap_of_numbers(2, 16)]));
    let waited = session
        .wait(&[after(&ids[0]), after(&other)], 0)
        .await
        .expect("waited");
    assert_eq!(
        (waited.events.len(), waited.gaps),
        (10, vec![gap("a", 2, 15)])
    );
    let again = session.wait(&waited.next, 0).await.expect("waited");
    assert_eq!((again.events.len(), again.gaps.len()), (0, 0));
    if B::DURABLE {
        bench.reopen().await;
        counted(&bench.visit("s"), &limits).await;
    }
}

pub(crate) async fn a_stream_over_its_bytes<B: Backend>(backend: B) {
    let limits = Limits {
        stream_event_bytes: 1_000,
        ..Limits::default()
    };
    let bench = Bench::with(backend, limits.clone());
    let session = bench.session("s").await;
    for bytes in [300, 300, 300, 300, 10, 990, 10, 1_000, 2, 999] {
        let appended = session
            .append("_GET_stream", &[large(bytes).as_str()])
            .await
            .expect("appended");
        let numbers = counted(&session, &limits).await;
        assert_eq!(
            numbers.last(),
            Some(&appended[0].number),
            "the newest stays"
        );
    }
    let refused = session
        .append("_GET_stream", &[large(1_001).as_str()])
        .await;
    let what = "an append of 1001 bytes".into();
    assert_eq!(refused, Err(Error::QuotaExceeded { what, limit: 1_000 }));
}

pub(crate) async fn a_session_over_its_count<B: Backend>(backend: B) {
    let limits = Limits {
        events: 64,
        ..Limits::default()
    };
    let bench = Bench::with(backend, limits.clone());
    let session = bench.session("s").await;
    for at in 0..30 {
        session
            .open_stream(&format!("s{at}"))
            .await
            .expect("opened");
    }
    // Each stream's alone would be too much for one change.
    for round in 0..4 {
        for at in 0..30 {
            session.say(&format!("s{at}"), &round.to_string()).await;
        }
        counted(&session, &limits).await;
    }
    let many = vec![Some(json("1")); 60];
    for _ in 0..3 {
        session
            .append_all("s0", None, many.clone())
            .await
            .expect("appended");
        counted(&session, &limits).await;
        session.say("s1", "2").await;
        counted(&session, &limits).await;
    }
    let whole = vec![Some(json("1")); 64];
    session
        .append_all("s3", None, whole)
        .await
        .expect("as much as there may be");
    assert_eq!(counted(&session, &limits).await.len(), 64);
    let refused = session.append_all("s3", None, vec![None; 65]).await;
    assert_eq!(
        refused,
        Err(Error::QuotaExceeded {
            what: "an append of 65 messages".into(),
            limit: 64
        })
    );
}

pub(crate) async fn a_session_over_its_bytes<B: Backend>(backend: B) {
    let limits = Limits {
        event_bytes: 2_000,
        stream_event_bytes: 1_500,
        ..Limits::default()
    };
    let bench = Bench::with(backend, limits.clone());
    let session = bench.session("s").await;
    for at in 0..20 {
        session
            .open_stream(&format!("s{at}"))
            .await
            .expect("opened");
    }
    // Big and small in turn.
    for at in 0..120 {
        let bytes = [3, 900, 17, 250, 2, 1_400, 80][at % 7];
        let name = format!("s{}", at * 7 % 20);
        session
            .append(&name, &[large(bytes).as_str()])
            .await
            .expect("a full session goes on");
        if at % 5 == 0 {
            counted(&session, &limits).await;
        }
    }
    counted(&session, &limits).await;
}

pub(crate) async fn limits_that_become_narrower<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    for at in 0..20 {
        session
            .open_stream(&format!("s{at}"))
            .await
            .expect("opened");
    }
    for at in 0..300 {
        session.say(&format!("s{}", at % 20), &at.to_string()).await;
    }
    let narrow = Limits {
        events: 50,
        stream_events: 10,
        ..bench.bounds.limits.clone()
    };
    bench.limit(narrow.clone());
    session.say("s0", "300").await;
    assert!(session.get().await.expect("a session").events <= 50);
    assert_eq!(counted(&session, &narrow).await.last(), Some(&301));
}

pub(crate) async fn aged_events_go<B: Backend>(backend: B) {
    let sessions = Sessions {
        event_age_ms: 1_000,
        ..Sessions::default()
    };
    let bench = Bench::with(
        backend,
        Bounds {
            sessions,
            ..Bounds::default()
        },
    );
    let session = bench.session("s").await;
    for at in 0..40 {
        session
            .open_stream(&format!("s{at}"))
            .await
            .expect("opened");
        session.say(&format!("s{at}"), "1").await;
    }
    bench.clock.advance(600);
    let second = session.say("s0", "2").await;
    bench.clock.advance(399);
    assert_eq!(bench.sweep().await, []);
    assert_eq!(
        session.get().await.map(|seen| seen.events),
        Ok(41),
        "not yet"
    );
    bench.clock.advance(1);
    let before = session.get().await.expect("a session").active_ms;
    // More streams than one change takes.
    assert_eq!(bench.sweep().await, []);
    let seen = session.get().await.expect("a session");
    assert_eq!(
        (seen.events, seen.active_ms),
        (1, before),
        "which is no use of the session"
    );
    assert_eq!(counted(&session, &bench.bounds.limits).await, [41]);
    let (events, gaps) = session.replay_all(start_of("s0"), None).await;
    assert_eq!((texts(&events), gaps), (vec!["2"], vec![gap("s0", 1, 1)]));
    bench.clock.advance(600);
    bench.sweep().await;
    // Everything is gone, and told so, once.
    for (from, expected) in [
        (start_of("s0"), gap("s0", 1, 2)),
        (start_of("s7"), gap("s7", 1, 1)),
        (Cursor::Number(0), gap_of_numbers(1, 41)),
        (Cursor::Number(7), gap_of_numbers(8, 41)),
    ] {
        let page = session.replay(from, None).await.expect("replayed");
        assert_eq!(
            (page.events.len(), page.gaps, page.more),
            (0, vec![expected], false)
        );
        let again = session
            .replay(page.next[0].clone(), None)
            .await
            .expect("replayed");
        assert_eq!((again.events.len(), again.gaps.len()), (0, 0));
    }
    assert_eq!(
        session.replay_all(after(&second), None).await,
        (Vec::new(), Vec::new())
    );
    session.say("s0", "3").await;
    let (events, gaps) = session.replay_all(after(&second), None).await;
    assert_eq!((texts(&events), gaps.len()), (vec!["3"], 0));
}

pub(crate) async fn a_request_is_forgotten_with_its_events<B: Backend>(backend: B) {
    let limits = Limits {
        stream_events: 4,
        ..Limits::default()
    };
    let bench = Bench::with(backend, limits.clone());
    let session = bench.session("s").await;
    let messages = vec![Some(json("1"))];
    let append = || session.append_all("_GET_stream", Some(request("r")), messages.clone());
    let first = append().await.expect("appended");
    for _ in 0..5 {
        session.say("_GET_stream", "2").await;
    }
    let next = append().await.expect("appended");
    assert!(next[0].number > first[0].number, "another one now");
    session.say("_GET_stream", "3").await;
    assert_eq!(append().await, Ok(next));
    counted(&session, &limits).await;
}

pub(crate) async fn closed_streams_retire<B: Backend>(backend: B) {
    let mut limits = Limits {
        streams: 4,
        ..Limits::default()
    };
    let mut bench = Bench::with(backend, limits.clone());
    let session = bench.session("s").await;
    for name in ["a", "b", "c", "d"] {
        session.open_stream(name).await.expect("opened");
        session.append(name, &["1", "2"]).await.expect("appended");
    }
    let full = Error::QuotaExceeded {
        what: "the number of open streams of this session".into(),
        limit: 4,
    };
    assert_eq!(session.open_stream("e").await, Err(full.clone()));
    session.open_stream("a").await.expect("as it is");
    session.say("b", "3").await;
    for name in ["b", "c"] {
        session.close_stream(name).await.expect("closed");
    }
    session.open_stream("e").await.expect("opened");
    let names = |streams: Vec<mcp_sessiond_proto::streams::Stream>| {
        streams
            .iter()
            .map(|stream| stream.stream.to_string())
            .collect::<Vec<_>>()
    };
    let left = names(session.list_streams(None).await.expect("listed"));
    assert_eq!(
        left,
        ["a", "b", "d", "e"],
        "the one that was silent for the longest has gone"
    );
    let (_, gaps) = session.replay_all(Cursor::Number(0), None).await;
    assert_eq!(gaps, [gap_of_numbers(5, 6)]);
    counted(&session, &limits).await;
    session.open_stream("f").await.expect("opened");
    assert_eq!(session.open_stream("g").await, Err(full));
    counted(&session, &limits).await;
    limits.streams = 6;
    bench.limit(limits);
    for name in ["h", "i"] {
        session.open_stream(name).await.expect("opened");
    }
}

pub(crate) async fn several_short_streams_retire_at_once<B: Backend>(backend: B) {
    let limits = Limits {
        streams: 48,
        ..Limits::default()
    };
    let bench = Bench::with(backend, limits.clone());
    let session = bench.session("s").await;
    for at in 0..limits.streams {
        let name = format!("s{at:02}");
        session.open_stream(&name).await.expect("opened");
        session.say(&name, "1").await;
        if at != 1 {
            session.close_stream(&name).await.expect("closed");
        }
    }
    session.open_stream("next").await.expect("opened");
    let left = session.list_streams(None).await.expect("listed");
    let left: Vec<_> = left
        .iter()
        .map(|stream| stream.stream.to_string())
        .collect();
    assert_eq!(
        (left.len(), &left[..3]),
        (46, &["next".into(), "s01".into(), "s04".into()][..]),
        "{left:?}"
    );
    let numbers: Vec<u64> = [2].into_iter().chain(5..=48).collect();
    assert_eq!(counted(&session, &limits).await, numbers);
    // Where few are closed, clients may still come for most of them.
    let other = bench.session("t").await;
    for at in 0..limits.streams {
        other
            .open_stream(&format!("s{at:02}"))
            .await
            .expect("opened");
    }
    for name in ["s10", "s11", "s12", "s13"] {
        other.say(name, "1").await;
        other.close_stream(name).await.expect("closed");
    }
    other.open_stream("next").await.expect("opened");
    let left = other.list_streams(None).await.expect("listed");
    assert!(
        left.len() == limits.streams && left.iter().all(|stream| stream.stream.as_str() != "s10")
    );
}

pub(crate) async fn a_long_stream_retires_too<B: Backend>(backend: B) {
    let limits = Limits {
        streams: 2,
        ..Limits::default()
    };
    let bench = Bench::with(backend, limits.clone());
    let session = bench.session("s").await;
    for name in ["long", "b"] {
        session.open_stream(name).await.expect("opened");
    }
    for at in 0..600 {
        session.say("long", &at.to_string()).await;
    }
    session.say("b", "1").await;
    session.close_stream("long").await.expect("closed");
    session.open_stream("c").await.expect("opened");
    assert_eq!(counted(&session, &limits).await, [601]);
}
