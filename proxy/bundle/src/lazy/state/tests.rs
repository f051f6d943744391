//! What is answered without a server, and what is watched with one.

use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use serde_json::json;

use super::*;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"h"}}}"#;

fn line(value: &serde_json::Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn request(id: u64, method: &str, params: &serde_json::Value) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

fn outcome(value: &serde_json::Value) -> Outcome {
    Ok(raw(value))
}

/// What is known of a server after a host has asked it this, page by page.
fn known() -> Known {
    let mut state = State::new(None, Known::default(), true);
    assert!(state.watch(INITIALIZE.as_bytes()));
    let introduction =
        json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "logging": {}}});
    assert!(
        state
            .on_answer(&Id::number(0), &outcome(&introduction))
            .1
            .is_some()
    );
    assert!(state.watch(&request(1, "tools/list", &json!({}))));
    let first = json!({"tools": [{"name": "a"}], "nextCursor": "x"});
    assert!(
        state
            .on_answer(&Id::number(1), &outcome(&first))
            .1
            .is_none(),
        "it is not whole"
    );
    // Of another listing.
    assert!(state.watch(&request(2, "tools/list", &json!({"cursor": "y"}))));
    assert!(
        state
            .on_answer(&Id::number(2), &outcome(&json!({"tools": []})))
            .1
            .is_none()
    );
    assert!(state.watch(&request(3, "tools/list", &json!({"cursor": "x"}))));
    let (was_ours, news) =
        state.on_answer(&Id::number(3), &outcome(&json!({"tools": [{"name": "b"}]})));
    let (key, known) = news.expect("it is whole");
    let expected: Box<RawValue> = serde_json::from_str(
        r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"h","version":"2"}}"#,
    )
    .expect("JSON");
    assert_eq!((was_ours, key), (false, initialize_key(&expected)));
    known
}

fn answer(state: &mut State, line: &[u8]) -> serde_json::Value {
    match state.on_line(line) {
        Effect::Answer(line) => serde_json::from_slice(&line).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_known_is_answered_and_all_else_wakes_the_server() {
    let mut state = State::new(None, known(), false);
    assert!(
        matches!(
            state.on_line(&request(9, "tools/list", &json!({}))),
            Effect::Start
        ),
        "before `initialize`"
    );
    let introduced = answer(&mut state, INITIALIZE.as_bytes());
    assert_eq!(
        introduced["result"]["capabilities"]["tools"]["listChanged"],
        true
    );
    let initialized = line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert!(matches!(state.on_line(&initialized), Effect::Drop));
    assert_eq!(
        answer(&mut state, &request(1, "ping", &json!({})))["result"],
        json!({})
    );
    let tools = answer(&mut state, &request(2, "tools/list", &json!({})));
    assert_eq!(
        tools,
        json!({"jsonrpc": "2.0", "id": 2, "result": {"tools": [{"name": "a"}, {"name": "b"}]}})
    );
    answer(
        &mut state,
        &request(3, "logging/setLevel", &json!({"level": "error"})),
    );
    assert_eq!(
        state.level.as_deref().map(RawValue::get),
        Some(r#"{"level":"error"}"#)
    );
    assert_eq!(state.lists_from_memory, [List::Tools]);
    for waking in [
        request(4, "tools/call", &json!({"name": "a"})),
        request(5, "prompts/list", &json!({})),
        request(6, "tools/list", &json!({"cursor": "x"})),
        request(7, "vendor/method", &json!({})),
        INITIALIZE.as_bytes().to_vec(),
        format!("[{INITIALIZE}]").into_bytes(),
        line(&json!({"jsonrpc": "2.0", "method": "notifications/of_a_vendor"})),
        b"no JSON".to_vec(),
    ] {
        assert!(
            matches!(state.on_line(&waking), Effect::Start),
            "{}",
            String::from_utf8_lossy(&waking)
        );
    }
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}});
    assert!(matches!(state.on_line(&line(&cancelled)), Effect::Hold));
    assert!(matches!(
        state.on_line(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#),
        Effect::Drop
    ));
}

#[test]
fn the_host_is_introduced_once() {
    let initialized = line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    // The server has heard it in the host's name.
    let mut state = State::new(None, known(), false);
    answer(&mut state, INITIALIZE.as_bytes());
    assert!(!state.watch(&initialized) && state.watch(&initialized));
    // It has not.
    let mut state = State::new(None, Known::default(), true);
    assert!(state.watch(INITIALIZE.as_bytes()) && state.watch(&initialized));
}

#[test]
fn what_fails_is_not_remembered_and_a_missing_method_is() {
    let mut state = State::new(Some("key".to_owned()), known(), true);
    assert!(state.watch(&request(1, "tools/list", &json!({}))));
    let failed = Err(RpcError::new(code::CONNECTION, "later"));
    let (_, news) = state.on_answer(&Id::number(1), &failed);
    assert!(news.expect("news").1.list(List::Tools).is_none());
    assert!(state.watch(&request(2, "prompts/list", &json!({}))));
    let missing = Err(RpcError::new(code::NO_METHOD, "no"));
    let (_, news) = state.on_answer(&Id::number(2), &missing);
    assert!(matches!(
        news.expect("news").1.list(List::Prompts),
        Some(Err(_))
    ));
}

#[test]
fn two_listings_at_once_do_not_make_one_list() {
    let begun = || {
        let mut state = State::new(Some("key".to_owned()), known(), true);
        for id in 1..=2 {
            assert!(state.watch(&request(id, "tools/list", &json!({}))));
        }
        state
    };
    let names = |known: &Known| {
        known
            .list(List::Tools)
            .expect("a list")
            .expect("no error")
            .get()
            .to_owned()
    };
    let all = json!({"tools": [{"name": "c"}, {"name": "d"}]});
    // All on one page: that of the later request counts.
    for order in [[1, 2], [2, 1]] {
        let mut state = begun();
        let heard = order.map(|id| state.on_answer(&Id::number(id), &outcome(&all)).1);
        let news: Vec<_> = heard.iter().flatten().collect();
        assert_eq!(news.len(), 1);
        assert_eq!(names(&news[0].1), all.to_string());
    }
    // In pages, and the second one is asked for twice, too.
    let mut state = begun();
    let first = json!({"tools": [{"name": "c"}], "nextCursor": "x"});
    for id in 1..=2 {
        assert!(
            state
                .on_answer(&Id::number(id), &outcome(&first))
                .1
                .is_none()
        );
    }
    for id in 3..=4 {
        assert!(state.watch(&request(id, "tools/list", &json!({"cursor": "x"}))));
    }
    let last = outcome(&json!({"tools": [{"name": "d"}]}));
    let heard = [3, 4].map(|id| state.on_answer(&Id::number(id), &last).1);
    let [Some((_, known)), None] = heard else {
        panic!("it is whole once")
    };
    assert_eq!(names(&known), all.to_string());
}

#[test]
fn a_refusal_says_that_nothing_was_sent() {
    let batch = format!("[{INITIALIZE},{{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"m\"}}]");
    let refused = refusals(batch.as_bytes(), "it is not there");
    let last: serde_json::Value = serde_json::from_slice(&refused[1]).expect("JSON");
    assert_eq!(
        (
            refused.len(),
            &last["id"],
            &last["error"]["data"]["outcome"]
        ),
        (2, &json!("x"), &json!("not_sent"))
    );
    assert!(
        last["error"]["message"]
            .as_str()
            .expect("text")
            .contains("it is not there")
    );
}
