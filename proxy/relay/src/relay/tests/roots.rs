//! Folders, log level and subscriptions of a former host, and a call that it has left open.

use super::*;

const CAN: &str = r#"{"roots":{}}"#;
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;

fn roots(id: &str, uris: &[&str]) -> String {
    let given: Vec<String> = uris
        .iter()
        .map(|uri| format!(r#"{{"uri":"{uri}"}}"#))
        .collect();
    let given = given.join(",");
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[{given}]}}}}"#)
}

/// A backend that has asked its first host for its folders, of a user's name or not; and whether it
/// was used.
fn in_folders(uris: &[&str], is_users: bool, is_used: bool) -> Bench {
    let mut bench = Bench::unattached();
    bench.relay.limits.is_users = is_users;
    bench.attach();
    bench.front(&initialize("0", "2025-06-18", CAN));
    bench.backend_gets();
    bench.backend(&ANSWER.replace("ID", "0"));
    bench.front_gets();
    bench.front(INITIALIZED);
    bench.backend_gets();
    bench.backend(&ask("1", "roots/list"));
    assert_eq!(bench.front_gets(), [ask("1", "roots/list")]);
    bench.front(&roots("1", uris));
    assert_eq!(bench.backend_gets(), [roots("1", uris)]);
    if is_used {
        bench.front(&call("1"));
        bench.backend_gets();
        bench.backend(&answer("1"));
        bench.front_gets();
    }
    bench
}

/// Another host comes and has initialised. It has the folders that it is asked for next, or can't be
/// asked.
fn another(bench: &mut Bench, capabilities: &str) {
    bench.relay.detach(0, false, bench.now);
    assert!(bench.attach().resumed);
    bench.front(&initialize("0", "2025-06-18", capabilities));
    bench.is_pinged();
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0")]);
    bench.front(INITIALIZED);
}

fn replaced(bench: &mut Bench) -> String {
    let effects = bench.relay.effects();
    let [Effect::Replace { why, hangs: false }] = &effects[..] else {
        panic!("{effects:?}");
    };
    why.clone()
}

#[test]
fn the_next_host_is_asked_once_and_its_calls_wait() {
    let mut bench = in_folders(&["file:///a", "file:///b"], false, true);
    another(&mut bench, CAN);
    assert_eq!(bench.front_gets(), [ask("2", "roots/list")]);
    bench.front(&call("5"));
    bench.front(&ask("6", "tools/list"));
    assert_eq!(
        bench.backend_gets(),
        [ask("6", "tools/list")],
        "lists do nothing in a folder"
    );
    bench.front(&roots("2", &["file:///b", "file:///a"]));
    assert_eq!(bench.backend_gets(), [call("5")], "the same set");
    assert_eq!(
        (bench.front_gets(), bench.relay.effects()),
        (vec![], vec![])
    );
    // Nobody else is asked on this connection.
    bench.front(&call("8"));
    assert_eq!(bench.backend_gets(), [call("8")]);
    assert_eq!(bench.front_gets(), [""; 0]);
}

#[test]
fn a_backend_that_has_never_asked_works_for_every_host() {
    let mut bench = Bench::initialized();
    bench.reconnect(CAN);
    bench.front(&call("5"));
    assert_eq!(
        (bench.front_gets(), bench.backend_gets()),
        (vec![], vec![call("5")])
    );
}

#[test]
fn other_folders_bring_a_fresh_backend_and_the_call_is_its() {
    for (given, why) in [
        (
            Some(roots("2", &["file:///c"])),
            "the host's folders (roots) are not those that the server was given",
        ),
        (
            Some(failed("2", "no")),
            "the host no longer gives folders (roots), and the server was given some",
        ),
        (
            None,
            "the host no longer gives folders (roots), and the server was given some",
        ),
    ] {
        let mut bench = in_folders(&["file:///a"], false, true);
        another(&mut bench, if given.is_some() { CAN } else { "{}" });
        bench.front_gets();
        bench.front(&call("5"));
        assert_eq!(bench.backend_gets(), [""; 0]);
        if let Some(given) = given {
            bench.front(&given);
        }
        assert_eq!(replaced(&mut bench), why);
        bench.relay.backend_started(bench.now);
        let asked = bench.backend_gets();
        assert_eq!(asked.len(), 1, "{asked:?}");
        let id = asked[0]
            .split(&[':', ','][..])
            .nth(3)
            .expect("an id")
            .to_owned();
        bench.backend(&ANSWER.replace("ID", &id));
        assert_eq!(bench.backend_gets(), [INITIALIZED.to_owned(), call("5")]);
    }
}

#[test]
fn one_that_nobody_has_used_is_replaced_without_a_word() {
    let mut bench = in_folders(&["file:///a"], false, false);
    another(&mut bench, CAN);
    bench.front_gets();
    // The call that waits is the next one's.
    bench.front(&call("5"));
    bench.front(&roots("2", &["file:///c"]));
    assert_eq!(bench.relay.effects(), [Effect::ReplaceUnused]);
}

#[test]
fn a_host_that_does_not_answer_has_none() {
    let mut bench = in_folders(&["file:///a"], false, true);
    another(&mut bench, CAN);
    bench.front_gets();
    bench.now += 60_000;
    bench.relay.tick(bench.now);
    assert_eq!(bench.relay.effects(), [], "nothing waits for it");
    bench.front(&call("5"));
    let began = bench.now;
    while bench.relay.effects.is_empty() {
        bench.wait();
    }
    assert_eq!(bench.now - began, 2_000);
    let why = "the host no longer gives folders (roots), and the server was given some";
    assert_eq!(replaced(&mut bench), why);
    let gone = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,"reason":"it was not answered in time"}}"#;
    assert_eq!(bench.front_gets(), [gone]);
    bench.front(&roots("2", &["file:///a"]));
    assert_eq!(bench.relay.effects(), [], "too late");
}

#[test]
fn a_backend_with_a_name_is_told_and_calls_wait_until_it_has_asked() {
    let mut bench = in_folders(&["file:///a"], true, true);
    another(&mut bench, CAN);
    bench.front_gets();
    bench.front(&call("5"));
    bench.front(&roots("2", &["file:///c"]));
    assert_eq!(bench.backend_gets(), [CHANGED]);
    bench.backend(&ask("9", "roots/list"));
    assert_eq!(bench.front_gets(), [ask("9", "roots/list")]);
    assert_eq!(bench.backend_gets(), [""; 0]);
    bench.front(&roots("9", &["file:///c"]));
    assert_eq!(
        bench.backend_gets(),
        [roots("9", &["file:///c"]), call("5")]
    );
    assert_eq!(bench.relay.effects(), []);
    bench.backend(&answer("5"));
    assert_eq!(bench.front_gets(), [answer("5")]);
    // It knows that from now on.
    another(&mut bench, CAN);
    assert_eq!(bench.front_gets(), [ask("10", "roots/list")]);
    bench.front(&roots("10", &["file:///c"]));
    assert_eq!(bench.backend_gets(), [""; 0]);
}

#[test]
fn one_that_does_not_ask_again_keeps_calls_for_a_second() {
    let mut bench = in_folders(&["file:///a"], true, true);
    another(&mut bench, "{}");
    bench.front(&call("5"));
    assert_eq!(bench.backend_gets(), [CHANGED]);
    let began = bench.now;
    let mut got = Vec::new();
    while got.is_empty() {
        bench.wait();
        got = bench.backend_gets();
    }
    assert_eq!((bench.now - began, got), (1_000, vec![call("5")]));
}

/// What it has asked while nobody was there is what the relay would ask.
#[test]
fn what_the_backend_has_asked_itself_is_not_asked_twice() {
    let mut bench = in_folders(&["file:///a"], false, true);
    bench.relay.detach(0, false, bench.now);
    bench.backend(&ask("5", "roots/list"));
    assert!(bench.attach().resumed);
    bench.front(&initialize("0", "2025-06-18", CAN));
    bench.is_pinged();
    bench.front_gets();
    bench.front(INITIALIZED);
    assert_eq!(bench.front_gets(), [ask("5", "roots/list")]);
    bench.front(&call("6"));
    assert_eq!(bench.backend_gets(), [""; 0]);
    bench.front(&roots("5", &["file:///z"]));
    assert_eq!(
        bench.backend_gets(),
        [roots("5", &["file:///z"]), call("6")]
    );
    assert_eq!(bench.relay.effects(), []);
}

/// `printf … | mcp-sessiond wrap`
#[test]
fn a_host_that_says_everything_at_once_is_asked_behind_the_answer_to_its_initialize() {
    let mut bench = in_folders(&["file:///a"], false, true);
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&initialize("0", "2025-06-18", CAN));
    bench.front(&call("5"));
    assert_eq!(bench.front_gets(), [""; 0]);
    bench.is_pinged();
    let asked = ask("2", "roots/list");
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0"), asked]);
    assert_eq!(bench.backend_gets(), [""; 0]);
    bench.front(&roots("2", &["file:///a"]));
    assert_eq!(bench.backend_gets(), [call("5")]);
}

/// A front that has lost its connection, and one whose host had another server under this name.
#[test]
fn a_front_that_attaches_anew_is_asked_at_once() {
    let mut bench = in_folders(&["file:///a"], true, true);
    bench.relay.detach(0, false, bench.now);
    let line = initialize("0", "2025-06-18", CAN);
    bench.relay.attach(Some(line.into()), None, bench.now);
    assert_eq!(bench.front_gets().last(), Some(&ask("2", "roots/list")));
}

#[test]
fn what_a_former_host_has_asked_for_is_undone() {
    let mut bench = Bench::initialized();
    let request = |id: u8, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
    };
    let uri = |uri: &str| format!(r#"{{"uri":"{uri}"}}"#);
    for (id, method, params) in [
        (1, "logging/setLevel", r#"{"level":"error"}"#.to_owned()),
        (2, "resources/subscribe", uri("x:a")),
        (3, "resources/subscribe", uri("x:b")),
        (4, "resources/unsubscribe", uri("x:a")),
    ] {
        bench.front(&request(id, method, &params));
        assert_eq!(bench.backend_gets(), [request(id, method, &params)]);
        bench.backend(&answer(&id.to_string()));
    }
    bench.front_gets();
    bench.relay.detach(0, true, bench.now);
    // One that only looks changes nothing.
    bench.attach();
    bench.front(&ask("1", "ping"));
    bench.backend_gets();
    bench.relay.detach(0, true, bench.now);
    bench.attach();
    bench.front(&initialize("0", "2025-06-18", "{}"));
    let got = bench.backend_gets();
    let (undone, ping) = got.split_at(2);
    assert_eq!(
        undone,
        [
            request(6, "logging/setLevel", r#"{"level":"debug"}"#),
            request(7, "resources/unsubscribe", &uri("x:b")),
        ]
    );
    assert!(
        ping.iter().all(|line| line.contains(r#""ping""#)),
        "{ping:?}"
    );
    for id in ["6", "7"] {
        bench.backend(&answer(id));
    }
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0")]);
    // It is undone once.
    bench.relay.detach(0, true, bench.now);
    bench.attach();
    bench.front(&initialize("0", "2025-06-18", "{}"));
    assert!(
        !bench
            .backend_gets()
            .iter()
            .any(|line| line.contains("params"))
    );
}

/// Its host has noticed nothing, and believes that it has subscribed.
#[test]
fn a_front_that_has_lost_its_connection_keeps_what_it_has_asked_for() {
    let mut bench = Bench::initialized();
    bench.front(
        r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}"#,
    );
    bench.backend_gets();
    bench.backend(&answer("1"));
    bench.relay.detach(0, false, bench.now);
    let line = initialize("0", "2025-06-18", "{}");
    bench.relay.attach(Some(line.into()), None, bench.now);
    assert_eq!(bench.backend_gets(), [""; 0]);
    assert!(bench.relay.former_habits.is_empty() && !bench.relay.habits.is_empty());
}

#[test]
fn a_call_that_is_open_is_said_to_be() {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.now += 40_000;
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    assert_eq!(bench.relay.effects(), [], "it may only probe");
    bench.front(&initialize("0", "2025-06-18", "{}"));
    let said = "a call of the previous connection has been open for 40 s; the server may answer nothing else until it has ended";
    assert_eq!(bench.relay.effects(), [Effect::Say(said.into())]);
    bench.backend(&answer("1"));
    bench.reconnect("{}");
    assert_eq!(bench.relay.effects(), []);
}

/// The relay answers that itself, and the backend would go on where it is.
#[test]
fn a_host_that_has_none_does_not_answer_what_the_backend_has_asked_itself() {
    let mut bench = in_folders(&["file:///a"], false, true);
    bench.relay.detach(0, false, bench.now);
    bench.backend(&ask("5", "roots/list"));
    bench.attach();
    bench.front(&initialize("0", "2025-06-18", "{}"));
    bench.is_pinged();
    bench.front_gets();
    bench.front(&call("6"));
    let why = "the host no longer gives folders (roots), and the server was given some";
    let dropped = "1 messages of the server that is replaced are dropped";
    assert_eq!(
        bench.relay.effects(),
        [
            Effect::Say(dropped.into()),
            Effect::Replace {
                why: why.into(),
                hangs: false
            }
        ]
    );
}

/// Nobody had wanted it any more when it ended.
#[test]
fn a_fresh_one_that_ends_at_once_is_started_again_for_the_next_host() {
    let mut bench = in_folders(&["file:///a"], false, false);
    another(&mut bench, "{}");
    assert_eq!(bench.relay.effects(), [Effect::ReplaceUnused]);
    bench.relay.backend_started(bench.now);
    bench.relay.detach(0, false, bench.now);
    bench.dies();
    bench.attach();
    bench.front(&initialize("7", "2025-06-18", "{}"));
    assert!(!bench.relay.rests(), "the host waits for it");
    bench.wait();
    bench.relay.backend_started(bench.now);
    assert_eq!(bench.backend_gets().len(), 1, "it is initialised");
    bench.backend(&ANSWER.replace("ID", "2"));
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "7")]);
}

/// As a host of a newer version does, which finds out which one the backend has.
#[test]
fn one_that_a_host_without_an_initialize_has_told_asks_the_first_that_has_one() {
    let mut bench = Bench::new();
    bench.front(&ask("0", "server/discover"));
    bench.backend(&ask("1", "roots/list"));
    bench.front_gets();
    bench.front(&failed("1", "no"));
    bench.backend_gets();
    bench.relay.detach(0, false, bench.now);
    bench.attach();
    bench.front(&initialize("0", "2025-06-18", CAN));
    bench.backend_gets();
    bench.backend(&ANSWER.replace("ID", "1"));
    bench.front_gets();
    bench.front(INITIALIZED);
    assert_eq!(bench.front_gets(), [ask("2", "roots/list")]);
    bench.front(&call("5"));
    assert_eq!(bench.backend_gets(), [INITIALIZED]);
    bench.front(&roots("2", &["file:///a"]));
    let why = "the host's folders (roots) are not those that the server was given";
    let effects = bench.relay.effects();
    assert_eq!(effects.last(), Some(&Effect::ReplaceUnused), "{why}");
}

/// A backend that has asked itself, and whose next host has that question.
fn asks_itself(bench: &mut Bench) {
    bench.relay.detach(0, false, bench.now);
    bench.backend(&ask("5", "roots/list"));
    bench.attach();
    bench.front(&initialize("0", "2025-06-18", CAN));
    bench.is_pinged();
    bench.front_gets();
    bench.front(INITIALIZED);
    assert_eq!(bench.front_gets(), [ask("5", "roots/list")]);
}

#[test]
fn an_error_and_silence_are_no_answer_to_what_the_backend_has_asked_itself() {
    for is_silent in [false, true] {
        let mut bench = in_folders(&["file:///a"], false, true);
        asks_itself(&mut bench);
        bench.now += 60_000;
        bench.relay.tick(bench.now);
        bench.relay.effects();
        bench.front(&call("6"));
        if is_silent {
            bench.now += 2_000;
            bench.relay.tick(bench.now);
        } else {
            bench.front(&failed("5", "no"));
        }
        let why = "the host no longer gives folders (roots), and the server was given some";
        assert_eq!(replaced(&mut bench), why);
    }
}

#[test]
fn what_the_backend_does_not_ask_any_more_the_relay_asks() {
    let mut bench = in_folders(&["file:///a"], false, true);
    asks_itself(&mut bench);
    bench.front(&call("6"));
    bench.backend(
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#,
    );
    let got = bench.front_gets();
    assert!(got.contains(&ask("6", "roots/list")), "{got:?}");
    assert_eq!(bench.backend_gets(), [""; 0]);
    bench.front(&roots("6", &["file:///a"]));
    assert_eq!(bench.backend_gets(), [call("6")]);
}

/// The backend is told of the folders before it is called in them.
#[test]
fn what_the_backend_asks_meanwhile_is_answered_before_the_call() {
    let mut bench = in_folders(&["file:///a"], false, true);
    another(&mut bench, CAN);
    assert_eq!(bench.front_gets(), [ask("2", "roots/list")]);
    bench.front(&call("5"));
    bench.backend(&ask("8", "roots/list"));
    assert_eq!(bench.front_gets(), [ask("8", "roots/list")]);
    bench.front(&roots("8", &["file:///c"]));
    bench.front(&roots("2", &["file:///c"]));
    assert_eq!(
        bench.backend_gets(),
        [roots("8", &["file:///c"]), call("5")]
    );
    assert_eq!(bench.relay.effects(), []);
}

/// The next host may have the folders of the first one.
#[test]
fn what_a_host_has_called_that_left_before_it_answered_is_not_made() {
    for is_users in [false, true] {
        let mut bench = in_folders(&["file:///a"], is_users, true);
        another(&mut bench, CAN);
        bench.front_gets();
        bench.front(&call("5"));
        bench.front(&ask("6", "tools/list"));
        bench.relay.detach(0, true, bench.now);
        let said =
            "1 call was not sent to the server: the host left before it gave its folders (roots)";
        let (effects, lines) = if is_users {
            (vec![], vec![call("5"), ask("6", "tools/list")])
        } else {
            (vec![Effect::Say(said.into())], vec![ask("6", "tools/list")])
        };
        assert_eq!(bench.relay.effects(), effects);
        assert_eq!(bench.backend_gets(), lines);
    }
}

/// The host has its two seconds from what it calls itself.
#[test]
fn what_a_former_host_has_called_hurries_nobody() {
    let mut bench = in_folders(&["file:///a"], false, true);
    bench.front(&call("4"));
    bench.relay.detach(0, true, bench.now);
    bench.attach();
    bench.front(&initialize("0", "2025-06-18", CAN));
    bench.is_pinged();
    assert_eq!(bench.front_gets(), [ANSWER.replace("ID", "0")]);
    bench.front(INITIALIZED);
    assert_eq!(bench.front_gets(), [ask("2", "roots/list")]);
    bench.now += 60_000;
    bench.relay.tick(bench.now);
    assert_eq!(bench.relay.effects(), []);
    bench.front(&call("5"));
    bench.now += 1_999;
    bench.relay.tick(bench.now);
    assert_eq!(bench.relay.effects(), []);
    bench.front(&roots("2", &["file:///a"]));
    assert_eq!(bench.backend_gets().len(), 2);
}
