//! Ids, tokens, cancelling: who asked gets the answer, and nobody else.

use super::*;

#[test]
fn the_ids_of_a_first_connection_stay_and_later_ones_are_numbered_on() {
    let mut bench = Bench::initialized();
    for id in ["1", "2", "7"] {
        bench.front(&call(id));
    }
    assert_eq!(bench.backend_gets(), [call("1"), call("2"), call("7")]);
    bench.reconnect("{}");
    for id in ["1", "\"a\\u0062\"", "2147483648", "-3", "1.5", "40"] {
        bench.front(&call(id));
    }
    assert_eq!(
        bench.backend_gets(),
        [
            call("8"),
            call("9"),
            call("10"),
            call("11"),
            call("12"),
            call("40")
        ]
    );
    for id in ["12", "9", "\"10\"", "11.0", "40", "8"] {
        bench.backend(&answer(id));
    }
    let ids = ["1.5", "\"a\\u0062\"", "2147483648", "-3", "40", "1"];
    assert_eq!(bench.front_gets(), ids.map(answer));
}

#[test]
fn an_answer_to_a_former_front_is_parked_and_one_to_nobody_dropped() {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.reconnect("{}");
    bench.front(&call("1"));
    assert_eq!(bench.backend_gets(), [call("2")]);
    bench.now += 50;
    bench.backend(&answer("1"));
    bench.backend(&answer("1"));
    bench.backend(&answer("77"));
    bench.backend(&answer("\"x\""));
    assert_eq!(bench.front_gets(), [""; 0]);
    let view = bench.relay.view(bench.now + 5);
    assert_eq!(
        (view.dropped, view.parked.len(), view.calls.len()),
        (3, 1, 1)
    );
    let parked = &view.parked[0];
    assert_eq!(
        (
            &*parked.method,
            parked.took_ms,
            parked.age_ms,
            parked.failed
        ),
        ("tools/call", 50, 5, false)
    );
    assert_eq!(parked.bytes, answer("1").len());
}

#[test]
fn no_more_than_64_answers_are_parked() {
    let mut bench = Bench::initialized();
    for id in 1..=70 {
        bench.front(&call(&id.to_string()));
        bench.backend_gets();
    }
    bench.relay.detach(0, false, bench.now);
    for id in 1..=70 {
        bench.backend(&answer(&id.to_string()));
    }
    assert_eq!(bench.relay.view(bench.now).parked.len(), 64);
}

#[test]
fn progress_finds_its_token_until_the_front_is_gone() {
    let mut bench = Bench::initialized();
    let with = |id: &str, token: &str| {
        format!(
            r#"{{"params":{{"_meta":{{"x":1,"progressToken": {token} }},"a":[]}},"method":"tools/call","id":{id},"jsonrpc":"2.0"}}"#
        )
    };
    let progress = |token: &str| {
        format!(
            r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        )
    };
    bench.front(&with("\"q\"", "\"t\\n\""));
    assert_eq!(bench.backend_gets(), [with("1", "1")]);
    bench.backend(&progress("1"));
    bench.backend(&answer("1"));
    bench.backend(&progress("1"));
    assert_eq!(
        bench.front_gets(),
        [progress("\"t\\n\""), answer("\"q\""), progress("\"t\\n\"")]
    );
    bench.reconnect("{}");
    bench.front(&with("3", "3"));
    assert_eq!(bench.backend_gets(), [with("3", "3")]);
    bench.backend(&progress("1"));
    bench.backend(&progress("3"));
    bench.backend(&progress("\"what\""));
    assert_eq!(bench.front_gets(), [progress("3")]);
    assert_eq!(bench.dropped(), 2);
}

#[test]
fn tokens_are_bounded() {
    let mut bench = Bench::initialized();
    for id in 1..=1030 {
        bench.front(&format!(
            r#"{{"id":"s{id}","method":"m","params":{{"_meta":{{"progressToken":"t{id}"}}}}}}"#
        ));
        bench.backend_gets();
        bench.backend(&answer(&id.to_string()));
    }
    bench.front_gets();
    for id in [6, 7] {
        bench.backend(&format!(
            r#"{{"method":"notifications/progress","params":{{"progressToken":{id}}}}}"#
        ));
    }
    assert_eq!(
        bench.front_gets(),
        [r#"{"method":"notifications/progress","params":{"progressToken":"t7"}}"#]
    );
}

#[test]
fn a_cancelled_call_is_remembered_for_ten_minutes() {
    let cancelled = |id: &str| {
        format!(
            r#"{{"method":"notifications/cancelled","params":{{"requestId":{id},"reason":"r"}}}}"#
        )
    };
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.front(&call("\"b\""));
    bench.backend_gets();
    bench.front(&cancelled("\"b\""));
    bench.front(&cancelled("1"));
    bench.front(&cancelled("2"));
    assert_eq!(bench.backend_gets(), [cancelled("2"), cancelled("1")]);
    assert_eq!(bench.dropped(), 1);
    bench.backend(&answer("2"));
    assert_eq!(bench.front_gets(), [answer("\"b\"")]);
    let then = bench.now;
    bench.wait();
    bench.is_pinged();
    bench.wait();
    assert_eq!(bench.now - then, 600_000);
    bench.backend(&answer("1"));
    assert_eq!(bench.front_gets(), [""; 0]);
    assert_eq!(bench.relay.next_deadline(), None);
}

#[test]
fn a_new_front_can_not_cancel_what_a_former_one_asked() {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.reconnect("{}");
    bench.front(r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(bench.backend_gets(), [""; 0]);
}

#[test]
fn a_subscription_of_2026_is_told_by_the_hosts_own_id() {
    let mut bench = Bench::new();
    let listen =
        |id: &str| format!(r#"{{"id":{id},"method":"subscriptions/listen","params":{{}}}}"#);
    let told = |id: &str| {
        format!(
            r#"{{"method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    };
    bench.front(&listen("1"));
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&listen("1"));
    assert_eq!(bench.backend_gets(), [listen("1"), left("1"), listen("2")]);
    bench.backend(&told("1"));
    bench.backend(&told("2"));
    assert_eq!(bench.front_gets(), [told("1")]);
    assert_eq!(bench.dropped(), 1);
}

#[test]
fn a_subscription_of_2026_ends_under_the_hosts_own_id() {
    let mut bench = Bench::new();
    let listen =
        |id: &str| format!(r#"{{"id":{id},"method":"subscriptions/listen","params":{{}}}}"#);
    let told = |id: &str| {
        let meta = format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
        [
            format!(r#"{{"id":{id},"result":{{"resultType":"complete","_meta":{meta}}}}}"#),
            format!(
                r#"{{"method":"notifications/cancelled","params":{{"requestId":{id},"_meta":{meta}}}}}"#
            ),
        ]
    };
    for id in ["\"a\"", "\"b\""] {
        bench.front(&listen(id));
    }
    assert_eq!(bench.backend_gets(), [listen("1"), listen("2")]);
    bench.backend(&told("1")[0]);
    bench.backend(&told("2")[1]);
    assert_eq!(
        bench.front_gets(),
        [told("\"a\"")[0].clone(), told("\"b\"")[1].clone()]
    );
    // It is over.
    bench.backend(&told("2")[1]);
    assert_eq!((bench.front_gets(), bench.dropped()), (vec![], 1));
}

#[test]
fn methods_are_shown_in_short() {
    let mut bench = Bench::initialized();
    bench.front(&format!(
        r#"{{"id":1,"method":"\u001b[2J{}"}}"#,
        "ü".repeat(100)
    ));
    bench.front(&call("2"));
    let view = bench.relay.view(bench.now + 9);
    assert_eq!(view.calls[0].method, format!("[2J{}", "ü".repeat(61)));
    assert_eq!((view.calls[1].age_ms, view.calls[1].former), (9, false));
    assert!(
        !format!("{view:?}").contains("name"),
        "contents are never shown"
    );
}

#[test]
fn calls_of_former_fronts_are_not_remembered_without_end() {
    let mut bench = Bench::initialized();
    for id in 1..=1100 {
        bench.front(&call(&id.to_string()));
        bench.backend_gets();
    }
    bench.relay.detach(0, false, bench.now);
    assert_eq!(bench.relay.view(bench.now).calls.len(), 1024);
    bench.backend(&answer("76"));
    bench.backend(&answer("77"));
    assert_eq!(bench.relay.view(bench.now).parked.len(), 1);
}

#[test]
fn a_token_that_is_said_twice_is_not_passed_on() {
    let mut bench = Bench::initialized();
    for params in [
        r#"{"_meta":{"progressToken":1},"_meta":{}}"#,
        r#"{"_meta":{"progressToken":1,"progressToken":2}}"#,
    ] {
        bench.front(&format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#
        ));
        let answers = bench.front_gets();
        assert!(
            answers[0].contains(r#""id":7,"error":{"code":-32600"#),
            "{answers:?}"
        );
        assert_eq!(
            (answers.len(), bench.backend_gets()),
            (1, Vec::new()),
            "{params}"
        );
    }
    assert_eq!(bench.dropped(), 2);
}
