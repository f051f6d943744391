//! The host's log, and the first call after a loss, which is refused where a front wants a model to
//! read of it.

use super::*;

fn not_sent(id: &str, why: &str) -> String {
    let message = format!(
        "not sent: this server begins afresh, and what the previous one had in memory is lost: {why}; repeat the call if it needs nothing of that"
    );
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"{message}","data":{{"outcome":"not_sent"}}}}}}"#
    )
}

/// A backend that a front has used, and that is gone.
fn used_and_gone() -> Bench {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.backend(&answer("1"));
    bench.front_gets();
    bench.now += 10_000;
    bench.dies();
    bench
}

impl Bench {
    /// The time is over within which calls are refused together. Returns what the front gets.
    fn refuses(&mut self) -> Vec<String> {
        assert_eq!(self.front_gets(), [""; 0], "not before");
        self.now += 250;
        assert!(self.relay.next_deadline().is_some_and(|at| at <= self.now));
        self.relay.tick(self.now);
        self.front_gets()
    }

    /// The same of those lines that refuse a call.
    fn refused_later(&mut self) -> Vec<String> {
        self.now += 250;
        self.relay.tick(self.now);
        let mut lines = self.front_gets();
        lines.retain(|line| line.contains("repeat the call"));
        lines
    }
}

/// The calls that come within a quarter of a second are the rest of a pipeline.
#[test]
fn what_is_called_at_once_is_refused_together_and_nothing_else_is() {
    let mut bench = used_and_gone();
    bench.relay.refuse_after_loss(true);
    bench.front(&ask("2", "resources/list"));
    bench.front(&call("3"));
    bench.front(&call("4"));
    bench.front(&call("5"));
    bench.front(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#);
    let why = "the previous server has ended (exit status: 1)";
    assert_eq!(bench.refuses(), [not_sent("3", why), not_sent("5", why)]);
    bench.front(&call("6"));
    bench.starts();
    let revival = bench.backend_gets();
    assert_eq!(revival.len(), 1, "{revival:?}");
    let number: serde_json::Value = serde_json::from_str(&revival[0]).expect("JSON");
    bench.backend(&ANSWER.replace("ID", &number["id"].to_string()));
    let sent = bench.backend_gets();
    let of = |method: &str| sent.iter().filter(|line| line.contains(method)).count();
    assert_eq!((of("resources/list"), of("tools/call")), (1, 1), "{sent:?}");
}

/// The call that is made is the sign that the loss was read elsewhere.
#[test]
fn a_front_that_does_not_want_it_makes_its_call() {
    let mut bench = used_and_gone();
    bench.front(&call("2"));
    bench.relay.refuse_after_loss(true);
    bench.front(&call("3"));
    assert_eq!(bench.front_gets(), [""; 0]);
}

#[test]
fn what_nobody_has_used_is_no_loss() {
    let mut bench = Bench::initialized();
    bench.relay.refuse_after_loss(true);
    bench.now += 10_000;
    bench.dies();
    bench.front(&call("2"));
    assert_eq!(bench.front_gets(), [""; 0]);
}

/// A call that was refused is no use of the fresh backend.
#[test]
fn what_was_lost_before_is_told_by_the_front() {
    let mut bench = listed();
    bench.relay.refuse_after_loss(true);
    bench
        .relay
        .note_former_loss("its keeper has ended".into(), false);
    bench.front(&call("2"));
    assert_eq!(bench.refuses(), [not_sent("2", "its keeper has ended")]);
    assert!(!bench.relay.is_used());
    bench.front(&call("3"));
    assert_eq!(bench.front_gets(), [""; 0]);
    assert_eq!(bench.backend_gets().len(), 1);
}

/// A front whose host has listed the tools.
fn listed() -> Bench {
    let mut bench = Bench::initialized();
    bench.front(&ask("1", "tools/list"));
    bench.backend_gets();
    bench.backend(&answer("1"));
    bench.front_gets();
    bench
}

/// The host has read of it, or a direct run would not have failed.
#[test]
fn nothing_is_refused_where_a_call_has_failed_or_the_host_had_not_begun() {
    let mut told = listed();
    told.relay.refuse_after_loss(true);
    told.relay
        .note_former_loss("its keeper has ended".into(), true);
    told.front(&call("2"));
    assert_eq!(told.backend_gets().len(), 1);
    let mut begins = Bench::initialized();
    begins.relay.refuse_after_loss(true);
    begins
        .relay
        .note_former_loss("its keeper has ended".into(), false);
    begins.front(&call("2"));
    assert_eq!(begins.backend_gets().len(), 1);
    // A call was open when it died.
    let mut open = Bench::initialized();
    open.relay.refuse_after_loss(true);
    open.front(&call("1"));
    open.backend_gets();
    open.now += 10_000;
    open.dies();
    assert_eq!(open.front_gets().len(), 1);
    open.front(&call("2"));
    assert_eq!(open.refused_later(), [""; 0]);
    // It dies between two connections.
    let mut between = Bench::initialized();
    between.front(&call("1"));
    between.backend_gets();
    between.backend(&answer("1"));
    between.front_gets();
    between.relay.detach(0, false, between.now);
    between.now += 10_000;
    between.dies();
    between.attach();
    between.relay.refuse_after_loss(true);
    between.front(&initialize("0", "2025-06-18", "{}"));
    between.front(&call("2"));
    assert_eq!(between.refused_later(), [""; 0]);
}

/// Within a minute the next one is told with the one after it.
#[test]
fn calls_are_refused_once_a_minute_and_the_losses_between_are_named_then() {
    let mut bench = used_and_gone();
    bench.relay.refuse_after_loss(true);
    let why = "the previous server has ended (exit status: 1)";
    let mut id = 10;
    let mut refused = Vec::new();
    for pause in [0, 20_000, 50_000] {
        bench.now += pause;
        bench.relay.tick(bench.now);
        if pause > 0 {
            // It is used, and dies.
            bench.starts();
            revived(&mut bench, "{}");
            bench.front(&call(&(id + 1).to_string()));
            for sent in bench.backend_gets() {
                let sent: serde_json::Value = serde_json::from_str(&sent).expect("JSON");
                if sent["method"] == "tools/call" {
                    bench.backend(&answer(&sent["id"].to_string()));
                }
            }
            bench.front_gets();
            bench.dies();
        }
        id += 2;
        bench.front(&call(&id.to_string()));
        refused.push(bench.refused_later().pop());
    }
    let twice = format!("{why}; {why}");
    let expected = [
        Some(not_sent("12", why)),
        None,
        Some(not_sent("16", &twice)),
    ];
    assert_eq!(refused, expected);
}

/// The fresh one has not been used, whatever its predecessor had done.
#[test]
fn nor_is_it_after_a_restart_by_hand() {
    for waits in [false, true] {
        let mut bench = Bench::initialized();
        bench.relay.refuse_after_loss(true);
        bench.front(&call("1"));
        bench.backend_gets();
        bench.relay.restart(bench.now);
        if waits {
            bench.front(&call("2"));
        }
        bench.backend(&answer("1"));
        assert!(matches!(
            &bench.relay.effects()[..],
            [Effect::Replace { .. }]
        ));
        bench.relay.backend_started(bench.now);
        let revival = bench.backend_gets();
        let number: serde_json::Value = serde_json::from_str(&revival[0]).expect("JSON");
        bench.backend(&ANSWER.replace("ID", &number["id"].to_string()));
        for sent in bench.backend_gets() {
            let sent: serde_json::Value = serde_json::from_str(&sent).expect("JSON");
            if sent["method"] == "tools/call" {
                bench.backend(&answer(&sent["id"].to_string()));
            }
        }
        bench.front_gets();
        bench.now += 10_000;
        bench.dies();
        bench.front_gets();
        bench.front(&call("3"));
        let refused = bench.refused_later();
        let why = "the previous server has ended (exit status: 1)";
        let expected = if waits {
            vec![not_sent("3", why)]
        } else {
            Vec::new()
        };
        assert_eq!(refused, expected, "the next one was asked: {waits}");
    }
}

/// The next front is told that it does not resume what the former one had, until its host has read
/// that.
#[test]
fn a_restart_between_two_connections_is_told_to_the_next_one() {
    let mut bench = Bench::initialized();
    bench.front(&call("1"));
    bench.backend_gets();
    bench.backend(&answer("1"));
    bench.front_gets();
    bench.relay.detach(0, false, bench.now);
    bench.relay.restart(bench.now);
    let effects = bench.relay.effects();
    assert!(
        matches!(&effects[..], [Effect::Replace { .. }]),
        "{effects:?}"
    );
    bench.relay.backend_started(bench.now);
    let why = "the previous one was restarted by `mcp-sessiond restart`";
    for tries in [false, true] {
        let attached = bench.relay.attach(None, None, bench.now);
        assert_eq!(
            (attached.resumed, attached.fresh.as_deref()),
            (false, Some(why))
        );
        assert_eq!(attached.ended, [""; 0], "nothing was lost");
        if tries {
            bench.front(&initialize("0", "2025-06-18", "{}"));
            for sent in bench.backend_gets() {
                let sent: serde_json::Value = serde_json::from_str(&sent).expect("JSON");
                if sent["method"] == "initialize" {
                    bench.backend(&ANSWER.replace("ID", &sent["id"].to_string()));
                }
            }
            bench.front_gets();
        }
        bench.relay.detach(0, false, bench.now);
    }
    let attached = bench.relay.attach(None, None, bench.now);
    assert_eq!((attached.resumed, attached.fresh), (true, None));
}

fn logged(why: &str) -> String {
    let text = format!(
        "this server begins afresh, and what the previous one had in memory is lost: {why}"
    );
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"warning","logger":"mcp-sessiond","data":"{text}"}}}}"#
    )
}

/// A fresh backend is initialised by us, and can do this. Returns what the front gets.
fn revived(bench: &mut Bench, capabilities: &str) -> Vec<String> {
    let revival = bench.backend_gets();
    let number: serde_json::Value = serde_json::from_str(&revival[0]).expect("JSON");
    let answer = format!(
        r#"{{"result":{{"protocolVersion":"2025-06-18","capabilities":{capabilities}}},"jsonrpc":"2.0","id":{}}}"#,
        number["id"]
    );
    bench.backend(&answer);
    bench.front_gets()
}

const LOGS: &str = r#"{"logging":{}}"#;

#[test]
fn the_host_s_log_is_told_once_where_the_backend_writes_there() {
    for (capabilities, is_told) in [(LOGS, true), ("{}", false)] {
        let mut bench = used_and_gone();
        bench.starts();
        let why = "the previous server has ended (exit status: 1)";
        let expected = Vec::from_iter(is_told.then(|| logged(why)));
        assert_eq!(revived(&mut bench, capabilities), expected);
        bench.relay.restart(bench.now);
        bench.relay.effects();
        bench.relay.backend_started(bench.now);
        assert_eq!(revived(&mut bench, LOGS), [""; 0], "it was told");
    }
}

/// The front goes on after its keeper has ended, or begins anew; and the user may have stopped it.
#[test]
fn so_is_that_of_a_loss_that_the_front_knows_and_its_host_has_seen() {
    for (goes_on, is_lost) in [(true, true), (true, false), (false, true)] {
        let mut bench = Bench::unattached();
        let line = initialize("0", "2025-06-18", "{}");
        let former = goes_on.then(|| line.clone().into());
        bench.relay.attach(former, None, bench.now);
        if is_lost {
            bench
                .relay
                .note_former_loss("its keeper has ended".into(), false);
        }
        if !goes_on {
            bench.front(&line);
        }
        let answer = Vec::from_iter((!goes_on).then_some(()));
        let told = revived(&mut bench, LOGS);
        assert_eq!(told.len() - answer.len(), usize::from(goes_on && is_lost));
        let log = logged("its keeper has ended");
        assert_eq!(told.contains(&log), goes_on && is_lost, "{told:?}");
    }
}
