//! Heartbeats of daemons, and which machine has a session's server.

use mcp_sessiond_daemon::contents::Keeping;
use mcp_sessiond_proto::Error;

use super::bench::{Bench, sweep};
use crate::contract::backends::Backend;

pub(crate) async fn a_sign_is_renewed_and_removed<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let other = bench.beside().await;
    let daemon = &bench.contents;
    assert_eq!(other.heartbeats().await, Ok(vec![]));
    let (first, is_removed) = daemon
        .send_heartbeat("boot/1/1", None)
        .await
        .expect("given");
    assert!(!is_removed);
    let (beside, _) = other
        .send_heartbeat("boot/1/10", None)
        .await
        .expect("given");
    let (second, is_removed) = daemon
        .send_heartbeat("boot/1/1", Some(first.version))
        .await
        .expect("renewed");
    assert!(!is_removed && second.version != first.version);
    assert_eq!(other.heartbeats().await, Ok(vec![second.clone(), beside]));
    // One that was renewed since is not removed.
    assert_eq!(other.remove_heartbeat(&first).await, Ok(false));
    assert_eq!(
        other.heartbeat_of("boot/1/1").await,
        Ok(Some(second.version))
    );
    assert_eq!(other.remove_heartbeat(&second).await, Ok(true));
    assert_eq!(daemon.heartbeat_of("boot/1/1").await, Ok(None));
    let (third, is_removed) = daemon
        .send_heartbeat("boot/1/1", Some(second.version))
        .await
        .expect("given");
    assert!(is_removed, "it is told that others took it for dead");
    // As after a restart.
    let (fourth, is_removed) = daemon
        .send_heartbeat("boot/1/1", None)
        .await
        .expect("given");
    assert!(!is_removed && fourth.version != third.version);
    assert_eq!(
        other.heartbeat_of("boot/1/1").await,
        Ok(Some(fourth.version))
    );
}

pub(crate) async fn a_sign_is_no_session<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    bench
        .contents
        .send_heartbeat("boot/1/1", None)
        .await
        .expect("given");
    bench.clock.advance(1_000 * 24 * 3_600_000);
    assert_eq!(sweep(&bench.contents).await, []);
    assert!(
        bench
            .contents
            .inventory(None, 10)
            .await
            .expect("a list")
            .is_empty()
    );
    assert_eq!(bench.contents.wills().await, Ok(vec![]));
    assert_eq!(
        bench.contents.usage().await.expect("a tally").of_services,
        0
    );
    assert!(
        bench
            .contents
            .heartbeat_of("boot/1/1")
            .await
            .expect("an answer")
            .is_some()
    );
}

pub(crate) async fn one_machine_has_a_session_s_server<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let of = &session.access;
    let other = bench.beside().await;
    assert_eq!(other.kept_at(of).await, Ok(None));
    assert_eq!(
        bench.contents.keep_at(of, "a", None).await,
        Ok(Keeping::Here)
    );
    assert_eq!(
        bench.contents.keep_at(of, "a", None).await,
        Ok(Keeping::Here)
    );
    assert_eq!(
        other.keep_at(of, "b", None).await,
        Ok(Keeping::Elsewhere("a".into()))
    );
    assert_eq!(
        other.keep_at(of, "b", Some("c")).await,
        Ok(Keeping::Elsewhere("a".into()))
    );
    assert_eq!(
        other.keep_at(of, "b", Some("a")).await,
        Ok(Keeping::TakenFrom("a".into()))
    );
    // Several may want to take over at once: one of them does.
    assert_eq!(
        bench.contents.keep_at(of, "c", Some("a")).await,
        Ok(Keeping::Elsewhere("b".into()))
    );
    assert_eq!(bench.contents.kept_at(of).await, Ok(Some("b".into())));
    session.reset().await.expect("emptied");
    assert_eq!(bench.contents.kept_at(of).await, Ok(Some("b".into())));
    session.terminate().await.expect("terminated");
    assert_eq!(
        other.keep_at(of, "b", None).await,
        Err(Error::UnknownSession)
    );
    assert_eq!(
        other.keep_at(&bench.visit("none").access, "b", None).await,
        Err(Error::UnknownSession)
    );
}
