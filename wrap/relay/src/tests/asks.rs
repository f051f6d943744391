//! What the backend asks.

use super::*;

const GONE: &str = "the host disconnected before it answered; the outcome is unknown";

#[test]
fn an_ask_finds_its_way_back() {
    let mut bench = Bench::initialized();
    bench.backend(&ask("\"s\"", "elicitation/create"));
    bench.backend(&ask("0", "x"));
    assert_eq!(bench.front_gets(), [ask("1", "elicitation/create"), ask("2", "x")]);
    bench.front(&answer("2"));
    bench.front(&answer("2"));
    bench.front(&answer("1"));
    assert_eq!(bench.backend_gets(), [answer("0"), answer("\"s\"")]);
    assert_eq!(bench.dropped(), 1);
}

#[test]
fn an_ask_that_a_former_front_had_is_failed() {
    let mut bench = Bench::initialized();
    bench.backend(&ask("1", "x"));
    assert_eq!(bench.front_gets(), [ask("1", "x")]);
    bench.backend(&ask("2", "x"));
    bench.relay.detach(0, bench.now);
    assert_eq!(bench.backend_gets(), [failed("1", GONE)]);
    bench.attach();
    bench.front(INITIALIZED);
    bench.front(&answer("1"));
    bench.front(&answer("2"));
    assert_eq!(bench.backend_gets(), [""; 0], "what was not handed out can't be answered");
    assert_eq!(bench.front_gets(), [ask("2", "x")]);
    bench.front(&answer("2"));
    assert_eq!(bench.backend_gets(), [answer("2")]);
}

#[test]
fn an_ask_waits_for_a_host_that_can_and_others_pass_it() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, bench.now);
    let methods = ["sampling/createMessage", "elicitation/create", "roots/list", "x"];
    for (id, method) in (1..).zip(methods) {
        bench.backend(&ask(&id.to_string(), method));
    }
    bench.backend(&notice(1));
    bench.reconnect(r#"{"roots":{}}"#);
    assert_eq!(bench.front_gets(), [ask("3", "roots/list"), ask("4", "x"), notice(1)]);
    bench.now += 1000;
    bench.front(&answer("3"));
    bench.front(&answer("4"));
    assert_eq!(bench.backend_gets(), [answer("3"), answer("4")]);
    bench.reconnect(r#"{"sampling":{},"elicitation":null}"#);
    assert_eq!(bench.front_gets(), [ask("1", "sampling/createMessage")]);
    assert_eq!(bench.relay.next_deadline(), Some(61_000));
    bench.wait();
    let words = "no host that can answer was attached within 60000 ms";
    assert_eq!(bench.backend_gets(), [failed("2", words)]);
    bench.front(&answer("1"));
    bench.backend_gets();
    bench.reconnect(r#"{"elicitation":{}}"#);
    assert_eq!(bench.front_gets(), [""; 0]);
}

#[test]
fn an_ask_that_is_cancelled_before_anyone_saw_it_vanishes() {
    let cancelled =
        |id: &str| format!(r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    let mut bench = Bench::initialized();
    bench.backend(&ask("\"a\"", "x"));
    bench.backend(&cancelled("\"a\""));
    bench.backend(&cancelled("\"a\""));
    assert_eq!(bench.front_gets(), [""; 0]);
    assert_eq!(bench.dropped(), 1);
    bench.backend(&ask("\"b\"", "x"));
    assert_eq!(bench.front_gets(), [ask("2", "x")]);
    bench.backend(&cancelled("\"b\""));
    assert_eq!(bench.front_gets(), [cancelled("2")]);
    bench.front(&answer("2"));
    assert_eq!(bench.backend_gets(), [answer("\"b\"")]);
}

#[test]
fn progress_of_an_ask_goes_back_too() {
    let progress = |token: &str| {
        format!(r#"{{"method":"notifications/progress","params":{{"progressToken":{token}}}}}"#)
    };
    let mut bench = Bench::initialized();
    bench.backend(r#"{"id":"a","method":"x","params":{"_meta":{"progressToken":"tok"}}}"#);
    assert_eq!(bench.front_gets(), [r#"{"id":1,"method":"x","params":{"_meta":{"progressToken":1}}}"#]);
    bench.front(&progress("1"));
    bench.front(&progress("\"tok\""));
    assert_eq!(bench.backend_gets(), [progress("\"tok\"")]);
    assert_eq!(bench.dropped(), 1);
}

#[test]
fn a_ping_waits_for_a_host_like_every_request() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, bench.now);
    bench.backend(&ask("1", "ping"));
    assert!(bench.backend_gets().is_empty());
    bench.relay.attach(None, bench.now);
    bench.front(&ask("7", "tools/list"));
    assert_eq!(bench.front_gets(), [ask("1", "ping")]);
    bench.front(&answer("1"));
    assert_eq!(bench.backend_gets(), [ask("7", "tools/list"), answer("1")]);
}
