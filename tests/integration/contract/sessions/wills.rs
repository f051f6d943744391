//! The last will of a stream.

use mcp_sessiond_daemon::contents::{Of, Recorded};
use mcp_sessiond_proto::{Error, StreamId};

use super::bench::{Bench, json, request, start_of, stream, texts};
use super::relay::Relay;
use crate::contract::backends::Backend;

const WILL: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"gone"}}"#;
const OTHER: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":2,"message":"gone"}}"#;

pub(crate) async fn a_will_is_carried_out_once_and_closes_its_stream<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let will = |name: &str, author: &str| Recorded {
        place: session.access.place.clone(),
        of: Of::Stream(stream(name)),
        author: author.into(),
    };
    session
        .open_stream_with("a", WILL, "one")
        .await
        .expect("opened");
    session
        .open_stream_with("b", WILL, "one")
        .await
        .expect("opened");
    session
        .open_stream_with("b", OTHER, "two")
        .await
        .expect("it is open, and the will is another's");
    session
        .open_stream_with("c", WILL, "one")
        .await
        .expect("opened");
    session.close_stream("c").await.expect("closed");
    session.open_stream("d").await.expect("opened");
    session.append("a", &["{}"]).await.expect("appended");
    let other = bench.beside().await;
    assert_eq!(
        other.wills().await,
        Ok(vec![will("a", "one"), will("b", "two")])
    );
    for (name, author, is_done) in [
        ("a", "two", false),
        ("a", "one", true),
        ("a", "one", false),
        ("b", "one", false),
        ("b", "two", true),
        ("c", "one", false),
        ("d", "one", false),
        ("e", "one", false),
    ] {
        assert_eq!(
            other.apply_will(&will(name, author)).await,
            Ok(is_done),
            "{name} {author}"
        );
    }
    assert_eq!(bench.contents.wills().await, Ok(vec![]));
    assert_eq!(session.append("a", &["{}"]).await, Err(Error::StreamClosed));
    let (events, _) = session.replay_all(start_of("a"), None).await;
    assert_eq!(
        events
            .iter()
            .map(|event| event.message.as_str())
            .collect::<Vec<_>>(),
        ["{}", WILL]
    );
    let (events, _) = session.replay_all(start_of("b"), None).await;
    assert_eq!(
        events
            .iter()
            .map(|event| event.message.as_str())
            .collect::<Vec<_>>(),
        [OTHER]
    );
    session.append("d", &["{}"]).await.expect("open");
}

pub(crate) async fn a_will_ends_with_its_session<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let will = Recorded {
        place: session.access.place.clone(),
        of: Of::Stream(stream("a")),
        author: "one".into(),
    };
    session
        .open_stream_with("a", WILL, "one")
        .await
        .expect("opened");
    session.reset().await.expect("empty");
    assert_eq!(bench.contents.wills().await, Ok(vec![]));
    assert_eq!(bench.contents.apply_will(&will).await, Ok(false));
    session
        .open_stream_with("a", WILL, "one")
        .await
        .expect("opened");
    session.terminate().await.expect("terminated");
    assert_eq!(bench.contents.apply_will(&will).await, Ok(false));
    let large = format!("\"{}\"", "x".repeat(bench.bounds.limits.message_bytes));
    let session = bench.session("t").await;
    let refused = session.open_stream_with("a", &large, "one").await;
    assert!(
        matches!(refused, Err(Error::QuotaExceeded { .. })),
        "{refused:?}"
    );
}

pub(crate) async fn an_answer_that_closes_its_stream<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let will = |name: &str| Recorded {
        place: session.access.place.clone(),
        of: Of::Stream(stream(name)),
        author: "one".into(),
    };
    session
        .open_stream_with("a", WILL, "one")
        .await
        .expect("opened");
    let say = || session.append_and_close("a", Some(request("r")), &["1", "2"]);
    let appended = say().await.expect("appended");
    let found = session.find_event(&appended[1].id).await.expect("found");
    assert!(found.ended && found.stream.closed);
    assert_eq!(bench.contents.wills().await, Ok(vec![]));
    assert_eq!(bench.beside().await.apply_will(&will("a")).await, Ok(false));
    assert_eq!(say().await.as_ref(), Ok(&appended), "a repetition");
    assert_eq!(session.append("a", &["3"]).await, Err(Error::StreamClosed));
    assert_eq!(
        session.append_and_close("a", None, &["3"]).await,
        Err(Error::StreamClosed)
    );
    let (events, _) = session.replay_all(start_of("a"), None).await;
    assert_eq!(texts(&events), ["1", "2"]);

    session
        .open_stream_with("b", WILL, "one")
        .await
        .expect("opened");
    let first = session
        .append_all("b", Some(request("q")), vec![Some(json("1"))])
        .await
        .expect("appended");
    let again = session
        .append_and_close("b", Some(request("q")), &["1"])
        .await;
    assert_eq!(
        again.as_ref(),
        Ok(&first),
        "what was not closed before is closed by its repetition"
    );
    assert!(session.find_event(&first[0].id).await.expect("found").ended);
    assert_eq!(bench.contents.wills().await, Ok(vec![]));

    session
        .open_stream_with("c", WILL, "one")
        .await
        .expect("opened");
    let too_large = format!("\"{}\"", "x".repeat(bench.bounds.limits.message_bytes));
    let refused = session.append_and_close("c", None, &[&too_large]).await;
    assert!(
        matches!(refused, Err(Error::QuotaExceeded { .. })),
        "{refused:?}"
    );
    assert_eq!(
        bench.contents.wills().await,
        Ok(vec![will("c")]),
        "it is open, and its will is there"
    );
    session.orphan_stream("c").await.expect("an orphan");
    let told = session
        .append_and_close("c", None, &[r#"{"method":"m"}"#])
        .await
        .expect("appended");
    assert_eq!(
        told[0].stream,
        StreamId::standalone(),
        "a message that is no answer"
    );
    assert_eq!(session.append("c", &["{}"]).await, Err(Error::StreamClosed));
    assert_eq!(bench.contents.wills().await, Ok(vec![]));

    for (name, expected) in [
        ("_GET_stream", "invalid_argument"),
        ("never", "unknown_stream"),
    ] {
        let refused = session
            .append_and_close(name, None, &["1"])
            .await
            .expect_err(name);
        assert_eq!(refused.code(), expected);
    }
    let (events, _) = session.replay_all(start_of("_GET_stream"), None).await;
    assert_eq!(texts(&events), [r#"{"method":"m"}"#]);
}

pub(crate) async fn an_answer_and_its_closing_are_one_commit<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let relay = Relay::new(bench.store());
    let session = bench.session("s").await;
    let relayed = session.through(&bench.over(relay.clone()));
    session
        .open_stream_with("a", WILL, "one")
        .await
        .expect("opened");
    let mut failures = 0;
    loop {
        relay.fail_after(failures);
        let said = relayed.append_and_close("a", None, &["1"]).await;
        // As the next daemon finds it.
        let other = session.through(&bench.beside().await);
        let (events, _) = other.replay_all(start_of("a"), None).await;
        let is_open = !other.list_streams(None).await.expect("a list")[0].closed;
        let wills = other.contents.wills().await.expect("a list").len();
        match said {
            Ok(_) => break assert_eq!((events.len(), is_open, wills), (1, false, 0)),
            Err(Error::Unavailable { .. }) => {
                assert_eq!((events.len(), is_open, wills), (0, true, 1));
            }
            Err(other) => panic!("{other:?}"),
        }
        failures += 1;
        assert!(failures < 30, "it never succeeds");
    }
    assert!(failures > 0, "it asks nothing of the storage");
    relay.recover();

    session
        .open_stream_with("b", WILL, "one")
        .await
        .expect("opened");
    relay.lose_answers();
    let say = || relayed.append_and_close("b", Some(request("r")), &["1"]);
    assert_eq!(say().await.expect_err("lost").code(), "outcome_unknown");
    relay.recover();
    assert_eq!(bench.beside().await.wills().await, Ok(vec![]));
    assert_eq!(say().await.expect("it was appended")[0].position, 1);
}
