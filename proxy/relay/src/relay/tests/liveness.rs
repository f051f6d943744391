//! A host that comes back is answered from memory when the backend has shown that it listens.

use super::*;

const WHY: &str = "the running server did not answer a ping within 1500 ms";

/// The ping that the backend gets, if it gets anything. No number of a call is used up by it.
fn ping(bench: &mut Bench) -> Option<String> {
    let mut got = bench.backend_gets();
    assert!(got.len() < 2, "{got:?}");
    let ping = got.pop()?;
    let id = ping
        .strip_prefix(r#"{"jsonrpc":"2.0","id":"#)?
        .strip_suffix(r#","method":"ping"}"#)?;
    assert!(
        id.parse::<u64>()
            .is_ok_and(|id| (i32::MAX as u64 - 1024..=i32::MAX as u64).contains(&id)),
        "{id}"
    );
    Some(id.to_owned())
}

/// The host goes, and comes back.
fn come_back(bench: &mut Bench, orderly: bool) {
    bench.relay.detach(0, orderly, bench.now);
    assert!(bench.attach().resumed);
    bench.front(&initialize("7", "2025-06-18", "{}"));
}

/// A backend that is known to answer pings.
fn answering() -> Bench {
    let mut bench = Bench::initialized();
    assert_eq!(bench.relay.next_deadline(), Some(bench.now + 1500));
    bench.wait();
    bench.is_pinged();
    assert_eq!(
        (bench.relay.next_deadline(), bench.front_gets()),
        (None, vec![]),
        "once, and nobody hears of it"
    );
    bench
}

fn is_answered(bench: &mut Bench) -> bool {
    let got = bench.front_gets();
    assert!(
        got.is_empty() || got == [ANSWER.replace("ID", "7")],
        "{got:?}"
    );
    !got.is_empty()
}

#[test]
fn a_host_waits_for_any_word_of_the_backend() {
    for word in ["an answer", "an error", "a notice", "no JSON", "too much"] {
        let mut bench = answering();
        come_back(&mut bench, true);
        let id = ping(&mut bench).expect("a ping");
        assert!(!is_answered(&mut bench), "{word}");
        match word {
            "an answer" => bench.backend(&answer(&id)),
            "an error" => bench.backend(&failed(&id, "no")),
            "a notice" => bench.backend(&notice(1)),
            "no JSON" => bench.backend("hello"),
            _ => bench.relay.oversized_from_backend(b"{", b"}", bench.now),
        }
        assert!(is_answered(&mut bench), "{word}");
        bench.now += 10_000;
        bench.relay.tick(bench.now);
        assert!(
            bench
                .relay
                .effects()
                .iter()
                .all(|order| matches!(order, Effect::Say(_))),
            "{word}"
        );
        // Should the answer come all the same, it is nobody's.
        bench.backend(&answer(&id));
        assert!(!is_answered(&mut bench) && bench.dropped() <= 1, "{word}");
    }
}

#[test]
fn one_that_is_known_to_answer_and_does_not_is_replaced() {
    let mut bench = answering();
    bench.front(&call("1"));
    bench.backend_gets();
    come_back(&mut bench, true);
    ping(&mut bench).expect("a ping");
    bench.front(&call("8"));
    bench.wait();
    assert_eq!(
        bench.relay.effects(),
        [Effect::Replace {
            why: WHY.into(),
            hangs: true
        }]
    );
    assert_eq!(bench.front_gets(), [""; 0]);
    bench.relay.backend_started(bench.now);
    assert_eq!(
        bench.backend_gets(),
        [initialize("9", "2025-06-18", "{}"), call("8")]
    );
    bench.backend(&ANSWER.replace("ID", "9"));
    assert!(is_answered(&mut bench));
    assert_eq!(bench.relay.view(bench.now).last_error.as_deref(), Some(WHY));
}

#[test]
fn what_is_under_way_after_a_cut_is_not_disturbed() {
    for orderly in [false, true] {
        let mut bench = answering();
        bench.front(&call("1"));
        bench.backend_gets();
        come_back(&mut bench, orderly);
        assert_eq!(ping(&mut bench).is_some(), orderly);
        assert_eq!(is_answered(&mut bench), !orderly, "it may compute");
    }
    // What was cancelled is not waited for, nor is a ping.
    let mut bench = answering();
    bench.front(&call("1"));
    bench.front(&ask("2", "ping"));
    bench.front(r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#);
    bench.backend_gets();
    come_back(&mut bench, false);
    assert!(ping(&mut bench).is_some());
}

#[test]
fn one_of_which_nothing_is_known_is_asked_and_kept() {
    let mut bench = Bench::initialized();
    come_back(&mut bench, true);
    ping(&mut bench).expect("a ping");
    assert!(!is_answered(&mut bench));
    bench.wait();
    assert!(
        is_answered(&mut bench),
        "its host has waited for long enough"
    );
    assert_eq!(bench.relay.effects(), []);
    // It says something else: pings are nothing to it, and it gets none any more.
    bench.backend(&notice(1));
    bench.front(INITIALIZED);
    bench.front_gets();
    come_back(&mut bench, true);
    assert_eq!(ping(&mut bench), None);
    assert!(is_answered(&mut bench));
    assert_eq!(bench.relay.next_deadline(), None);
}

#[test]
fn the_hosts_own_pings_count() {
    let mut bench = Bench::initialized();
    bench.front(&ask("1", "ping"));
    bench.backend_gets();
    bench.backend(&answer("1"));
    bench.front_gets();
    assert_eq!(
        bench.relay.next_deadline(),
        None,
        "there is no need for one of ours"
    );
    come_back(&mut bench, true);
    ping(&mut bench).expect("a ping");
    bench.wait();
    assert_eq!(
        bench.relay.effects(),
        [Effect::Replace {
            why: WHY.into(),
            hangs: true
        }]
    );
}

#[test]
fn a_host_that_gives_up_has_waited_for_the_next_one() {
    let mut bench = answering();
    come_back(&mut bench, true);
    ping(&mut bench).expect("a ping");
    bench.now += 1000;
    come_back(&mut bench, true);
    assert_eq!(ping(&mut bench), None, "it has one");
    assert_eq!(bench.relay.next_deadline(), Some(bench.now + 500));
    bench.wait();
    assert!(matches!(
        &bench.relay.effects()[..],
        [Effect::Replace { hangs: true, .. }]
    ));
}

#[test]
fn the_first_ping_waits_until_nothing_is_under_way() {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.now += 10_000;
    bench.relay.tick(bench.now);
    assert_eq!(
        (ping(&mut bench), bench.relay.next_deadline()),
        (None, None)
    );
    bench.backend(&answer("1"));
    bench.wait();
    assert!(ping(&mut bench).is_some());
}

#[test]
fn the_ids_of_a_host_stay_as_they_are() {
    let mut bench = answering();
    bench.front(&call("1"));
    assert_eq!(bench.backend_gets(), [call("1")]);
    bench.front(&call("2147483647"));
    assert_eq!(
        bench.backend_gets(),
        [call("2")],
        "these numbers are not a host's"
    );
}

#[test]
fn one_that_ends_when_it_is_pinged_is_not_pinged_again() {
    let mut bench = Bench::initialized();
    bench.now += 10_000;
    bench.wait();
    ping(&mut bench).expect("a ping");
    bench.dies();
    bench.starts();
    assert_eq!(bench.backend_gets(), [initialize("1", "2025-06-18", "{}")]);
    bench.backend(&ANSWER.replace("ID", "1"));
    assert_eq!(bench.backend_gets(), [INITIALIZED]);
    bench.front_gets();
    assert_eq!(bench.relay.next_deadline(), None);
    come_back(&mut bench, true);
    assert!(is_answered(&mut bench));
}

#[test]
fn one_that_dies_while_a_host_waits_is_started_again_as_ever() {
    let mut bench = answering();
    bench.now += 10_000;
    come_back(&mut bench, true);
    bench.dies();
    assert!(is_answered(&mut bench));
    bench.starts();
}

/// It is not it that replace_hung.
#[test]
fn one_that_has_said_more_than_is_taken_is_not_pinged() {
    let mut bench = answering();
    bench.relay.detach(0, true, bench.now);
    (1..=8).for_each(|number| bench.backend(&notice(number)));
    bench.attach();
    bench.front(&initialize("7", "2025-06-18", "{}"));
    assert_eq!(ping(&mut bench), None);
    assert!(is_answered(&mut bench));
}

#[test]
fn a_backend_of_2026_is_not_pinged() {
    let mut bench = Bench::new();
    bench.front(&ask("1", "server/discover"));
    bench.backend_gets();
    bench.backend(&answer("1"));
    bench.front_gets();
    assert_eq!(bench.relay.next_deadline(), None);
    bench.relay.detach(0, true, bench.now);
    bench.attach();
    bench.front(&ask("1", "server/discover"));
    assert_eq!(bench.backend_gets(), [ask("2", "server/discover")]);
}
