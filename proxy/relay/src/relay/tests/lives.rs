//! The backend dies, and is started again.

use super::*;

const ENDED: &str = "the server ended (exit status: 1) before it answered; the outcome is unknown";

fn changed(what: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{what}/list_changed"}}"#)
}

/// The backend that was just started is initialised again by us, with this number.
fn revives(bench: &mut Bench, number: &str) {
    assert_eq!(
        bench.backend_gets(),
        [initialize(number, "2025-06-18", "{}")]
    );
    assert_eq!(
        bench.backend_gets(),
        [""; 0],
        "nothing goes before the answer"
    );
    bench.backend(&ANSWER.replace("ID", number));
}

#[test]
fn calls_in_flight_end_and_what_was_not_sent_goes_to_the_next_one() {
    let mut bench = Bench::initialized();
    bench.front(&call("\"a\""));
    bench.backend_gets();
    bench.front(&call("\"b\""));
    bench.now += 10_000;
    bench.dies();
    assert_eq!(bench.front_gets(), [unknown("\"a\"", ENDED)]);
    bench.front(&call("\"c\""));
    assert!(!bench.relay.reads_front());
    bench.starts();
    revives(&mut bench, "4");
    assert_eq!(
        bench.backend_gets(),
        [INITIALIZED.to_owned(), call("2"), call("3")]
    );
    assert_eq!(bench.front_gets(), [changed("tools"), changed("prompts")]);
    bench.backend(&answer("1"));
    bench.backend(&answer("3"));
    assert_eq!(bench.front_gets(), [answer("\"c\"")]);
    let view = bench.relay.view(bench.now);
    assert_eq!(
        (view.restarts, view.last_error.as_deref()),
        (1, Some("exit status: 1"))
    );
}

/// The front that told its host of the end is killed before anything is asked again: the next one
/// finds a server that is not the former one.
#[test]
fn one_that_has_ended_is_not_resumed_although_that_was_told() {
    let mut bench = Bench::initialized();
    bench.now += 10_000;
    bench.dies();
    bench.relay.ends_told(1);
    bench.relay.detach(0, false, bench.now);
    let attached = bench.attach();
    assert_eq!((attached.resumed, attached.ended), (false, vec![]));
    bench.front(&initialize("9", "2025-06-18", "{}"));
    bench.starts();
    bench.relay.detach(0, false, bench.now);
    assert!(!bench.attach().resumed, "nobody has used the fresh one yet");
    revives(&mut bench, "1");
    bench.relay.detach(0, false, bench.now);
    assert!(bench.attach().resumed);
}

#[test]
fn it_is_started_again_after_longer_and_longer_waits() {
    let mut bench = Bench::initialized();
    bench.now += 10_000;
    bench.dies();
    for wait in [
        100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000,
    ] {
        bench.starts();
        bench.dies();
        assert_eq!(bench.relay.effects(), []);
        let then = bench.now;
        while bench.relay.effects.is_empty() {
            bench.wait();
        }
        assert_eq!(bench.now - then, wait);
    }
    bench.starts();
    bench.now += 10_000;
    bench.dies();
    bench.starts();
}

#[test]
fn calls_are_refused_while_the_start_is_far_ahead() {
    let mut bench = Bench::initialized();
    bench.relay.failures = 5;
    bench.front(&call("1"));
    bench.dies();
    let words = "the server has ended (exit status: 1) and is started again in 3200 ms; this call was not sent";
    let not_sent = |id: &str| unknown(id, words).replace(r#""unknown"}"#, r#""not_sent"}"#);
    assert!(bench.relay.reads_front());
    bench.front(&call("2"));
    assert_eq!(bench.front_gets(), [not_sent("1"), not_sent("2")]);
    bench.wait();
    bench.front(&call("3"));
    assert_eq!(bench.front_gets(), [""; 0]);
    assert!(!bench.relay.reads_front());
    bench.wait();
    bench.starts();
    revives(&mut bench, "4");
    assert_eq!(bench.backend_gets(), [INITIALIZED.to_owned(), call("3")]);
}

#[test]
fn one_that_was_never_initialised_is_started_when_it_is_needed() {
    let mut bench = Bench::new();
    bench.relay.heard = true;
    bench.dies();
    assert_eq!(
        (bench.relay.next_deadline(), bench.relay.effects()),
        (None, vec![])
    );
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.wait();
    bench.starts();
    assert_eq!(bench.backend_gets(), [initialize("0", "2025-06-18", "{}")]);
}

#[test]
fn asks_die_with_whoever_asked() {
    let mut bench = Bench::initialized();
    bench.backend(&ask("1", "x"));
    bench.front_gets();
    bench.backend(&ask("2", "x"));
    bench.backend(&notice(1));
    bench.now += 10_000;
    bench.front(&answer("1"));
    bench.backend(&ask("3", "x"));
    bench.dies();
    assert_eq!(bench.front_gets(), [notice(1)]);
    bench.starts();
    revives(&mut bench, "1");
    bench.front(&answer("2"));
    assert_eq!(
        bench.backend_gets(),
        [INITIALIZED],
        "an answer to one that is dead goes nowhere"
    );
    bench.front_gets();
    bench.backend(&ask("1", "x"));
    assert_eq!(bench.front_gets(), [ask("4", "x")]);
    bench.dies();
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4,"reason":"the server ended"}}"#;
    assert_eq!(bench.front_gets(), [cancelled]);
}

#[test]
fn subscriptions_and_the_level_come_back() {
    let subscribe = |id: &str, uri: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/subscribe","params":{{"uri":"{uri}"}}}}"#
        )
    };
    let level = |id: &str, level: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
        )
    };
    let mut bench = Bench::initialized();
    bench.front(&subscribe("1", "a:b"));
    bench.front(&subscribe("2", "a:c"));
    bench.front(&subscribe("3", "a:c").replace("/sub", "/unsub"));
    bench.front(&level("4", "info"));
    bench.front(&level("5", "debug"));
    bench.backend_gets();
    (1..=5).for_each(|id| bench.backend(&answer(&id.to_string())));
    bench.front_gets();
    bench.now += 10_000;
    bench.dies();
    bench.starts();
    revives(&mut bench, "6");
    assert_eq!(
        bench.backend_gets(),
        [
            INITIALIZED.to_owned(),
            level("7", "debug"),
            subscribe("8", "a:b")
        ]
    );
    bench.front_gets();
    bench.backend(&answer("7"));
    bench.backend(&failed("8", "no"));
    assert_eq!(bench.front_gets(), [""; 0]);
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&initialize("0", "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets().len(), 3, "both are undone, and a ping");
    bench.front(INITIALIZED);
    bench.now += 10_000;
    bench.dies();
    bench.starts();
    revives(&mut bench, "11");
    assert_eq!(bench.backend_gets(), [INITIALIZED]);
}

#[test]
fn one_that_refuses_to_be_initialised_again_is_replaced_and_nothing_spins() {
    let mut bench = Bench::initialized();
    bench.now += 10_000;
    bench.dies();
    bench.starts();
    bench.backend_gets();
    bench.backend(&failed("1", "no"));
    assert!(matches!(&bench.relay.effects()[..], [Effect::Say(_)]));
    bench.backend(&notice(1));
    assert_eq!(bench.front_gets(), [""; 0]);
    bench.wait();
    assert!(matches!(
        &bench.relay.effects()[..],
        [Effect::Replace { .. }]
    ));
    bench.relay.backend_started(bench.now);
    revives(&mut bench, "2");
    assert_eq!(bench.backend_gets(), [INITIALIZED]);
}

#[test]
fn a_server_that_comes_back_in_another_version_is_told_of() {
    let mut bench = Bench::initialized();
    bench.now += 10_000;
    bench.dies();
    bench.starts();
    bench.backend_gets();
    bench.backend(
        &ANSWER
            .replace("ID", "1")
            .replace("2025-06-18", "2025-03-26"),
    );
    let words = "the server was started again and speaks protocol 2025-03-26, no longer 2025-06-18";
    assert_eq!(bench.relay.effects(), [Effect::Say(words.into())]);
}

#[test]
fn the_pending_answer_dies_and_whoever_waited_asks_on_its_own() {
    let mut bench = Bench::new();
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&initialize("5", "2025-06-18", "{}"));
    bench.dies();
    bench.wait();
    bench.starts();
    assert_eq!(bench.backend_gets(), [initialize("5", "2025-06-18", "{}")]);
    bench.backend(&ANSWER.replace("ID", "5"));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "5")]);
}

#[test]
fn an_initialize_that_was_not_answered_is_asked_again_and_goes_first() {
    let mut bench = Bench::new();
    bench.front(&initialize("0", "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets(), [initialize("0", "2025-06-18", "{}")]);
    bench.front(&ask("\"p\"", "ping"));
    bench.relay.heard = true;
    for number in ["2", "3"] {
        bench.dies();
        assert_eq!(bench.front_gets(), [""; 0]);
        bench.wait();
        bench.starts();
        assert_eq!(
            bench.relay.pull_backend(),
            Some(initialize(number, "2025-06-18", "{}").into())
        );
    }
    bench.backend(&ANSWER.replace("ID", "3"));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0")]);
    assert_eq!(bench.backend_gets(), [ask("1", "ping")]);
}

#[test]
fn a_server_that_said_something_and_always_ends_before_it_answers_is_tried_three_times() {
    for sent in [true, false] {
        let mut bench = Bench::new();
        bench.relay.heard = true;
        for id in ["0", "\"again\""] {
            let then = bench.now;
            bench.relay.failures = 0;
            bench.front(&initialize(id, "2025-06-18", "{}"));
            for _ in 0..2 {
                if bench.relay.effects() == [Effect::Start] {
                    bench.relay.backend_started(bench.now);
                }
                if sent {
                    assert_eq!(bench.backend_gets().len(), 1);
                }
                bench.dies();
                assert_eq!(bench.front_gets(), [""; 0]);
                bench.wait();
            }
            bench.starts();
            bench.dies();
            let words = "the server ended (exit status: 1) before it had initialised";
            assert_eq!(bench.front_gets(), [failed(id, words)]);
            assert!(bench.now - then <= 1000);
            assert_eq!(
                (
                    bench.relay.next_deadline(),
                    bench.relay.view(bench.now).calls.len()
                ),
                (None, 0)
            );
            bench.front(&ask("\"p\"", "tools/list"));
            bench.wait();
            bench.starts();
            assert_eq!(bench.backend_gets().len(), 1);
            bench.backend(&answer(
                &bench
                    .relay
                    .calls
                    .open
                    .keys()
                    .next()
                    .expect("ping")
                    .to_string(),
            ));
            bench.front_gets();
        }
    }
}

/// As a direct child would: the host hears of it at once, and nothing is started until it tries
/// again.
#[test]
fn a_server_that_ends_before_it_said_anything_is_not_started_again_in_vain() {
    let words = "the server ended (exit status: 1: Error: no key) before it had initialised";
    let dies = |bench: &mut Bench| {
        bench
            .relay
            .backend_exited("exit status: 1", Some("Error: no key"), bench.now);
    };
    for order in [
        "it reads",
        "it does not read",
        "the host is late",
        "the front is late",
    ] {
        let mut bench = Bench::unattached();
        let begin = |bench: &mut Bench| bench.front(&initialize("0", "2025-06-18", "{}"));
        match order {
            "the front is late" => {
                dies(&mut bench);
                bench.attach();
                begin(&mut bench);
            }
            "the host is late" => {
                bench.attach();
                dies(&mut bench);
                begin(&mut bench);
            }
            _ => {
                bench.attach();
                begin(&mut bench);
                if order == "it reads" {
                    assert_eq!(bench.backend_gets().len(), 1);
                }
                dies(&mut bench);
            }
        }
        assert_eq!(bench.front_gets(), [failed("0", words)], "{order}");
        assert_eq!(
            (bench.relay.next_deadline(), bench.relay.effects()),
            (None, vec![]),
            "{order}"
        );
        // The same host may try again, and so may another one: each time a server is started for
        // it.
        for (id, comes_again) in [("1", false), ("2", true)] {
            if comes_again {
                bench.relay.detach(0, false, bench.now);
                bench.attach();
            }
            bench.relay.failures = 0;
            bench.front(&initialize(id, "2025-06-18", "{}"));
            bench.wait();
            bench.starts();
            assert_eq!(bench.backend_gets().len(), 1, "{order}");
            dies(&mut bench);
            assert_eq!(bench.front_gets(), [failed(id, words)], "{order}");
        }
    }
}

#[test]
fn stopping_ends_every_call_and_starts_nothing() {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.front(&call("2"));
    bench.relay.stopping("the host has exited", bench.now);
    bench.front(&call("3"));
    let stopped = "the server was stopped before it answered; the outcome is unknown";
    let refused = "the server was stopped; this call was not sent";
    let not_sent = |id: &str| unknown(id, refused).replace(r#""unknown"}"#, r#""not_sent"}"#);
    assert_eq!(
        bench.front_gets(),
        [unknown("1", stopped), not_sent("2"), not_sent("3")]
    );
    bench.dies();
    assert_eq!(
        (bench.relay.effects(), bench.relay.next_deadline()),
        (vec![], None)
    );
    assert_eq!(bench.backend_gets(), [""; 0]);
}

const RESTARTED: &str = "the server was restarted before it answered; the outcome is unknown";

fn is_replaced(bench: &mut Bench) {
    assert!(matches!(
        &bench.relay.effects()[..],
        [Effect::Replace { hangs: false, .. }]
    ));
    bench.relay.backend_started(bench.now);
}

#[test]
fn a_restart_by_hand_is_a_death_without_a_pause() {
    let mut bench = Bench::initialized();
    bench.front(&call("\"a\""));
    bench.backend_gets();
    bench.front(&call("\"b\""));
    for _ in 0..8 {
        bench.relay.restart(bench.now);
        // It is on its way already.
        bench.relay.restart(bench.now);
        // No answer comes.
        while bench.relay.effects.is_empty() {
            bench.wait();
        }
        is_replaced(&mut bench);
    }
    assert_eq!(bench.front_gets(), [unknown("\"a\"", RESTARTED)]);
    revives(&mut bench, "10");
    assert_eq!(bench.backend_gets(), [INITIALIZED.to_owned(), call("2")]);
    assert_eq!(bench.front_gets(), [changed("tools"), changed("prompts")]);
    let view = bench.relay.view(bench.now);
    assert_eq!(
        (view.restarts, view.last_error.as_deref()),
        (8, Some("it was restarted by hand"))
    );
}

#[test]
fn a_restart_by_hand_starts_at_once_what_waits_to_be_started() {
    let mut bench = Bench::initialized();
    bench.relay.failures = 9;
    bench.dies();
    assert_eq!(bench.relay.effects(), []);
    bench.relay.restart(bench.now);
    bench.starts();
    revives(&mut bench, "1");
    bench.dies();
    bench.wait();
    assert_eq!(bench.relay.failures, 1, "the former ones are forgotten");
}

#[test]
fn what_was_not_initialised_yet_is_restarted_too() {
    let mut bench = Bench::new();
    bench.relay.restart(bench.now);
    is_replaced(&mut bench);
    bench.front(&initialize("0", "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets(), [initialize("0", "2025-06-18", "{}")]);
    // However often that is: nothing is wrong with the command.
    for number in 1..5 {
        bench.relay.restart(bench.now);
        is_replaced(&mut bench);
        assert_eq!(bench.front_gets(), [""; 0]);
        assert_eq!(
            bench.backend_gets(),
            [initialize(&number.to_string(), "2025-06-18", "{}")]
        );
    }
    bench.backend(&ANSWER.replace("ID", "4"));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0")]);
}

#[test]
fn a_backend_that_is_taken_down_for_good_is_not_restarted() {
    let mut bench = Bench::initialized();
    bench.relay.stopping("stopped", bench.now);
    bench.relay.restart(bench.now);
    assert_eq!(bench.relay.effects(), []);
}
