//! Pages join without loss or repetition, from wherever and however long they are.

use mcp_sessiond_proto::streams::{Cursor, Event};

use super::bench::{Bench, after, json, large, start_of, stream, texts};
use super::visit::Visit;
use crate::contract::backends::Backend;

/// How long the batches are that `conversation` appends.
const BATCHES: [usize; 6] = [1, 5, 2, 1, 9, 3];

/// Three streams in turn, with priming events in between. Has every event that is no priming event.
async fn conversation(session: &Visit) -> Vec<Event> {
    for name in ["a", "b"] {
        session.open_stream(name).await.expect("opened");
    }
    let mut all = Vec::new();
    for (at, count) in BATCHES.iter().cycle().take(18).enumerate() {
        let name = ["a", "b", "_GET_stream"][(at / 2) % 3];
        let message =
            |of: usize| (!(at + of).is_multiple_of(5)).then(|| json(&format!("[{at},{of}]")));
        let messages: Vec<_> = (0..*count).map(message).collect();
        let appended = session
            .append_all(name, None, messages.clone())
            .await
            .expect("appended");
        all.extend(
            appended
                .into_iter()
                .zip(messages)
                .filter_map(|(event, message)| {
                    let (id, position, number) = (event.id, event.position, event.number);
                    Some(Event {
                        id,
                        stream: stream(name),
                        position,
                        number,
                        message: message?,
                    })
                }),
        );
    }
    all
}

pub(crate) async fn pages_of_every_size_join<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let all = conversation(&session).await;
    let last = session.get().await.expect("a session").last_number;
    for most in [1, 2, 3, 5, 8, 12, 1_000] {
        assert_eq!(
            session.replay_all(Cursor::Number(0), Some(most)).await,
            (all.clone(), Vec::new())
        );
        for name in ["a", "b", "_GET_stream"] {
            let of = of_stream(&all, name);
            assert_eq!(
                session.replay_all(start_of(name), Some(most)).await,
                (of, Vec::new()),
                "{most}"
            );
        }
    }
    for from in (0..=last).step_by(5) {
        let rest: Vec<_> = all
            .iter()
            .filter(|event| event.number > from)
            .cloned()
            .collect();
        for most in [2, 1_000] {
            assert_eq!(
                session.replay_all(Cursor::Number(from), Some(most)).await,
                (rest.clone(), Vec::new())
            );
        }
    }
}

fn of_stream(all: &[Event], name: &str) -> Vec<Event> {
    all.iter()
        .filter(|event| event.stream.as_str() == name)
        .cloned()
        .collect()
}

pub(crate) async fn from_every_event_on<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let all = conversation(&session).await;
    for (at, event) in all.iter().enumerate() {
        let rest = of_stream(&all[at + 1..], event.stream.as_str());
        for most in [1, 2, 1_000] {
            let replayed = session.replay_all(after(&event.id), Some(most)).await;
            assert_eq!(
                replayed,
                (rest.clone(), Vec::new()),
                "after {}",
                event.number
            );
        }
    }
    // Closed, an orphan, and after a crash: the same.
    session.orphan_stream("a").await.expect("an orphan");
    session.close_stream("b").await.expect("closed");
    for name in ["a", "b"] {
        assert_eq!(
            session.replay_all(start_of(name), None).await.0,
            of_stream(&all, name)
        );
    }
}

pub(crate) async fn a_number_after_many_single_events<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    for at in 1..=300 {
        session.say("_GET_stream", &at.to_string()).await;
    }
    for most in [1, 2, 40, 1_000] {
        let (events, gaps) = session.replay_all(Cursor::Number(290), Some(most)).await;
        assert_eq!(
            (texts(&events).join(" "), gaps.len()),
            ("291 292 293 294 295 296 297 298 299 300".into(), 0)
        );
    }
    let waited = session
        .wait_for(&[Cursor::Number(299)], 0, Some(1))
        .await
        .expect("waited");
    assert_eq!(texts(&waited.events), ["300"]);
}

pub(crate) async fn a_number_in_the_middle_of_a_batch<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.say("_GET_stream", "0").await;
    let messages: Vec<_> = (0..256).map(|at| Some(json(&at.to_string()))).collect();
    session
        .append_all("_GET_stream", None, messages.clone())
        .await
        .expect("appended");
    session
        .append_all("_GET_stream", None, messages)
        .await
        .expect("appended");
    for from in [1, 2, 100, 256, 257, 258, 400, 512, 513] {
        let (events, _) = session.replay_all(Cursor::Number(from), Some(7)).await;
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        assert_eq!(numbers, (from + 1..=513).collect::<Vec<_>>());
    }
}

pub(crate) async fn large_messages_fill_a_page<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    session.say("a", "1").await;
    for _ in 0..3 {
        let messages = vec![
            Some(large(900_000)),
            Some(large(900_000)),
            Some(large(900_000)),
        ];
        session
            .append_all("_GET_stream", None, messages)
            .await
            .expect("appended");
        session.say("a", "2").await;
    }
    let (events, gaps) = session.replay_all(Cursor::Number(0), None).await;
    let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
    assert_eq!((numbers, gaps.len()), ((1..=13).collect(), 0));
    let page = session
        .replay(Cursor::Number(1), None)
        .await
        .expect("replayed");
    assert!(
        page.events.len() == 1 && page.more,
        "a page ends before it has more than 1 MiB"
    );
    for from in [1, 7, 12] {
        assert_eq!(
            session
                .replay_all(Cursor::Number(from), Some(1))
                .await
                .0
                .len() as u64,
            13 - from
        );
    }
    let (events, _) = session.replay_all(start_of("a"), None).await;
    assert_eq!(texts(&events), ["1", "2", "2", "2"]);
}

pub(crate) async fn a_number_behind_large_messages<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    bench.limit(super::Limits {
        event_bytes: 64 << 20,
        stream_event_bytes: 64 << 20,
        ..bench.bounds.limits.clone()
    });
    let session = bench.session("s").await;
    // Sixteen MiB before the cursor that it could be in the middle of.
    for _ in 0..16 {
        session
            .append_all("_GET_stream", None, vec![Some(large(1 << 20))])
            .await
            .expect("appended");
    }
    session.say("_GET_stream", "1").await;
    let (events, _) = session.replay_all(Cursor::Number(16), None).await;
    assert_eq!(texts(&events), ["1"]);
}

pub(crate) async fn several_streams_in_one_wait<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let all = conversation(&session).await;
    let names = ["a", "b", "_GET_stream"];
    for most in [1, 2, 5, 1_000] {
        let mut cursors = names.map(start_of).to_vec();
        let mut found = Vec::new();
        loop {
            let page = session
                .wait_for(&cursors, 0, Some(most))
                .await
                .expect("waited");
            assert!(
                page.events
                    .windows(2)
                    .all(|two| two[0].number < two[1].number),
                "in order"
            );
            if page.events.is_empty() {
                break;
            }
            found.extend(page.events);
            cursors = page.next;
        }
        for name in names {
            assert_eq!(
                of_stream(&found, name),
                of_stream(&all, name),
                "{name}, {most} at a time"
            );
        }
        assert_eq!(found.len(), all.len());
    }
}

pub(crate) async fn a_silent_stream_holds_nobody_up<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    for name in ["silent", "late", "busy"] {
        session.open_stream(name).await.expect("opened");
    }
    let silent = session.say("silent", "0").await;
    let late = session.say("late", "0").await;
    let mut busy = Vec::new();
    for at in 0..60 {
        busy.push(session.say("busy", &at.to_string()).await);
    }
    let cursors = [after(&silent), after(&late), after(&busy[57])];
    // Many of the busy stream's events come after the cursors of the others, and before its own.
    let page = session
        .wait_for(&cursors, 0, Some(2))
        .await
        .expect("waited");
    assert_eq!(texts(&page.events), ["58", "59"]);
    let page = session
        .wait_for(&page.next, 0, Some(2))
        .await
        .expect("waited");
    assert_eq!((page.events.len(), page.more), (0, false));
    session.say("late", "1").await;
    let page = session
        .wait_for(&page.next, 0, Some(2))
        .await
        .expect("waited");
    assert_eq!(texts(&page.events), ["1"]);
    let page = session
        .wait_for(
            &[after(&silent), after(&late), after(&busy[58])],
            0,
            Some(1),
        )
        .await;
    let mut page = page.expect("waited");
    let mut found = Vec::new();
    while !page.events.is_empty() {
        found.extend(page.events);
        page = session
            .wait_for(&page.next, 0, Some(1))
            .await
            .expect("waited");
    }
    let mut found = texts(&found);
    found.sort_unstable();
    assert_eq!(found, ["1", "59"]);
}

pub(crate) async fn cursors_that_go_together<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    let event = session.say("a", "1").await;
    let refused = |sentence: &str| {
        Err(mcp_sessiond_proto::Error::InvalidArgument {
            sentence: sentence.into(),
        })
    };
    let together = "cursors of different streams, or one number, go together";
    for wrong in [
        vec![after(&event), start_of("a")],
        vec![Cursor::Number(0), start_of("a")],
        vec![Cursor::Number(0), Cursor::Number(1)],
    ] {
        assert_eq!(session.wait(&wrong, 0).await, refused(together));
    }
    assert_eq!(
        session.wait(&[], 0).await,
        refused("`after` has 1 to 64 cursors")
    );
    let many: Vec<_> = (0..65).map(|at| start_of(&format!("s{at}"))).collect();
    assert_eq!(
        session.wait(&many, 0).await,
        refused("`after` has 1 to 64 cursors")
    );
    for most in [0, 1_001, u32::MAX] {
        let cursor = Cursor::Number(0);
        assert_eq!(
            session.replay(cursor.clone(), Some(most)).await,
            refused("`most` is 1 to 1000")
        );
        assert_eq!(
            session.wait_for(&[cursor], 0, Some(most)).await,
            refused("`most` is 1 to 1000")
        );
    }
}

pub(crate) async fn another_stream_of_that_name<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    bench.limit(super::Limits {
        streams: 2,
        ..bench.bounds.limits.clone()
    });
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    let former = session
        .append("a", &["1", "2", "3"])
        .await
        .expect("appended");
    session.close_stream("a").await.expect("closed");
    for name in ["b", "c"] {
        session
            .open_stream(name)
            .await
            .expect("opened, and the closed one goes");
    }
    assert_eq!(
        session.replay(after(&former[0].id), None).await,
        Err(mcp_sessiond_proto::Error::UnknownCursor)
    );
    session.close_stream("b").await.expect("closed");
    session.open_stream("a").await.expect("opened anew");
    assert_eq!(
        session.replay_all(start_of("a"), None).await,
        (Vec::new(), Vec::new())
    );
    let next = session.append("a", &["4", "5"]).await.expect("appended");
    assert_eq!((next[0].position, next[0].number), (1, 4));
    let (events, gaps) = session.replay_all(start_of("a"), None).await;
    assert_eq!((texts(&events), gaps.len()), (vec!["4", "5"], 0));
    for event in &former {
        let replayed = session.replay(after(&event.id), None).await;
        assert_eq!(replayed, Err(mcp_sessiond_proto::Error::UnknownCursor));
    }
}
