//! Waiting for what is said next: it wakes, it ends, and it leaves nothing behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::poll;
use mcp_sessiond_daemon::contents::Why;
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::sessions::Lifetimes;
use mcp_sessiond_proto::streams::{Cursor, Event, Replayed};
use tokio::task::JoinHandle;

use super::bench::{Bench, after, json, start_of, sweep, texts};
use super::visit::Visit;
use crate::contract::backends::Backend;

/// Longer than any wait here takes that ends for the right reason.
const LONG_MS: u32 = 25_000;

/// A task that waits.
fn waiting(session: &Visit, after: Vec<Cursor>) -> JoinHandle<Result<Replayed, Error>> {
    let session = session.clone();
    tokio::spawn(async move { session.wait(&after, LONG_MS).await })
}

/// What it came to, and that it was not for want of time.
async fn woken(waiting: JoinHandle<Result<Replayed, Error>>) -> Result<Replayed, Error> {
    let began = Instant::now();
    let woken = waiting.await.expect("a wait that ends well");
    assert!(
        began.elapsed() < Duration::from_millis(LONG_MS.into()) / 2,
        "it was woken"
    );
    woken
}

pub(crate) async fn nothing_to_wait_for<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    let event = session.say("a", "1").await;
    session.say("a", "2").await;
    assert_eq!(
        texts(
            &session
                .wait(&[after(&event)], LONG_MS)
                .await
                .expect("waited")
                .events
        ),
        ["2"]
    );
    let empty = session
        .wait(&[start_of("_GET_stream")], 1)
        .await
        .expect("waited");
    let expected = Replayed {
        events: Vec::new(),
        gaps: Vec::new(),
        next: vec![start_of("_GET_stream")],
        more: false,
        ended: Vec::new(),
    };
    assert_eq!(empty, expected);
}

pub(crate) async fn woken_by_an_append<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    for name in ["a", "b"] {
        session.open_stream(name).await.expect("opened");
    }
    for round in 0..20 {
        let last = session.get().await.expect("a session").last_number;
        let waits = [
            waiting(&session, vec![start_of("a")]),
            waiting(&session, vec![start_of("b"), start_of("a")]),
            waiting(&session, vec![Cursor::Number(last)]),
        ];
        // Priming events alone wake nobody up for good.
        session
            .append_all("b", None, vec![None])
            .await
            .expect("appended");
        session.say("a", &round.to_string()).await;
        for wait in waits {
            let events = woken(wait).await.expect("woken").events;
            assert!(!events.is_empty() && events.iter().all(|event| event.stream.as_str() == "a"));
        }
    }
}

pub(crate) async fn woken_through_another_daemon<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    if !bench.store().is_shared() {
        return; // One daemon is all there is.
    }
    let beside = session.through(&bench.beside().await);
    let wait = waiting(&session, vec![start_of("_GET_stream")]);
    beside.say("_GET_stream", "1").await;
    assert_eq!(texts(&woken(wait).await.expect("woken").events), ["1"]);
    let wait = waiting(&session, vec![Cursor::Number(1)]);
    beside.terminate().await.expect("terminated");
    assert_eq!(woken(wait).await, Err(Error::SessionTerminated));
}

pub(crate) async fn woken_by_the_end<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    for name in ["terminated", "reset", "swept"] {
        let session = bench.session(name).await;
        let event = session.say("_GET_stream", "1").await;
        let wait = waiting(&session, vec![after(&event)]);
        let expected = match name {
            "terminated" => {
                session.terminate().await.expect("terminated");
                Err(Error::SessionTerminated)
            }
            "reset" => {
                session.reset().await.expect("reset");
                Err(Error::UnknownCursor)
            }
            _ => {
                // One that is in use ends by its absolute lifetime alone.
                session
                    .live(Lifetimes {
                        absolute_ms: Some(5),
                        ..Lifetimes::default()
                    })
                    .await
                    .expect("updated");
                bench.clock.advance(5);
                assert_eq!(bench.sweep().await, [("swept".into(), Why::Absolute)]);
                Err(Error::UnknownSession)
            }
        };
        assert_eq!(woken(wait).await, expected, "{name}");
    }
}

pub(crate) async fn woken_by_the_end_of_a_stream<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let ended = |page: Replayed| {
        (
            page.events.len(),
            page.ended.iter().map(ToString::to_string).collect(),
        )
    };
    for round in 0..20 {
        let name = format!("r{round}");
        session.open_stream(&name).await.expect("opened");
        let wait = waiting(&session, vec![start_of(&name)]);
        if round % 2 == 0 {
            // Often enough it has begun by now.
            tokio::task::yield_now().await;
        }
        session.close_stream(&name).await.expect("closed");
        let told: (usize, Vec<String>) = ended(woken(wait).await.expect("waited"));
        assert_eq!(told, (0, vec![name]));
    }
    let both = ["r0", "r1"];
    let wait = waiting(&session, both.map(start_of).to_vec());
    let told: (usize, Vec<String>) = ended(woken(wait).await.expect("waited"));
    assert_eq!(
        told,
        (0, both.map(str::to_owned).to_vec()),
        "what has ended is not waited for"
    );
    // Of several, one that has ended before does not keep the caller from waiting for the others.
    session.open_stream("open").await.expect("opened");
    let wait = waiting(&session, ["r0", "open"].map(start_of).to_vec());
    tokio::task::yield_now().await;
    session.say("open", "1").await;
    assert_eq!(texts(&woken(wait).await.expect("waited").events), ["1"]);
}

pub(crate) async fn woken_by_the_exit<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let wait = waiting(&session, vec![Cursor::Number(0)]);
    bench.contents.close();
    assert_eq!(woken(wait).await.map(|page| page.events.len()), Ok(0));
    let wait = waiting(&session, vec![Cursor::Number(0)]);
    assert_eq!(
        woken(wait).await.map(|page| page.events.len()),
        Ok(0),
        "and later, at once"
    );
}

pub(crate) async fn dropped_half_way<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session
        .live(Lifetimes {
            idle_ms: Some(1_000),
            ..Lifetimes::default()
        })
        .await
        .expect("updated");
    {
        let after = [Cursor::Number(0)];
        let wait = session.wait(&after, LONG_MS);
        tokio::pin!(wait);
        assert!(poll!(&mut wait).is_pending());
    }
    // Nobody is there who would keep the session.
    bench.clock.advance(1_000);
    assert_eq!(session.get().await, Err(Error::UnknownSession));
    assert_eq!(bench.sweep().await, [("s".into(), Why::Idle)]);
}

pub(crate) async fn whoever_waits_uses_the_session<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session
        .live(Lifetimes {
            idle_ms: Some(100_000),
            ..Lifetimes::default()
        })
        .await
        .expect("updated");
    let first = session.say("_GET_stream", "1").await;
    let wait = waiting(&session, vec![after(&first)]);
    // It has begun when the sweep leaves the session alone; until then a visit keeps it.
    for _ in 0..20 {
        bench.clock.advance(6_000);
        session.touch().await.expect("alive");
        tokio::task::yield_now().await;
    }
    assert_eq!(sweep(&bench.contents).await, []);
    session.say("_GET_stream", "2").await;
    assert_eq!(texts(&woken(wait).await.expect("woken").events), ["2"]);
    bench.clock.advance(100_000);
    assert_eq!(sweep(&bench.contents).await, [("s".into(), Why::Idle)]);
}

/// Who appends, how often, and who follows.
const WRITERS: usize = 6;
const APPENDS: usize = 25;
const READERS: usize = 3;

pub(crate) async fn followed_without_loss_or_repetition<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let names: Vec<String> = (0..WRITERS).map(|at| format!("stream{at}")).collect();
    for name in &names {
        session.open_stream(name).await.expect("opened");
    }
    let total = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = names
        .iter()
        .map(|name| {
            let (session, total, name) = (session.clone(), total.clone(), name.clone());
            tokio::spawn(async move {
                for at in 0..APPENDS {
                    let count = at % 4 + 1;
                    let mut messages: Vec<_> = (0..count)
                        .map(|of| Some(json(&format!("[{at},{of}]"))))
                        .collect();
                    if at % 3 == 0 {
                        messages.push(None);
                    }
                    session
                        .append_all(&name, None, messages)
                        .await
                        .expect("appended");
                    total.fetch_add(count, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let expected = WRITERS * (0..APPENDS).map(|at| at % 4 + 1).sum::<usize>();
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let session = session.clone();
            let cursors = match reader {
                0 => vec![Cursor::Number(0)],
                _ => names.iter().map(|name| start_of(name)).collect(),
            };
            tokio::spawn(async move {
                follow(&session, cursors, expected, 1 + 20 * reader as u32).await
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("a writer that ends well");
    }
    assert_eq!(total.load(Ordering::Relaxed), expected);
    let (all, gaps) = session.replay_all(Cursor::Number(0), None).await;
    assert_eq!((all.len(), gaps.len()), (expected, 0));
    for reader in readers {
        let mut found = reader.await.expect("a reader that ends well");
        found.sort_by_key(|event| event.number);
        assert_eq!(found, all);
    }
}

/// Replays what is there and waits for the rest, until there is as much as expected; in order
/// within every stream.
async fn follow(
    session: &Visit,
    mut cursors: Vec<Cursor>,
    expected: usize,
    most: u32,
) -> Vec<Event> {
    let (mut found, mut last) = (Vec::new(), BTreeMap::new());
    while found.len() < expected {
        let page = session
            .wait_for(&cursors, LONG_MS, Some(most))
            .await
            .expect("waited");
        assert!(!page.events.is_empty() && page.gaps.is_empty());
        for event in &page.events {
            let former = last.insert(event.stream.clone(), event.position);
            assert!(
                former.is_none_or(|former| former < event.position),
                "in order within its stream"
            );
        }
        found.extend(page.events);
        cursors = page.next;
    }
    found
}
