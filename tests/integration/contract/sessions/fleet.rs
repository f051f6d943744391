//! Several daemons on the same data: what one does, the others see, and none ends what another
//! one's client uses.

use mcp_sessiond_daemon::contents::Why;
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::sessions::Lifetimes;
use mcp_sessiond_proto::streams::Cursor;

use super::bench::{Bench, sweep, texts};
use crate::contract::backends::Backend;

pub(crate) async fn what_one_writes_another_reads<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let beside = session.through(&bench.beside().await);
    for round in 0..10 {
        let text = round.to_string();
        let version = session.set("k", &text).await.expect("written");
        assert_eq!(beside.value("k").await, (version, Some(text.clone())));
        let event = beside
            .append("_GET_stream", &[&text])
            .await
            .expect("appended")
            .remove(0);
        let (events, _) = session
            .replay_all(Cursor::Number(event.number - 1), None)
            .await;
        assert_eq!(texts(&events), [text]);
    }
    beside.terminate().await.expect("terminated");
    assert_eq!(session.set("k", "1").await, Err(Error::SessionTerminated));
    assert_eq!(
        session.append("_GET_stream", &["1"]).await,
        Err(Error::SessionTerminated)
    );
}

pub(crate) async fn a_late_write_brings_nothing_back<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let beside = bench.beside().await;
    for round in 0..8 {
        let session = bench.session(&format!("s{round}")).await;
        let late = session.through(&beside);
        let writers: Vec<_> = (0..6)
            .map(|at| {
                let visit = if at % 2 == 0 {
                    session.clone()
                } else {
                    late.clone()
                };
                tokio::spawn(async move {
                    loop {
                        if let Err(error) = visit.append("_GET_stream", &["1"]).await {
                            return error;
                        }
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        session.terminate().await.expect("terminated");
        for writer in writers {
            assert_eq!(
                writer.await.expect("a writer that ends well"),
                Error::SessionTerminated
            );
        }
        let seen = late.get().await.expect("a tombstone");
        assert_eq!((seen.events, seen.streams), (0, 0));
    }
}

pub(crate) async fn a_client_of_another_daemon_keeps_it<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    if !bench.store().is_shared() {
        return; // One daemon is all there is.
    }
    let beside = bench.beside().await;
    let session = bench.session("s").await;
    let brief = Lifetimes {
        idle_ms: Some(30 * 60_000),
        absolute_ms: None,
        grace_ms: Some(60_000),
    };
    session.live(brief).await.expect("updated");
    session.attach().await.expect("attached");
    // Every daemon sweeps, and nobody knows which is first.
    for minute in 0..90 {
        bench.clock.advance(60_000);
        assert_eq!(sweep(&beside).await, [], "minute {minute}");
        assert_eq!(sweep(&bench.contents).await, [], "minute {minute}");
        assert!(
            session.through(&beside).get().await.is_ok(),
            "minute {minute}"
        );
    }
    session.detach().await.expect("detached");
    bench.clock.advance(60_000);
    assert_eq!(sweep(&beside).await, [("s".into(), Why::Grace)]);
}

pub(crate) async fn a_client_of_a_dead_daemon_does_not<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    session
        .live(Lifetimes {
            grace_ms: Some(60_000),
            ..Lifetimes::default()
        })
        .await
        .expect("updated");
    session.attach().await.expect("attached");
    if !B::DURABLE {
        return; // Nothing is left of it.
    }
    bench.reopen().await;
    let mut ended = Vec::new();
    for minute in 0..6 {
        bench.clock.advance(60_000);
        ended.extend(
            bench
                .sweep()
                .await
                .into_iter()
                .map(|(_, why)| (why, minute)),
        );
    }
    assert!(matches!(ended[..], [(Why::Grace, 1..=5)]), "{ended:?}");
}
