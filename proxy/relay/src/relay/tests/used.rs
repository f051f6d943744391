//! Whether anything of a backend would be missed.

use super::*;

/// Whether it counts as used once its host has said this, or it has said that to its host.
fn is_used(of_host: Option<&str>, of_backend: Option<&str>) -> bool {
    let mut bench = Bench::initialized();
    if let Some(line) = of_host {
        bench.front(line);
    }
    if let Some(line) = of_backend {
        bench.backend(line);
        bench.front_gets();
    }
    bench.relay.is_used()
}

#[test]
fn to_greet_ping_and_list_is_no_use() {
    assert!(!is_used(None, None));
    let requests = [
        "ping",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ];
    for method in requests {
        assert!(!is_used(Some(&ask("7", method)), None), "{method}");
    }
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    assert!(!is_used(Some(cancelled), None));
    assert!(
        !is_used(None, Some(&notice(1))),
        "what it says by itself is no wish of the host's"
    );
    assert!(
        !is_used(Some(&answer("1")), Some(&ask("1", "ping"))),
        "nor does it keep anything because of a ping"
    );
}

#[test]
fn a_call_a_subscription_a_log_level_and_an_open_ask_are() {
    let requests = [
        "tools/call",
        "resources/subscribe",
        "logging/setLevel",
        "resources/read",
        "of/its/own",
    ];
    for method in requests {
        assert!(is_used(Some(&ask("7", method)), None), "{method}");
    }
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    assert!(is_used(Some(notice), None));
    assert!(is_used(Some("not JSON"), None));
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        assert!(is_used(None, Some(&ask("1", method))), "{method}");
    }
}

#[test]
fn an_ask_that_nobody_was_handed_is_none() {
    let mut bench = Bench::initialized();
    bench.relay.detach(0, false, bench.now);
    bench.backend(&ask("1", "roots/list"));
    assert!(!bench.relay.is_used());
    bench.reconnect(r#"{"roots":{}}"#);
    bench.front_gets();
    assert!(bench.relay.is_used());
}

#[test]
fn a_conversation_begins_with_the_answer_to_initialize_or_with_another_request() {
    let mut bench = Bench::new();
    assert!(!bench.relay.has_conversed(), "nothing was said");
    bench.front(&ask("7", "ping"));
    bench.front(&ask("8", "server/discover"));
    assert!(!bench.relay.has_conversed(), "these are probes");
    bench.front(&initialize("0", "2025-06-18", "{}"));
    assert!(!bench.relay.has_conversed(), "it has no answer");
    bench.relay.detach(0, true, bench.now);
    assert!(!bench.relay.has_conversed(), "nobody is attached");
    // The next host waits for the answer to the former one's.
    bench.attach();
    bench.front(&initialize("1", "2025-06-18", "{}"));
    assert!(!bench.relay.has_conversed());
    // A host of 2026-07-28 has no `initialize`, and others may not wait for the answer.
    bench.front(&ask("2", "tools/call"));
    assert!(bench.relay.has_conversed());
    assert!(Bench::initialized().relay.has_conversed());
}
