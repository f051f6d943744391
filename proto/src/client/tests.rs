//! The client against a peer that does what the test says.

use rmp_serde::to_vec_named;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;
use crate::types::{LeaseRef, SESSION_ID_MAX, StoreRequest};
use crate::{Epoch, Error, SessionId, Token};

const LONG: Duration = Duration::from_secs(60);

fn client() -> (Client, DuplexStream) {
    let (stream, peer) = duplex(1 << 20);
    let (client, driven) = over(stream, 1_000);
    tokio::spawn(driven);
    (client, peer)
}

fn lease() -> LeaseRef {
    LeaseRef {
        session: "s".parse().expect("an id"),
        epoch: Epoch(1),
    }
}

async fn heard(peer: &mut DuplexStream) -> Value {
    let length = peer.read_u32().await.expect("a frame");
    let mut frame = vec![0; length as usize];
    peer.read_exact(&mut frame).await.expect("all of it");
    rmp_serde::from_slice(&frame).expect("MessagePack")
}

async fn say(peer: &mut DuplexStream, message: &Value) {
    let frame = to_vec_named(message).expect("encoded");
    peer.write_u32(u32::try_from(frame.len()).expect("short"))
        .await
        .expect("written");
    peer.write_all(&frame).await.expect("written");
}

#[tokio::test]
async fn answers_find_their_calls_in_whatever_order_they_come() {
    let (client, mut peer) = client();
    let (rejected, pinged, ()) = tokio::join!(
        client.reject_token(LONG, lease()),
        client.ping(LONG),
        async {
            let (first, second) = (heard(&mut peer).await, heard(&mut peer).await);
            assert_eq!(
                first["call"],
                json!({"RejectToken": {"request": {"session": "s", "epoch": 1}}})
            );
            assert_eq!(second["call"], json!({"Ping": {}}));
            // A field of the future, and the id not in front.
            say(
                &mut peer,
                &json!({"new": [1, {}], "reply": {"Ping": null}, "id": second["id"]}),
            )
            .await;
            say(&mut peer, &json!({"id": 99, "reply": {"Ping": null}})).await;
            let refused = json!({"Err": {"code": "lease_ended"}});
            say(
                &mut peer,
                &json!({"id": first["id"], "reply": {"RejectToken": refused}}),
            )
            .await;
        }
    );
    assert_eq!((rejected, pinged), (Ok(Err(Error::LeaseEnded)), Ok(())));
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_cancelled() {
    let (client, mut peer) = client();
    tokio::select! {
        _ = client.ping(LONG) => panic!("nobody answered"),
        _ = heard(&mut peer) => {}
    }
    let cancelled = heard(&mut peer).await;
    assert_eq!(
        (&cancelled["id"], &cancelled["call"]),
        (&json!(0), &Value::Null)
    );
    tokio::time::pause();
    assert_eq!(
        client.ping(Duration::from_millis(10)).await,
        Err(CallError::Late)
    );
    assert_eq!(heard(&mut peer).await["deadline_ms"], 10);
    assert_eq!(heard(&mut peer).await["call"], Value::Null);
}

#[tokio::test]
async fn a_call_that_does_not_fit_is_not_sent_and_the_next_one_is() {
    let (client, mut peer) = client();
    let LeaseRef { session, epoch } = lease();
    let token = Token::new([b'x'; 2_000]).expect("a token");
    let stored = client
        .store_token(
            LONG,
            StoreRequest {
                session,
                epoch,
                token,
            },
        )
        .await;
    assert!(matches!(stored, Err(CallError::NotSent(_))), "{stored:?}");
    let (pinged, ()) = tokio::join!(client.ping(LONG), async {
        let id = heard(&mut peer).await["id"].take();
        say(&mut peer, &json!({"id": id, "refused": "too many"})).await;
    });
    assert_eq!(pinged, Err(CallError::Crowded("too many".into())));
}

#[tokio::test]
async fn what_is_no_answer_is_told_and_what_is_no_frame_ends_the_connection() {
    let (client, mut peer) = client();
    for answer in [json!({"Claim": 7}), json!({}), json!("hunter2")] {
        let (pinged, ()) = tokio::join!(client.reject_token(LONG, lease()), async {
            let id = heard(&mut peer).await["id"].take();
            say(&mut peer, &json!({"id": id, "reply": answer})).await;
        });
        assert_eq!(pinged, Err(CallError::Unreadable), "{answer}");
    }
    let no_frame = json!(["hunter2"]);
    let (pinged, ()) = tokio::join!(client.ping(LONG), say(&mut peer, &no_frame));
    assert_eq!(pinged, Err(CallError::Ended));
    assert_eq!(client.ping(LONG).await, Err(CallError::Ended));
}

#[tokio::test]
async fn the_connection_ends_with_the_last_clone() {
    let (client, mut peer) = client();
    let other = client.clone();
    drop(client);
    drop(other);
    assert_eq!(peer.read(&mut [0]).await.expect("read"), 0);
}

/// More than the socket holds, and more than may wait in memory.
#[tokio::test]
async fn many_calls_at_once_are_all_sent() {
    const CALLS: usize = 3_000;
    let (stream, mut peer) = duplex(64);
    let (client, driven) = over(stream, 1_000);
    tokio::spawn(driven);
    let session: SessionId = "s".repeat(SESSION_ID_MAX).parse().expect("an id");
    let call = || {
        let (client, session) = (client.clone(), session.clone());
        let rejected = async move {
            client
                .reject_token(
                    LONG,
                    LeaseRef {
                        session,
                        epoch: Epoch(1),
                    },
                )
                .await
        };
        tokio::spawn(rejected)
    };
    let calls: Vec<_> = (0..CALLS).map(|_| call()).collect();
    for _ in 0..CALLS {
        let id = heard(&mut peer).await["id"].take();
        say(
            &mut peer,
            &json!({"id": id, "reply": {"RejectToken": {"Ok": null}}}),
        )
        .await;
    }
    for call in calls {
        assert_eq!(call.await.expect("done"), Ok(Ok(())));
    }
}

/// The daemon stops reading while its answers are not read (backpressure), as ours does.
#[tokio::test(start_paused = true)]
async fn answers_are_read_while_much_waits_to_be_sent() {
    let (stream, mut peer) = duplex(1_000);
    let (client, driven) = over(stream, FRAME_MAX);
    tokio::spawn(driven);
    let LeaseRef { session, epoch } = lease();
    let store = || {
        let (session, token) = (
            session.clone(),
            Token::new([b'x'; 65_536]).expect("a token"),
        );
        client.store_token(
            LONG,
            StoreRequest {
                session,
                epoch,
                token,
            },
        )
    };
    let stores = futures::future::join_all((0..10).map(|_| store()));
    let (got, gotten) = oneshot::channel();
    let ping = async {
        client
            .ping(LONG)
            .await
            .map(|()| got.send(()).expect("awaited"))
    };
    let (pinged, stored, ()) = tokio::join!(ping, stores, async {
        let id = heard(&mut peer).await["id"].take();
        peer.read_u32()
            .await
            .expect("the head of a store, whose rest waits with all others");
        say(
            &mut peer,
            &json!({"id": id, "new": "y".repeat(5_000), "reply": {"Ping": null}}),
        )
        .await;
        gotten.await.expect("the ping is answered");
        drop(peer);
    });
    assert_eq!(pinged, Ok(()));
    assert!(
        stored.iter().all(|stored| *stored == Err(CallError::Ended)),
        "{stored:?}"
    );
}
