//! Calls without a tokio runtime around them.

use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;

use futures::executor;
use mcp_sessiond_proto::types::Outcome;

use super::fake::{Fake, Turn, grant};
use crate::{Sessiond, Start, Status, block_on};

/// A fake daemon in a runtime of its own, as another process would be.
fn elsewhere(turns: impl IntoIterator<Item = Turn> + Send + 'static) -> Fake {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            tell.send(Fake::new(turns)).expect("somebody waits");
            std::future::pending::<()>().await;
        });
    });
    told.recv().expect("made")
}

fn turns() -> [Turn; 5] {
    [
        grant("s1", 2, Outcome::Resumed, Some("old")),
        Turn::Store { resumed: true },
        Turn::HangUp,
        grant("s1", 2, Outcome::Held, Some("new")),
        Turn::Done,
    ]
}

const HEARD: [&str; 5] = [
    "claim",
    "store s1 2 new",
    "reject s1 2",
    "claim",
    "reject s1 2",
];

#[test]
fn a_call_in_any_executor_is_carried_out() {
    let fake = elsewhere(turns());
    let sessiond = fake.client();
    let loaded = executor::block_on(sessiond.load());
    assert_eq!(loaded.expect("a token").expose(), b"old");
    assert!(executor::block_on(sessiond.store(b"new")));
    assert!(executor::block_on(sessiond.reject()));
    assert_eq!(fake.heard(), HEARD);
}

#[test]
fn a_server_that_is_not_async_waits_in_its_thread() {
    let fake = elsewhere(turns());
    let sessiond = fake.client();
    assert_eq!(block_on(sessiond.load()).expect("a token").expose(), b"old");
    assert!(block_on(sessiond.store(b"new")));
    assert!(block_on(sessiond.reject()));
    assert_eq!(fake.heard(), HEARD);
}

/// The only thread of the runtime is the one that waits.
#[tokio::test]
async fn waiting_within_a_runtime_does_not_wait_for_that_runtime() {
    let fake = elsewhere([grant("s1", 2, Outcome::Resumed, Some("old"))]);
    assert!(block_on(fake.client().load()).is_some());
}

#[test]
fn without_daemon_or_runtime_the_server_goes_on() {
    let parent = tempfile::tempdir().expect("tempdir");
    let options = crate::Options::default()
        .directory(parent.path().join("d"))
        .start(Start::Never);
    let sessiond = Sessiond::init(options);
    assert!(block_on(sessiond.load()).is_none());
    assert!(
        matches!(sessiond.status(), Status::Disabled { .. }),
        "{}",
        sessiond.status()
    );
}

/// Polled once without any runtime, and dropped.
#[test]
fn a_call_that_is_dropped_outside_does_no_harm() {
    let mut is_dropped_open = false;
    // Now and then the answer is there before this thread looks.
    while !is_dropped_open {
        let fake = elsewhere([grant("s1", 2, Outcome::Resumed, Some("old"))]);
        let sessiond = fake.client();
        let mut load = Box::pin(sessiond.load());
        let polled = load.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        is_dropped_open = polled.is_pending();
        drop((load, polled));
        assert!(block_on(sessiond.load()).is_some());
    }
}

#[cfg(feature = "sessions")]
#[test]
fn sessions_can_be_waited_for_too() {
    use super::sessions::view;
    use crate::{CreateOptions, Cursor, Sessions};
    use serde_json::json;
    use std::time::Duration;

    let said = json!({"events": [], "gaps": [{"first": "1", "last": "2"}], "next": [{"number": "2"}], "more": false});
    let fake = elsewhere([
        Turn::Tell(view("s1", None)),
        Turn::Done,
        Turn::HangUp,
        Turn::Tell(said),
        Turn::Done,
    ]);
    let sessions = Sessions::of_service("web".parse().expect("a name"), fake.options());
    let session = block_on(sessions.create(CreateOptions::default())).expect("made");
    block_on(session.touch()).expect("touched");
    let said = block_on(session.wait(&[Cursor::Number(0)], Duration::from_secs(60))).expect("said");
    assert_eq!(said.gaps.len(), 1);
    let attached = executor::block_on(session.attach()).expect("attached");
    assert!(fake.is_done());
    drop(attached);
}
