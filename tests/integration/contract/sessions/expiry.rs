//! Sessions end when their time is over, for whichever reason comes first; unless somebody uses
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::poll;
use mcp_sessiond_daemon::contents::{Access, Clock, Lease, OwnerStatus, Why, Writer};
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::sessions::Lifetimes;
use mcp_sessiond_proto::streams::Cursor;

use super::bench::{Bench, START_MS, endless};
use super::relay::Relay;
use super::visit::Visit;
use crate::contract::backends::Backend;

/// Lifetimes in ms: idle, absolute, grace.
fn lifetimes(idle: u64, absolute: u64, grace: u64) -> Lifetimes {
    Lifetimes {
        idle_ms: Some(idle),
        absolute_ms: Some(absolute),
        grace_ms: Some(grace),
    }
}

/// A session that lives so long.
async fn living<B: Backend>(bench: &Bench<B>, name: &str, lifetimes: Lifetimes) -> Visit {
    let session = bench.session(name).await;
    session.live(lifetimes).await.expect("updated");
    session
}

/// It is over exactly now, and gone before a sweep says so.
async fn over<B: Backend>(bench: &Bench<B>, session: &Visit, why: Why) {
    assert_eq!(session.get().await, Err(Error::UnknownSession));
    assert_eq!(session.open().await, Err(Error::UnknownSession));
    assert_eq!(session.set("k", "1").await, Err(Error::UnknownSession));
    assert_eq!(
        session.attach().await,
        Err(Error::UnknownSession),
        "which does not bring it back"
    );
    assert_eq!(
        session.wait(&[Cursor::Number(0)], 0).await,
        Err(Error::UnknownSession),
        "nor does this"
    );
    let owner = &session.access.place.owner;
    assert_eq!(
        bench.contents.list(owner, None, |_| true).await,
        Ok(Vec::new())
    );
    let name = session.access.place.name.clone();
    assert_eq!(bench.sweep().await, [(name, why)]);
    assert_eq!(
        bench
            .store()
            .list_all(None, 10)
            .await
            .map(|left| left.len()),
        Ok(0)
    );
}

pub(crate) async fn idle<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = living(&bench, "s", lifetimes(1_000, 0, 0)).await;
    for _ in 0..3 {
        bench.clock.advance(999);
        assert_eq!(bench.sweep().await, []);
        session.touch().await.expect("alive");
    }
    bench.clock.advance(999);
    assert!(session.get().await.is_ok());
    bench.clock.advance(1_000);
    over(&bench, &session, Why::Idle).await;
}

pub(crate) async fn absolute<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = living(&bench, "s", lifetimes(700, 1_000, 0)).await;
    bench.clock.advance(600);
    session.touch().await.expect("alive");
    bench.clock.advance(399);
    session.touch().await.expect("alive");
    session.attach().await.expect("attached");
    bench.clock.advance(1);
    assert_eq!(
        session.touch().await,
        Err(Error::UnknownSession),
        "although a client is attached"
    );
    assert_eq!(session.detach().await, Ok(()));
    over(&bench, &session, Why::Absolute).await;
}

pub(crate) async fn grace<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = living(&bench, "s", lifetimes(0, 0, 1_000)).await;
    bench.clock.advance(100_000);
    assert_eq!(bench.sweep().await, [], "nobody was attached yet");
    session.attach().await.expect("attached");
    session.attach().await.expect("attached");
    assert_eq!(session.get().await.map(|seen| seen.attached), Ok(2));
    session.detach().await.expect("detached");
    bench.clock.advance(100_000);
    assert_eq!(bench.sweep().await, [], "one is left");
    session.detach().await.expect("detached");
    bench.clock.advance(999);
    session.touch().await.expect("alive");
    assert_eq!(bench.sweep().await, []);
    session.attach().await.expect("back in time");
    bench.clock.advance(5_000);
    assert_eq!(bench.sweep().await, []);
    session.detach().await.expect("detached");
    bench.clock.advance(1_000);
    over(&bench, &session, Why::Grace).await;
}

pub(crate) async fn nought_is_never<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.attach().await.expect("attached");
    session.detach().await.expect("detached");
    assert_eq!(session.get().await.map(|seen| seen.expires_ms), Ok(None));
    bench.clock.advance(100 * 365 * 24 * 3_600_000);
    assert_eq!(bench.sweep().await, []);
    assert!(session.get().await.is_ok());
    if B::DURABLE {
        bench.reopen().await;
        assert_eq!(
            (bench.sweep().await, bench.visit("s").get().await.is_ok()),
            (vec![], true)
        );
    }
}

pub(crate) async fn as_configured<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.visit("s");
    let created = session.create().await.expect("created");
    assert_eq!(
        created.expires_ms,
        Some(START_MS + bench.bounds.sessions.idle_ms)
    );
    let endless = bench
        .visit("other")
        .create_with(endless())
        .await
        .expect("created");
    assert_eq!(endless.expires_ms, None);
    bench.clock.advance(bench.bounds.sessions.idle_ms);
    assert_eq!(bench.sweep().await, [("s".into(), Why::Idle)]);
}

pub(crate) async fn many_at_once<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    for at in 0..230 {
        let lifetimes = lifetimes(1_000 + at % 3, 0, 0);
        let request = mcp_sessiond_proto::sessions::CreateRequest {
            lifetimes,
            ..endless()
        };
        bench
            .visit(&format!("s{at}"))
            .create_with(request)
            .await
            .expect("created");
    }
    bench.clock.advance(1_001);
    assert_eq!(bench.sweep().await.len(), 154);
    bench.clock.advance(1);
    assert_eq!(bench.sweep().await.len(), 76);
    assert_eq!(bench.sweep().await, []);
}

pub(crate) async fn those_that_stay_hold_nobody_up<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    for at in 0..110 {
        let session = living(&bench, &format!("a{at}"), lifetimes(1_000, 0, 0)).await;
        assert!(session.get().await.is_ok());
    }
    bench.clock.advance(1);
    living(&bench, "mine", lifetimes(1_000, 0, 0)).await;
    bench.clock.advance(1_000);
    // Sessions of another machine's host, which it will end itself.
    let standing = |place: &mcp_sessiond_daemon::storage::RecordId| {
        if place.name == "mine" {
            OwnerStatus::Free
        } else {
            OwnerStatus::Elsewhere
        }
    };
    let swept = bench.contents.sweep(standing).await.expect("swept");
    assert_eq!(
        swept
            .iter()
            .map(|one| one.place.name.as_str())
            .collect::<Vec<_>>(),
        ["mine"]
    );
}

pub(crate) async fn whoever_waits_keeps_it<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    living(&bench, "s", lifetimes(1_000, 0, 0)).await;
    let relay = Relay::new(bench.store());
    let contents = bench.over(relay.clone());
    let session = bench.visit("s").through(&contents);
    {
        let cursors = [Cursor::Number(0)];
        let wait = session.wait(&cursors, 25_000);
        tokio::pin!(wait);
        loop {
            assert!(poll!(&mut wait).is_pending());
            if relay.is_idle() {
                break;
            }
            tokio::task::yield_now().await;
        }
        bench.clock.advance(5_000);
        assert_eq!(super::bench::sweep(&contents).await, []);
        assert!(session.get().await.is_ok(), "in use");
    }
    bench.clock.advance(1_000);
    assert_eq!(
        super::bench::sweep(&contents).await,
        [("s".into(), Why::Idle)]
    );
}

/// A lease that the case gives and takes.
#[derive(Default)]
struct Double {
    held: AtomicBool,
    stale: AtomicBool,
}

impl Lease for Double {
    fn check(&self, _keeps: bool) -> Result<(), Error> {
        if self.stale.load(Ordering::Relaxed) {
            Err(Error::LeaseEnded)
        } else {
            Ok(())
        }
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    fn is_there(&self) -> bool {
        true
    }
}

pub(crate) async fn a_held_lease_keeps_it<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let lease = Arc::new(Double::default());
    lease.held.store(true, Ordering::Relaxed);
    let plain = living(&bench, "s", lifetimes(1_000, 0, 0)).await;
    let writer = Writer::Holder(lease.clone());
    let session = Visit {
        access: Access {
            writer,
            ..plain.access.clone()
        },
        ..plain
    };
    bench.clock.advance(1_500);
    assert!(session.get().await.is_ok(), "held");
    bench.clock.advance(1_500);
    assert_eq!(
        bench.contents.sweep(|_| OwnerStatus::Held).await,
        Ok(Vec::new())
    );
    assert!(session.set("k", "1").await.is_ok());
    lease.stale.store(true, Ordering::Relaxed);
    assert_eq!(session.set("k", "2").await, Err(Error::LeaseEnded));
    assert_eq!(
        session.append("_GET_stream", &["1"]).await,
        Err(Error::LeaseEnded)
    );
    assert_eq!(session.terminate().await, Err(Error::LeaseEnded));
    assert_eq!(
        session.value("k").await,
        (1, Some("1".into())),
        "reading needs no lease"
    );
    lease.held.store(false, Ordering::Relaxed);
    bench.clock.advance(1_000);
    assert_eq!(session.get().await, Err(Error::UnknownSession));
    let swept = bench
        .contents
        .sweep(|_| OwnerStatus::Free)
        .await
        .expect("swept");
    assert_eq!(
        swept.iter().map(|one| one.why).collect::<Vec<_>>(),
        [Why::Idle]
    );
}

pub(crate) async fn of_a_host_that_is_gone<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = living(&bench, "s", lifetimes(1_000, 0, 0)).await;
    bench.clock.advance(1_000);
    let swept = bench
        .contents
        .sweep(|_| OwnerStatus::Gone)
        .await
        .expect("swept");
    assert_eq!(
        swept.iter().map(|one| one.why).collect::<Vec<_>>(),
        [Why::HostGone]
    );
    assert_eq!(session.get().await, Err(Error::UnknownSession));
    // Whatever is left of one that is none of its host's any more; but for a tombstone, while the
    // host lives.
    let session = bench.session("s").await;
    session.terminate().await.expect("terminated");
    let place = &session.access.place;
    assert_eq!(
        bench.contents.end(place, OwnerStatus::Left).await,
        Ok(false)
    );
    assert_eq!(session.open().await, Err(Error::SessionTerminated));
    assert_eq!(bench.contents.end(place, OwnerStatus::Gone).await, Ok(true));
    assert_eq!(session.open().await, Err(Error::UnknownSession));
    assert_eq!(
        bench.contents.end(place, OwnerStatus::Gone).await,
        Ok(false)
    );
}

pub(crate) async fn of_another_machine<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    living(&bench, "s", lifetimes(1_000, 0, 0)).await;
    bench.clock.advance(24 * 3_600_000);
    assert_eq!(
        bench.contents.sweep(|_| OwnerStatus::Elsewhere).await,
        Ok(Vec::new()),
        "that daemon's matter"
    );
    bench.clock.advance(60_000 + 1_000);
    let swept = bench
        .contents
        .sweep(|_| OwnerStatus::Elsewhere)
        .await
        .expect("swept");
    assert_eq!(
        swept.iter().map(|one| one.why).collect::<Vec<_>>(),
        [Why::Idle],
        "after a day"
    );
}

pub(crate) async fn time_does_not_step_back<B: Backend>(backend: B) {
    let mut bench = Bench::new(backend);
    let session = living(&bench, "s", lifetimes(1_000, 0, 0)).await;
    bench.clock.advance(500);
    session.touch().await.expect("alive");
    if !B::DURABLE {
        return; // Nothing is left that could have a time on it.
    }
    bench.clock = Arc::new(Clock::manual(START_MS - 60_000));
    bench.reopen().await;
    let session = bench.visit("s");
    session.touch().await.expect("alive");
    let found = session.set("k", "1").await;
    assert_eq!(found, Ok(1));
    assert!(
        session
            .get()
            .await
            .is_ok_and(|seen| seen.active_ms >= START_MS + 500)
    );
    assert_eq!(bench.clock.now_ms(), START_MS + 500);
    // A time that can't be is not believed: it ends nobody's session.
    bench.clock = Arc::new(Clock::manual(START_MS - 100 * 24 * 3_600_000));
    bench.reopen().await;
    assert!(bench.visit("s").get().await.is_ok());
    assert_eq!(bench.clock.now_ms(), START_MS - 100 * 24 * 3_600_000);
}
