//! When a host gets a fresh backend, though the former one runs; and how that one ends.

use super::*;

/// A front comes, goes, and what it finds is returned: whether the former backend, and what the
/// driver is told.
fn comes_back(bench: &mut Bench, orderly: bool, changed: Option<&str>) -> (bool, Vec<Effect>) {
    bench.relay.detach(0, orderly, bench.now);
    let attached = bench.relay.attach(None, changed, bench.now);
    (attached.resumed, bench.relay.effects())
}

fn replaced(why: &str) -> (bool, Vec<Effect>) {
    (
        false,
        vec![Effect::Replace {
            why: why.into(),
            hangs: false,
        }],
    )
}

const BY_HAND: &str = "the server is restarted by `mcp-sessiond restart`";

const KEPT: (bool, Vec<Effect>) = (true, vec![]);

#[test]
fn three_orderly_closes_within_a_minute_bring_a_fresh_one() {
    let mut bench = Bench::initialized();
    let come = |bench: &mut Bench, orderly: bool| {
        let met = comes_back(bench, orderly, None);
        bench.front(&initialize("0", "2025-06-18", "{}"));
        met
    };
    for orderly in [true, true, false, false] {
        assert_eq!(come(&mut bench, orderly), KEPT, "a cut does not count");
    }
    bench.now += 60_000;
    for _ in 0..2 {
        assert_eq!(come(&mut bench, true), KEPT, "those were long ago");
    }
    let why = "the server was closed 3 times within 60 s";
    assert_eq!(come(&mut bench, true), replaced(why));
    bench.relay.backend_started(bench.now);
    assert_eq!(bench.backend_gets(), [initialize("1", "2025-06-18", "{}")]);
    bench.backend(&ANSWER.replace("ID", "1"));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0")]);
    assert_eq!(come(&mut bench, true), KEPT, "it is counted anew");
}

/// A user comes back to see whether it works, and finds the state of the call before.
#[test]
fn closes_between_which_a_call_was_answered_well_do_not_count() {
    let result = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}"#;
    let failed = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"isError":true}}"#;
    let error = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"x"}}"#;
    for (said, is_kept) in [(result, true), (failed, false), (error, false)] {
        let mut bench = Bench::initialized();
        for close in 1..=3 {
            bench.front(&call("7"));
            let sent = bench.backend_gets();
            assert_eq!(sent.len(), 1, "{sent:?}");
            let sent: serde_json::Value = serde_json::from_str(&sent[0]).expect("JSON");
            assert_eq!(sent["method"], "tools/call");
            bench.backend(&said.replace("ID", &sent["id"].to_string()));
            assert_eq!(bench.front_gets(), [said.replace("ID", "7")]);
            let met = comes_back(&mut bench, true, None);
            if close == 3 && !is_kept {
                assert_eq!(met, replaced("the server was closed 3 times within 60 s"));
                break;
            }
            assert_eq!(met, KEPT, "{said}");
            bench.front(&initialize("0", "2025-06-18", "{}"));
            bench.is_pinged();
            assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0")]);
        }
    }
}

/// One good answer before the closes, or between the first and the last of them, as the rule has it.
#[test]
fn only_closes_since_the_last_good_answer_count() {
    let mut bench = Bench::initialized();
    let come = |bench: &mut Bench, calls: bool| {
        if calls {
            bench.front(&call("7"));
            let sent = bench.backend_gets();
            let sent: serde_json::Value = serde_json::from_str(&sent[0]).expect("JSON");
            bench.backend(&answer(&sent["id"].to_string()));
            bench.front_gets();
        }
        let met = comes_back(bench, true, None);
        if met == KEPT {
            bench.front(&initialize("0", "2025-06-18", "{}"));
            bench.is_pinged();
            bench.front_gets();
        }
        met
    };
    for calls in [true, false, true, false] {
        assert_eq!(come(&mut bench, calls), KEPT);
    }
    let why = "the server was closed 3 times within 60 s";
    assert_eq!(come(&mut bench, false), replaced(why));
}

/// The official client of 2026 looks for the version on a connection of its own.
#[test]
fn hosts_that_only_look_for_the_version_have_not_closed_anything() {
    let mut bench = Bench::initialized();
    assert_eq!(comes_back(&mut bench, true, None), KEPT);
    for _ in 0..9 {
        bench.front(&ask("1", "server/discover"));
        assert_eq!(bench.backend_gets(), [""; 0]);
        assert_eq!(comes_back(&mut bench, true, None), KEPT);
        bench.now += 60_000;
        bench.front(&initialize("1", "2025-06-18", "{}"));
        bench.is_pinged();
        bench.relay.effects();
        assert_eq!(comes_back(&mut bench, true, None), KEPT);
    }
}

#[test]
fn a_changed_program_is_replaced_where_nothing_is_lost_by_it() {
    let changed = Some("server.js");
    let mut bench = Bench::initialized();
    let why = "server.js has changed since the server was started";
    assert_eq!(comes_back(&mut bench, true, changed), replaced(why));

    let kept = |(resumed, effects): (bool, Vec<Effect>), because: &str| {
        assert!(resumed, "{because}");
        let [Effect::Say(told)] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert!(told.starts_with(why) && told.contains(because), "{told}");
    };
    let mut bench = Bench::initialized();
    kept(
        comes_back(&mut bench, false, changed),
        "its host was cut off",
    );
    bench.front(&call("1"));
    bench.backend_gets();
    kept(comes_back(&mut bench, true, changed), "calls");
    bench.relay.detach(0, true, bench.now);
    bench.backend(&answer("1"));
    let attached = bench.relay.attach(None, changed, bench.now);
    kept((attached.resumed, bench.relay.effects()), "calls");
    // Nobody has come for that answer.
    assert_eq!(comes_back(&mut bench, true, changed), replaced(why));
}

/// The host that reattaches has noticed nothing, and has had its answer.
#[test]
fn a_front_that_has_lost_its_keeper_keeps_its_backend() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, true, bench.now);
    let line = initialize("0", "2025-06-18", "{}");
    assert!(
        bench
            .relay
            .attach(Some(line.into()), Some("server.js"), bench.now)
            .resumed
    );
    assert_eq!(bench.relay.effects(), []);
}

#[test]
fn what_the_former_one_had_said_is_told_to_be_lost() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, true, bench.now);
    bench.backend(&notice(1));
    bench.relay.attach(None, Some("server.js"), bench.now);
    let told = "1 messages of the server that is replaced are dropped";
    assert_eq!(bench.relay.effects()[0], Effect::Say(told.into()));
    assert_eq!(bench.front_gets(), [""; 0]);
}

#[test]
fn a_restart_waits_for_answers_and_keeps_new_calls_for_the_next_one() {
    for late in [false, true] {
        let mut bench = Bench::initialized();
        bench.front(&call("1"));
        bench.backend_gets();
        bench.relay.restart(bench.now);
        bench.front(&call("2"));
        bench.backend(&ask("1", "roots/list"));
        assert_eq!(bench.front_gets(), [ask("1", "roots/list")]);
        bench.front(&answer("1"));
        assert_eq!(
            bench.backend_gets(),
            [answer("1")],
            "it may need that for its answer"
        );
        assert_eq!(bench.relay.effects(), []);
        if late {
            bench.wait();
            let unknown = unknown(
                "1",
                "the server was restarted before it answered; the outcome is unknown",
            );
            assert_eq!(bench.front_gets(), [unknown]);
        } else {
            bench.backend(&answer("1"));
            assert_eq!(bench.front_gets(), [answer("1")]);
        }
        assert_eq!(
            bench.relay.effects(),
            [Effect::Replace {
                why: BY_HAND.into(),
                hangs: false
            }]
        );
        bench.relay.backend_started(bench.now);
        assert_eq!(bench.backend_gets(), [initialize("3", "2025-06-18", "{}")]);
        bench.backend(&ANSWER.replace("ID", "3"));
        assert_eq!(bench.backend_gets(), [INITIALIZED.to_owned(), call("2")]);
        assert_eq!(bench.front_gets().len(), 2, "it is told to list again");
    }
}

#[test]
fn one_that_has_nothing_to_do_is_restarted_at_once_and_initialised_when_a_host_comes() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, true, bench.now);
    bench.relay.restart(bench.now);
    assert!(matches!(
        &bench.relay.effects()[..],
        [Effect::Replace { .. }]
    ));
    bench.relay.backend_started(bench.now);
    assert_eq!(bench.backend_gets(), [initialize("1", "2025-06-18", "{}")]);
}

#[test]
fn what_is_stopped_answers_first_and_takes_nothing_more() {
    let mut bench = Bench::initialized();
    assert!(bench.relay.is_drained(bench.now));
    bench.front(&call("1"));
    bench.backend_gets();
    bench.front(&call("2"));
    bench.relay.wind_down(bench.now);
    bench.front(&call("3"));
    let refused = "the server was stopped; this call was not sent";
    let not_sent = |id: &str| unknown(id, refused).replace(r#""unknown"}"#, r#""not_sent"}"#);
    assert_eq!(bench.front_gets(), [not_sent("2"), not_sent("3")]);
    assert_eq!(bench.backend_gets(), [""; 0]);
    assert!(!bench.relay.is_drained(bench.now));
    bench.backend(&answer("1"));
    assert!(bench.relay.is_drained(bench.now));
    bench.relay.stopping("stopped", bench.now);
    assert_eq!(bench.front_gets(), [answer("1")]);

    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.relay.wind_down(bench.now);
    bench.now = bench.relay.next_deadline().expect("deadline");
    assert!(bench.relay.is_drained(bench.now), "it has had its time");
}

/// Nobody can tell what it was going to say.
#[test]
fn half_an_answer_is_none() {
    let mut bench = Bench::initialized();
    for id in ["1", "2"] {
        bench.front(&call(id));
    }
    bench.backend_gets();
    bench
        .relay
        .last_from_backend(Bytes::from(answer("1")), bench.now);
    assert_eq!(
        bench.front_gets(),
        [answer("1")],
        "this one only lacked its newline"
    );
    let half = answer("2");
    bench
        .relay
        .last_from_backend(Bytes::from(half[..half.len() - 2].to_owned()), bench.now);
    bench.dies();
    let ended = "the server ended (exit status: 1) before it answered; the outcome is unknown";
    assert_eq!(bench.front_gets(), [unknown("2", ended)]);
}
