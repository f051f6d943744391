//! A host of the other era comes: it gets a fresh backend where the running one refuses it.

use super::*;

const NO: &str = r#""code":-32601"#;

fn refused(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#
    )
}

/// The next host comes after an orderly close.
fn next(bench: &mut Bench) {
    bench.relay.detach(0, true, bench.now);
    bench.attach();
}

fn is_replaced(bench: &mut Bench, method: &str) {
    let effects = bench.relay.effects();
    let [Effect::Replace { why, kills: false }] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert!(why.ends_with(&format!("refuses `{method}`")), "{why}");
    bench.relay.backend_started(bench.now);
}

#[test]
fn one_that_was_initialised_and_refuses_to_be_discovered_is_replaced() {
    let mut bench = Bench::initialized();
    next(&mut bench);
    bench.front(&ask("\"d\"", "server/discover"));
    assert_eq!(bench.backend_gets(), [ask("1", "server/discover")]);
    bench.backend(&refused("1"));
    assert_eq!(bench.front_gets(), [""; 0]);
    is_replaced(&mut bench, "server/discover");
    assert_eq!(bench.backend_gets(), [ask("2", "server/discover")]);
    bench.backend(&answer("2"));
    assert_eq!(bench.front_gets(), [answer("\"d\"")]);
    // It has not been initialised, and nobody does that when it dies.
    bench.now += 10_000;
    bench.dies();
    assert_eq!(
        (bench.relay.effects(), bench.relay.next_deadline()),
        (vec![], None)
    );
}

/// It is of the older era. The host falls back to `initialize`, as it does directly, and no further
/// one costs the server its life.
#[test]
fn one_that_can_not_be_discovered_is_replaced_once() {
    let mut bench = Bench::initialized();
    next(&mut bench);
    bench.front(&ask("5", "server/discover"));
    bench.backend_gets();
    bench.backend(&refused("5"));
    is_replaced(&mut bench, "server/discover");
    assert_eq!(bench.backend_gets(), [ask("6", "server/discover")]);
    bench.backend(&refused("6"));
    assert!(bench.front_gets()[0].contains(NO));
    bench.front(&initialize("7", "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets(), [initialize("7", "2025-06-18", "{}")]);
    bench.backend(&ANSWER.replace("ID", "7"));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "7")]);
    next(&mut bench);
    bench.front(&ask("1", "server/discover"));
    bench.backend_gets();
    bench.backend(&refused("8"));
    assert_eq!(
        (bench.relay.effects(), bench.front_gets()),
        (vec![], vec![refused("1")])
    );
}

/// What most hosts of 2026 do with most servers of today: nothing is replaced, ever.
#[test]
fn one_that_was_asked_first_and_can_not_be_discovered_is_never_replaced() {
    let mut bench = Bench::new();
    let discover = |bench: &mut Bench| {
        bench.front(&ask("\"d\"", "server/discover"));
        let asked = bench.backend_gets().pop().expect("asked");
        let asked: serde_json::Value = serde_json::from_str(&asked).expect("JSON");
        bench.backend(&refused(&asked["id"].to_string()));
        assert_eq!(
            (bench.front_gets(), bench.relay.effects()),
            (vec![refused("\"d\"")], vec![])
        );
    };
    discover(&mut bench);
    bench.front(&initialize("7", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.backend(&ANSWER.replace("ID", "7"));
    bench.front(INITIALIZED);
    bench.backend_gets();
    bench.front_gets();
    next(&mut bench);
    discover(&mut bench);
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.is_pinged();
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0")]);
}

#[test]
fn one_that_accepts_both_is_kept() {
    let mut bench = Bench::initialized();
    next(&mut bench);
    bench.front(&ask("5", "server/discover"));
    bench.backend_gets();
    bench.backend(&answer("5"));
    assert_eq!(
        (bench.relay.effects(), bench.front_gets()),
        (vec![], vec![answer("5")])
    );
}

#[test]
fn one_that_was_discovered_and_refuses_to_be_initialised_is_replaced_once() {
    let mut bench = Bench::new();
    bench.front(&ask("1", "server/discover"));
    bench.backend_gets();
    bench.backend(&answer("1"));
    bench.front(&initialize("2", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.backend(&refused("2"));
    bench.front_gets();
    assert_eq!(bench.relay.effects(), [], "that is between the two");
    next(&mut bench);
    bench.front(&initialize("0", "2025-06-18", "{}"));
    assert_eq!(bench.backend_gets(), [initialize("3", "2025-06-18", "{}")]);
    bench.backend(&refused("3"));
    assert_eq!(bench.front_gets(), [""; 0]);
    is_replaced(&mut bench, "initialize");
    assert_eq!(bench.backend_gets(), [initialize("4", "2025-06-18", "{}")]);
    bench.backend(&refused("4"));
    assert_eq!(
        bench.front_gets(),
        [refused("0")],
        "it refuses that from the first"
    );
    bench.front(&ask("1", "server/discover"));
    bench.backend_gets();
    bench.backend(&answer("5"));
    bench.front_gets();
    next(&mut bench);
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.backend_gets();
    bench.backend(&refused("6"));
    assert_eq!(
        (bench.relay.effects(), bench.front_gets()),
        (vec![], vec![refused("0")])
    );
}
