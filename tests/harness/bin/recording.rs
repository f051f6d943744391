//! A server that says what it was told: `recording NAME`.
//!
//! It has one resource, `told://NAME`, which can be subscribed to, and logs of a level. Its tool
//! `told` answers both, as JSON.

mod stdio;

use serde_json::{Value, json};

fn main() {
    let uri = format!("told://{}", std::env::args().nth(1).unwrap_or_default());
    let (mut level, mut subscribed) = (Value::Null, json!([]));
    for message in stdio::messages() {
        // Notifications want no answer.
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
            continue;
        };
        let params = &message["params"];
        match method {
            "logging/setLevel" => level = params["level"].clone(),
            "resources/subscribe" => subscribed = json!([uri]),
            "resources/unsubscribe" => subscribed = json!([]),
            _ => {}
        }
        let answer = match method {
            "initialize" => {
                let capabilities =
                    json!({"tools": {}, "resources": {"subscribe": true}, "logging": {}});
                Ok(stdio::initialized(params, "told", &capabilities))
            }
            "tools/list" => Ok(stdio::tools(&["told"])),
            "resources/list" => Ok(json!({"resources": [{"uri": uri, "name": "what was told"}]})),
            "tools/call" => Ok(stdio::text(
                &json!({"level": level, "subscribed": subscribed}),
            )),
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" | "ping" => {
                Ok(json!({}))
            }
            _ => stdio::not_found(),
        };
        stdio::answer(id, answer);
    }
}
