//! A server for `demo`: its one tool counts its calls, in memory alone.

use std::io::{self, BufRead as _, Write as _};

use serde_json::{Value, json};

pub(super) fn play() -> io::Result<()> {
    let mut calls = 0;
    answer_all(|| {
        calls += 1;
        json!({"structuredContent": {"calls": calls, "pid": std::process::id()}, "content": []})
    })
}

/// Serves on standard input and output, until that ends: `called` gives the result of each
/// `tools/call`.
fn answer_all(mut called: impl FnMut() -> Value) -> io::Result<()> {
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        // Notifications want no answer.
        let Some(id) = message.get("id") else {
            continue;
        };
        let mut answer = match message["method"].as_str() {
            Some("initialize") => json!({"result": {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "counter", "version": "1"},
            }}),
            Some("ping") => json!({"result": {}}),
            Some("tools/call") => json!({"result": called()}),
            _ => json!({"error": {"code": -32601, "message": "there is only tools/call"}}),
        };
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = id.clone();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}
