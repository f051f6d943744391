//! Who may share, and what becomes of who comes.

use super::*;

#[test]
fn who_can_do_more_shares_and_who_can_do_less_does_not() {
    let mut multiplexer = Multiplexer::default();
    let first = json!({"sampling": {"tools": {}}, "roots": {"listChanged": true}, "elicitation": {"url": false}});
    multiplexer.arrive(1, initialize("2025-11-25", &first), false);
    let told = to_server(&multiplexer.effects()[0]);
    assert_eq!(
        told["params"]["capabilities"],
        json!({"sampling": {"tools": {}}, "elicitation": {"url": false}})
    );
    multiplexer.arrive(
        2,
        initialize(
            "2025-06-18",
            &json!({"sampling": {"tools": {}}, "elicitation": {}, "x": 1}),
        ),
        false,
    );
    assert_eq!(multiplexer.effects(), [], "nobody knows the version yet");
    let effects = hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": told["id"], "result": result()}),
        0,
    );
    assert_eq!(
        to_server(&effects[0])["method"],
        "notifications/initialized"
    );
    assert_eq!(effects[1..], [Effect::Admit(1), Effect::Admit(2)]);
    for (capabilities, version) in [
        (json!({"sampling": {}, "elicitation": {}}), "2025-06-18"),
        (json!({"sampling": {"tools": {}}}), "2025-06-18"),
        (json!({}), "2025-11-25"),
        (first, "2025-03-26"),
    ] {
        multiplexer.arrive(3, initialize(version, &capabilities), false);
        assert!(
            matches!(&multiplexer.effects()[..], [Effect::Own(3, _)]),
            "{capabilities} {version}"
        );
    }
    // Who refuses whatever the server asks shares, too.
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "_meta": {"mcp-sessiond/refuses": true},
    });
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    multiplexer.arrive(4, Bytes::from(line.to_string()), false);
    assert_eq!(multiplexer.effects(), [Effect::Admit(4)]);
    // What is one host's own is nobody's else.
    let answer = says(&mut multiplexer, 2, "initialize", Some("i"), &json!({}));
    let [Effect::ToClient(2, line)] = &answer[..] else {
        panic!("{answer:?}")
    };
    let answer: Value = serde_json::from_slice(line).expect("JSON");
    assert_eq!(
        answer["result"]["capabilities"],
        json!({"tools": {"listChanged": true}})
    );
}

#[test]
fn a_refusal_is_the_first_host_s_and_the_next_one_tries_again() {
    let mut multiplexer = Multiplexer::default();
    multiplexer.arrive(1, initialize("2025-06-18", &json!({})), false);
    multiplexer.arrive(2, initialize("2025-06-18", &json!({})), false);
    let id = to_server(&multiplexer.effects()[0])["id"].clone();
    let error = json!({"code": -32602, "message": "no"});
    let effects = hears(
        &mut multiplexer,
        &json!({"jsonrpc": "2.0", "id": id, "error": error}),
        0,
    );
    assert_eq!(effects[0], Effect::Admit(1));
    assert_eq!(to_server(&effects[1])["method"], "initialize");
    let said = says(&mut multiplexer, 1, "initialize", Some("i"), &json!({}));
    let [Effect::ToClient(1, line)] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(
        serde_json::from_slice::<Value>(line).expect("JSON")["error"],
        error
    );
}

#[test]
fn a_host_that_comes_again_to_a_server_that_refuses_it_is_to_come_later() {
    let mut multiplexer = Multiplexer::default();
    for attempt in 1..=3 {
        multiplexer.arrive(attempt, initialize("2025-06-18", &json!({})), true);
        let id = to_server(&multiplexer.effects()[0])["id"].clone();
        if attempt == 3 {
            let effects = hears(
                &mut multiplexer,
                &json!({"jsonrpc": "2.0", "id": id, "result": result()}),
                0,
            );
            assert_eq!(effects[1], Effect::Admit(3));
            return;
        }
        let error = json!({"code": -32602, "message": "no"});
        let effects = hears(
            &mut multiplexer,
            &json!({"jsonrpc": "2.0", "id": id, "error": error}),
            0,
        );
        assert!(
            matches!(&effects[..], [Effect::Later(of, _)] if *of == attempt),
            "{effects:?}"
        );
        assert!(!multiplexer.is_shared_by(attempt));
    }
}

#[test]
fn hosts_of_a_server_that_is_stopped_before_it_has_answered_come_again_and_none_hears_of_it() {
    let mut multiplexer = Multiplexer::default();
    multiplexer.arrive(1, initialize("2025-06-18", &json!({})), false);
    multiplexer.arrive(2, initialize("2025-06-18", &json!({})), true);
    let id = to_server(&multiplexer.effects()[0])["id"].clone();
    let stopped = mcp_sessiond_jsonrpc::answers::unknown(&id.to_string(), "the server was stopped");
    multiplexer.from_server(&stopped, 0);
    assert_eq!(multiplexer.effects(), [Effect::End]);
    assert!(!multiplexer.is_shared_by(1) && !multiplexer.is_shared_by(2));
}
