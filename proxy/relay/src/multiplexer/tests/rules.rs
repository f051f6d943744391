//! One rule after the other.

mod admission;

use super::*;

/// A server with so many places, and what it was told so far is taken.
fn shared(places: u64) -> Many {
    let mut many = Many::new(false);
    for place in 1..=places {
        many.arrive(
            place,
            initialize("2025-06-18", &json!({"elicitation": {}})),
            false,
        );
        if place == 1 {
            many.from_server(
                &line(&json!({"jsonrpc": "2.0", "id": 1, "result": result()})),
                0,
            );
        }
    }
    many.deeds();
    many
}

fn initialize(version: &str, capabilities: &Value) -> Bytes {
    let params = json!({"protocolVersion": version, "capabilities": capabilities});
    line(&json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params}))
}

fn result() -> Value {
    json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}, "tasks": {}}})
}

fn says(many: &mut Many, place: u64, method: &str, id: Option<&str>, params: &Value) -> Vec<Deed> {
    let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
    if let Some(id) = id {
        message["id"] = json!(id);
    }
    many.from_place(place, &line(&message), 0);
    many.deeds()
}

fn hears(many: &mut Many, message: &Value, now: u64) -> Vec<Deed> {
    many.from_server(&line(message), now);
    many.deeds()
}

/// What the server was told, in this deed.
fn to_server(deed: &Deed) -> Value {
    let Deed::Server(line) = deed else {
        panic!("{deed:?}")
    };
    serde_json::from_slice(line).expect("JSON")
}

fn places(deeds: &[Deed]) -> Vec<u64> {
    deeds
        .iter()
        .map(|deed| {
            if let Deed::Place(place, _) = deed {
                *place
            } else {
                panic!("{deed:?}")
            }
        })
        .collect()
}

fn ask(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {"message": "?"}})
}

fn is_refused(deeds: &[Deed]) -> bool {
    deeds.len() == 1 && to_server(&deeds[0])["error"]["code"] == -32000
}

#[test]
fn an_ask_is_refused_where_it_can_t_be_known_whose_it_is() {
    let mut many = shared(2);
    says(&mut many, 1, "tools/call", Some("a"), &json!({}));
    assert_eq!(places(&hears(&mut many, &ask(1), 0)), [1]);
    says(&mut many, 2, "tools/call", Some("a"), &json!({}));
    assert!(is_refused(&hears(&mut many, &ask(2), 0)));
    // The server may still be at work for one that is gone.
    many.leave(1, 0);
    assert_eq!(
        to_server(&many.deeds()[0])["error"]["code"],
        -32000,
        "the ask that nobody answers any more"
    );
    assert!(is_refused(&hears(&mut many, &ask(3), 0)));
    // Both calls are number 2 and 3.
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": 2, "result": {}}),
        0,
    );
    assert!(
        is_refused(&hears(&mut many, &ask(4), QUIET - 1)),
        "it may still be about what was answered"
    );
    assert_eq!(places(&hears(&mut many, &ask(5), QUIET)), [2]);
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": 3, "result": {}}),
        QUIET,
    );
    assert!(
        is_refused(&hears(&mut many, &ask(6), QUIET)),
        "nobody has a call"
    );
    says(&mut many, 2, "tools/call", Some("a"), &json!({}));
    assert!(
        is_refused(&hears(&mut many, &ask(7), 9 * QUIET)),
        "it asks apart from calls"
    );
}

#[test]
fn a_call_that_was_cancelled_counts_until_it_is_answered() {
    let mut many = shared(2);
    says(&mut many, 1, "tools/call", Some("a"), &json!({}));
    says(
        &mut many,
        1,
        "notifications/cancelled",
        None,
        &json!({"requestId": "a"}),
    );
    says(&mut many, 2, "tools/call", Some("a"), &json!({}));
    assert!(is_refused(&hears(&mut many, &ask(1), 0)));
    assert!(is_refused(&hears(&mut many, &ask(2), 86_400_000)));
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": 2, "result": {}}),
        86_400_000,
    );
    assert_eq!(places(&hears(&mut many, &ask(3), 86_400_000 + QUIET)), [2]);
}

#[test]
fn where_too_many_calls_were_cancelled_nobody_is_asked_any_more() {
    let mut many = shared(2);
    let cancel = |many: &mut Many| {
        says(many, 1, "tools/call", Some("a"), &json!({}));
        says(
            many,
            1,
            "notifications/cancelled",
            None,
            &json!({"requestId": "a"}),
        );
    };
    (0..1024).for_each(|_| cancel(&mut many));
    assert_eq!(places(&hears(&mut many, &ask(1), 0)), [1]);
    cancel(&mut many);
    assert!(is_refused(&hears(&mut many, &ask(2), 0)));
    // The first one was dropped, number 2. All others are answered.
    for number in 3..=1026 {
        hears(
            &mut many,
            &json!({"jsonrpc": "2.0", "id": number, "result": {}}),
            0,
        );
    }
    says(&mut many, 2, "tools/call", Some("a"), &json!({}));
    assert!(is_refused(&hears(&mut many, &ask(3), 86_400_000)));
}

#[test]
fn an_ask_is_refused_while_the_server_may_be_at_work_for_another_one_without_a_call_of_its() {
    let mut many = shared(2);
    let begin = |many: &mut Many, place| says(many, place, "tools/call", Some("a"), &json!({}));
    // A call that nothing is asked for counts as well, and is not asked about.
    begin(&mut many, 1);
    says(&mut many, 2, "tools/list", Some("l"), &json!({}));
    assert!(is_refused(&hears(&mut many, &ask(1), 0)));
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": 3, "result": {}}),
        0,
    );
    // A notification may make it ask.
    says(&mut many, 2, "notifications/x", None, &json!({}));
    assert!(is_refused(&hears(&mut many, &ask(2), QUIET - 1)));
    assert_eq!(places(&hears(&mut many, &ask(3), QUIET)), [1]);
    // So may what the other one has answered, and what nobody answers any more.
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": 2, "result": {}}),
        QUIET,
    );
    begin(&mut many, 2);
    assert!(
        is_refused(&hears(&mut many, &ask(4), 2 * QUIET)),
        "one is asked"
    );
    many.from_place(
        1,
        &line(&json!({"jsonrpc": "2.0", "id": 3, "result": {}})),
        2 * QUIET,
    );
    many.deeds();
    assert!(
        is_refused(&hears(&mut many, &ask(5), 3 * QUIET - 1)),
        "one was asked until just now"
    );
    assert_eq!(places(&hears(&mut many, &ask(6), 3 * QUIET)), [2]);
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": 4, "result": {}}),
        3 * QUIET,
    );
    begin(&mut many, 1);
    many.leave(2, 4 * QUIET);
    many.deeds();
    assert!(
        is_refused(&hears(&mut many, &ask(7), 5 * QUIET - 1)),
        "one has gone without an answer"
    );
    assert_eq!(places(&hears(&mut many, &ask(8), 5 * QUIET)), [1]);
    // Nothing is asked for a list: it asks apart from calls.
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
        5 * QUIET,
    );
    says(&mut many, 1, "tools/list", Some("l"), &json!({}));
    assert!(is_refused(&hears(&mut many, &ask(9), 9 * QUIET)));
    begin(&mut many, 1);
    assert!(is_refused(&hears(&mut many, &ask(10), 9 * QUIET)));
}

#[test]
fn a_server_that_worked_for_others_before_may_still_do() {
    let mut many = Many::new(true);
    many.arrive(1, initialize("2025-06-18", &json!({})), false);
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": 1, "result": result()}),
        0,
    );
    says(&mut many, 1, "tools/call", Some("a"), &json!({}));
    for (ask_id, now) in [(1, 0), (2, 600_000), (3, 86_400_000)] {
        assert!(
            is_refused(&hears(&mut many, &ask(ask_id), now)),
            "after {now} ms"
        );
    }
}

#[test]
fn nobody_answers_for_another() {
    let mut many = shared(2);
    says(&mut many, 1, "tools/call", Some("a"), &json!({}));
    hears(&mut many, &ask(7), 0);
    let answer = line(&json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    many.from_place(2, &answer, 0);
    assert_eq!(many.deeds(), []);
    many.from_place(1, &answer, 0);
    assert_eq!(many.deeds(), [Deed::Server(answer)]);
}

#[test]
fn a_subscription_ends_with_its_last_place() {
    let mut many = shared(3);
    let (uri, other) = (json!({"uri": "x:/a"}), json!({"uri": "x:/b"}));
    let updated = |uri: &str| json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}});
    for place in [1, 2] {
        assert_eq!(
            to_server(&says(&mut many, place, "resources/subscribe", Some("s"), &uri)[0])["params"],
            uri
        );
    }
    says(&mut many, 3, "resources/subscribe", Some("s"), &other);
    assert_eq!(places(&hears(&mut many, &updated("x:/a"), 0)), [1, 2]);
    assert_eq!(places(&hears(&mut many, &updated("x:/a/below"), 0)), [1, 2]);
    assert_eq!(hears(&mut many, &updated("x:/ab"), 0), []);
    assert_eq!(
        places(&says(
            &mut many,
            1,
            "resources/unsubscribe",
            Some("u"),
            &uri
        )),
        [1],
        "another one has it"
    );
    assert_eq!(places(&hears(&mut many, &updated("x:/a"), 0)), [2]);
    many.leave(2, 0);
    let left = many.deeds();
    let told = to_server(&left[0]);
    assert_eq!(
        (&told["method"], &told["params"]),
        (&json!("resources/unsubscribe"), &uri)
    );
    // Nobody hears of the answer.
    assert_eq!(
        hears(
            &mut many,
            &json!({"jsonrpc": "2.0", "id": told["id"], "result": {}}),
            0
        ),
        []
    );
    // One that fails is none.
    let asked =
        to_server(&says(&mut many, 1, "resources/subscribe", Some("s"), &uri)[0])["id"].clone();
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": asked, "error": {"code": 1, "message": ""}}),
        0,
    );
    assert_eq!(hears(&mut many, &updated("x:/a"), 0), []);
}

#[test]
fn everybody_hears_of_lists_and_of_nothing_else() {
    let notification =
        |method: &str| json!({"jsonrpc": "2.0", "method": method, "params": {"data": "a secret"}});
    let unaddressed = ["notifications/message", "notifications/x", "x"];
    let mut many = shared(1);
    for method in unaddressed {
        let message = notification(method);
        assert_eq!(
            hears(&mut many, &message, 0),
            [Deed::Place(1, line(&message))],
            "it has no other host"
        );
    }
    // From now on nobody knows whom such a thing concerns, also when there is one host again.
    many.arrive(
        2,
        initialize("2025-06-18", &json!({"elicitation": {}})),
        false,
    );
    many.deeds();
    for method in unaddressed {
        assert_eq!(hears(&mut many, &notification(method), 0), [], "{method}");
    }
    for list in ["tools", "prompts", "resources"] {
        let changed = format!("notifications/{list}/list_changed");
        let bare = line(&json!({"jsonrpc": "2.0", "method": changed}));
        let told = [Deed::Place(1, bare.clone()), Deed::Place(2, bare)];
        assert_eq!(hears(&mut many, &notification(&changed), 0), told);
    }
    many.leave(2, 0);
    many.deeds();
    for method in unaddressed {
        assert_eq!(hears(&mut many, &notification(method), 0), [], "{method}");
    }
    assert_eq!(many.withheld(), 6);
}

#[test]
fn who_finds_a_server_that_had_hosts_before_is_not_its_only_one() {
    let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
    let mut many = Many::new(true);
    many.arrive(1, initialize("2025-06-18", &json!({})), false);
    hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": 1, "result": result()}),
        0,
    );
    assert_eq!(hears(&mut many, &message, 0), []);
    let mut many = shared(1);
    many.leave(1, 0);
    many.arrive(
        2,
        initialize("2025-06-18", &json!({"elicitation": {}})),
        true,
    );
    many.deeds();
    assert_eq!(hears(&mut many, &message, 0), []);
}

#[test]
fn what_is_one_host_s_own_is_kept_from_the_server() {
    let mut many = shared(2);
    for method in [
        "notifications/initialized",
        "notifications/roots/list_changed",
        "notifications/tasks/status",
    ] {
        assert_eq!(says(&mut many, 1, method, None, &json!({})), [], "{method}");
    }
    for (method, params) in [
        ("tasks/list", json!({})),
        ("tasks/result", json!({"taskId": "x"})),
        ("tools/call", json!({"task": {}})),
        ("server/discover", json!({})),
        ("subscriptions/listen", json!({})),
    ] {
        assert_eq!(
            places(&says(&mut many, 1, method, Some("x"), &params)),
            [1],
            "{method}"
        );
    }
    let status = json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": {"taskId": "x"}});
    assert_eq!(hears(&mut many, &status, 0), []);
    let done = json!({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}});
    assert_eq!(hears(&mut many, &done, 0), [], "nobody was shown it");
    says(&mut many, 2, "tools/call", Some("a"), &json!({}));
    let mut shows = ask(1);
    shows["params"]["elicitationId"] = json!("e");
    assert_eq!(places(&hears(&mut many, &shows, 0)), [2]);
    assert_eq!(places(&hears(&mut many, &done, 0)), [2]);
}

#[test]
fn of_a_page_that_several_were_shown_nobody_is_told() {
    let mut many = shared(2);
    let done = json!({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}});
    let required = |id: u64| {
        let data = json!({"elicitations": [{"elicitationId": "e"}]});
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32042, "message": "", "data": data}})
    };
    for (place, id) in [(1, 2), (2, 3)] {
        says(&mut many, place, "tools/call", Some("a"), &json!({}));
        hears(&mut many, &required(id), 0);
    }
    assert_eq!(hears(&mut many, &done, 0), []);
    says(&mut many, 1, "tools/call", Some("a"), &json!({}));
    hears(&mut many, &required(4), 0);
    assert_eq!(places(&hears(&mut many, &done, 0)), [1]);
}

#[test]
fn what_can_t_be_read_is_answered_to_its_sender_alone() {
    let mut many = shared(2);
    many.from_place(1, &Bytes::from_static(b"{\"id\": }"), 0);
    assert_eq!(places(&many.deeds()), [1]);
    for line in ["{\"id\": }", "[]", "null", ""] {
        many.from_server(&Bytes::copy_from_slice(line.as_bytes()), 0);
        assert_eq!(many.deeds(), [], "{line}");
    }
    let batch = line(
        &json!([{"jsonrpc": "2.0", "id": "a", "method": "ping"}, 7, {"jsonrpc": "2.0", "method": "x"}]),
    );
    many.from_place(2, &batch, 0);
    let deeds = many.deeds();
    assert_eq!(to_server(&deeds[0])["method"], "ping");
    assert_eq!(places(&deeds[1..2]), [2]);
    assert_eq!(to_server(&deeds[2])["method"], "x");
}

#[test]
fn what_can_t_be_read_is_answered_under_its_id_where_it_has_one() {
    let mut many = shared(2);
    let sends = |many: &mut Many, place, line: &'static str| {
        many.from_place(place, &Bytes::from_static(line.as_bytes()), 0);
        many.deeds()
    };
    let to_place = |deeds: Vec<Deed>| {
        let [Deed::Place(1, line)] = &deeds[..] else {
            panic!("{deeds:?}")
        };
        let answer: Value = serde_json::from_slice(line).expect("JSON");
        assert_eq!(answer["error"]["code"], -32700);
        answer["id"].clone()
    };
    let request = r#"{"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {]}"#;
    assert_eq!(to_place(sends(&mut many, 1, request)), "a");
    says(&mut many, 1, "tools/call", Some("a"), &json!({}));
    assert_eq!(
        to_place(sends(&mut many, 1, request)),
        Value::Null,
        "a call of this name is under way"
    );
    // The malformed answer of another place is none.
    assert_eq!(places(&hears(&mut many, &ask(7), 0)), [1]);
    let answer = r#"{"jsonrpc": "2.0", "id": 7, "result": {]}"#;
    assert_eq!(sends(&mut many, 2, answer), []);
    assert!(is_refused(&sends(&mut many, 1, answer)));
    assert_eq!(
        sends(&mut many, 1, r#"{"jsonrpc": "2.0", "id": 7, "result": {}}"#),
        [],
        "it is over"
    );
}

#[test]
fn what_is_too_large_is_told_to_its_sender_or_to_who_waits_for_it() {
    let mut many = shared(2);
    says(&mut many, 1, "tools/call", Some("a"), &json!({}));
    hears(&mut many, &ask(7), 0);
    let answer: &[u8] = br#"{"jsonrpc": "2.0", "id": 7, "result": {"#;
    many.oversized_from_place(2, answer, b"}}", 0);
    assert_eq!(many.deeds(), []);
    many.oversized_from_place(1, answer, b"}}", 0);
    assert!(is_refused(&many.deeds()));
    many.oversized_from_place(
        2,
        br#"{"jsonrpc": "2.0", "id": "b", "method": "x", "params": {"#,
        b"}}",
        0,
    );
    assert_eq!(places(&many.deeds()), [2]);
    // A request of the server with the number of a call.
    many.oversized_from_server(
        br#"{"jsonrpc": "2.0", "id": 2, "method": "x", "params": {"#,
        b"}}",
        0,
    );
    let deeds = many.deeds();
    assert_eq!(
        (deeds.len(), to_server(&deeds[0])["id"].clone()),
        (1, json!(2))
    );
    many.oversized_from_server(
        br#"{"jsonrpc": "2.0", "method": "x", "params": {"#,
        b"}}",
        0,
    );
    assert_eq!(many.deeds(), []);
    many.oversized_from_server(br#"{"jsonrpc": "2.0", "id": 2, "result": {"#, b"}}", 0);
    assert_eq!(places(&many.deeds()), [1]);
}

#[test]
fn a_token_that_is_said_twice_reaches_nobody() {
    let mut many = shared(2);
    for params in [
        r#"{"_meta":{"progressToken":1},"_meta":{"progressToken":2}}"#,
        r#"{"_meta":{"progressToken":1,"progressToken":2}}"#,
        r#"{"_meta":{"progressToken":1,"io.modelcontextprotocol/subscriptionId":"a","io.modelcontextprotocol/subscriptionId":"b"}}"#,
    ] {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{params}}}"#);
        many.from_place(2, &Bytes::from(text), 0);
        let deeds = many.deeds();
        let [Deed::Place(2, answer)] = &deeds[..] else {
            panic!("{params}: {deeds:?}")
        };
        let answer: Value = serde_json::from_slice(answer).expect("JSON");
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!("x"), &json!(-32600)),
            "{params}"
        );
    }
    let fine = json!({"_meta": {"progressToken": null}, "arguments": {"_meta": {}}});
    assert_eq!(
        to_server(&says(&mut many, 2, "tools/call", Some("x"), &fine)[0])["method"],
        "tools/call"
    );
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":{"progressToken":2},"_meta":{}}}"#;
    many.arrive(3, Bytes::from(twice), false);
    assert!(matches!(&many.deeds()[..], [Deed::Own(3, _)]));
}
