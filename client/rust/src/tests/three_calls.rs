//! Load, store and reject against a daemon that is well, and the lines that they log.

use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Epoch, Error};

use super::fake::{Fake, Turn, grant};
use super::logged::Logged;
use crate::{Reason, Sessiond, Status};

#[tokio::test]
async fn a_first_run_loads_nothing_and_stores() {
    let fake = Fake::new([
        grant("s1", 1, Outcome::FreshFirst, None),
        Turn::Store { resumed: false },
    ]);
    let logged = Logged::new();
    let sessiond = fake.client();
    assert!(matches!(sessiond.status(), Status::Unclaimed));
    assert!(sessiond.load().await.is_none());
    assert!(sessiond.store(b"one").await);
    assert_eq!(fake.heard(), ["claim", "store s1 1 one"]);
    assert_eq!(
        logged.take(),
        ["INFO Token file not found (first run or clean slate)"]
    );
    assert_eq!(
        sessiond.status().to_string(),
        "session s1 is held (epoch 1), begun afresh"
    );
    let Status::Active {
        session,
        epoch,
        outcome,
    } = sessiond.status()
    else {
        panic!("not active")
    };
    assert_eq!(
        (session.as_str(), epoch, outcome),
        ("s1", Epoch(1), Outcome::FreshFirst)
    );
}

/// That there is no token is said only where that is so.
#[tokio::test]
async fn who_gets_a_session_beside_others_hears_why() {
    let lines = [
        (
            Outcome::FreshHeld,
            "WARN Nothing is resumed: another server",
        ),
        (
            Outcome::FreshPlural,
            "WARN Nothing is resumed: another server",
        ),
        (
            Outcome::FreshDoubtful,
            "WARN Nothing is resumed, now or later",
        ),
        (Outcome::Resumed, "INFO Token file not found"),
        (Outcome::Held, "INFO Token file not found"),
    ];
    for (outcome, line) in lines {
        let fake = Fake::new([grant("s1", 1, outcome, None)]);
        let logged = Logged::new();
        assert!(fake.client().load().await.is_none());
        let said = logged.take();
        assert!(
            matches!(&said[..], [only] if only.starts_with(line)),
            "{outcome:?}: {said:?}"
        );
    }
}

#[tokio::test]
async fn a_token_that_the_broker_accepts_resumes() {
    let stored = |resumed| Turn::Store { resumed };
    let fake = Fake::new([
        grant("s1", 2, Outcome::Resumed, Some("old")),
        stored(true),
        stored(true),
    ]);
    let logged = Logged::new();
    let sessiond = Sessiond::init(fake.options().label("prod".parse().expect("label")));
    assert_eq!(sessiond.load().await.expect("a token").expose(), b"old");
    assert!(
        logged.take().is_empty(),
        "nothing to say before the broker has spoken"
    );
    assert!(sessiond.store(b"new").await);
    assert_eq!(logged.take(), ["INFO Session resumed successfully"]);
    assert!(sessiond.store(b"newer").await);
    assert!(logged.take().is_empty(), "said once");
    assert_eq!(
        fake.heard(),
        ["claim prod", "store s1 2 new", "store s1 2 newer"]
    );
}

#[tokio::test]
async fn a_token_that_the_broker_refuses_is_deleted() {
    let claim = grant("s1", 2, Outcome::Resumed, Some("old"));
    let fake = Fake::new([claim, Turn::Done, Turn::Store { resumed: true }]);
    let logged = Logged::new();
    let sessiond = fake.client();
    assert!(sessiond.load().await.is_some());
    sessiond.reject().await;
    assert_eq!(
        logged.take(),
        ["WARN Broker rejected resume token, starting fresh session"]
    );
    assert!(sessiond.store(b"new").await);
    assert!(
        logged.take().is_empty(),
        "a rejected token can't have been accepted, whatever the daemon thinks"
    );
    assert_eq!(fake.heard(), ["claim", "reject s1 2", "store s1 2 new"]);
}

#[tokio::test]
async fn without_a_verified_host_resume_is_off_for_good() {
    let fake = Fake::new([Turn::Refuse(Error::NoVerifiedHost {
        sentence: "the parent is pid 1".into(),
    })]);
    let logged = Logged::new();
    let sessiond = fake.client();
    assert!(sessiond.load().await.is_none());
    assert!(!sessiond.store(b"one").await);
    sessiond.reject().await;
    assert!(sessiond.load().await.is_none());
    assert_eq!(fake.heard(), ["claim"], "asked once");
    let line = "WARN Could not verify parent process start time, session resume disabled for this instance";
    assert_eq!(logged.take(), [line]);
    let Status::Disabled { reason } = sessiond.status() else {
        panic!("not disabled")
    };
    assert!(matches!(&*reason, Reason::Refused(Error::NoVerifiedHost { .. })) && reason.is_final());
}

#[tokio::test]
async fn a_failed_write_is_told_and_nothing_is_disabled() {
    let full = Error::WriteFailed {
        sentence: "No space left on device (os error 28)".into(),
    };
    let claim = grant("s1", 1, Outcome::FreshFirst, None);
    let fake = Fake::new([claim, Turn::Refuse(full), Turn::Store { resumed: false }]);
    let logged = Logged::new();
    let sessiond = fake.client();
    assert!(!sessiond.store(b"one").await);
    assert_eq!(
        logged.take(),
        ["WARN Failed to write token file: No space left on device (os error 28)"]
    );
    assert!(sessiond.store(b"one").await);
    assert_eq!(fake.heard(), ["claim", "store s1 1 one", "store s1 1 one"]);
}

#[tokio::test]
async fn what_is_no_token_is_not_even_sent() {
    let fake = Fake::new([]);
    let logged = Logged::new();
    assert!(!fake.client().store(b"").await);
    assert_eq!(
        logged.take(),
        ["WARN Resume token not stored: a resume token has at least 1 byte; this one is empty"]
    );
    assert!(fake.heard().is_empty());
}

#[tokio::test]
async fn a_released_session_is_claimed_anew() {
    let fake = Fake::new([
        grant("s1", 1, Outcome::FreshFirst, None),
        Turn::Done,
        grant("s1", 2, Outcome::Resumed, None),
    ]);
    let sessiond = fake.client();
    sessiond.load().await;
    sessiond.release().await;
    assert!(matches!(sessiond.status(), Status::Unclaimed));
    sessiond.release().await;
    sessiond.load().await;
    assert_eq!(fake.heard(), ["claim", "release s1 1", "claim"]);
}

#[tokio::test]
async fn an_unavailable_daemon_is_asked_again() {
    let busy = Error::Unavailable {
        sentence: "starting".into(),
        retry_after_ms: 1,
    };
    let fake = Fake::new([
        Turn::Refuse(busy),
        grant("s1", 1, Outcome::Resumed, Some("old")),
    ]);
    assert!(fake.client().load().await.is_some());
    assert_eq!(fake.heard(), ["claim", "claim"]);
}
