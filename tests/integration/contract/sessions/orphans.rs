//! A stream whose reader is gone: its answers stay, and everything else goes to the standalone
//! stream.

use mcp_sessiond_proto::Error;

use super::bench::{Bench, json, request, start_of};
use crate::contract::backends::Backend;

pub(crate) async fn a_request_to_an_orphan_that_is_repeated<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    session.orphan_stream("a").await.expect("an orphan");
    let messages = vec![
        Some(json(NOTIFICATION)),
        Some(json(ANSWER)),
        Some(json(REQUEST)),
        None,
    ];
    let first = session
        .append_all("a", Some(request("r")), messages.clone())
        .await
        .expect("appended");
    let places: Vec<_> = first
        .iter()
        .map(|event| (event.stream.as_str(), event.position, event.number))
        .collect();
    assert_eq!(
        places,
        [
            ("_GET_stream", 1, 1),
            ("a", 1, 2),
            ("_GET_stream", 2, 3),
            ("a", 2, 4)
        ]
    );
    assert_eq!(
        session.append_all("a", Some(request("r")), messages).await,
        Ok(first)
    );
}

const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;
const REQUEST: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":"a","result":{}}"#;
const FAILURE: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#;
const EMPTY_ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":null}"#;

pub(crate) async fn answers_of_an_orphan_stay<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    session.open_stream("a").await.expect("opened");
    session
        .append("a", &[NOTIFICATION])
        .await
        .expect("appended");
    let orphan = session.orphan_stream("a").await.expect("an orphan");
    assert!(orphan.orphaned && !orphan.closed);
    assert_eq!(session.open_stream("a").await, Ok(orphan), "as it is");
    for (message, goes_to) in [
        (NOTIFICATION, "_GET_stream"),
        (ANSWER, "a"),
        (REQUEST, "_GET_stream"),
        (FAILURE, "a"),
        (EMPTY_ANSWER, "a"),
    ] {
        let appended = session.append("a", &[message]).await.expect("appended");
        assert_eq!(appended[0].stream.as_str(), goes_to, "{message}");
        let (events, _) = session.replay_all(start_of(goes_to), None).await;
        assert_eq!(events.last().map(|event| &event.id), Some(&appended[0].id));
    }
    session.close_stream("a").await.expect("closed");
    assert_eq!(
        session.append("a", &[NOTIFICATION]).await,
        Err(Error::StreamClosed)
    );
    // Too many changes between the two for one append.
    session.open_stream("b").await.expect("opened");
    session.orphan_stream("b").await.expect("an orphan");
    let alternating = [NOTIFICATION, ANSWER].repeat(50);
    assert_eq!(
        session
            .append("b", &alternating)
            .await
            .map(|appended| appended.len()),
        Ok(100)
    );
    let alternating = [NOTIFICATION, ANSWER].repeat(51);
    assert_eq!(
        session
            .append("b", &alternating)
            .await
            .expect_err("too many")
            .code(),
        "invalid_argument"
    );
}
