//! What a session remembers of its server's lists, page by page.

use std::collections::BTreeMap;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, NumberOrString, ServerJsonRpcMessage,
};
use serde_json::{Value, json};

use super::{Lists, Reading};

const TOLD: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn declared(kinds: &[&str]) -> Lists {
    let mut lists = Lists::default();
    let kinds = kinds
        .iter()
        .map(|kind| (*kind, json!({"listChanged": true})));
    let capabilities: BTreeMap<&str, Value> = kinds.collect();
    lists.declare(&json!({"capabilities": capabilities}));
    lists
}

fn request(method: &str, params: &Value) -> ClientRequest {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    match serde_json::from_value::<ClientJsonRpcMessage>(message).expect("a message") {
        JsonRpcMessage::Request(request) => request.request,
        other => panic!("{other:?} is not a request"),
    }
}

fn tools(names: &[&str]) -> Vec<Value> {
    let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
    names.iter().map(tool).collect()
}

/// A client asks for the tools in these pages. Returns whether its last answer had to be recorded.
fn ask(lists: &mut Lists, pages: &[&[&str]]) -> bool {
    let mut is_new = false;
    for (at, page) in pages.iter().enumerate() {
        let name = NumberOrString::Number(i64::try_from(at).expect("few"));
        let params = match at {
            0 => json!({}),
            _ => json!({"cursor": format!("page-{at}")}),
        };
        lists.asked(&name, &request("tools/list", &params));
        let mut result = json!({"tools": tools(page)});
        if at + 1 < pages.len() {
            result["nextCursor"] = json!(format!("page-{}", at + 1));
        }
        let answer = json!({"jsonrpc": "2.0", "id": at, "result": result});
        let answer: ServerJsonRpcMessage = serde_json::from_value(answer).expect("an answer");
        assert!(!is_new, "a list is recorded when it is whole");
        is_new = lists.answered(&name, &answer);
    }
    is_new
}

/// What the client of a new server is told, where the server lists these tools in these pages.
fn told(former: &Lists, kinds: &[&str], pages: &[&[&str]]) -> (Lists, Vec<String>) {
    let recorded = serde_json::from_str(former.record().0.as_str()).expect("digests");
    let mut lists = declared(kinds);
    for (list, digest) in lists.known(recorded) {
        let mut reading = Reading::of(list);
        while let Some(params) = reading.next() {
            let at = params["cursor"].as_str();
            let at = at.map_or(0, |at| at.parse().expect("a number"));
            let mut page = json!({"tools": tools(pages[at])});
            if at + 1 < pages.len() {
                page["nextCursor"] = json!((at + 1).to_string());
            }
            reading.page(&page);
        }
        let now = reading.digest().expect("it is whole");
        lists.compared(list, &digest, now);
    }
    let changes = lists.changes();
    assert!(lists.changes().is_empty(), "they are told once");
    (lists, changes)
}

#[test]
fn order_and_pages_do_not_matter() {
    let mut lists = declared(&["tools"]);
    assert!(ask(&mut lists, &[&["a"], &["b"]]));
    assert!(!ask(&mut lists, &[&["b", "a"]]), "it is recorded");
    let (_, changes) = told(&lists, &["tools"], &[&["b"], &["a"]]);
    assert!(changes.is_empty(), "{changes:?}");
    let (lists, changes) = told(&lists, &["tools"], &[&["a", "b"], &["c"]]);
    assert_eq!(changes, [TOLD]);
    let (_, changes) = told(&lists, &["tools"], &[&["a", "b", "c"]]);
    assert!(changes.is_empty(), "it was told: {changes:?}");
}

#[test]
fn what_nobody_asked_for_or_declares_is_not_compared() {
    let mut lists = declared(&["prompts"]);
    assert!(!ask(&mut lists, &[&["a"]]));
    let (_, changes) = told(&lists, &["tools"], &[&["b"]]);
    assert!(changes.is_empty(), "{changes:?}");
    // Half of a list, and another page than the next.
    let mut lists = declared(&["tools"]);
    let name = NumberOrString::Number(1);
    for cursor in [json!({}), json!({"cursor": "other"})] {
        lists.asked(&name, &request("tools/list", &cursor));
        let result = json!({"tools": tools(&["a"]), "nextCursor": "more"});
        let answer = json!({"jsonrpc": "2.0", "id": 1, "result": result});
        let answer = serde_json::from_value(answer).expect("an answer");
        assert!(!lists.answered(&name, &answer));
    }
    let (_, changes) = told(&lists, &["tools"], &[&["b"]]);
    assert!(changes.is_empty(), "{changes:?}");
}

#[test]
fn a_client_that_asks_for_a_changed_list_itself_is_not_told() {
    let mut former = declared(&["tools"]);
    assert!(ask(&mut former, &[&["a"]]));
    let recorded = serde_json::from_str(former.record().0.as_str()).expect("digests");
    let mut lists = declared(&["tools"]);
    for (list, digest) in lists.known(recorded) {
        lists.compared(list, &digest, "another".into());
    }
    let name = NumberOrString::Number(1);
    lists.asked(&name, &request("tools/list", &json!({})));
    let refused = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "no"}});
    let refused = serde_json::from_value(refused).expect("an answer");
    assert!(!lists.answered(&name, &refused));
    assert_eq!(lists.changed.len(), 1, "its request has failed");
    assert!(ask(&mut lists, &[&["b"]]));
    assert!(lists.changes().is_empty());
}
