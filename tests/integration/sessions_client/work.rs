//! What is done with sessions, and what must have come of it.

use std::fmt::Debug;

use mcp_sessiond_client::{
    Binding, CreateOptions, Cursor, Error, Json, OnMismatch, Options, Session, SessionError,
    Sessions, Start, StateKey, credential,
};
use mcp_sessiond_process::fault::{CONTENTS_COMMIT, VARIABLE};
use mcp_sessiond_tests::{Daemon, PATIENCE, World};

pub(super) fn options(world: &World) -> Options {
    // A call outlives a daemon that is killed, and whatever else the machine does at that time.
    Options::default()
        .directory(world.directory())
        .start(Start::Never)
        .timeout(PATIENCE)
}

pub(super) fn service(world: &World) -> Sessions {
    Sessions::of_service("web".parse().expect("a name"), options(world))
}

/// A session without any options.
pub(super) async fn made(sessions: &Sessions) -> Session {
    sessions
        .create(CreateOptions::default())
        .await
        .expect("made")
}

/// Options of a session that ends when anybody comes to it with another credential.
pub(super) fn bound_to(secret: &[u8]) -> CreateOptions {
    let binding = Binding {
        caller: credential(secret),
        on_mismatch: OnMismatch::Terminate,
    };
    CreateOptions::default().binding(binding)
}

/// Asserts that the daemon has refused this, for this reason.
#[track_caller]
pub(super) fn assert_refusal<T: Debug>(answer: Result<T, SessionError>, why: &Error) {
    assert_eq!(answer.expect_err("refused").refusal(), Some(why));
}

pub(super) fn key(name: &str) -> StateKey {
    name.parse().expect("a key")
}

pub(super) fn message(number: u64) -> Json {
    Json::new(format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{{\"n\":{number}}}}}"
    ))
    .expect("JSON")
}

/// Asserts that the session has said the messages 1 to `last`, each once, in their order.
pub(super) async fn assert_said(session: &Session, last: u64) {
    let said = session
        .replay_all(&Cursor::Number(0))
        .await
        .expect("replayed");
    assert!(said.gaps.is_empty() && !said.more, "{said:?}");
    let numbers: Vec<u64> = said.events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
    for event in &said.events {
        assert_eq!(
            event.message,
            message(event.number),
            "number {}",
            event.number
        );
    }
}

/// Works with a session, and kills the daemon after every call.
pub(super) async fn assert_unmoved(daemon: &mut Daemon, session: &Session) {
    let stream = session
        .open_stream(&"answer-1".parse().expect("an id"), None)
        .await
        .expect("opened");
    let mut cursors = vec![
        Cursor::Stream(stream.id().clone()),
        Cursor::Stream("_GET_stream".parse().expect("an id")),
    ];
    for round in 1..=5 {
        daemon.restart();
        session
            .set_as(&key("round"), &round)
            .await
            .expect("written");
        daemon.restart();
        let to = if round % 2 == 0 {
            session.standalone()
        } else {
            stream.clone()
        };
        let appended = to.append(message(round)).await.expect("appended");
        assert_eq!(appended.number, round);
        daemon.restart();
        assert_eq!(
            session.get_as::<u64>(&key("round")).await.expect("read"),
            Some(round)
        );
        let said = session.wait(&cursors, PATIENCE).await.expect("said");
        assert_eq!(
            said.events
                .iter()
                .map(|event| &event.id)
                .collect::<Vec<_>>(),
            [&appended.id]
        );
        cursors = said.next;
        daemon.restart();
    }
    stream.close().await.expect("closed");
    daemon.restart();
    assert_refusal(stream.append(message(6)).await, &Error::StreamClosed);
    assert_said(session, 5).await;
    let view = session.view().await.expect("it is there");
    assert_eq!((view.last_number, view.state_keys, view.streams), (5, 1, 2));
}

/// Hears the messages 1 to `last`, each once, in their order, as they come.
pub(super) async fn listen(session: Session, last: u64) {
    let mut after = vec![Cursor::Number(0)];
    let mut heard = 0;
    while heard < last {
        let said = session.wait(&after, PATIENCE).await.expect("said");
        for event in said.events {
            heard += 1;
            assert_eq!((event.number, &event.message), (heard, &message(heard)));
        }
        after = said.next;
    }
}

/// Makes a call of which the answer is lost: the daemon is killed after it was committed, before
/// anybody is told.
pub(super) async fn lose_the_answer<T>(daemon: &mut Daemon, call: impl Future<Output = T>) -> T {
    daemon.restart_with(&[(VARIABLE, &format!("{CONTENTS_COMMIT}:0"))]);
    daemon.ready();
    let log = daemon.log();
    let dies = async {
        // Elsewhere, so that the call goes on meanwhile.
        let end = tokio::task::spawn_blocking(move || log.wait(Daemon::END));
        end.await.expect("it dies at its point");
        daemon.start_again();
    };
    tokio::join!(call, dies).0
}
