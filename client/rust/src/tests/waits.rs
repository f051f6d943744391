//! Calls that take their time, clients that come and go, and everything at once.

use std::time::Duration;

use mcp_sessiond_proto::types::Outcome;
use serde_json::{Value, json};

use super::fake::{Fake, Turn, grant};
use super::sessions::{session, view};
use crate::retrying_client::CALLS_MAX;
use crate::{Cursor, Sessiond};

const LONG: Duration = Duration::from_secs(3_600);

fn nothing(next: u64) -> Turn {
    Turn::Tell(
        json!({"events": [], "gaps": [], "next": [{"number": next.to_string()}], "more": false}),
    )
}

fn page(numbers: &[u64], more: bool) -> Turn {
    let event = |number: &u64| json!({"id": "x", "stream": "t", "position": "1", "number": number, "message": "1"});
    let events: Vec<Value> = numbers.iter().map(event).collect();
    let next = numbers.last().copied().unwrap_or_default();
    Turn::Tell(json!({"events": events, "gaps": [], "next": [{"number": next}], "more": more}))
}

/// The methods that were heard, in the order of the alphabet.
fn methods(fake: &Fake) -> Vec<String> {
    let mut heard = fake.heard();
    heard
        .iter_mut()
        .for_each(|one| one.truncate(one.find(' ').unwrap_or(one.len())));
    heard.sort();
    heard
}

#[tokio::test]
async fn all_pages_of_a_replay_are_one() {
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        page(&[2, 3], true),
        Turn::HangUp,
        page(&[5], false),
    ]);
    let session = session(&fake).await;
    let all = session
        .replay_all(&Cursor::Number(1))
        .await
        .expect("replayed");
    assert_eq!(
        all.events
            .iter()
            .map(|event| event.number)
            .collect::<Vec<_>>(),
        [2, 3, 5]
    );
    assert_eq!((all.next, all.more), (vec![Cursor::Number(5)], false));
}

#[tokio::test]
async fn a_wait_goes_on_where_it_was_until_there_is_something() {
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        nothing(1),
        nothing(4),
        Turn::HangUp,
        page(&[9], false),
        nothing(9),
    ]);
    let session = session(&fake).await;
    let said = session
        .wait(&[Cursor::Number(1)], LONG)
        .await
        .expect("said");
    assert_eq!(said.events[0].number, 9);
    let heard = fake.heard();
    let after = |heard: &str| {
        let request: Value =
            serde_json::from_str(heard.split_once(' ').expect("a request").1).expect("JSON");
        assert!(
            request["timeout_ms"]
                .as_u64()
                .is_some_and(|timeout| timeout <= 25_000),
            "{heard}"
        );
        request["after"][0]["number"].clone()
    };
    assert_eq!(
        heard.iter().map(|heard| after(heard)).collect::<Vec<_>>(),
        ["1", "1", "4", "4"]
    );
    let silent = session
        .wait(&said.next, Duration::ZERO)
        .await
        .expect("nothing");
    assert_eq!((silent.events.len(), silent.next), (0, said.next));
}

#[tokio::test]
async fn waits_keep_no_call_waiting_however_many_there_are() {
    let waits = 2 * CALLS_MAX + 1;
    let mut turns = vec![Turn::Tell(view("s1", None))];
    turns.extend((0..waits).map(|_| Turn::Stall));
    turns.push(Turn::Done);
    let fake = Fake::new(turns);
    let session = session(&fake).await;
    let waiting: Vec<_> = (0..waits)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move { session.wait(&[Cursor::Number(0)], LONG).await })
        })
        .collect();
    while fake.turns_left() > 1 {
        tokio::task::yield_now().await;
    }
    session.touch().await.expect("touched");
    assert!(waiting.iter().all(|one| !one.is_finished()));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_client_is_attached_again_after_a_connection_was_lost_and_detached_when_it_goes() {
    let fake = Fake::new([
        Turn::Tell(view("s1", None)),
        Turn::Done,
        Turn::HangUp,
        Turn::Done,
        Turn::Done,
        Turn::Done,
    ]);
    let session = session(&fake).await;
    let attachment = session.attach().await.expect("attached");
    session.touch().await.expect("on another connection");
    while fake.turns_left() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        methods(&fake),
        [
            "attach_session",
            "attach_session",
            "touch_session",
            "touch_session"
        ]
    );
    attachment.detach().await;
    assert_eq!(methods(&fake), ["detach_session"]);
    assert!(fake.is_done());
}

#[tokio::test]
async fn an_attachment_that_is_refused_is_none() {
    let refused = Turn::Refuse(mcp_sessiond_proto::Error::SessionTerminated);
    let fake = Fake::new([Turn::Tell(view("s1", None)), refused]);
    let session = session(&fake).await;
    let refused = session.attach().await.expect_err("it was terminated");
    assert_eq!(
        refused.refusal(),
        Some(&mcp_sessiond_proto::Error::SessionTerminated)
    );
}

#[tokio::test]
async fn who_speaks_for_an_ancestor_says_so_on_every_connection() {
    let claimed = || grant("s1", 1, Outcome::Held, None);
    let fake = Fake::new([claimed(), claimed(), page(&[1], false)]);
    let sessiond = Sessiond::init(fake.options().instance(1));
    let session = sessiond.session().await.expect("a session");
    session
        .wait(&[Cursor::Number(0)], LONG)
        .await
        .expect("said");
    assert_eq!(methods(&fake), ["claim", "claim", "wait"]);
}
