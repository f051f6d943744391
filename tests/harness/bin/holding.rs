//! An MCP server on stdio as small as can be, for tests that run a hundred at once.
//!
//! - `hold` is answered when `notifications/release` comes. Until then it has sent one notification
//!   of progress, 0.
//! - `notifications/release` has it send the progress 1 and 2 of each held call, and its answer;
//!   and a `notifications/message`.
//! - `limit` answers how many descriptors the server may have. Any other request is answered at
//!   once.

use std::io::{self, BufRead as _, Write as _};

use nix::sys::resource::{Resource, getrlimit};
use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let mut held: Vec<(Value, Value)> = Vec::new();
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let id = message["id"].clone();
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                let version = &message["params"]["protocolVersion"];
                let info = json!({"name": "holding", "version": "1"});
                let result =
                    json!({"protocolVersion": version, "capabilities": {}, "serverInfo": info});
                say(&json!({"jsonrpc": "2.0", "id": id, "result": result}))?;
            }
            "hold" => {
                let token = message["params"]["_meta"]["progressToken"].clone();
                progress(&token, 0)?;
                held.push((id, token));
            }
            "notifications/release" => {
                for (id, token) in held.drain(..) {
                    progress(&token, 1)?;
                    progress(&token, 2)?;
                    say(&json!({"jsonrpc": "2.0", "id": id, "result": {"held": true}}))?;
                }
                let params = json!({"level": "info", "data": "released"});
                say(
                    &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}),
                )?;
            }
            "limit" => {
                let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
                say(&json!({"jsonrpc": "2.0", "id": id, "result": {"limit": soft}}))?;
            }
            _ if id.is_null() => {}
            _ => say(&json!({"jsonrpc": "2.0", "id": id, "result": {}}))?,
        }
    }
    Ok(())
}

fn progress(token: &Value, progress: u32) -> io::Result<()> {
    let params = json!({"progressToken": token, "progress": progress});
    say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
}

fn say(message: &Value) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{message}")?;
    output.flush()
}
