//! Who may share, and what becomes of who comes.

use super::*;

#[test]
fn who_can_do_more_shares_and_who_can_do_less_does_not() {
    let mut many = Many::new(false);
    let first = json!({"sampling": {"tools": {}}, "roots": {"listChanged": true}, "elicitation": {"url": false}});
    many.arrive(1, initialize("2025-11-25", &first), false);
    let told = to_server(&many.deeds()[0]);
    assert_eq!(
        told["params"]["capabilities"],
        json!({"sampling": {"tools": {}}, "elicitation": {"url": false}})
    );
    many.arrive(
        2,
        initialize(
            "2025-06-18",
            &json!({"sampling": {"tools": {}}, "elicitation": {}, "x": 1}),
        ),
        false,
    );
    assert_eq!(many.deeds(), [], "nobody knows the version yet");
    let deeds = hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": told["id"], "result": result()}),
        0,
    );
    assert_eq!(to_server(&deeds[0])["method"], "notifications/initialized");
    assert_eq!(deeds[1..], [Deed::Welcome(1), Deed::Welcome(2)]);
    for (capabilities, version) in [
        (json!({"sampling": {}, "elicitation": {}}), "2025-06-18"),
        (json!({"sampling": {"tools": {}}}), "2025-06-18"),
        (json!({}), "2025-11-25"),
        (first, "2025-03-26"),
    ] {
        many.arrive(3, initialize(version, &capabilities), false);
        assert!(
            matches!(&many.deeds()[..], [Deed::Own(3, _)]),
            "{capabilities} {version}"
        );
    }
    // What is one host's own is nobody's else.
    let answer = says(&mut many, 2, "initialize", Some("i"), &json!({}));
    let [Deed::Place(2, line)] = &answer[..] else {
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
    let mut many = Many::new(false);
    many.arrive(1, initialize("2025-06-18", &json!({})), false);
    many.arrive(2, initialize("2025-06-18", &json!({})), false);
    let id = to_server(&many.deeds()[0])["id"].clone();
    let error = json!({"code": -32602, "message": "no"});
    let deeds = hears(
        &mut many,
        &json!({"jsonrpc": "2.0", "id": id, "error": error}),
        0,
    );
    assert_eq!(deeds[0], Deed::Welcome(1));
    assert_eq!(to_server(&deeds[1])["method"], "initialize");
    let said = says(&mut many, 1, "initialize", Some("i"), &json!({}));
    let [Deed::Place(1, line)] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!(
        serde_json::from_slice::<Value>(line).expect("JSON")["error"],
        error
    );
}

#[test]
fn a_host_that_comes_again_to_a_server_that_refuses_it_is_to_come_later() {
    let mut many = Many::new(true);
    for attempt in 1..=3 {
        many.arrive(attempt, initialize("2025-06-18", &json!({})), true);
        let id = to_server(&many.deeds()[0])["id"].clone();
        if attempt == 3 {
            let deeds = hears(
                &mut many,
                &json!({"jsonrpc": "2.0", "id": id, "result": result()}),
                0,
            );
            assert_eq!(deeds[1], Deed::Welcome(3));
            return;
        }
        let error = json!({"code": -32602, "message": "no"});
        let deeds = hears(
            &mut many,
            &json!({"jsonrpc": "2.0", "id": id, "error": error}),
            0,
        );
        assert!(
            matches!(&deeds[..], [Deed::Later(of, _)] if *of == attempt),
            "{deeds:?}"
        );
        assert!(!many.is_shared_by(attempt));
    }
}

#[test]
fn hosts_of_a_server_that_is_stopped_before_it_has_answered_come_again_and_none_hears_of_it() {
    let mut many = Many::new(false);
    many.arrive(1, initialize("2025-06-18", &json!({})), false);
    many.arrive(2, initialize("2025-06-18", &json!({})), true);
    let id = to_server(&many.deeds()[0])["id"].clone();
    let stopped = crate::words::unknown(&id.to_string(), "the server was stopped");
    many.from_server(&stopped, 0);
    assert_eq!(many.deeds(), [Deed::Over]);
    assert!(!many.is_shared_by(1) && !many.is_shared_by(2));
}
