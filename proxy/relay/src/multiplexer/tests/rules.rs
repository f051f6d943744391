//! One rule after the other.

mod admission;

use super::*;

/// A server with so many clients, and what it was told so far is taken.
fn shared(clients: u64) -> Multiplexer {
    let mut multiplexer = Multiplexer::default();
    for client in 1..=clients {
        multiplexer.arrive(
            client,
            initialize("2025-06-18", &json!({"elicitation": {}})),
            false,
        );
        if client == 1 {
            multiplexer.from_server(
                &line(&json!({"jsonrpc": "2.0", "id": 1, "result": result()})),
                0,
            );
        }
    }
    multiplexer.effects();
    multiplexer
}

fn initialize(version: &str, capabilities: &Value) -> Bytes {
    let params = json!({"protocolVersion": version, "capabilities": capabilities});
    line(&json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": params}))
}

fn result() -> Value {
    json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}, "tasks": {}}})
}

fn says(
    multiplexer: &mut Multiplexer,
    client: u64,
    method: &str,
    id: Option<&str>,
    params: &Value,
) -> Vec<Effect> {
    let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
    if let Some(id) = id {
        message["id"] = json!(id);
    }
    multiplexer.from_client(client, &line(&message), 0);
    multiplexer.effects()
}

fn hears(multiplexer: &mut Multiplexer, message: &Value, now: u64) -> Vec<Effect> {
    multiplexer.from_server(&line(message), now);
    multiplexer.effects()
}

/// What the server was told, in this effect.
fn to_server(effect: &Effect) -> Value {
    let Effect::ToServer(line) = effect else {
        panic!("{effect:?}")
    };
    serde_json::from_slice(line).expect("JSON")
}

fn clients(effects: &[Effect]) -> Vec<u64> {
    effects
        .iter()
        .map(|effect| {
            if let Effect::ToClient(client, _) = effect {
                *client
            } else {
                panic!("{effect:?}")
            }
        })
        .collect()
}

fn ask(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {"message": "?"}})
}

fn is_refused(effects: &[Effect]) -> bool {
    effects.len() == 1 && to_server(&effects[0])["error"]["code"] == -32000
}

#[test]
fn an_ask_is_refused_where_it_can_t_be_known_whose_it_is() {
    let mut multiplexer = shared(2);
    says(&mut multiplexer, 1, "tools/call", Some("a"), &json!({}));
    assert_eq!(clients(&hears(&mut multiplexer, &ask(1), 0)), [1]);
    says(&mut multiplexer, 2, "tools/call", Some("a"), &json!({}));
    assert!(is_refused(&hears(&mut multiplexer, &ask(2), 0)));
    // The server may still be at work for one that is gone.
    multiplexer.leave(1, 0);
    assert_eq!(
        to_server(&multiplexer.effects()[0])["error"]["code"],
        -32000,
        "the ask that nobody answers any more"
    );
    assert!(is_refused(&hears(&mut multiplexer, &ask(3), 0)));
    // Both calls are number 2 and 3.
    hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": 2, "result": {}}),
        0,
    );
    assert!(
        is_refused(&hears(&mut multiplexer, &ask(4), RECENT_MS - 1)),
        "it may still be about what was answered"
    );
    assert_eq!(clients(&hears(&mut multiplexer, &ask(5), RECENT_MS)), [2]);
    hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": 3, "result": {}}),
        RECENT_MS,
    );
    assert!(
        is_refused(&hears(&mut multiplexer, &ask(6), RECENT_MS)),
        "nobody has a call"
    );
    says(&mut multiplexer, 2, "tools/call", Some("a"), &json!({}));
    assert!(
        is_refused(&hears(&mut multiplexer, &ask(7), 9 * RECENT_MS)),
        "it asks apart from calls"
    );
}

#[test]
fn a_call_that_was_cancelled_counts_until_it_is_answered() {
    let mut multiplexer = shared(2);
    says(&mut multiplexer, 1, "tools/call", Some("a"), &json!({}));
    says(
        &mut multiplexer,
        1,
        "notifications/cancelled",
        None,
        &json!({"requestId": "a"}),
    );
    says(&mut multiplexer, 2, "tools/call", Some("a"), &json!({}));
    assert!(is_refused(&hears(&mut multiplexer, &ask(1), 0)));
    assert!(is_refused(&hears(&mut multiplexer, &ask(2), 86_400_000)));
    hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": 2, "result": {}}),
        86_400_000,
    );
    assert_eq!(
        clients(&hears(&mut multiplexer, &ask(3), 86_400_000 + RECENT_MS)),
        [2]
    );
}

#[test]
fn where_too_many_calls_were_cancelled_nobody_is_asked_any_more() {
    let mut multiplexer = shared(2);
    let cancel = |multiplexer: &mut Multiplexer| {
        says(multiplexer, 1, "tools/call", Some("a"), &json!({}));
        says(
            multiplexer,
            1,
            "notifications/cancelled",
            None,
            &json!({"requestId": "a"}),
        );
    };
    (0..1024).for_each(|_| cancel(&mut multiplexer));
    assert_eq!(clients(&hears(&mut multiplexer, &ask(1), 0)), [1]);
    cancel(&mut multiplexer);
    assert!(is_refused(&hears(&mut multiplexer, &ask(2), 0)));
    // The first one was dropped, number 2. All others are answered.
    for number in 3..=1026 {
        hears(
            &mut multiplexer,
            &json!({"jsonrpc": "2.0", "id": number, "result": {}}),
            0,
        );
    }
    says(&mut multiplexer, 2, "tools/call", Some("a"), &json!({}));
    assert!(is_refused(&hears(&mut multiplexer, &ask(3), 86_400_000)));
}

#[test]
fn an_ask_is_refused_while_the_server_may_be_at_work_for_another_one_without_a_call_of_its() {
    let mut multiplexer = shared(2);
    let begin = |multiplexer: &mut Multiplexer, client| {
        says(multiplexer, client, "tools/call", Some("a"), &json!({}))
    };
    // A call that nothing is asked for counts as well, and is not asked about.
    begin(&mut multiplexer, 1);
    says(&mut multiplexer, 2, "tools/list", Some("l"), &json!({}));
    assert!(is_refused(&hears(&mut multiplexer, &ask(1), 0)));
    hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": 3, "result": {}}),
        0,
    );
    // A notification may make it ask.
    says(&mut multiplexer, 2, "notifications/x", None, &json!({}));
    assert!(is_refused(&hears(&mut multiplexer, &ask(2), RECENT_MS - 1)));
    assert_eq!(clients(&hears(&mut multiplexer, &ask(3), RECENT_MS)), [1]);
    // So may what the other one has answered, and what nobody answers any more.
    hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": 2, "result": {}}),
        RECENT_MS,
    );
    begin(&mut multiplexer, 2);
    assert!(
        is_refused(&hears(&mut multiplexer, &ask(4), 2 * RECENT_MS)),
        "one is asked"
    );
    multiplexer.from_client(
        1,
        &line(&json!({"jsonrpc": "2.0", "id": 3, "result": {}})),
        2 * RECENT_MS,
    );
    multiplexer.effects();
    assert!(
        is_refused(&hears(&mut multiplexer, &ask(5), 3 * RECENT_MS - 1)),
        "one was asked until just now"
    );
    assert_eq!(
        clients(&hears(&mut multiplexer, &ask(6), 3 * RECENT_MS)),
        [2]
    );
    hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": 4, "result": {}}),
        3 * RECENT_MS,
    );
    begin(&mut multiplexer, 1);
    multiplexer.leave(2, 4 * RECENT_MS);
    multiplexer.effects();
    assert!(
        is_refused(&hears(&mut multiplexer, &ask(7), 5 * RECENT_MS - 1)),
        "one has gone without an answer"
    );
    assert_eq!(
        clients(&hears(&mut multiplexer, &ask(8), 5 * RECENT_MS)),
        [1]
    );
    // Nothing is asked for a list: it asks apart from calls.
    hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
        5 * RECENT_MS,
    );
    says(&mut multiplexer, 1, "tools/list", Some("l"), &json!({}));
    assert!(is_refused(&hears(&mut multiplexer, &ask(9), 9 * RECENT_MS)));
    begin(&mut multiplexer, 1);
    assert!(is_refused(&hears(
        &mut multiplexer,
        &ask(10),
        9 * RECENT_MS
    )));
}

#[test]
fn nobody_answers_for_another() {
    let mut multiplexer = shared(2);
    says(&mut multiplexer, 1, "tools/call", Some("a"), &json!({}));
    hears(&mut multiplexer, &ask(7), 0);
    let answer = line(&json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    multiplexer.from_client(2, &answer, 0);
    assert_eq!(multiplexer.effects(), []);
    multiplexer.from_client(1, &answer, 0);
    assert_eq!(multiplexer.effects(), [Effect::ToServer(answer)]);
}

#[test]
fn a_subscription_ends_with_its_last_place() {
    let mut multiplexer = shared(3);
    let (uri, other) = (json!({"uri": "x:/a"}), json!({"uri": "x:/b"}));
    let updated = |uri: &str| json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}});
    for client in [1, 2] {
        assert_eq!(
            to_server(
                &says(
                    &mut multiplexer,
                    client,
                    "resources/subscribe",
                    Some("s"),
                    &uri
                )[0]
            )["params"],
            uri
        );
    }
    says(
        &mut multiplexer,
        3,
        "resources/subscribe",
        Some("s"),
        &other,
    );
    assert_eq!(
        clients(&hears(&mut multiplexer, &updated("x:/a"), 0)),
        [1, 2]
    );
    assert_eq!(
        clients(&hears(&mut multiplexer, &updated("x:/a/below"), 0)),
        [1, 2]
    );
    assert_eq!(hears(&mut multiplexer, &updated("x:/ab"), 0), []);
    assert_eq!(
        clients(&says(
            &mut multiplexer,
            1,
            "resources/unsubscribe",
            Some("u"),
            &uri
        )),
        [1],
        "another one has it"
    );
    assert_eq!(clients(&hears(&mut multiplexer, &updated("x:/a"), 0)), [2]);
    multiplexer.leave(2, 0);
    let left = multiplexer.effects();
    let told = to_server(&left[0]);
    assert_eq!(
        (&told["method"], &told["params"]),
        (&json!("resources/unsubscribe"), &uri)
    );
    // Nobody hears of the answer.
    assert_eq!(
        hears(
            &mut multiplexer,
            &json!({"jsonrpc": "2.0", "id": told["id"], "result": {}}),
            0
        ),
        []
    );
    // One that fails is none.
    let asked =
        to_server(&says(&mut multiplexer, 1, "resources/subscribe", Some("s"), &uri)[0])["id"]
            .clone();
    hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": asked, "error": {"code": 1, "message": ""}}),
        0,
    );
    assert_eq!(hears(&mut multiplexer, &updated("x:/a"), 0), []);
}

#[test]
fn everybody_hears_of_lists_and_of_nothing_else() {
    let notification =
        |method: &str| json!({"jsonrpc": "2.0", "method": method, "params": {"data": "a secret"}});
    let unaddressed = ["notifications/message", "notifications/x", "x"];
    let mut multiplexer = shared(1);
    for method in unaddressed {
        let message = notification(method);
        assert_eq!(
            hears(&mut multiplexer, &message, 0),
            [Effect::ToClient(1, line(&message))],
            "it has no other host"
        );
    }
    // From now on nobody knows whom such a thing concerns, also when there is one host again.
    multiplexer.arrive(
        2,
        initialize("2025-06-18", &json!({"elicitation": {}})),
        false,
    );
    multiplexer.effects();
    for method in unaddressed {
        assert_eq!(
            hears(&mut multiplexer, &notification(method), 0),
            [],
            "{method}"
        );
    }
    for list in ["tools", "prompts", "resources"] {
        let changed = format!("notifications/{list}/list_changed");
        let bare = line(&json!({"jsonrpc": "2.0", "method": changed}));
        let told = [Effect::ToClient(1, bare.clone()), Effect::ToClient(2, bare)];
        assert_eq!(hears(&mut multiplexer, &notification(&changed), 0), told);
    }
    multiplexer.leave(2, 0);
    multiplexer.effects();
    for method in unaddressed {
        assert_eq!(
            hears(&mut multiplexer, &notification(method), 0),
            [],
            "{method}"
        );
    }
    assert_eq!(multiplexer.withheld(), 6);
}

#[test]
fn who_finds_a_server_that_had_hosts_before_is_not_its_only_one() {
    let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
    let mut multiplexer = shared(1);
    multiplexer.leave(1, 0);
    multiplexer.arrive(
        2,
        initialize("2025-06-18", &json!({"elicitation": {}})),
        true,
    );
    multiplexer.effects();
    assert_eq!(hears(&mut multiplexer, &message, 0), []);
}

#[test]
fn what_is_one_host_s_own_is_kept_from_the_server() {
    let mut multiplexer = shared(2);
    for method in [
        "notifications/initialized",
        "notifications/roots/list_changed",
        "notifications/tasks/status",
    ] {
        assert_eq!(
            says(&mut multiplexer, 1, method, None, &json!({})),
            [],
            "{method}"
        );
    }
    for (method, params) in [
        ("tasks/list", json!({})),
        ("tasks/result", json!({"taskId": "x"})),
        ("tools/call", json!({"task": {}})),
        ("server/discover", json!({})),
        ("subscriptions/listen", json!({})),
    ] {
        assert_eq!(
            clients(&says(&mut multiplexer, 1, method, Some("x"), &params)),
            [1],
            "{method}"
        );
    }
    let status = json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": {"taskId": "x"}});
    assert_eq!(hears(&mut multiplexer, &status, 0), []);
    let done = json!({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}});
    assert_eq!(hears(&mut multiplexer, &done, 0), [], "nobody was shown it");
    says(&mut multiplexer, 2, "tools/call", Some("a"), &json!({}));
    let mut shows = ask(1);
    shows["params"]["elicitationId"] = json!("e");
    assert_eq!(clients(&hears(&mut multiplexer, &shows, 0)), [2]);
    assert_eq!(clients(&hears(&mut multiplexer, &done, 0)), [2]);
}

#[test]
fn of_a_page_that_several_were_shown_nobody_is_told() {
    let mut multiplexer = shared(2);
    let done = json!({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}});
    let required = |id: u64| {
        let data = json!({"elicitations": [{"elicitationId": "e"}]});
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32042, "message": "", "data": data}})
    };
    for (client, id) in [(1, 2), (2, 3)] {
        says(
            &mut multiplexer,
            client,
            "tools/call",
            Some("a"),
            &json!({}),
        );
        hears(&mut multiplexer, &required(id), 0);
    }
    assert_eq!(hears(&mut multiplexer, &done, 0), []);
    says(&mut multiplexer, 1, "tools/call", Some("a"), &json!({}));
    hears(&mut multiplexer, &required(4), 0);
    assert_eq!(clients(&hears(&mut multiplexer, &done, 0)), [1]);
}

#[test]
fn what_can_t_be_read_is_answered_to_its_sender_alone() {
    let mut multiplexer = shared(2);
    multiplexer.from_client(1, &Bytes::from_static(b"{\"id\": }"), 0);
    assert_eq!(clients(&multiplexer.effects()), [1]);
    for line in ["{\"id\": }", "[]", "null", ""] {
        multiplexer.from_server(&Bytes::copy_from_slice(line.as_bytes()), 0);
        assert_eq!(multiplexer.effects(), [], "{line}");
    }
    let batch = line(
        &json!([{"jsonrpc": "2.0", "id": "a", "method": "ping"}, 7, {"jsonrpc": "2.0", "method": "x"}]),
    );
    multiplexer.from_client(2, &batch, 0);
    let effects = multiplexer.effects();
    assert_eq!(to_server(&effects[0])["method"], "ping");
    assert_eq!(clients(&effects[1..2]), [2]);
    assert_eq!(to_server(&effects[2])["method"], "x");
}

#[test]
fn what_can_t_be_read_is_answered_under_its_id_where_it_has_one() {
    let mut multiplexer = shared(2);
    let sends = |multiplexer: &mut Multiplexer, client, line: &'static str| {
        multiplexer.from_client(client, &Bytes::from_static(line.as_bytes()), 0);
        multiplexer.effects()
    };
    let to_place = |effects: Vec<Effect>| {
        let [Effect::ToClient(1, line)] = &effects[..] else {
            panic!("{effects:?}")
        };
        let answer: Value = serde_json::from_slice(line).expect("JSON");
        assert_eq!(answer["error"]["code"], -32700);
        answer["id"].clone()
    };
    let request = r#"{"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {]}"#;
    assert_eq!(to_place(sends(&mut multiplexer, 1, request)), "a");
    says(&mut multiplexer, 1, "tools/call", Some("a"), &json!({}));
    assert_eq!(
        to_place(sends(&mut multiplexer, 1, request)),
        Value::Null,
        "a call of this name is under way"
    );
    // The malformed answer of another client is none.
    assert_eq!(clients(&hears(&mut multiplexer, &ask(7), 0)), [1]);
    let answer = r#"{"jsonrpc": "2.0", "id": 7, "result": {]}"#;
    assert_eq!(sends(&mut multiplexer, 2, answer), []);
    assert!(is_refused(&sends(&mut multiplexer, 1, answer)));
    assert_eq!(
        sends(
            &mut multiplexer,
            1,
            r#"{"jsonrpc": "2.0", "id": 7, "result": {}}"#
        ),
        [],
        "it is over"
    );
}

#[test]
fn what_is_too_large_is_told_to_its_sender_or_to_who_waits_for_it() {
    let mut multiplexer = shared(2);
    says(&mut multiplexer, 1, "tools/call", Some("a"), &json!({}));
    hears(&mut multiplexer, &ask(7), 0);
    let answer: &[u8] = br#"{"jsonrpc": "2.0", "id": 7, "result": {"#;
    multiplexer.oversized_from_client(2, answer, b"}}", 0);
    assert_eq!(multiplexer.effects(), []);
    multiplexer.oversized_from_client(1, answer, b"}}", 0);
    assert!(is_refused(&multiplexer.effects()));
    multiplexer.oversized_from_client(
        2,
        br#"{"jsonrpc": "2.0", "id": "b", "method": "x", "params": {"#,
        b"}}",
        0,
    );
    assert_eq!(clients(&multiplexer.effects()), [2]);
}

#[test]
fn a_token_that_is_said_twice_reaches_nobody() {
    let mut multiplexer = shared(2);
    for params in [
        r#"{"_meta":{"progressToken":1},"_meta":{"progressToken":2}}"#,
        r#"{"_meta":{"progressToken":1,"progressToken":2}}"#,
        r#"{"_meta":{"progressToken":1,"io.modelcontextprotocol/subscriptionId":"a","io.modelcontextprotocol/subscriptionId":"b"}}"#,
    ] {
        let text =
            format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{params}}}"#);
        multiplexer.from_client(2, &Bytes::from(text), 0);
        let effects = multiplexer.effects();
        let [Effect::ToClient(2, answer)] = &effects[..] else {
            panic!("{params}: {effects:?}")
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
        to_server(&says(&mut multiplexer, 2, "tools/call", Some("x"), &fine)[0])["method"],
        "tools/call"
    );
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"_meta":{"progressToken":2},"_meta":{}}}"#;
    multiplexer.arrive(3, Bytes::from(twice), false);
    assert!(matches!(&multiplexer.effects()[..], [Effect::Own(3, _)]));
}
