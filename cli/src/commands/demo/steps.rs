//! A server for `demo http`: its tool takes twelve steps, and tells its client of each.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// How many steps a call takes.
pub(super) const STEPS: u64 = 12;

/// Steps before which the server waits for a file in its directory, so that each cut is in the
/// middle of the call.
pub(super) const GATES: [(u64, &str); 2] = [(5, "page-is-gone"), (9, "serve-is-killed")];

/// The pause before a file is looked for again.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn play() -> io::Result<()> {
    answer_all("steps", |call| {
        walk(&call["params"]["_meta"]["progressToken"])?;
        let text = format!("{STEPS} steps, taken by process {}", std::process::id());
        Ok(json!({"content": [{"type": "text", "text": text}]}))
    })
}

/// Serves on standard input and output, until that ends: `called` gives the result of each
/// `tools/call`.
pub(super) fn answer_all(
    name: &str,
    mut called: impl FnMut(&Value) -> io::Result<Value>,
) -> io::Result<()> {
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
                "serverInfo": {"name": name, "version": "1"},
            }}),
            Some("ping") => json!({"result": {}}),
            Some("tools/call") => json!({"result": called(&message)?}),
            _ => json!({"error": {"code": -32601, "message": "there is only tools/call"}}),
        };
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = id.clone();
        say(&answer)?;
    }
    Ok(())
}

fn walk(token: &Value) -> io::Result<()> {
    for step in 1..=STEPS {
        for (_, gate) in GATES.iter().filter(|(before, _)| *before == step) {
            while !Path::new(gate).exists() {
                std::thread::sleep(PAUSE);
            }
        }
        let params = json!({"progressToken": token, "progress": step, "total": STEPS});
        say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))?;
    }
    Ok(())
}

fn say(message: &Value) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{message}")?;
    output.flush()
}
