//! What a host's probe gets, and what is learned from it.

use mcp_sessiond_proto::Json;
use mcp_sessiond_proto::facts::{Discover, Learned};

use super::*;

fn refused(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#
    )
}

/// The answer in the server's place where its own is not known.
fn refused_for(id: &str) -> String {
    let message = "Method not found: server/discover";
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"{message}"}}}}"#)
}

fn refuses() -> Discover {
    let error = Json::new(r#"{"code":-32601,"message":"Method not found"}"#).expect("JSON");
    Discover::Refuses { error }
}

fn learned(discover: Discover) -> Effect {
    Effect::Learned(Learned::Discover(discover))
}

const INITIALIZED_TOLD: Effect = Effect::Learned(Learned::Initialized {});
const FORGOTTEN: Effect = Effect::Learned(Learned::Forgotten {});

fn knowing(discover: Discover) -> Bench {
    let mut bench = Bench {
        relay: Relay::new(LIMITS).knowing(Some(discover)),
        now: 1000,
    };
    bench.relay.backend_started(1000);
    bench.attach();
    bench
}

/// The next host comes after an orderly close.
fn next(bench: &mut Bench) {
    bench.relay.detach(0, true, bench.now);
    bench.attach();
}

/// The host probes under the id "d"; returns the number under which the backend is asked.
fn probe(bench: &mut Bench) -> String {
    bench.front(&ask("\"d\"", "server/discover"));
    let asked = bench.backend_gets().pop().expect("the backend is asked");
    let asked: serde_json::Value = serde_json::from_str(&asked).expect("JSON");
    assert_eq!(asked["method"], "server/discover");
    asked["id"].to_string()
}

/// The host probes, and is answered in the server's place.
fn probe_in_vain(bench: &mut Bench, answer: &str) {
    bench.front(&ask("\"d\"", "server/discover"));
    assert_eq!(bench.backend_gets(), [""; 0], "the server never sees it");
    assert_eq!(bench.front_gets(), [answer]);
}

/// The host initialises the backend under this id, which is also its number.
fn initializes(bench: &mut Bench, id: &str) {
    bench.front(&initialize(id, "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets(), [initialize(id, "2025-06-18", "{}")]);
    bench.backend(&ANSWER.replace("ID", id));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", id)]);
    bench.front(INITIALIZED);
    assert_eq!(bench.backend_gets(), [INITIALIZED]);
}

/// A backend that was initialised says nothing about its era when it refuses to be discovered.
#[test]
fn one_that_was_initialised_is_never_shown_a_probe() {
    let mut bench = Bench::initialized();
    probe_in_vain(&mut bench, &refused_for("\"d\""));
    next(&mut bench);
    probe_in_vain(&mut bench, &refused_for("\"d\""));
    bench.front(&initialize("7", "2025-06-18", "{}"));
    bench.is_pinged();
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "7")]);
    assert_eq!(bench.relay.effects(), [INITIALIZED_TOLD]);
}

/// What most hosts of 2026 do with most servers of today: nothing is replaced, ever.
#[test]
fn one_that_refuses_is_asked_once() {
    let mut bench = Bench::new();
    let number = probe(&mut bench);
    bench.backend(&refused(&number));
    assert_eq!(bench.front_gets(), [refused("\"d\"")]);
    assert_eq!(bench.relay.effects(), [learned(refuses())]);
    initializes(&mut bench, "7");
    assert_eq!(bench.relay.effects(), [INITIALIZED_TOLD]);
    for _ in 0..5 {
        next(&mut bench);
        probe_in_vain(&mut bench, &refused("\"d\""));
    }
    // Nor is a fresh one.
    bench.now += 60_000;
    bench.dies();
    bench.starts();
    bench.backend_gets();
    probe_in_vain(&mut bench, &refused("\"d\""));
}

#[test]
fn one_that_answers_both_is_shown_every_probe() {
    let mut bench = Bench::new();
    let number = probe(&mut bench);
    bench.backend(&answer(&number));
    assert_eq!(bench.front_gets(), [answer("\"d\"")]);
    assert_eq!(bench.relay.effects(), [learned(Discover::Answers {})]);
    initializes(&mut bench, "7");
    next(&mut bench);
    let number = probe(&mut bench);
    bench.backend(&refused(&number));
    assert_eq!(bench.front_gets(), [refused("\"d\"")], "as it is");
    assert_eq!(bench.relay.effects(), [INITIALIZED_TOLD]);
}

/// A version that the server does not speak: the host asks again, and the server speaks the new era.
#[test]
fn another_version_is_an_answer_and_a_missing_argument_teaches_nothing() {
    for (code, teaches) in [(-32022, true), (-32020, false), (-32021, false)] {
        let mut bench = Bench::new();
        let number = probe(&mut bench);
        bench.backend(&format!(
            r#"{{"jsonrpc":"2.0","id":{number},"error":{{"code":{code},"message":"x"}}}}"#
        ));
        assert_eq!(bench.front_gets().len(), 1);
        let effects = bench.relay.effects();
        assert_eq!(!effects.is_empty(), teaches, "{code}: {effects:?}");
        probe(&mut bench);
    }
}

#[test]
fn one_that_exits_on_it_is_started_again_at_once_and_nothing_is_lost() {
    for heard in [false, true] {
        let mut bench = Bench::new();
        let number = probe(&mut bench);
        if heard {
            bench.backend("[]");
            bench.front_gets();
        }
        bench.dies();
        assert_eq!(bench.front_gets(), [refused_for("\"d\"")]);
        bench.starts();
        // The second one on the same connection is not shown to the fresh one.
        probe_in_vain(&mut bench, &refused_for("\"d\""));
        bench.front(&initialize("7", "2025-06-18", "{}"));
        bench.backend_gets();
        assert_eq!(bench.relay.effects(), [INITIALIZED_TOLD], "{number}");
        bench.backend(&ANSWER.replace("ID", "7"));
        assert_eq!(bench.relay.effects(), [learned(Discover::Exits {})]);
        let view = bench.relay.view(bench.now);
        assert_eq!((view.restarts, view.last_error), (0, None));
        next(&mut bench);
        probe_in_vain(&mut bench, &refused_for("\"d\""));
    }
}

/// A host that probes on a process of its own has gone when the server is seen to have ended.
#[test]
fn a_probe_whose_host_has_gone_loses_nothing() {
    let mut bench = Bench::new();
    probe(&mut bench);
    bench.relay.detach(0, true, bench.now);
    bench.dies();
    assert_eq!(bench.relay.effects(), []);
    let attached = bench.attach();
    assert!(
        !attached.resumed && attached.ended.is_empty(),
        "{attached:?}"
    );
    bench.front(&initialize("7", "2025-06-18", "{}"));
    bench.starts();
    assert_eq!(bench.backend_gets(), [initialize("7", "2025-06-18", "{}")]);
}

/// The host does not wait for the answer, and its `initialize` is on its way when the server dies.
#[test]
fn an_initialize_behind_the_probe_goes_to_the_fresh_one() {
    let mut bench = Bench::new();
    probe(&mut bench);
    bench.front(&initialize("7", "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets().len(), 1);
    bench.relay.effects();
    bench.dies();
    bench.starts();
    assert_eq!(bench.front_gets(), [refused_for("\"d\"")]);
    assert_eq!(bench.backend_gets(), [initialize("8", "2025-06-18", "{}")]);
    bench.backend(&ANSWER.replace("ID", "8"));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "7")]);
    assert_eq!(bench.relay.effects(), [learned(Discover::Exits {})]);
}

/// Then the command is wrong, and the host hears of it as soon as from a child process.
#[test]
fn one_that_can_not_be_initialised_either_has_failed() {
    let mut bench = Bench::new();
    probe(&mut bench);
    bench.dies();
    bench.starts();
    bench.front(&initialize("7", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.front_gets();
    bench.dies();
    let told = bench.front_gets();
    assert!(told[0].contains("before it had initialised"), "{told:?}");
    assert_eq!(
        bench.relay.effects(),
        [INITIALIZED_TOLD],
        "nothing is learned"
    );
}

#[test]
fn silence_is_learned_when_the_server_is_initialised_and_corrected_by_a_late_answer() {
    let mut bench = Bench::new();
    let number = probe(&mut bench);
    bench.relay.detach(0, true, bench.now);
    bench.attach();
    bench.front(&initialize("7", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.backend(&ANSWER.replace("ID", "7"));
    assert_eq!(bench.relay.effects(), [learned(Discover::Mute {})]);
    bench.front_gets();
    bench.backend(&refused(&number));
    assert_eq!(bench.front_gets(), [""; 0], "its host has gone");
    assert_eq!(bench.relay.effects(), [learned(refuses())]);
}

#[test]
fn what_was_known_before_counts_for_a_fresh_one() {
    for discover in [Discover::Exits {}, Discover::Mute {}] {
        let mut bench = knowing(discover);
        probe_in_vain(&mut bench, &refused_for("\"d\""));
    }
    probe(&mut knowing(Discover::Answers {}));
    let mut bench = knowing(refuses());
    probe_in_vain(&mut bench, &refused("\"d\""));
    bench.relay.restart(bench.now);
    assert_eq!(bench.relay.effects()[0], FORGOTTEN);
}

/// It knows MCP 2026-07-28 alone, and can't use a server that was initialised.
#[test]
fn the_third_host_in_a_row_that_only_probes_gets_a_fresh_one() {
    let mut bench = Bench::initialized();
    for _ in 0..2 {
        next(&mut bench);
        probe_in_vain(&mut bench, &refused_for("\"d\""));
    }
    next(&mut bench);
    bench.front(&ask("\"d\"", "server/discover"));
    let effects = bench.relay.effects();
    let [Effect::Replace { why, hangs: false }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(why.contains("for the third time in a row"), "{why}");
    bench.relay.backend_started(bench.now);
    let asked = bench.backend_gets();
    assert!(asked[0].contains("server/discover"), "{asked:?}");
}

#[test]
fn a_host_that_goes_on_begins_the_count_anew() {
    let mut bench = Bench::initialized();
    for _ in 0..5 {
        next(&mut bench);
        probe_in_vain(&mut bench, &refused_for("\"d\""));
        next(&mut bench);
        bench.front(&initialize("0", "2025-06-18", "{}"));
        bench.backend_gets();
        bench.front_gets();
        assert!(
            !bench
                .relay
                .effects()
                .iter()
                .any(|effect| matches!(effect, Effect::Replace { .. }))
        );
        bench.now += 60_000;
    }
}

#[test]
fn one_that_was_discovered_and_refuses_to_be_initialised_is_replaced_once() {
    let mut bench = Bench::new();
    let number = probe(&mut bench);
    bench.backend(&answer(&number));
    bench.front(&initialize("2", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.backend(&refused("2"));
    bench.front_gets();
    let effects = bench.relay.effects();
    assert_eq!(
        effects,
        [learned(Discover::Answers {}), INITIALIZED_TOLD],
        "that is between the two"
    );
    next(&mut bench);
    bench.front(&initialize("0", "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets(), [initialize("3", "2025-06-18", "{}")]);
    bench.relay.effects();
    bench.backend(&refused("3"));
    assert_eq!(bench.front_gets(), [""; 0]);
    let effects = bench.relay.effects();
    let [Effect::Replace { why, hangs: false }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(why.ends_with("refuses `initialize`"), "{why}");
    bench.relay.backend_started(bench.now);
    assert_eq!(bench.backend_gets(), [initialize("4", "2025-06-18", "{}")]);
    bench.backend(&refused("4"));
    assert_eq!(
        bench.front_gets(),
        [refused("0")],
        "it refuses that from the first"
    );
    assert_eq!(bench.relay.effects(), [FORGOTTEN]);
    let number = probe(&mut bench);
    bench.backend(&answer(&number));
    bench.front_gets();
    bench.relay.effects();
    next(&mut bench);
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.backend(&refused("6"));
    assert_eq!(bench.front_gets(), [refused("0")]);
}

/// A host of 2026 that goes on without a probe, since it has probed elsewhere.
#[test]
fn a_first_request_of_the_new_era_needs_no_probe() {
    let mut bench = Bench::new();
    let number = probe(&mut bench);
    bench.backend(&answer(&number));
    bench.front_gets();
    next(&mut bench);
    bench.front(&call("0"));
    assert_eq!(bench.backend_gets(), [call("2")]);
}

/// The answer to `initialize` of a backend of this version.
fn of_version(number: &str, version: &str) -> String {
    let info = format!(r#""serverInfo":{{"name":"x","version":"{version}"}},"capabilities""#);
    let answer = ANSWER.replacen(r#""capabilities""#, &info, 1);
    answer.replace("ID", number)
}

/// The package was upgraded while its command stayed the same: what it did with a probe may have
/// changed with it.
#[test]
fn what_another_version_has_shown_is_forgotten() {
    let mut bench = knowing(refuses());
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.backend(&of_version("0", "1.0"));
    bench.front_gets();
    bench.front(INITIALIZED);
    bench.backend_gets();
    let is_1_0 = Effect::Learned(Learned::Version("1.0".into()));
    assert_eq!(bench.relay.effects(), [INITIALIZED_TOLD, is_1_0.clone()]);
    for (version, told) in [("1.0", is_1_0), ("2.0", FORGOTTEN)] {
        bench.now += 10_000;
        bench.dies();
        bench.starts();
        let revival = bench.backend_gets().pop().expect("it is initialised again");
        let revival: serde_json::Value = serde_json::from_str(&revival).expect("JSON");
        bench.backend(&of_version(&revival["id"].to_string(), version));
        assert_eq!(bench.relay.effects(), [told]);
    }
}
