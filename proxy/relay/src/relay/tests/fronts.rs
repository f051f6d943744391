//! Fronts come and go, and nothing is lost, doubled or misdelivered.

use super::*;

#[test]
fn what_comes_while_nobody_is_there_waits_for_a_front_that_is_ready() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, false, bench.now);
    bench.backend(&notice(1));
    bench.backend(&notice(2));
    let attached = bench.attach();
    assert_eq!(
        (attached.resumed, attached.waiting, attached.lost),
        (true, 2, 0)
    );
    bench.front(&initialize("9", "2025-06-18", "{}"));
    bench.is_pinged();
    bench.front(&ask("10", "ping"));
    assert_eq!(bench.backend_gets(), [ask("10", "ping")]);
    bench.backend(&notice(3));
    bench.backend(&answer("10"));
    assert_eq!(
        bench.front_gets(),
        [ANSWER.replace("ID", "9"), answer("10")]
    );
    bench.front(INITIALIZED);
    assert_eq!(bench.front_gets(), [1, 2, 3].map(notice));
}

#[test]
fn a_host_of_2026_is_ready_when_it_asks_for_something() {
    let mut bench = Bench::new();
    bench.relay.detach(0, false, bench.now);
    bench.backend(&notice(1));
    bench.attach();
    bench.front(&ask("1", "server/discover"));
    bench.backend(&notice(2));
    assert_eq!(bench.backend_gets(), [ask("1", "server/discover")]);
    bench.backend(&answer("1"));
    assert_eq!(bench.front_gets(), [answer("1")]);
    bench.front(&ask("2", "tools/list"));
    assert_eq!(bench.front_gets(), [notice(1), notice(2)]);
}

#[test]
fn a_first_front_is_ready_at_once() {
    let mut bench = Bench::new();
    bench.backend(&notice(1));
    bench.backend(&ask("1", "roots/list"));
    assert_eq!(bench.front_gets(), [notice(1), ask("1", "roots/list")]);
}

#[test]
fn what_was_not_pulled_stays_except_for_what_is_the_fronts_own() {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.front(r#"{"id":2,"method":"x","params":{"_meta":{"progressToken":2}}}"#);
    bench.backend_gets();
    bench.backend(&notice(1));
    bench.backend(r#"{"method":"notifications/progress","params":{"progressToken":2}}"#);
    bench.backend(&answer("1"));
    bench.backend(&ask("1", "x"));
    bench.backend(&notice(2));
    bench.front(&initialize("7", "2025-06-18", "{}"));
    bench.relay.detach(3, false, bench.now);
    let view = bench.relay.view(bench.now);
    assert_eq!(
        (
            view.waiting,
            view.parked.len(),
            view.dropped,
            view.lost_messages
        ),
        (3, 1, 1, 3)
    );
    assert_eq!(bench.attach().lost, 3);
    bench.front(INITIALIZED);
    assert_eq!(bench.front_gets(), [notice(1), ask("1", "x"), notice(2)]);
    bench.relay.detach(0, false, bench.now);
    assert_eq!(bench.attach().lost, 0);
    assert_eq!(bench.relay.view(bench.now).lost_messages, 3);
}

#[test]
fn the_backend_is_not_read_while_as_much_waits_as_may() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, false, bench.now);
    for number in 0..8 {
        assert!(bench.relay.reads_backend());
        bench.backend(&notice(number));
    }
    assert!(!bench.relay.reads_backend());
    bench.attach();
    assert!(!bench.relay.reads_backend());
    bench.front(INITIALIZED);
    assert_eq!(bench.front_gets().len(), 8);
    assert!(bench.relay.reads_backend());
    bench.relay.detach(0, false, bench.now);
    bench.backend(&format!(
        r#"{{"method":"notifications/x","params":"{}"}}"#,
        "x".repeat(5000)
    ));
    assert!(!bench.relay.reads_backend());
}

#[test]
fn a_front_that_waits_for_an_answer_behind_a_full_queue_gets_what_is_kept() {
    let mut bench = Bench::new();
    bench.relay.detach(0, false, bench.now);
    for number in 0..8 {
        bench.backend(&notice(number));
    }
    bench.attach();
    bench.front(&ask("1", "server/discover"));
    assert_eq!(bench.front_gets().len(), 0, "it waits for nothing yet");
    assert_eq!(bench.backend_gets().len(), 1);
    assert_eq!(bench.front_gets().len(), 8);
    assert!(bench.relay.reads_backend());
}

#[test]
fn what_a_front_that_leaves_listens_to_is_cancelled() {
    let mut bench = Bench::initialized();
    bench.front(&ask("7", "subscriptions/listen"));
    bench.front(&call("8"));
    assert_eq!(
        bench.backend_gets(),
        [ask("7", "subscriptions/listen"), call("8")]
    );
    bench.relay.detach(0, false, bench.now);
    assert_eq!(bench.backend_gets(), [left("7")], "a call goes on");
    bench.backend(&answer("7"));
    bench.attach();
    bench.front(INITIALIZED);
    assert_eq!(bench.front_gets(), [""; 0]);
    bench.relay.detach(0, false, bench.now);
    assert_eq!(bench.backend_gets(), [""; 0], "once");
}

#[test]
fn a_slow_reader_holds_the_other_side_up() {
    let limits = Limits {
        queue_messages: 1000,
        queue_bytes: 1 << 30,
        ..LIMITS
    };
    let mut bench = Bench::initialized();
    bench.relay.limits = limits;
    let large = format!(
        r#"{{"method":"notifications/x","params":"{}"}}"#,
        "x".repeat(40_000)
    );
    for _ in 0..2 {
        assert!(bench.relay.reads_backend() && bench.relay.reads_front());
        bench.backend(&large);
        bench.front(&large);
    }
    assert!(!bench.relay.reads_backend() && !bench.relay.reads_front());
    bench.front_gets();
    bench.backend_gets();
    assert!(bench.relay.reads_backend() && bench.relay.reads_front());
}

#[test]
fn traffic_is_counted_with_its_newlines() {
    let mut bench = Bench::initialized();
    let before = bench.relay.view(bench.now);
    bench.front(&call("1"));
    assert_eq!(bench.relay.view(bench.now).to_backend, before.to_backend);
    bench.backend_gets();
    bench.backend(&answer("1"));
    let after = bench.relay.view(bench.now);
    assert_eq!(
        after.to_backend.bytes - before.to_backend.bytes,
        call("1").len() as u64 + 1
    );
    assert_eq!(
        after.from_backend.bytes - before.from_backend.bytes,
        answer("1").len() as u64 + 1
    );
    assert_eq!(
        after.from_backend.messages - before.from_backend.messages,
        1
    );
}
