//! Continuing fronts lose no line, and a line that is sent again has the same number.

use proptest::prelude::*;
use std::collections::VecDeque;

use super::*;

impl Bench {
    /// A running backend, and a first continuing front.
    fn continuing() -> Self {
        let mut bench = Self {
            relay: Relay::continuing(LIMITS),
            now: 1000,
        };
        bench.relay.backend_started(1000);
        assert!(!bench.relay.attach_continuing(1000).resumed);
        bench.front(&initialize("0", "2025-06-18", "{}"));
        bench.backend_gets();
        bench.backend(&ANSWER.replace("ID", "0"));
        bench.front(INITIALIZED);
        bench.backend_gets();
        assert_eq!(bench.numbered(), [(1, ANSWER.replace("ID", "0"))]);
        bench.relay.confirm(1);
        bench
    }

    fn numbered(&mut self) -> Vec<(u64, String)> {
        let lines = std::iter::from_fn(|| self.relay.pull_numbered());
        lines
            .map(|(number, line)| (number, String::from_utf8(line.to_vec()).expect("text")))
            .collect()
    }

    fn known(&self) -> Vec<String> {
        self.relay
            .known_calls()
            .into_iter()
            .map(String::from)
            .collect()
    }
}

#[test]
fn the_next_front_gets_each_unconfirmed_line_again_under_the_same_number() {
    let mut bench = Bench::continuing();
    bench.backend(&notice(1));
    bench.backend(&notice(2));
    assert_eq!(bench.numbered(), [(2, notice(1)), (3, notice(2))]);
    bench.relay.confirm(2);
    let attached = bench.relay.attach_continuing(bench.now);
    assert_eq!(
        (attached.resumed, attached.waiting, attached.lost),
        (true, 1, 0)
    );
    bench.backend(&notice(3));
    assert_eq!(bench.numbered(), [(3, notice(2)), (4, notice(3))]);
    bench.relay.confirm(99);
    bench.relay.attach_continuing(bench.now);
    assert_eq!(bench.numbered(), []);
    bench.backend(&notice(4));
    assert_eq!(
        bench.numbered(),
        [(5, notice(4))],
        "a front can't confirm a line that it was not handed"
    );
}

#[test]
fn ids_tokens_and_asks_stay_when_a_front_follows() {
    let mut bench = Bench::continuing();
    bench.front(r#"{"id":"x","method":"tools/call","params":{"_meta":{"progressToken":"t"}}}"#);
    let sent = bench.backend_gets();
    assert_eq!(
        sent,
        [r#"{"id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}}"#]
    );
    bench.backend(&ask("7", "roots/list"));
    let (number, asked) = bench.numbered().remove(0);
    assert_eq!(number, 2);
    bench.relay.confirm(2);
    bench.relay.attach_continuing(bench.now);
    bench.backend(r#"{"method":"notifications/progress","params":{"progressToken":1}}"#);
    bench.backend(&answer("1"));
    let progress =
        r#"{"method":"notifications/progress","params":{"progressToken":"t"}}"#.to_owned();
    assert_eq!(bench.numbered(), [(3, progress), (4, answer(r#""x""#))]);
    // The next front answers what the former one was asked.
    let asked: serde_json::Value = serde_json::from_str(&asked).expect("an ask");
    bench.front(&answer(&asked["id"].to_string()));
    assert_eq!(bench.backend_gets(), [answer("7")]);
}

#[test]
fn a_full_queue_stops_the_backend_and_drops_nothing() {
    let mut bench = Bench::continuing();
    let mut said = 0;
    while bench.relay.reads_backend() {
        said += 1;
        bench.backend(&notice(said));
        bench.relay.number_lines();
    }
    assert!(said >= LIMITS.queue_messages as u64, "{said}");
    let mut got = Vec::new();
    loop {
        let lines = bench.numbered();
        let Some((last, _)) = lines.last() else { break };
        bench.relay.confirm(*last);
        got.extend(lines);
    }
    let expected: Vec<_> = (1..=said).map(|line| (line + 1, notice(line))).collect();
    assert_eq!(got, expected);
    assert!(bench.relay.reads_backend());
    assert_eq!(bench.relay.view(bench.now).dropped, 0);
}

#[test]
fn calls_are_known_until_their_answers_are_confirmed() {
    let mut bench = Bench::continuing();
    assert!(bench.known().is_empty());
    bench.front(&call("1"));
    bench.front(&call(r#""b""#));
    assert_eq!(
        bench.known(),
        ["1", r#""b""#],
        "also before the backend has read them"
    );
    bench.backend_gets();
    bench.backend(&answer("1"));
    assert_eq!(bench.known(), [r#""b""#, "1"]);
    let (number, _) = bench.numbered().remove(0);
    bench.relay.attach_continuing(bench.now);
    assert_eq!(bench.known(), [r#""b""#, "1"]);
    assert_eq!(bench.numbered().len(), 1);
    bench.relay.confirm(number);
    assert_eq!(bench.known(), [r#""b""#]);
}

/// A session may last long: an open call gets its progress however many other calls were made
/// since.
#[test]
fn progress_of_an_open_call_is_passed_on_however_many_others_there_were() {
    let mut bench = Bench::continuing();
    let with_token = |id: u64| {
        format!(r#"{{"id":{id},"method":"x","params":{{"_meta":{{"progressToken":"t{id}"}}}}}}"#)
    };
    bench.front(&with_token(1));
    for id in 2..3_000 {
        bench.front(&with_token(id));
        bench.backend_gets();
        bench.backend(&answer(&id.to_string()));
        let (number, _) = bench.numbered().remove(0);
        bench.relay.confirm(number);
    }
    bench.backend(r#"{"method":"notifications/progress","params":{"progressToken":1}}"#);
    let lines = bench.numbered();
    assert_eq!(
        lines[0].1,
        r#"{"method":"notifications/progress","params":{"progressToken":"t1"}}"#
    );
}

#[test]
fn after_a_death_the_outcome_of_open_calls_is_unknown_and_the_next_backend_is_initialised() {
    let mut bench = Bench::continuing();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.relay.backend_exited("signal: 9", None, bench.now);
    assert_eq!(bench.relay.effects(), [Effect::Ended("signal: 9".into())]);
    bench.relay.attach_continuing(bench.now);
    let lines = bench.numbered();
    let [(2, unknown)] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert!(
        unknown.contains(r#""outcome":"unknown""#) && unknown.contains(r#""id":1"#),
        "{unknown}"
    );
    bench.now += 1000;
    bench.starts();
    let sent = bench.backend_gets();
    assert!(
        sent.len() == 1 && sent[0].contains(r#""method":"initialize""#),
        "{sent:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whenever fronts come and go, and whatever they confirm, each line arrives at least once, in
    /// order, under one number.
    #[test]
    fn every_line_arrives_in_order(steps in proptest::collection::vec(0..5_u8, 1..300)) {
        let mut bench = Bench::continuing();
        let (mut said, mut done, mut seen) = (0_u64, 0_u64, 0_u64);
        let mut handed: VecDeque<u64> = VecDeque::new();
        for step in steps {
            match step {
                0 | 1 if bench.relay.reads_backend() => {
                    said += 1;
                    bench.backend(&notice(said));
                }
                2 => {
                    for (number, line) in bench.numbered() {
                        prop_assert_eq!(number, handed.back().map_or(done + 2, |last| last + 1));
                        prop_assert_eq!(line, notice(number - 1));
                        prop_assert!(number <= seen.max(1) + 1, "one was left out");
                        seen = seen.max(number);
                        handed.push_back(number);
                    }
                }
                3 => if let Some(number) = handed.pop_front() {
                    bench.relay.confirm(number);
                    done = number - 1;
                },
                4 => {
                    bench.relay.attach_continuing(bench.now);
                    handed.clear();
                }
                _ => {}
            }
        }
        bench.relay.attach_continuing(bench.now);
        loop {
            let lines = bench.numbered();
            let Some((last, _)) = lines.last() else { break };
            seen = seen.max(*last);
            bench.relay.confirm(*last);
        }
        prop_assert_eq!(seen.max(1), said + 1);
    }
}
