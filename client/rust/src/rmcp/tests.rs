//! Servers of a process, and the names by which they know their requests.

use std::sync::Arc;
use std::time::Duration;

use mcp_sessiond_proto::Error;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, JsonRpcRequest, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::OriginatingRequestId;
use rmcp::transport::Transport as _;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::yield_now;

use super::live::Live;
use super::table::Table;
use super::transport::Undelivered;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::tests::fake::{Fake, Turn};
use crate::tests::sessions::view;

#[tokio::test]
async fn a_server_that_takes_the_place_of_an_idle_one_is_not_let_go_for_it() {
    // Many, since they stand in no order.
    let ids = (0..16)
        .map(|number| format!("idle-{number}"))
        .chain(["busy".to_owned()]);
    let ids: Vec<String> = ids.collect();
    let turns = ids.iter().map(|id| Turn::Tell(view(id, None)));
    let fake = Fake::new(turns.chain([opened(), Turn::Stall]));
    let options = fake.options().timeout(Duration::from_secs(2));
    let of = Sessions::of_service("web".parse().expect("a name"), options);
    let table = Table::new(Duration::ZERO);
    let (mut sessions, mut transports) = (Vec::new(), Vec::new());
    for id in &ids {
        let session = of.open(&id.parse().expect("an id")).await.expect("opened");
        transports.push(table.insert(&session));
        sessions.push(session);
    }
    let busy = sessions.pop().expect("the last one");
    let works = table.live(busy.id()).expect("made");
    assert!(works.begin(busy.clone(), call()).await.is_ok());
    // While the daemon is told of the one that works, the others get new servers.
    let replace = async {
        fake.shared.stalled.notified().await;
        sessions
            .iter()
            .map(|session| table.insert(session))
            .collect::<Vec<_>>()
    };
    let ((), _replaced) = tokio::join!(table.release_idle(), replace);
    for session in &sessions {
        assert!(
            table
                .live(session.id())
                .is_some_and(|live| !live.is_closed()),
            "{}",
            session.id()
        );
    }
    assert!(!works.is_closed() && works.is_busy());
}

fn message(message: &Value) -> ClientJsonRpcMessage {
    serde_json::from_value(message.clone()).expect("a message")
}

fn call() -> JsonRpcRequest<ClientRequest> {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}});
    let JsonRpcMessage::Request(call) = message(&call) else {
        panic!("it is a request")
    };
    call
}

fn cancellation() -> ClientJsonRpcMessage {
    message(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    )
}

fn roots_changed() -> ClientJsonRpcMessage {
    message(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}))
}

fn opened() -> Turn {
    Turn::Tell(
        json!({"stream": "s", "closed": false, "orphaned": false, "last_position": "0", "events": 0, "bytes": "0"}),
    )
}

/// A daemon that answers this, and a session of it.
async fn served(turns: impl IntoIterator<Item = Turn>) -> (Fake, Session) {
    let fake = Fake::new([Turn::Tell(view("s1", None))].into_iter().chain(turns));
    let of = Sessions::of_service("web".parse().expect("a name"), fake.options());
    let session = of
        .open(&"s1".parse().expect("an id"))
        .await
        .expect("opened");
    (fake, session)
}

#[tokio::test]
async fn a_cancellation_that_may_mean_either_of_two_requests_cancels_none() {
    let (fake, session) = served([opened(), Turn::Stall, opened()]).await;
    let (live, mut arriving) = Live::new(&session);
    let _former = live
        .begin(session.clone(), call())
        .await
        .ok()
        .expect("begun");
    // Another page's request of the same id waits for the daemon.
    tokio::select! {
        _ = live.begin(session.clone(), call()) => panic!("the daemon does not answer"),
        accepted = async {
            fake.shared.stalled.notified().await;
            live.accept(cancellation()).await
        } => accepted.expect("accepted"),
    }
    let _newer = live
        .begin(session.clone(), call())
        .await
        .ok()
        .expect("begun");
    live.accept(cancellation()).await.expect("accepted");
    live.accept(roots_changed()).await.expect("accepted");
    for _ in 0..2 {
        assert!(matches!(
            arriving.recv().await,
            Some(JsonRpcMessage::Request(_))
        ));
    }
    let last = serde_json::to_value(arriving.recv().await).expect("JSON");
    assert_eq!(
        last["method"], "notifications/roots/list_changed",
        "neither was cancelled"
    );
}

#[tokio::test]
async fn a_cancellation_does_not_overtake_its_request() {
    let (_fake, session) = served([opened()]).await;
    let (live, mut arriving) = Live::new(&session);
    let waiting = arriving.capacity();
    for _ in 0..waiting {
        live.accept(roots_changed()).await.expect("accepted");
    }
    let read = async {
        while !live.is_busy() {
            yield_now().await;
        }
        for _ in 0..waiting {
            arriving.recv().await.expect("it waits");
        }
        arriving.recv().await
    };
    let (accepted, begun, next) = tokio::join!(
        live.accept(cancellation()),
        live.begin(session.clone(), call()),
        read
    );
    accepted.expect("accepted");
    assert!(begun.is_ok());
    assert!(matches!(next, Some(JsonRpcMessage::Request(_))), "{next:?}");
    assert!(live.is_busy());
}

/// The daemon finds a message too large.
fn too_large() -> Turn {
    Turn::Refuse(Error::InvalidArgument {
        sentence: "a message has too many bytes".into(),
    })
}

#[tokio::test]
async fn a_question_that_can_not_be_kept_and_that_nobody_gets_is_an_error_for_the_server() {
    let appended = json!([{"id": "e1", "stream": "s", "position": "1", "number": "1"}]);
    let turns = [
        too_large(),
        too_large(),
        opened(),
        too_large(),
        Turn::Tell(appended),
    ];
    let (_fake, session) = served(turns).await;
    let table = Table::new(Duration::from_secs(3_600));
    let mut transport = table.insert(&session);
    let live = table.live(session.id()).expect("made");
    let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
    let log: ServerJsonRpcMessage = serde_json::from_value(log).expect("a message");
    assert_eq!(transport.send(log).await, Ok(()), "nobody waits for it");
    assert_eq!(transport.send(question(None)).await, Err(Undelivered));
    // On the stream of a call somebody gets it.
    let _reader = live
        .begin(session.clone(), call())
        .await
        .ok()
        .expect("begun");
    let Some(JsonRpcMessage::Request(call)) = transport.receive().await else {
        panic!("it is the call")
    };
    assert_eq!(transport.send(question(Some(call.id))).await, Ok(()));
}

/// A question of the server's, in a call with this id.
fn question(of: Option<RequestId>) -> ServerJsonRpcMessage {
    let question = json!({"jsonrpc": "2.0", "id": 0, "method": "roots/list", "params": {"_meta": {"x": "y".repeat(500)}}});
    let mut question: ServerJsonRpcMessage = serde_json::from_value(question).expect("a message");
    if let Some(of) = of {
        question.insert_extension(OriginatingRequestId(of));
    }
    question
}

#[tokio::test]
async fn a_server_that_nobody_uses_is_let_go() {
    let fake = Fake::new([Turn::Tell(view("s1", None))]);
    let of = Sessions::of_service("web".parse().expect("a name"), fake.options());
    let session = of
        .open(&"s1".parse().expect("an id"))
        .await
        .expect("opened");
    for (idle, is_kept) in [(Duration::from_secs(3_600), true), (Duration::ZERO, false)] {
        let table = Table::new(idle);
        let _transport = table.insert(&session);
        let live = table.live(session.id()).expect("made");
        table.release_idle().await;
        assert_eq!(
            (table.live(session.id()).is_some(), live.is_closed()),
            (is_kept, !is_kept)
        );
    }
}

/// A request that has found no server may come to restore one when another request has just done
/// so.
#[tokio::test]
async fn a_session_that_was_restored_is_not_restored_again() {
    let (_fake, session) = served([]).await;
    let table = Table::new(Duration::from_secs(3_600));
    let (keep, mut kept) = unbounded_channel();
    let restore = || {
        let (table, session, keep) = (table.clone(), session.clone(), keep.clone());
        async move {
            assert!(keep.send(table.insert(&session)).is_ok());
            table
                .live(session.id())
                .expect("made")
                .ready("2025-11-25".into());
            Ok(())
        }
    };
    assert!(table.restore(session.id(), restore()).await.is_ok());
    let live = table.live(session.id()).expect("restored");
    assert!(table.restore(session.id(), restore()).await.is_ok());
    assert!(
        table
            .ready(session.id())
            .is_some_and(|now| Arc::ptr_eq(&now, &live))
    );
    assert!(
        kept.try_recv().is_ok() && kept.try_recv().is_err(),
        "one was made"
    );
    // One that has ended is replaced.
    live.close();
    assert!(table.restore(session.id(), restore()).await.is_ok());
    assert!(table.ready(session.id()).is_some() && kept.try_recv().is_ok());
}
