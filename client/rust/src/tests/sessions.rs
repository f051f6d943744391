//! Sessions against a daemon that loses answers, refuses, and is not there.

use mcp_sessiond_proto::types::Outcome;
use mcp_sessiond_proto::{Error, Json, StateKey};
use serde_json::{Value, json};

use super::fake::{Fake, Turn, grant};
use crate::{
    Binding, Caller, ConnectError, CreateOptions, OnMismatch, Options, Session, SessionError,
    Sessiond, Sessions, Start, StateVersion, StateWrite, credential,
};

/// A session as a daemon tells it.
pub(crate) fn view(id: &str, epoch: Option<u64>) -> Value {
    let mut view = json!({"session": id, "status": {"is": "ready"}, "bound": false, "created_ms": "1",
        "active_ms": "1", "attached": 0, "last_number": "0", "state_keys": 0, "state_bytes": "0",
        "streams": 0, "events": 0, "event_bytes": "0"});
    if let Some(epoch) = epoch {
        view["epoch"] = epoch.into();
    }
    view
}

fn web(fake: &Fake) -> Sessions {
    Sessions::of_service("web".parse().expect("a name"), fake.options())
}

/// A service's session, without a call.
pub(super) async fn session(fake: &Fake) -> Session {
    let session = web(fake)
        .open(&"s1".parse().expect("an id"))
        .await
        .expect("opened");
    assert_eq!(
        fake.heard(),
        [r#"open_session {"service":"web","session":"s1"}"#]
    );
    session
}

fn appended() -> Value {
    json!([{"id": "x", "stream": "_GET_stream", "position": "1", "number": "1"}])
}

fn message() -> Json {
    Json::new(r#"{"method": "m"}"#).expect("JSON")
}

fn key() -> StateKey {
    "k".parse().expect("a key")
}

/// What was heard, with the request by itself.
fn requests(fake: &Fake) -> Vec<(String, Value)> {
    let split = |heard: String| {
        let (method, request) = heard.split_once(' ').expect("a request");
        (
            method.to_owned(),
            serde_json::from_str(request).expect("JSON"),
        )
    };
    fake.heard().into_iter().map(split).collect()
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_is_the_same_when_repeated() {
    let fake = Fake::new([Turn::HangUp, Turn::HangUp, Turn::Tell(view("s1", None))]);
    web(&fake)
        .create(CreateOptions::default())
        .await
        .expect("made");
    let heard = requests(&fake);
    assert_eq!(heard.len(), 3);
    assert!(heard.windows(2).all(|pair| pair[0] == pair[1]), "{heard:?}");
    let (method, request) = &heard[0];
    assert_eq!(
        (method.as_str(), &request["service"]),
        ("create_session", &json!("web"))
    );
    assert!(
        request["request"].is_string() && request["session"].is_string(),
        "{request}"
    );
}

#[tokio::test]
async fn an_append_whose_answer_is_lost_is_the_same_when_repeated() {
    let busy = Error::Unavailable {
        sentence: "starting".into(),
        retry_after_ms: 1,
    };
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        Turn::HangUp,
        Turn::Refuse(busy),
        Turn::Tell(appended()),
        Turn::Tell(appended()),
    ]);
    let session = session(&fake).await;
    session
        .standalone()
        .append(message())
        .await
        .expect("appended");
    session
        .standalone()
        .append(message())
        .await
        .expect("appended");
    let heard = requests(&fake);
    assert_eq!(heard.len(), 4);
    assert!(
        heard[..3].windows(2).all(|pair| pair[0] == pair[1]),
        "{heard:?}"
    );
    assert_ne!(
        heard[2].1["request"], heard[3].1["request"],
        "another append is another request"
    );
    assert_eq!(heard[0].1["messages"], json!([r#"{"method": "m"}"#]));
}

#[tokio::test]
async fn a_hosts_session_says_its_epoch_in_every_call_on_every_connection() {
    let fake = Fake::new([
        Turn::Tell(view("s1", Some(7))),
        Turn::HangUp,
        Turn::Done,
        Turn::Tell(json!([])),
    ]);
    let session = Sessions::of_host(fake.options())
        .create(CreateOptions::default())
        .await
        .expect("made");
    assert!(
        requests(&fake)[0].1.get("session").is_none(),
        "a host's gets its id from the daemon"
    );
    session.touch().await.expect("touched");
    session.keys().await.expect("none");
    let touch = r#"touch_session {"epoch":"7","session":"s1"}"#;
    let list = r#"list_state {"of":{"epoch":"7","session":"s1"}}"#;
    assert_eq!(fake.heard(), [touch, touch, list]);
}

#[tokio::test]
async fn a_termination_whose_answer_is_lost_has_been_carried_out() {
    let unknown = || Turn::Refuse(Error::UnknownSession);
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        Turn::HangUp,
        unknown(),
        unknown(),
    ]);
    let session = session(&fake).await;
    session.terminate().await.expect("it is gone");
    let refused = session.terminate().await.expect_err("there is none");
    assert_eq!(
        (refused.refusal(), refused.http_status()),
        (Some(&Error::UnknownSession), 404)
    );
}

#[tokio::test]
async fn a_conditional_write_that_may_have_met_itself_says_so() {
    let conflict = || {
        Turn::Refuse(Error::VersionConflict {
            key: key(),
            current: StateVersion(4),
        })
    };
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        conflict(),
        Turn::HangUp,
        conflict(),
    ]);
    let session = session(&fake).await;
    let one = Json::new("1").expect("JSON");
    let refused = session
        .compare_and_set(&key(), StateVersion(3), Some(&one))
        .await
        .expect_err("refused");
    assert!(
        matches!(
            refused,
            SessionError::Refused(Error::VersionConflict { .. })
        ),
        "{refused:?}"
    );
    let refused = session
        .compare_and_set(&key(), StateVersion(3), Some(&one))
        .await
        .expect_err("refused");
    assert!(
        matches!(
            refused,
            SessionError::Uncertain(Error::VersionConflict { .. })
        ),
        "{refused:?}"
    );
    let heard = requests(&fake);
    assert_eq!(
        heard[0].1["writes"],
        json!([{"key": "k", "value": "1", "expected": "3"}])
    );
    assert!(
        heard[0].1["request"].is_string() && heard[0] != heard[1],
        "another write is another request"
    );
    assert_eq!(heard[1], heard[2]);
}

#[tokio::test]
async fn what_may_be_carried_out_later_is_asked_for_by_its_request() {
    let unknown = || {
        Turn::Refuse(Error::OutcomeUnknown {
            sentence: "the disk".into(),
            retry_after_ms: 1,
        })
    };
    let written = Turn::Tell(json!([{"key": "k", "version": "5"}]));
    let turns = [
        Turn::Tell(view("s1", None)),
        unknown(),
        written,
        unknown(),
        Turn::Tell(view("s1", None)),
    ];
    let fake = Fake::new(turns);
    let session = session(&fake).await;
    let one = Json::new("1").expect("JSON");
    let version = session
        .compare_and_set(&key(), StateVersion(3), Some(&one))
        .await;
    assert_eq!(version.expect("written"), StateVersion(5));
    session.reset().await.expect("emptied");
    let heard = requests(&fake);
    assert!(heard[0] == heard[1] && heard[2] == heard[3], "{heard:?}");
    assert!(
        heard[0].1["request"].is_string() && heard[2].1["request"].is_string(),
        "{heard:?}"
    );
}

#[tokio::test]
async fn what_is_not_known_until_the_end_is_told_as_that() {
    let unknown = Error::OutcomeUnknown {
        sentence: "the disk".into(),
        retry_after_ms: 1,
    };
    let busy = Error::Unavailable {
        sentence: "the disk".into(),
        retry_after_ms: 60_000,
    };
    let turns = [
        Turn::Tell(view("s1", None)),
        Turn::Refuse(unknown.clone()),
        Turn::Refuse(busy),
    ];
    let fake = Fake::new(turns);
    let session = session(&fake).await;
    let told = session
        .standalone()
        .append(message())
        .await
        .expect_err("it is not known");
    assert_eq!((told.refusal(), told.http_status()), (Some(&unknown), 504));
}

#[tokio::test]
async fn a_call_whose_connection_broke_has_an_unknown_outcome() {
    let busy = || Error::Unavailable {
        sentence: "the disk".into(),
        retry_after_ms: 60_000,
    };
    let turns = [
        Turn::Tell(view("s1", None)),
        Turn::HangUp,
        Turn::Refuse(busy()),
        Turn::Refuse(busy()),
    ];
    let fake = Fake::new(turns);
    let session = session(&fake).await;
    let told = session
        .standalone()
        .append(message())
        .await
        .expect_err("it is not known");
    let unknown = Error::OutcomeUnknown {
        sentence: "the disk".into(),
        retry_after_ms: 60_000,
    };
    assert_eq!((told.refusal(), told.http_status()), (Some(&unknown), 504));
    let told = session
        .standalone()
        .append(message())
        .await
        .expect_err("it was not carried out");
    assert_eq!((told.refusal(), told.http_status()), (Some(&busy()), 503));
}

#[tokio::test]
async fn values_are_of_types_of_ones_own() {
    let told = |value: &str| Turn::Tell(json!([{"key": "k", "version": "5", "value": value}]));
    let absent = Turn::Tell(json!([{"key": "k", "version": "0"}]));
    let written = Turn::Tell(json!([{"key": "k", "version": "6"}]));
    let removed = Turn::Tell(json!([{"key": "k", "version": "0"}]));
    let turns = [
        Turn::Tell(view("s1", None)),
        told("[1,2]"),
        told(r#""hunter2""#),
        absent,
        written,
        removed,
    ];
    let fake = Fake::new(turns);
    let session = session(&fake).await;
    assert_eq!(
        session.get_as::<Vec<u8>>(&key()).await.expect("read"),
        Some(vec![1, 2])
    );
    let mistaken = session
        .get_as::<Vec<u8>>(&key())
        .await
        .expect_err("text")
        .to_string();
    assert!(!mistaken.contains("hunter2"), "{mistaken}");
    assert_eq!(session.get_as::<Vec<u8>>(&key()).await.expect("read"), None);
    assert_eq!(
        session.set_as(&key(), &[1, 2]).await.expect("written"),
        StateVersion(6)
    );
    session.remove(&key()).await.expect("removed");
    let heard = requests(&fake);
    assert_eq!(
        heard[3].1["writes"],
        json!([{"key": "k", "value": "[1,2]"}])
    );
    assert_eq!(heard[4].1["writes"], json!([{"key": "k"}]));
    let trusted = StateWrite::remove(key());
    assert_eq!(heard[4].1["writes"], json!([trusted]));
}

#[tokio::test]
async fn what_is_larger_than_a_frame_is_refused_and_the_connection_goes_on() {
    let fake = Fake::new([Turn::Tell(view("s1", None)), Turn::Stall, Turn::Done]);
    let session = session(&fake).await;
    let (touching, stalled) = (session.clone(), fake.shared.stalled.notified());
    let touching = tokio::spawn(async move { touching.touch().await });
    stalled.await;
    let refused = session
        .set_as(&key(), &"x".repeat(5 << 20))
        .await
        .expect_err("5 MiB");
    assert!(
        matches!(refused.refusal(), Some(Error::InvalidArgument { .. })),
        "{refused}"
    );
    session.touch().await.expect("on the same connection");
    assert!(!touching.is_finished());
    assert_eq!(fake.heard().len(), 2);
    touching.abort();
}

#[tokio::test]
async fn of_a_credential_only_the_hash_travels() {
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        Turn::HangUp,
        Turn::Done,
        Turn::Done,
    ]);
    let caller = credential(b"hunter1");
    let binding = Binding {
        caller,
        on_mismatch: OnMismatch::Refuse,
    };
    let session = web(&fake)
        .create(CreateOptions::default().binding(binding))
        .await;
    let session = session.expect("made");
    session
        .rotate_credential(b"hunter2")
        .await
        .expect("rotated");
    session.touch().await.expect("by the new one");
    let heard = fake.heard();
    assert!(heard.iter().all(|one| !one.contains("hunter")), "{heard:?}");
    let hex = |secret: &[u8]| match credential(secret) {
        Caller::Credential { hash } => json!(hash).as_str().expect("text").to_owned(),
        Caller::Identity { .. } => panic!("no credential"),
    };
    let (former, new) = (hex(b"hunter1"), hex(b"hunter2"));
    assert!(heard[0].contains(&former));
    assert!(heard[1] == heard[2] && heard[1].contains(&former) && heard[1].contains(&new));
    assert!(heard[3].contains(&new) && !heard[3].contains(&former));
    // sha256 of "abc", as FIPS 180-2 has it.
    assert!(hex(b"abc").starts_with("ba7816bf8f01cfea"));
}

#[tokio::test]
async fn a_list_goes_on_to_the_last_page() {
    let pages = [
        json!([view("a", None), view("b", None)]),
        json!([view("c", None)]),
        json!([]),
    ];
    let fake = Fake::new(pages.map(Turn::Tell));
    let listed = web(&fake).list().await.expect("listed");
    assert_eq!(
        listed
            .iter()
            .map(|one| one.session.as_str())
            .collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    let after: Vec<Value> = requests(&fake)
        .into_iter()
        .map(|(_, request)| request["after"].clone())
        .collect();
    assert_eq!(after, [Value::Null, json!("b"), json!("c")]);
}

#[tokio::test]
async fn a_handle_of_a_hosts_is_followed_by_a_lease() {
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        Turn::Tell(view("s1", Some(2))),
        Turn::Done,
    ]);
    let session = Sessions::of_host(fake.options())
        .open_handle(&crate::Handle("h".into()))
        .await;
    session.expect("found").touch().await.expect("touched");
    let expected = [
        r#"open_handle {"handle":"h"}"#,
        r#"open_session {"session":"s1"}"#,
        r#"touch_session {"epoch":"2","session":"s1"}"#,
    ];
    assert_eq!(fake.heard(), expected);
}

#[tokio::test]
async fn what_is_claimed_is_claimed_again_on_a_new_connection() {
    let fake = Fake::new([
        grant("s1", 1, Outcome::FreshFirst, None),
        Turn::HangUp,
        grant("s1", 2, Outcome::Resumed, None),
        Turn::Done,
        Turn::Store { resumed: false },
    ]);
    let sessiond = fake.client();
    let session = sessiond.session().await.expect("a session");
    session.touch().await.expect("touched");
    assert!(sessiond.store(b"one").await);
    let touch = |epoch| format!(r#"touch_session {{"epoch":"{epoch}","session":"s1"}}"#);
    let heard = fake.heard();
    assert_eq!(
        heard,
        ["claim", &touch(1), "claim", &touch(2), "store s1 2 one"]
    );
}

#[tokio::test]
async fn who_begins_anew_has_another_session() {
    let fake = Fake::new([
        grant("s1", 1, Outcome::Resumed, Some("old")),
        grant("s1", 1, Outcome::Held, Some("old")),
        grant("s2", 1, Outcome::FreshFirst, None),
        Turn::Done,
        Turn::Store { resumed: false },
        Turn::Done,
    ]);
    let sessiond = fake.client();
    assert!(sessiond.load().await.is_some());
    let former = sessiond.session().await.expect("the same");
    let session = sessiond.begin_anew().await.expect("a fresh one");
    assert_eq!((former.id().as_str(), session.id().as_str()), ("s1", "s2"));
    session.touch().await.expect("it is ours");
    let refused = former.touch().await.expect_err("it has ended");
    assert_eq!(refused.refusal(), Some(&Error::UnknownSession));
    assert!(sessiond.store(b"new").await);
    sessiond.release().await;
    let refused = session.touch().await.expect_err("it is released");
    assert_eq!(refused.refusal(), Some(&Error::LeaseEnded));
    let touch = r#"touch_session {"epoch":"1","session":"s2"}"#;
    assert_eq!(
        fake.heard(),
        [
            "claim",
            "claim",
            "claim fresh",
            touch,
            "store s2 1 new",
            "release s2 1"
        ]
    );
}

#[tokio::test]
async fn without_a_daemon_calls_fail_and_the_three_do_not() {
    let parent = tempfile::tempdir().expect("tempdir");
    let options = Options::default()
        .directory(parent.path().join("d"))
        .start(Start::Never);
    let failed = Sessions::of_host(options.clone())
        .create(CreateOptions::default())
        .await;
    let failed = failed.expect_err("there is no daemon");
    assert!(
        matches!(
            failed,
            SessionError::Connect(ConnectError::NotRunning { .. })
        ),
        "{failed}"
    );
    assert_eq!(failed.http_status(), 503);
    assert!(Sessiond::init(options).session().await.is_none());
}
