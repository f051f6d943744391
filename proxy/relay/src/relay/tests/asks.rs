//! What the backend asks.

use super::*;

fn not_able(id: &str) -> String {
    let message = "Method not found: the host that is attached does not have this capability";
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"{message}"}}}}"#)
}

const GONE: &str = "the host disconnected before it answered; the outcome is unknown";

#[test]
fn an_ask_finds_its_way_back() {
    let mut bench = Bench::initialized();
    bench.backend(&ask("\"s\"", "elicitation/create"));
    bench.backend(&ask("0", "x"));
    assert_eq!(
        bench.front_gets(),
        [ask("1", "elicitation/create"), ask("2", "x")]
    );
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
    bench.relay.detach(0, false, bench.now);
    assert_eq!(bench.backend_gets(), [failed("1", GONE)]);
    bench.attach();
    bench.front(INITIALIZED);
    bench.front(&answer("1"));
    bench.front(&answer("2"));
    assert_eq!(
        bench.backend_gets(),
        [""; 0],
        "what was not handed out can't be answered"
    );
    assert_eq!(bench.front_gets(), [ask("2", "x")]);
    bench.front(&answer("2"));
    assert_eq!(bench.backend_gets(), [answer("2")]);
}

#[test]
fn an_ask_waits_for_a_host_and_fails_at_once_where_that_can_not_answer() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, false, bench.now);
    let methods = [
        "sampling/createMessage",
        "elicitation/create",
        "roots/list",
        "x",
    ];
    for (id, method) in (1..).zip(methods) {
        bench.backend(&ask(&id.to_string(), method));
    }
    bench.backend(&notice(1));
    assert_eq!(
        bench.backend_gets(),
        [""; 0],
        "they wait while nobody is there"
    );
    bench.reconnect(r#"{"roots":{}}"#);
    assert_eq!(
        bench.front_gets(),
        [ask("3", "roots/list"), ask("4", "x"), notice(1)]
    );
    assert_eq!(bench.backend_gets(), [not_able("1"), not_able("2")]);
    // And while it is there.
    bench.backend(&ask("5", "sampling/createMessage"));
    bench.backend(&ask("6", "roots/list"));
    assert_eq!(bench.front_gets(), [ask("6", "roots/list")]);
    assert_eq!(bench.backend_gets(), [not_able("5")]);
    for id in ["3", "4", "6"] {
        bench.front(&answer(id));
    }
    assert_eq!(
        bench.backend_gets(),
        [answer("3"), answer("4"), answer("6")]
    );
    // The next host can, and nothing is left for it.
    bench.reconnect(r#"{"sampling":{},"elicitation":{},"roots":{}}"#);
    assert_eq!(
        bench.front_gets(),
        [ask("7", "roots/list")],
        "that is the relay's own"
    );
    bench.backend(&ask("8", "sampling/createMessage"));
    assert_eq!(bench.front_gets(), [ask("8", "sampling/createMessage")]);
}

#[test]
fn an_ask_that_no_host_comes_for_fails() {
    let mut bench = Bench::initialized();
    bench.wait();
    bench.is_pinged();
    bench.relay.detach(0, false, bench.now);
    bench.backend(&ask("1", "elicitation/create"));
    assert_eq!(bench.relay.next_deadline(), Some(bench.now + 60_000));
    bench.wait();
    assert_eq!(
        bench.backend_gets(),
        [failed(
            "1",
            "no host that can answer was attached within 60000 ms"
        )]
    );
    bench.reconnect(r#"{"elicitation":{}}"#);
    assert_eq!(bench.front_gets(), [""; 0]);
}

/// The host that the backend was initialised by gets every ask: the backend knows what it can do.
#[test]
fn the_host_that_has_initialised_the_backend_answers_for_itself() {
    let mut bench = Bench::initialized();
    bench.backend(&ask("1", "sampling/createMessage"));
    assert_eq!(bench.front_gets(), [ask("1", "sampling/createMessage")]);
}

#[test]
fn an_ask_that_is_cancelled_before_anyone_saw_it_vanishes() {
    let cancelled = |id: &str| {
        format!(r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
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
    assert_eq!(
        bench.front_gets(),
        [r#"{"id":1,"method":"x","params":{"_meta":{"progressToken":1}}}"#]
    );
    bench.front(&progress("1"));
    bench.front(&progress("\"tok\""));
    assert_eq!(bench.backend_gets(), [progress("\"tok\"")]);
    assert_eq!(bench.dropped(), 1);
}

#[test]
fn a_ping_waits_for_a_host_like_every_request() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, false, bench.now);
    bench.backend(&ask("1", "ping"));
    assert!(bench.backend_gets().is_empty());
    bench.relay.attach(None, None, bench.now);
    bench.front(&ask("7", "tools/list"));
    assert_eq!(bench.front_gets(), [ask("1", "ping")]);
    bench.front(&answer("1"));
    assert_eq!(bench.backend_gets(), [ask("7", "tools/list"), answer("1")]);
}
