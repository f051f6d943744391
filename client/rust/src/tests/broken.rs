//! What may break: connections, leases, directories, the daemon itself.

use std::os::unix::fs::symlink;

use mcp_sessiond_proto::hello::{Answer, HelloError};
use mcp_sessiond_proto::paths;
use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Epoch, Error};
use tokio::net::UnixListener;
use tokio::time::{advance, pause, resume};

use super::fake::{Fake, Turn, grant, make};
use super::logged::Logged;
use crate::connection::connect;
use crate::directory::Directory;
use crate::sessiond::RETRY_AFTER;
use crate::{ConnectError, Options, Reason, Sessiond, Start, Status};

#[tokio::test]
async fn a_call_survives_its_connection() {
    let fake = Fake::new([
        Turn::HangUp,
        grant("s1", 2, Outcome::Resumed, Some("old")),
        Turn::HangUp,
        grant("s1", 2, Outcome::Held, Some("new")),
        Turn::Store { resumed: true },
    ]);
    let logged = Logged::new();
    let sessiond = fake.client();
    assert!(sessiond.load().await.is_some());
    assert!(sessiond.store(b"new").await);
    assert_eq!(
        fake.heard(),
        [
            "claim",
            "claim",
            "store s1 2 new",
            "claim",
            "store s1 2 new"
        ]
    );
    assert_eq!(
        logged.take(),
        ["INFO Session resumed successfully"],
        "a broken connection is no news"
    );
    let Status::Active { outcome, .. } = sessiond.status() else {
        panic!("not active")
    };
    assert_eq!(outcome, Outcome::Resumed);
}

#[tokio::test]
async fn a_daemon_that_forgot_the_session_gets_the_token_under_a_fresh_one() {
    let fake = Fake::new([
        grant("s1", 1, Outcome::FreshFirst, None),
        Turn::Refuse(Error::UnknownSession),
        grant("s2", 1, Outcome::FreshFirst, None),
        Turn::Store { resumed: false },
    ]);
    let sessiond = fake.client();
    sessiond.load().await;
    assert!(sessiond.store(b"one").await);
    assert_eq!(
        fake.heard(),
        ["claim", "store s1 1 one", "claim", "store s2 1 one"]
    );
}

#[tokio::test]
async fn a_session_with_another_history_is_left_alone() {
    let stale = Error::StaleEpoch {
        given: Epoch(1),
        newest: Epoch(2),
    };
    let fake = Fake::new([
        grant("s1", 1, Outcome::FreshFirst, None),
        Turn::Refuse(stale),
        grant("sibling", 7, Outcome::Resumed, Some("theirs")),
        Turn::Done,
    ]);
    let logged = Logged::new();
    let sessiond = fake.client();
    sessiond.load().await;
    logged.take();
    assert!(!sessiond.store(b"one").await);
    assert!(!sessiond.store(b"two").await);
    assert_eq!(
        fake.heard(),
        ["claim", "store s1 1 one", "claim", "release sibling 7"]
    );
    assert!(fake.is_done());
    assert_eq!(logged.take().len(), 1);
    let Status::Disabled { reason } = sessiond.status() else {
        panic!("not disabled")
    };
    assert!(matches!(*reason, Reason::SessionLost));
}

#[tokio::test]
async fn a_lease_that_is_stale_again_is_not_fought_for() {
    let stale = || {
        Turn::Refuse(Error::StaleEpoch {
            given: Epoch(1),
            newest: Epoch(9),
        })
    };
    let fake = Fake::new([
        grant("s1", 1, Outcome::FreshFirst, None),
        stale(),
        grant("s1", 9, Outcome::Resumed, None),
        stale(),
    ]);
    let sessiond = fake.client();
    assert!(!sessiond.store(b"one").await);
    assert_eq!(
        fake.heard(),
        ["claim", "store s1 1 one", "claim", "store s1 9 one"]
    );
}

#[tokio::test]
async fn a_token_is_rejected_only_under_the_lease_that_it_came_with() {
    let fake = Fake::new([
        grant("s1", 1, Outcome::Resumed, Some("old")),
        Turn::HangUp,
        grant("s1", 3, Outcome::Resumed, Some("somebody's")),
    ]);
    let logged = Logged::new();
    let sessiond = fake.client();
    sessiond.load().await;
    sessiond.reject().await;
    assert_eq!(fake.heard(), ["claim", "reject s1 1", "claim"]);
    assert_eq!(
        logged.take().len(),
        1,
        "one line, though it was tried again"
    );
}

#[tokio::test]
async fn a_load_that_is_dropped_does_no_harm() {
    let fake = Fake::new([Turn::Stall, grant("s1", 1, Outcome::Held, Some("old"))]);
    let sessiond = fake.client();
    tokio::select! {
        _ = sessiond.load() => panic!("there was no answer"),
        () = fake.shared.stalled.notified() => {}
    }
    assert!(sessiond.load().await.is_some());
    assert_eq!(fake.heard(), ["claim", "claim"]);
}

#[tokio::test]
async fn a_daemon_that_is_busy_or_draining_is_asked_again() {
    let fake = Fake::new([grant("s1", 1, Outcome::Resumed, Some("old"))]);
    fake.shared
        .hellos
        .lock()
        .expect("hellos")
        .extend([Answer::Busy, Answer::Draining]);
    assert!(fake.client().load().await.is_some());
}

#[tokio::test]
async fn another_version_is_refused_at_once_and_tried_again_later() {
    let fake = Fake::new([grant("s1", 1, Outcome::Resumed, Some("old"))]);
    fake.shared
        .hellos
        .lock()
        .expect("hellos")
        .push_back(Answer::Version);
    let logged = Logged::new();
    let sessiond = fake.client();
    assert!(sessiond.load().await.is_none());
    let Status::Disabled { reason } = sessiond.status() else {
        panic!("not disabled")
    };
    let version = ConnectError::Hello(HelloError::Version { ours: 2, theirs: 2 });
    assert_eq!(reason.to_string(), version.to_string());
    assert!(sessiond.load().await.is_none(), "not so soon");
    pause();
    advance(RETRY_AFTER).await;
    resume();
    assert!(sessiond.load().await.is_some());
    let line = format!("WARN Session resume disabled: {version}");
    assert_eq!(logged.take(), [line]);
}

#[tokio::test]
async fn without_a_daemon_the_server_goes_on_at_once() {
    let parent = tempfile::tempdir().expect("tempdir");
    let logged = Logged::new();
    let sessiond = Sessiond::init(
        Options::default()
            .directory(parent.path().join("d"))
            .start(Start::Never),
    );
    assert!(sessiond.load().await.is_none());
    assert!(!sessiond.store(b"one").await);
    sessiond.reject().await;
    sessiond.release().await;
    let lines = logged.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("WARN Session resume disabled: no daemon listens at "),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_never_answers_costs_no_more_than_the_timeout() {
    let parent = tempfile::tempdir().expect("tempdir");
    let path = parent.path().join("d");
    make(&path, 0o700);
    let _listener = UnixListener::bind(paths::socket(&path)).expect("bound");
    let sessiond = Sessiond::init(Options::default().directory(&path).start(Start::Never));
    let before = tokio::time::Instant::now();
    assert!(sessiond.load().await.is_none());
    assert_eq!(before.elapsed().as_secs(), crate::CALL_TIMEOUT.as_secs());
    let Status::Disabled { reason } = sessiond.status() else {
        panic!("not disabled")
    };
    assert!(
        matches!(&*reason, Reason::Connect(ConnectError::Timeout { .. })),
        "{reason}"
    );
}

#[tokio::test]
async fn a_directory_that_is_not_ours_alone_is_not_used() {
    let parent = tempfile::tempdir().expect("tempdir");
    let at = |name: &str| parent.path().join(name);
    make(&at("open"), 0o750);
    make(&at("good"), 0o700);
    symlink(at("good"), at("link")).expect("linked");
    std::fs::write(at("file"), "").expect("written");
    let refused = async |name: &str| {
        let directory = Directory::at(at(name)).expect("a path");
        connect(&directory, &Start::default())
            .await
            .expect_err("refused")
    };
    assert!(matches!(
        refused("open").await,
        ConnectError::WrongMode { mode: 0o750, .. }
    ));
    assert!(matches!(
        refused("link").await,
        ConnectError::Symlink { .. }
    ));
    assert!(matches!(
        refused("file").await,
        ConnectError::NotADirectory { .. }
    ));
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(at("good"), Some(65534), None).expect("given away");
        assert!(matches!(
            refused("good").await,
            ConnectError::WrongOwner { owner: 65534, .. }
        ));
    }
    assert!(matches!(
        Directory::at("relative"),
        Err(ConnectError::Directory(_))
    ));
}
