//! Appending: numbers without gaps, ids that mean something in their session alone, requests that
//! may be repeated.

use std::collections::BTreeMap;

use mcp_sessiond_proto::streams::{APPEND_BYTES_MAX, APPEND_MAX, Appended, Cursor, EventId};
use mcp_sessiond_proto::{Error, Json};

use super::bench::{Bench, after, json, large, request, start_of, texts, visit};
use super::visit::Visit;
use crate::contract::backends::Backend;

/// Streams, and those who append to them at once.
const STREAMS: usize = 8;
const WRITERS: usize = 16;
const APPENDS: usize = 12;

/// How many messages each append has, in turn.
const BATCHES: [usize; 5] = [1, 7, 2, 30, 1];

pub(crate) async fn numbered_under_concurrency<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    numbered(&session, std::slice::from_ref(&session)).await;
}

pub(crate) async fn numbered_by_two_daemons<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let beside = session.through(&bench.beside().await);
    numbered(&session, &[session.clone(), beside]).await;
}

/// Sixteen append to eight streams through these daemons; then everything is there, in order.
async fn numbered(session: &Visit, daemons: &[Visit]) {
    for at in 0..STREAMS {
        session
            .open_stream(&format!("stream{at}"))
            .await
            .expect("opened");
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let visit = daemons[writer % daemons.len()].clone();
            tokio::spawn(async move {
                let mut appended = Vec::new();
                for at in 0..APPENDS {
                    let name = format!("stream{}", (writer + at) % STREAMS);
                    let count = BATCHES[(writer + at) % BATCHES.len()];
                    let texts: Vec<String> = (0..count)
                        .map(|of| format!("[{writer},{at},{of}]"))
                        .collect();
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    let events = visit.append(&name, &texts).await.expect("appended");
                    assert!(
                        events
                            .windows(2)
                            .all(|two| two[0].number + 1 == two[1].number),
                        "together"
                    );
                    appended.extend(events.into_iter().zip(texts.into_iter().map(str::to_owned)));
                }
                appended
            })
        })
        .collect();
    let mut all = Vec::new();
    for writer in writers {
        all.extend(writer.await.expect("a writer that ends well"));
    }
    all.sort_by_key(|(event, _)| event.number);
    let numbers: Vec<u64> = all.iter().map(|(event, _)| event.number).collect();
    assert_eq!(
        numbers,
        (1..=all.len() as u64).collect::<Vec<_>>(),
        "without gaps in the session"
    );
    let mut positions = BTreeMap::new();
    for (event, _) in &all {
        let last: &mut u64 = positions.entry(event.stream.clone()).or_default();
        *last += 1;
        assert_eq!(event.position, *last, "without gaps in the stream");
    }
    let (events, gaps) = session.replay_all(Cursor::Number(0), Some(97)).await;
    assert_eq!((events.len(), gaps.len()), (all.len(), 0));
    for (event, (appended, text)) in events.iter().zip(&all) {
        assert_eq!(
            (&event.id, event.number, event.position),
            (&appended.id, appended.number, appended.position)
        );
        assert_eq!(
            (&event.stream, event.message.as_str()),
            (&appended.stream, text.as_str())
        );
    }
    for (stream, last) in positions {
        let (events, _) = session
            .replay_all(Cursor::Stream(stream.clone()), Some(13))
            .await;
        let expected = all
            .iter()
            .filter(|(event, _)| event.stream == stream)
            .map(|(_, text)| text.as_str());
        assert_eq!(texts(&events), expected.collect::<Vec<_>>());
        assert_eq!(events.len() as u64, last);
    }
    assert_eq!(
        session.get().await.map(|seen| seen.events as usize),
        Ok(all.len())
    );
}

pub(crate) async fn as_many_at_once_as_there_may_be<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let messages: Vec<_> = (0..APPEND_MAX)
        .map(|at| Some(json(&at.to_string())))
        .collect();
    let appended = session
        .append_all("_GET_stream", None, messages.clone())
        .await
        .expect("appended");
    assert_eq!(appended.len(), APPEND_MAX);
    let (events, _) = session.replay_all(after(&appended[99].id), Some(50)).await;
    assert_eq!(events.len(), APPEND_MAX - 100);
    let refused = || {
        let sentence = format!(
            "one append has 1 to {APPEND_MAX} messages and at most {APPEND_BYTES_MAX} bytes"
        );
        Err(Error::InvalidArgument { sentence })
    };
    let more: Vec<Option<Json>> = vec![None; APPEND_MAX + 1];
    assert_eq!(
        session.append_all("_GET_stream", None, more).await,
        refused()
    );
    assert_eq!(
        session.append_all("_GET_stream", None, Vec::new()).await,
        refused()
    );
    // The most bytes that one append may have.
    let mebibyte = Some(large(1 << 20));
    let most = vec![mebibyte.clone(), None, mebibyte.clone(), mebibyte.clone()];
    session
        .append_all("_GET_stream", None, most.clone())
        .await
        .expect("appended");
    let more = [most, vec![Some(json("1"))]].concat();
    assert_eq!(
        session.append_all("_GET_stream", None, more).await,
        refused()
    );
    let larger = large(bench.bounds.limits.message_bytes + 1);
    let what = format!("a message of {} bytes", larger.len());
    let refused = Error::QuotaExceeded {
        what,
        limit: bench.bounds.limits.message_bytes as u64,
    };
    assert_eq!(
        session.append("_GET_stream", &[larger.as_str()]).await,
        Err(refused)
    );
    assert_eq!(
        session.get().await.map(|seen| seen.last_number),
        Ok(APPEND_MAX as u64 + 4)
    );
}

pub(crate) async fn a_request_that_is_repeated<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    let messages = vec![Some(json("1")), None, Some(json("2"))];
    let append = |visit: Visit, name: &'static str| {
        let messages = messages.clone();
        async move { visit.append_all(name, Some(request("r")), messages).await }
    };
    let first = append(session.clone(), "a").await.expect("appended");
    session.say("a", "3").await;
    assert_eq!(append(session.clone(), "a").await, Ok(first.clone()));
    // At once, and through two daemons: one of them appends.
    let beside = session.through(&bench.beside().await);
    let race = (0..16).map(|at| {
        let visit = if at % 2 == 0 {
            session.clone()
        } else {
            beside.clone()
        };
        tokio::spawn(async move {
            visit
                .append_all("a", Some(request("race")), vec![Some(json("4"))])
                .await
        })
    });
    let race: Vec<_> = race.collect();
    let mut answers = Vec::new();
    for racer in race {
        answers.push(
            racer
                .await
                .expect("a racer that ends well")
                .expect("appended"),
        );
    }
    assert!(
        answers
            .iter()
            .all(|answer| *answer == answers[0] && answer[0].number == 5)
    );
    session.close_stream("a").await.expect("closed");
    assert_eq!(
        append(session.clone(), "a").await,
        Ok(first.clone()),
        "the stream is closed"
    );
    if B::DURABLE {
        bench.reopen().await;
        assert_eq!(
            append(bench.visit("s"), "a").await,
            Ok(first.clone()),
            "after a crash"
        );
    }
    assert!(bench.visit("s").append("a", &["5"]).await.is_err());
    if B::DURABLE {
        let (events, _) = bench.visit("s").replay_all(start_of("a"), None).await;
        assert_eq!(texts(&events), ["1", "2", "3", "4"]);
    }
}

pub(crate) async fn priming_events_are_cursors<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    let first = session
        .append_all("a", None, vec![None])
        .await
        .expect("appended")
        .remove(0);
    assert_eq!((first.position, first.number), (1, 1));
    assert_eq!(
        session.replay_all(start_of("a"), None).await,
        (Vec::new(), Vec::new())
    );
    assert_eq!(
        session.replay_all(after(&first.id), None).await,
        (Vec::new(), Vec::new())
    );
    let appended = session
        .append_all(
            "a",
            None,
            vec![Some(json("1")), None, None, Some(json("2")), None],
        )
        .await;
    let appended = appended.expect("appended");
    for (from, expected) in [
        (&first.id, &["1", "2"][..]),
        (&appended[0].id, &["2"]),
        (&appended[1].id, &["2"]),
        (&appended[2].id, &["2"]),
        (&appended[4].id, &[]),
    ] {
        for most in [1, 2, 1_000] {
            let (events, gaps) = session.replay_all(after(from), Some(most)).await;
            assert_eq!((texts(&events), gaps.len()), (expected.to_vec(), 0));
        }
    }
    let seen = session.get().await.expect("a session");
    assert_eq!((seen.events, seen.event_bytes, seen.last_number), (6, 2, 6));
    let stream = session.list_streams(None).await.expect("listed").remove(0);
    assert_eq!(
        (stream.last_position, stream.events, stream.bytes),
        (6, 6, 2)
    );
    assert_eq!(
        stream.cursor,
        Some(appended[4].id.clone()),
        "the newest cursor"
    );
}

pub(crate) async fn streams_open_and_close<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    assert_eq!(session.append("a", &["1"]).await, Err(Error::UnknownStream));
    assert_eq!(session.close_stream("a").await, Err(Error::UnknownStream));
    assert_eq!(session.orphan_stream("a").await, Err(Error::UnknownStream));
    assert_eq!(
        session.replay(start_of("a"), None).await,
        Err(Error::UnknownStream)
    );
    let opened = session
        .open_stream_by("a", json("\"7\""))
        .await
        .expect("opened");
    assert_eq!(
        (opened.opened_by.clone(), opened.cursor.clone()),
        (Some(json("\"7\"")), None)
    );
    assert_eq!(
        session.open_stream_by("a", json("8")).await,
        Ok(opened),
        "as it is"
    );
    let event = session.say("a", "1").await;
    let closed = session.close_stream("a").await.expect("closed");
    assert!(closed.closed && closed.cursor.as_ref() == Some(&event));
    assert_eq!(
        session.close_stream("a").await,
        Ok(closed.clone()),
        "once more"
    );
    assert_eq!(session.append("a", &["2"]).await, Err(Error::StreamClosed));
    assert_eq!(session.open_stream("a").await, Err(Error::StreamClosed));
    let (events, _) = session.replay_all(start_of("a"), None).await;
    assert_eq!(texts(&events), ["1"], "what it has said can be replayed");
    for standalone in [
        session.close_stream("_GET_stream").await,
        session.orphan_stream("_GET_stream").await,
    ] {
        let sentence = "the standalone stream stays as long as its session".into();
        assert_eq!(standalone, Err(Error::InvalidArgument { sentence }));
    }
    assert_eq!(
        session.replay_all(start_of("_GET_stream"), None).await,
        (Vec::new(), Vec::new())
    );
    for name in 0..150 {
        session
            .open_stream(&format!("s{name:03}"))
            .await
            .expect("opened");
    }
    let first = session.list_streams(None).await.expect("listed");
    let second = session
        .list_streams(Some(first[99].stream.as_str()))
        .await
        .expect("listed");
    let names: Vec<_> = first
        .iter()
        .chain(&second)
        .map(|stream| stream.stream.to_string())
        .collect();
    let expected = ["a".into()]
        .into_iter()
        .chain((0..150).map(|name| format!("s{name:03}")));
    assert_eq!((names, first.len()), (expected.collect(), 100));
}

pub(crate) async fn ids_mean_nothing_elsewhere<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let mut ids: Vec<Vec<EventId>> = Vec::new();
    let elsewhere = visit(&bench.contents, "bank", "s");
    let visits = [bench.visit("s"), bench.visit("other"), elsewhere];
    for visit in &visits {
        visit.create().await.expect("created");
        visit.open_stream("a").await.expect("opened");
        let appended: Vec<Appended> = visit.append("a", &["1", "2"]).await.expect("appended");
        ids.push(appended.into_iter().map(|event| event.id).collect());
    }
    for (at, visit) in visits.iter().enumerate() {
        for (of, ids) in ids.iter().enumerate() {
            let replayed = visit
                .replay(after(&ids[0]), None)
                .await
                .map(|page| page.events.len());
            assert_eq!(
                replayed,
                if at == of {
                    Ok(1)
                } else {
                    Err(Error::UnknownCursor)
                }
            );
            let waited = visit
                .wait(&[after(&ids[0])], 0)
                .await
                .map(|page| page.events.len());
            assert_eq!(
                waited,
                if at == of {
                    Ok(1)
                } else {
                    Err(Error::UnknownCursor)
                }
            );
        }
    }
    // Made up, cut short, one letter different, of a position that there is not.
    let good = ids[0][0].0.clone();
    let mut wrong: Vec<String> = ["", "a", "_GET_stream", "a_1", "🦀"]
        .map(String::from)
        .into();
    wrong.extend([
        good[1..].into(),
        good[..good.len() - 1].into(),
        format!("{good}A"),
        "A".repeat(4_000),
    ]);
    for at in 0..good.len() {
        let other = if good.as_bytes()[at] == b'A' {
            "B"
        } else {
            "A"
        };
        wrong.push(format!("{}{other}{}", &good[..at], &good[at + 1..]));
    }
    for wrong in wrong {
        let replayed = visits[0]
            .replay(Cursor::Event(EventId(wrong.clone())), None)
            .await;
        assert_eq!(replayed, Err(Error::UnknownCursor), "{wrong}");
    }
    assert_eq!(
        visits[0].replay(Cursor::Number(3), None).await,
        Err(Error::UnknownCursor)
    );
    assert_eq!(
        visits[0].replay(Cursor::Number(u64::MAX), None).await,
        Err(Error::UnknownCursor)
    );
}

pub(crate) async fn counters_go_on_after_a_crash<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    let first = session.append("a", &["1", "2"]).await.expect("appended");
    bench.reopen().await;
    let session = bench.visit("s");
    if !B::DURABLE {
        assert_eq!(
            session.append("a", &["3"]).await,
            Err(Error::UnknownSession)
        );
        return;
    }
    let next = session
        .append("a", &["3"])
        .await
        .expect("appended")
        .remove(0);
    assert_eq!((next.position, next.number), (3, 3));
    let (events, gaps) = session.replay_all(after(&first[0].id), None).await;
    assert_eq!((texts(&events), gaps.len()), (vec!["2", "3"], 0));
}
