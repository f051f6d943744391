//! Which message goes to which stream, and what becomes of those that nobody reads.

use std::path::PathBuf;

use mcp_sessiond_tests::{HttpClient, Reply, World, until};
use serde_json::json;

use super::{assert_unknown, begun, count, open, open_at, progress, text, who};
use crate::world;

/// A page that was reloaded: it calls by the id and the progress token of the client's last call.
struct Page {
    client: HttpClient,
    call: Reply,
    gate: PathBuf,
}

impl Page {
    fn reloaded(world: &World, former: &HttpClient) -> Self {
        let mut client = former.clone();
        client.last -= 1;
        let gate = world.root().join("gate of the page");
        let mut call = client.call(
            "count",
            &json!({"key": "page", "steps": 2, "hold": 1, "gate": gate}),
        );
        assert_eq!(client.last, former.last);
        progress(&mut call, 1.0);
        Self { client, call, gate }
    }

    /// Lets the server go on with its call, and asserts that it gets the answer to that.
    #[track_caller]
    fn is_answered(&mut self, world: &World) {
        open_at(world, &self.gate);
        progress(&mut self.call, 2.0);
        let answer = self.call.answer();
        assert_eq!(
            (text(&answer), &answer["id"]),
            ("page 2", &json!(self.client.last))
        );
    }
}

#[test]
fn what_belongs_to_no_call_waits_for_the_next_reader() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = world.durable_server(&[]);
    let mut client = begun(&server);
    client.text("announce", &json!({"text": "one://"}));
    server.kill();
    server.start_again();
    client.text("announce", &json!({"text": "two://"}));
    let mut first = client.listen();
    let uri = |said: mcp_sessiond_tests::SseEvent| said.message()["params"]["uri"].clone();
    assert_eq!(
        (uri(first.said()), uri(first.said())),
        (json!("one://"), json!("two://"))
    );
    // A second reader takes the place of the first, and gets what comes now.
    let mut second = client.listen();
    assert_eq!(first.event(), None, "its connection ends");
    client.text("announce", &json!({"text": "three://"}));
    let third = second.said();
    assert_eq!(uri(third.clone()), json!("three://"));
    second.hang_up();
    client.text("announce", &json!({"text": "four://"}));
    let mut resumed = client.resume(&third.id.expect("an id"));
    assert_eq!(uri(resumed.said()), json!("four://"));
}

#[test]
fn a_reader_that_comes_before_there_is_a_message_misses_none() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = world.durable_server(&[]);
    let mut client = begun(&server);
    let mut listening = client.listen();
    let primed = listening
        .event()
        .expect("a priming event")
        .id
        .expect("an id");
    server.kill();
    server.start_again();
    client.text("announce", &json!({"text": "one://"}));
    let mut resumed = client.resume(&primed);
    assert_eq!(resumed.said().message()["params"]["uri"], "one://");
}

#[test]
fn the_answer_to_a_call_that_was_cancelled_goes_to_no_later_call_of_its_id() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.durable_server(&[]);
    let mut client = begun(&server);
    let mut listening = client.listen();
    let mut former = count(&mut client, &world, 1, 0);
    former.event().expect("a priming event");
    let last = client.last;
    client.notify("notifications/cancelled", &json!({"requestId": last}));
    assert_eq!(former.event(), None, "its stream ends");
    // The server still works on it.
    let mut page = Page::reloaded(&world, &client);
    open(&world);
    assert_eq!(client.text("visit", &json!({})), "1");
    page.is_answered(&world);
    // Nor is its progress told to anybody.
    client.text("announce", &json!({"text": "one://"}));
    assert_eq!(listening.said().message()["params"]["uri"], "one://");
}

#[test]
fn a_cancellation_that_comes_after_the_answer_ends_no_former_call_of_its_id() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.durable_server(&[]);
    let mut client = begun(&server);
    let mut former = count(&mut client, &world, 2, 1);
    progress(&mut former, 1.0);
    let mut page = client.clone();
    page.last -= 1;
    assert_eq!(page.text("visit", &json!({})), "1");
    page.notify(
        "notifications/cancelled",
        &json!({"requestId": client.last}),
    );
    open(&world);
    progress(&mut former, 2.0);
    assert_eq!(text(&former.answer()), "k 2");
}

#[test]
fn a_client_that_begins_to_count_again_does_not_get_the_answer_to_a_former_call() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.durable_server(&[]);
    let mut client = begun(&server);
    let mut former = count(&mut client, &world, 2, 1);
    progress(&mut former, 1.0);
    let mut page = Page::reloaded(&world, &client);
    // It may mean either of them, and cancels none.
    page.client.notify(
        "notifications/cancelled",
        &json!({"requestId": client.last}),
    );
    page.is_answered(&world);
    open(&world);
    progress(&mut former, 2.0);
    let answer = former.answer();
    assert_eq!((text(&answer), &answer["id"]), ("k 2", &json!(client.last)));
}

#[test]
fn a_call_goes_on_while_the_daemon_is_away_and_its_answer_is_kept_later() {
    let world = world("");
    let mut daemon = world.daemon();
    let server = world.durable_server(&[("MCP_SESSIOND_BIN", "/nowhere")]);
    let mut client = begun(&server);
    let mut call = count(&mut client, &world, 2, 1);
    let first = progress(&mut call, 1.0);
    daemon.kill();
    open(&world);
    let second = call.said();
    assert_eq!(
        (second.message()["params"]["progress"].clone(), second.id),
        (json!(2.0), None)
    );
    let answer = call.said();
    assert_eq!((text(&answer.message()), &answer.id), ("k 2", &None));
    server.errors.wait("are not kept");
    let mut refused = client.call("visit", &json!({}));
    refused.must_be(503);
    assert!(
        refused
            .header("retry-after")
            .is_some_and(|seconds| seconds.parse::<u32>().is_ok()),
        "{refused:?}"
    );
    let error = refused.message()["error"]["message"]
        .as_str()
        .expect("a sentence")
        .to_owned();
    assert!(!error.contains('/'), "{error}: no paths");
    daemon.start_again();
    daemon.ready();
    // Who comes back for the answer gets it. What could not be kept in between is lost.
    let mut resumed = client.resume(&first);
    assert_eq!(text(&resumed.answer()), "k 2");
    assert_eq!(client.text("visit", &json!({})), "1");
    assert_eq!(
        server.errors.lines("are not kept").len(),
        1,
        "{}",
        server.errors.text()
    );
    assert!(
        server.errors.lines("panicked").is_empty(),
        "{}",
        server.errors.text()
    );
}

#[test]
fn a_daemon_that_is_replaced_in_the_middle_of_a_call_is_not_noticed() {
    let world = world("");
    let mut daemon = world.daemon();
    let server = world.durable_server(&[]);
    let mut client = begun(&server);
    let mut listening = client.listen();
    let mut call = count(&mut client, &world, 2, 1);
    progress(&mut call, 1.0);
    daemon.kill();
    // The server may have started one already: then this one finds the directory taken, and exits.
    daemon.start_with(&[]);
    open(&world);
    progress(&mut call, 2.0);
    assert_eq!(text(&call.answer()), "k 2");
    client.text("announce", &json!({"text": "one://"}));
    assert_eq!(listening.said().message()["params"]["uri"], "one://");
}

#[test]
fn a_client_is_told_how_much_was_deleted_before_it_fetched_it() {
    let world = world("limits.events = 50\n");
    let _daemon = world.daemon();
    let server = world.durable_server(&[]);
    let mut client = begun(&server);
    let mut call = count(&mut client, &world, 200, 1);
    let first = progress(&mut call, 1.0);
    call.hang_up();
    open(&world);
    let of = json!({"of": {"session": client.session(), "service": "durable"}});
    let mut peer = world.peer();
    // Whoever waited for the events would read them.
    until("the call is answered", || {
        let streams = peer.call("list_streams", of.clone()).expect("listed");
        streams
            .as_array()
            .expect("a list")
            .iter()
            .any(|stream| stream["closed"] == true)
            .then_some(())
    });
    let mut rest = client.resume(&first);
    let gap = rest.said();
    let message = gap.message();
    assert_eq!(
        (&message["method"], gap.id),
        (&json!("notifications/message"), None)
    );
    assert_eq!(
        message["params"]["data"],
        "150 messages of this stream were deleted before the client fetched them"
    );
    progress(&mut rest, 152.0);
}

#[test]
fn a_slow_reader_gets_everything() {
    let world = world("");
    let _daemon = world.daemon();
    let server = world.durable_server(&[]);
    let mut client = begun(&server);
    // It does not read while the server says more than a connection holds.
    let mut call = client.call(
        "count",
        &json!({"key": "x".repeat(4_000), "steps": 2_000, "hold": -1}),
    );
    let mut other = client.clone();
    other.last += 100;
    // Its reader does not read, which is the subject, and its events take none.
    until("the call was carried out", || {
        (other.text("visit", &json!({})).parse() == Ok(20)).then_some(())
    });
    for step in 1..=2_000 {
        progress(&mut call, f64::from(step));
    }
    assert!(text(&call.answer()).ends_with(" 2000"));
}

#[test]
fn clients_of_older_versions_get_no_event_without_data() {
    let world = world("");
    let _daemon = world.daemon();
    let mut server = world.durable_server(&[]);
    let mut client = server.client();
    client.initialize("2025-06-18");
    let mut call = count(&mut client, &world, 2, 1);
    let only_retry = call.event().expect("when to come back");
    assert_eq!((only_retry.id, only_retry.retry), (None, Some(500)));
    let first = progress(&mut call, 1.0);
    server.kill();
    server.start_again();
    let mut resumed = client.resume(&first);
    let only_retry = resumed.event().expect("when to come back");
    assert_eq!((only_retry.id, only_retry.retry), (None, Some(500)));
    assert_unknown(&resumed.answer(), client.last);
    assert_eq!(who(&mut client)["version"], "2025-06-18");
}
