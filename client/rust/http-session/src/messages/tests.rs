//! The messages as the server gets them, and as the client does.

use mcp_sessiond_jsonrpc::id_prefix::{answering, asked_by};
use serde_json::json;

use super::*;

#[test]
fn the_server_gets_ids_of_its_own_and_the_client_gets_back_the_ones_that_it_sent() {
    let stream: StreamId = "call-x".parse().expect("an id");
    for id in ["1", "-7", "\"a/\\\"b\"", "18446744073709551615"] {
        let call = format!(
            r#"{{"id":{id},"method":"tools/call","params":{{"_meta":{{"progressToken":{id}}}}},"jsonrpc":"2.0"}}"#
        );
        let sent = to_server(&call.into(), stream.as_str());
        let sent: serde_json::Value = serde_json::from_slice(&sent).expect("JSON");
        assert_eq!(sent["id"], format!("call-x/{id}"));
        assert_eq!(sent["params"]["_meta"]["progressToken"], sent["id"]);
        let answer =
            json!({"jsonrpc": "2.0", "id": sent["id"], "result": {"id": "call-x/1"}}).to_string();
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": sent["id"], "progress": 1}})
        .to_string();
        let mut got = Vec::new();
        read_server_line(
            &format!("[{answer},{progress}]").into(),
            "x",
            |kind, message| got.push((kind, message)),
        );
        assert_eq!(got[0].0, ServerMessage::Answer(stream.clone(), id.into()));
        assert_eq!(answered_id(&got[0].1).as_deref(), Some(id));
        assert!(
            got[0].1.as_str().contains(r#""result":{"id":"call-x/1"}"#),
            "only the id is replaced"
        );
        assert_eq!(got[1].0, ServerMessage::Progress(stream.clone()));
        assert!(
            got[1]
                .1
                .as_str()
                .contains(&format!("\"progressToken\":{id}")),
            "{:?}",
            got[1].1.as_str()
        );
    }
    read_server_line(
        &r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.into(),
        "x",
        |kind, _| panic!("{kind:?}"),
    );
}

#[test]
fn an_answer_to_a_request_of_a_former_server_is_known() {
    let ask = json!({"jsonrpc": "2.0", "id": 0, "method": "elicitation/create"}).to_string();
    let mut id = None;
    read_server_line(&ask.into(), "server-1", |kind, message| {
        assert_eq!(kind, ServerMessage::Request("0".into()));
        let message: serde_json::Value = serde_json::from_str(message.as_str()).expect("JSON");
        id = Some(message["id"].to_string());
    });
    let id = id.expect("it is heard");
    assert_eq!(asked_by("server-1", &id).as_deref(), Some("0"));
    assert_eq!(
        (asked_by("server-2", &id), asked_by("server-1", "0")),
        (None, None)
    );
    let answer: Bytes = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into();
    assert_eq!(
        &answering(&answer, "0")[..],
        br#"{"jsonrpc":"2.0","id":0,"result":{}}"#
    );
}
