//! What becomes of messages when a connection is cut off: nothing is lost in silence, nothing is
//! done twice, and nobody is told what somebody else had asked.

use mcp_sessiond_tests::{Client, Log};
use serde_json::{Value, json};

use super::{connect, connect_raw, counter, gate, keeping, open, raw_backend, wrapped};

#[test]
#[ignore = "needs node"]
fn notifications_wait_for_the_next_front_and_arrive_once_and_in_order() {
    let world = keeping("");
    let _daemon = world.daemon();
    let mut host = world.node_host();
    let command = wrapped(&world, &counter(&world));
    host.connect("main", &command);
    let backend = world.backend();
    let gate = gate(&world, "gate");
    host.call("main", "notify", json!({"n": 100, "gate": gate}));
    host.end("main", "SIGKILL");
    backend.wait_alone();
    open(&gate);
    backend.wait("all of them wait", |status| status.waiting == 100);
    for _ in 0..2 {
        host.connect("main", &command);
        host.told.wait("\"data\":100,");
        // What would come twice would come before this.
        host.count("main");
        let lines = host.told.lines("\"logger\":\"notify\"");
        let told: Vec<u64> = lines.iter().map(|line| number_of(line)).collect();
        assert_eq!(told, (1..=100).collect::<Vec<u64>>());
        host.end("main", "SIGKILL");
    }
}

fn number_of(event: &str) -> u64 {
    let event: Value = serde_json::from_str(event).expect("JSON");
    event["params"]["data"]
        .as_u64()
        .unwrap_or_else(|| panic!("{event}"))
}

#[test]
fn a_call_cut_off_is_not_made_again_and_its_late_answer_goes_to_nobody() {
    let world = keeping("");
    let _daemon = world.daemon();
    let gate = gate(&world, "gate");
    let mut first = connect(&world, &counter(&world));
    let backend = world.backend();
    let slow = first.begin_slow(&gate);
    let status = backend.cut_off(&mut first.pipe);
    assert_eq!((status.calls.len(), status.calls[0].former), (1, true));
    open(&gate);
    let status = backend.wait("the late answer is parked", |status| {
        !status.parked.is_empty()
    });
    assert_eq!(
        (status.parked.len(), status.parked[0].method.as_str()),
        (1, "tools/call")
    );
    assert!(status.calls.is_empty() && status.waiting == 0, "{status:?}");

    let mut second = connect(&world, &counter(&world));
    let get = second.begin("get", json!({}));
    assert_eq!(get, slow, "it has the same id");
    assert_eq!(second.text(get), Ok("1".into()), "counted once");
    assert_eq!(second.count(), 2);
    assert_eq!(second.rest(), Vec::<Value>::new());
    world.wait_stat("wrap_undelivered_total", 1);
    world.wait_stat("wrap_reconnects_total", 1);
    assert_eq!(world.stat("wrap_restarts_total"), 0);
}

/// Both connections make the same request, with the same id and the same token, and the first one's
/// is answered while the second one's is under way.
#[test]
fn ids_and_progress_tokens_of_two_connections_never_meet() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (raw, mut first) = connect_raw(&world);
    let hold = |client: &mut Client<_>| {
        let id = client.request("hold", json!({"_meta": {"progressToken": 2}}));
        assert_eq!(id, 2);
        id
    };
    let backend = world.backend();
    hold(&mut first);
    raw.wait_heard("\"hold\"");
    backend.cut_off(&mut first.pipe);
    let mut second = connect(&world, &raw.command);
    let id = hold(&mut second);
    // It has heard of both when it answers this.
    second.ping();
    assert_eq!(backend.status().calls.len(), 2);
    for n in [0, 1] {
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":$TOKEN{n},"progress":{n}}}}}"#
        );
        raw.say(&progress);
        raw.say(&format!(
            r#"{{"jsonrpc":"2.0","id":$ID{n},"result":{{"of":{n}}}}}"#
        ));
    }
    assert_eq!(second.answer(id)["result"]["of"], 1);
    let told = second.rest();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        told[0]["params"],
        json!({"progressToken": 2, "progress": 1})
    );
    let status = backend.status();
    assert_eq!((status.parked.len(), status.dropped), (1, 1), "{status:?}");
}

#[test]
fn a_cancelled_call_does_not_cancel_that_of_another_connection() {
    let (world, _daemon, raw, mut first, backend) = raw_backend();
    first.request("hold", json!({}));
    raw.wait_heard("\"hold\"");
    backend.cut_off(&mut first.pipe);
    let mut second = connect(&world, &raw.command);
    // There is no such call of its own.
    second.notify("notifications/cancelled", json!({"requestId": 2}));
    second.ping();
    assert!(
        !raw.heard()
            .iter()
            .any(|line| line.windows(9).any(|word| word == b"cancelled"))
    );
}

/// The host does not read: some messages are in its pipe, some with the front, and some with the
/// keeper.
#[test]
fn what_was_under_way_to_a_killed_front_is_counted() {
    const ALL: u64 = 3000;
    let (world, _daemon, raw, mut first, backend) = raw_backend();
    first.request("flood", json!({"lines": ALL, "bytes": 100}));
    backend.wait("the front does not take any more", |status| {
        status.waiting >= 64
    });
    first.pipe.signal(nix::sys::signal::Signal::SIGKILL);
    let lost = backend.wait_alone().lost;
    assert!(lost > 0);
    let mut next = Some(0);
    // What it had passed on is in the pipe to its host, to a line cut off in the middle.
    while let Some(line) = first.pipe.line() {
        next = serde_json::from_slice::<Value>(&line)
            .ok()
            .and_then(|flood| flood["params"]["n"].as_u64())
            .map(|n| n + 1);
    }
    let arrived = next.expect("some arrived");

    let mut second = connect(&world, &raw.command);
    let said = second.pipe.errors.wait("messages were on their way");
    let told: u64 = said
        .split(' ')
        .find_map(|word| word.parse().ok())
        .expect("a number");
    assert_eq!(told, lost);
    let number = |flood: &Value| flood["params"]["n"].as_u64();
    let first_again =
        number(&second.said(|message| message["method"] == "flood")).expect("a number");
    assert!(
        (arrived..=arrived + lost).contains(&first_again),
        "{arrived} arrived, {lost} may have been lost, and it goes on with {first_again}"
    );
    for n in first_again + 1..ALL {
        assert_eq!(
            number(&second.said(|message| message["method"] == "flood")),
            Some(n)
        );
    }
    assert_eq!(second.rest(), Vec::<Value>::new());
    // It is told once. The last few may be counted for want of the front's word, though they have
    // arrived.
    second.pipe.kill();
    let errors: Log = connect(&world, &raw.command).pipe.errors.clone();
    assert!(
        errors
            .lines("messages were on their way")
            .iter()
            .all(|line| !line.contains(&format!(" {lost} ")))
    );
}

/// The host has read the answer, and kills the front before that could say that it has passed it on.
#[test]
fn nor_does_an_answer_that_a_host_has_read_before_it_kills_the_front() {
    let (world, _daemon, raw, mut client, _backend) = raw_backend();
    for round in 0..40 {
        let flood = client.request("flood", json!({"lines": 3, "bytes": 10}));
        client.answer(flood);
        client.pipe.kill();
        client = connect(&world, &raw.command);
        let errors = client.pipe.errors.wait("resumed the server");
        client.ping();
        let errors = errors + &client.pipe.errors.text();
        assert!(!errors.contains("on its way"), "{round}: {errors}");
        assert!(!errors.contains("on their way"), "{round}: {errors}");
    }
}

/// The host closes at once after it has got everything: no message was on its way, and none counts
/// as lost.
#[test]
fn no_message_that_has_arrived_counts_as_lost_at_an_orderly_close() {
    let (world, _daemon, raw, mut client, backend) = raw_backend();
    for round in 0..100 {
        let flood = client.request("flood", json!({"lines": 20, "bytes": 10}));
        client.answer(flood);
        client.pipe.close();
        client.pipe.wait();
        assert_eq!(backend.wait_alone().lost, 0, "{round}");
        client = connect(&world, &raw.command);
    }
}

/// What a server asks its host.
const ASK: &str =
    r#"{"jsonrpc":"2.0","id":"ask-1","method":"sampling/createMessage","params":{"messages":[]}}"#;

#[test]
fn a_request_of_the_server_waits_for_the_next_host() {
    let (world, _daemon, raw, mut first, backend) = raw_backend();
    backend.cut_off(&mut first.pipe);
    raw.say(ASK);
    backend.wait("it waits", |status| {
        status.waiting == 1 && status.asks.len() == 1
    });
    let mut second = connect(&world, &raw.command);
    let asked = second.said(|message| message["method"] == "sampling/createMessage");
    let answer =
        json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"content": "said by the second"}});
    second.pipe.send(format!("{answer}\n").as_bytes());
    let heard = raw.wait_heard("said by the second");
    assert!(heard.contains(r#""id":"ask-1""#), "{heard}");
}

#[test]
fn a_request_of_the_server_that_was_cut_off_is_answered_by_an_error() {
    let world = keeping("");
    let _daemon = world.daemon();
    let (raw, mut first) = connect_raw(&world);
    raw.say(ASK);
    first.said(|message| message["method"] == "sampling/createMessage");
    first.pipe.kill();
    let heard = raw.wait_heard("outcome is unknown");
    assert!(heard.contains(r#""id":"ask-1""#), "{heard}");
    // Nobody is asked again.
    let mut second = connect(&world, &raw.command);
    second.ping();
    assert_eq!(second.rest(), Vec::<Value>::new());
}
