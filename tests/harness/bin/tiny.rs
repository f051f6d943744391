//! A counter that speaks MCP on stdio, as small as can be, for tests that run hundreds at once: `tiny [ANYTHING…]`.
//!
//! Its tools: `increment` (by `by`, or by one) and `get` answer the count, `parent` the pid of who
//! has started it, and `echo` its `message`. It ends with its input.

mod stdio;

use serde_json::{Value, json};

fn main() {
    let mut count = 0;
    for message in stdio::messages() {
        // Notifications want no answer.
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
            continue;
        };
        let params = &message["params"];
        let answer = match method {
            "initialize" => Ok(stdio::initialized(params, "tiny", &json!({"tools": {}}))),
            "tools/list" => Ok(tools()),
            "tools/call" => Ok(stdio::text(&call(params, &mut count))),
            "ping" => Ok(json!({})),
            _ => stdio::not_found(),
        };
        stdio::answer(id, answer);
    }
}

fn tools() -> Value {
    let mut all = stdio::tools(&["increment", "get", "parent", "echo"]);
    all["tools"][3]["inputSchema"]["properties"] = json!({"message": {"type": "string"}});
    all
}

fn call(params: &Value, count: &mut i64) -> String {
    let given = &params["arguments"];
    match params["name"].as_str() {
        Some("parent") => return std::os::unix::process::parent_id().to_string(),
        Some("echo") => return given["message"].as_str().unwrap_or("None").to_owned(),
        Some("increment") => *count += given["by"].as_i64().unwrap_or(1),
        _ => {}
    }
    count.to_string()
}
