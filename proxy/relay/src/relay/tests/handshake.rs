//! The backend is initialised once.

use super::*;

#[test]
fn later_hosts_get_the_answer_that_the_first_one_got() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&initialize("\"x\"", "2025-11-25", "{}"));
    bench.is_pinged();
    bench.front(INITIALIZED);
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "\"x\"")]);
    assert_eq!(bench.backend_gets(), [""; 0]);
    assert_eq!(
        bench.relay.view(bench.now).state,
        mcp_sessiond_proto::backends::BackendState::Ready
    );
}

#[test]
fn a_host_that_comes_while_the_first_answer_is_pending_waits_for_it() {
    let mut bench = Bench::new();
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&initialize("5", "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets(), [""; 0]);
    bench.backend(&ANSWER.replace("ID", "0"));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "5")]);
    bench.front(INITIALIZED);
    assert_eq!(bench.backend_gets(), [INITIALIZED]);
}

#[test]
fn an_error_is_for_whoever_waits_and_is_not_kept() {
    let mut bench = Bench::new();
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&initialize("5", "2025-06-18", "{}"));
    bench.backend(&failed("0", "no"));
    assert_eq!(bench.front_gets(), [failed("5", "no")]);
    bench.front(&initialize("6", "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets(), [initialize("6", "2025-06-18", "{}")]);
    bench.backend(&ANSWER.replace("ID", "6"));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "6")]);
}

#[test]
fn a_host_that_is_too_old_gets_a_fresh_backend() {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.relay.detach(0, false, bench.now);
    bench.backend(&notice(1));
    bench.backend(&ask("1", "x"));
    bench.attach();
    bench.front(&initialize("0", "2024-11-05", "{}"));
    let effects = bench.relay.effects();
    let why =
        "the host speaks protocol 2024-11-05 at most, and the running server answered 2025-06-18";
    assert!(
        matches!(&effects[0], Effect::Say(words) if words.contains("2 messages")),
        "{effects:?}"
    );
    assert_eq!(
        effects[1..],
        [Effect::Replace {
            why: why.into(),
            hangs: false
        }]
    );
    assert_eq!(bench.backend_gets(), [""; 0]);
    bench.relay.backend_started(bench.now);
    assert_eq!(bench.backend_gets(), [initialize("2", "2024-11-05", "{}")]);
    bench.backend(&answer("1"));
    let old = ANSWER.replace("2025-06-18", "2024-11-05");
    bench.backend(&old.replace("ID", "2"));
    assert_eq!(bench.front_gets(), [old.replace("ID", "0")]);
    let view = bench.relay.view(bench.now);
    assert_eq!(
        (
            view.dropped,
            view.restarts,
            view.parked.len(),
            view.calls.len()
        ),
        (3, 1, 0, 0)
    );
}

#[test]
fn versions_are_compared_as_dates_or_for_equality() {
    let replaced = |first: &str, answered: &str, then: &str| {
        let mut bench = Bench::new();
        bench.front(&initialize("0", first, "{}"));
        bench.backend_gets();
        bench.backend(&ANSWER.replace("2025-06-18", answered).replace("ID", "0"));
        bench.relay.detach(0, false, bench.now);
        bench.attach();
        bench.front(&initialize("0", then, "{}"));
        !bench.relay.effects().is_empty()
    };
    assert!(!replaced("2025-11-25", "2025-06-18", "2025-06-18"));
    assert!(!replaced("2025-11-25", "2025-06-18", "2025-11-25"));
    assert!(replaced("2025-11-25", "2025-06-18", "2025-03-26"));
    assert!(
        !replaced("2024-11-05", "2025-06-18", "2024-11-05"),
        "what was good enough once is so again"
    );
    assert!(!replaced("DRAFT", "2025-06-18", "DRAFT"));
    assert!(replaced("DRAFT", "DRAFT", "ZRAFT"));
}

#[test]
fn a_version_that_is_no_date_is_not_told() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&initialize("0", "secret", "{}"));
    assert!(!format!("{:?}", bench.relay.effects()).contains("secret"));
}

#[test]
fn a_host_that_a_former_keeper_answered_notices_nothing() {
    let mut relay = Relay::new(LIMITS);
    let line = initialize("4", "2025-06-18", "{}");
    relay.attach(Some(line.into()), None, 0);
    relay.backend_started(0);
    let mut bench = Bench { relay, now: 0 };
    bench.front(&call("9"));
    assert_eq!(bench.backend_gets(), [initialize("1", "2025-06-18", "{}")]);
    assert!(!bench.relay.reads_front());
    bench.backend(&ANSWER.replace("ID", "1"));
    assert_eq!(bench.backend_gets(), [INITIALIZED.to_owned(), call("9")]);
    let changed =
        |what: &str| format!(r#"{{"jsonrpc":"2.0","method":"notifications/{what}/list_changed"}}"#);
    assert_eq!(bench.front_gets(), [changed("tools"), changed("prompts")]);
    bench.backend(&ask("1", "sampling/createMessage"));
    assert_eq!(
        bench.front_gets().len(),
        1,
        "the backend knows what this host can do"
    );
}

#[test]
fn initialized_is_said_once() {
    let mut bench = Bench::initialized();
    bench.front(INITIALIZED);
    assert_eq!(bench.backend_gets(), [""; 0]);
}

#[test]
fn a_host_that_a_former_keeper_answered_may_find_a_backend_that_has_begun() {
    let mut bench = Bench::new();
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.relay.attach(
        Some(initialize("4", "2025-06-18", "{}").into()),
        None,
        bench.now,
    );
    bench.backend(&ANSWER.replace("ID", "0"));
    assert_eq!(
        bench.front_gets().len(),
        2,
        "it has been answered, and is told to list again"
    );
    bench.relay.attach(
        Some(initialize("4", "2024-11-05", "{}").into()),
        None,
        bench.now,
    );
    assert!(matches!(
        &bench.relay.effects()[..],
        [Effect::Replace { .. }]
    ));
    bench.relay.backend_started(bench.now);
    assert_eq!(bench.backend_gets(), [initialize("1", "2024-11-05", "{}")]);
    bench.backend(
        &ANSWER
            .replace("2025-06-18", "2024-11-05")
            .replace("ID", "1"),
    );
    assert_eq!(bench.backend_gets(), [INITIALIZED]);
    assert_eq!(bench.front_gets().len(), 2);
}
