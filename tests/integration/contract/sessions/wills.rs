//! The last will of a stream.

use mcp_sessiond_daemon::contents::{Of, Recorded};
use mcp_sessiond_proto::Error;

use super::bench::{Bench, start_of, stream};
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
    session.open_stream_with("a", WILL, "one").await.expect("opened");
    session.open_stream_with("b", WILL, "one").await.expect("opened");
    session.open_stream_with("b", OTHER, "two").await.expect("it is open, and the will is another's");
    session.open_stream_with("c", WILL, "one").await.expect("opened");
    session.close_stream("c").await.expect("closed");
    session.open_stream("d").await.expect("opened");
    session.append("a", &["{}"]).await.expect("appended");
    let other = bench.beside().await;
    assert_eq!(other.wills().await, Ok(vec![will("a", "one"), will("b", "two")]));
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
        assert_eq!(other.carry_out(&will(name, author)).await, Ok(is_done), "{name} {author}");
    }
    assert_eq!(bench.contents.wills().await, Ok(vec![]));
    assert_eq!(session.append("a", &["{}"]).await, Err(Error::StreamClosed));
    let (events, _) = session.replay_all(start_of("a"), None).await;
    assert_eq!(events.iter().map(|event| event.message.as_str()).collect::<Vec<_>>(), ["{}", WILL]);
    let (events, _) = session.replay_all(start_of("b"), None).await;
    assert_eq!(events.iter().map(|event| event.message.as_str()).collect::<Vec<_>>(), [OTHER]);
    session.append("d", &["{}"]).await.expect("open");
}

pub(crate) async fn a_will_ends_with_its_session<B: Backend>(backend: B) {
    let bench = Bench::new(backend);
    let session = bench.session("s").await;
    let will =
        Recorded { place: session.access.place.clone(), of: Of::Stream(stream("a")), author: "one".into() };
    session.open_stream_with("a", WILL, "one").await.expect("opened");
    session.reset().await.expect("empty");
    assert_eq!(bench.contents.wills().await, Ok(vec![]));
    assert_eq!(bench.contents.carry_out(&will).await, Ok(false));
    session.open_stream_with("a", WILL, "one").await.expect("opened");
    session.terminate().await.expect("terminated");
    assert_eq!(bench.contents.carry_out(&will).await, Ok(false));
    let large = format!("\"{}\"", "x".repeat(bench.bounds.limits.message_bytes));
    let session = bench.session("t").await;
    let refused = session.open_stream_with("a", &large, "one").await;
    assert!(matches!(refused, Err(Error::QuotaExceeded { .. })), "{refused:?}");
}
