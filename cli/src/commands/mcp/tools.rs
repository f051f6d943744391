//! The tools.

use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::Object;
use serde_json::{Value, json};

use super::servers::{OwnServers, hidden};
use crate::commands::{logs, restart};
use crate::ui::table::duration;

/// Lines of a log that are shown, unless it is said, and at most: a model has to read them.
const LINES: usize = 50;
const LINES_MAX: usize = 500;

/// Lines of the daemon's log that say what has become of a server.
const EVENTS: usize = 20;

/// They, as `tools/list` has them.
pub(super) fn listed() -> Value {
    let named = |more: Value| {
        let mut properties = json!({
            "name": {"type": "string", "description": "The server's name in `list_servers`, or its pid"},
        });
        for (name, what) in more.as_object().into_iter().flatten() {
            properties[name] = what.clone();
        }
        json!({"type": "object", "properties": properties, "required": ["name"]})
    };
    let reads = json!({"readOnlyHint": true, "openWorldHint": false});
    let lines = json!({
        "type": "integer", "minimum": 1, "maximum": LINES_MAX, "default": LINES,
        "description": "How many of the last lines",
    });
    json!([
        {
            "name": "list_servers",
            "title": "List this host's MCP servers",
            "description": "The MCP servers of this host: state, since when, how often restarted, and what is wrong.",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": reads,
        },
        {
            "name": "server_logs",
            "title": "Read a server's log",
            "description": "The last lines that a server has written to its standard error, and what mcp-sessiond has logged about it.",
            "inputSchema": named(json!({"lines": lines})),
            "annotations": reads,
        },
        {
            "name": "restart_server",
            "title": "Restart a server",
            "description": "Ends a server of this host that hangs or is broken, and starts a fresh one. The host stays connected. \
                            What the server had in memory is gone, and its open calls get an error.",
            "inputSchema": named(json!({})),
            "annotations": {"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": false},
        },
        {
            "name": "why_fresh",
            "title": "Why a server has forgotten",
            "description": "For when a server has forgotten what it knew: since when its process runs, how often it was restarted, why the \
                            last one ended, and what mcp-sessiond has logged about it.",
            "inputSchema": named(json!({})),
            "annotations": reads,
        },
    ])
}

/// Calls one.
///
/// # Errors
/// There is no such tool, or it can't be called so.
pub(super) async fn call(name: &str, arguments: &Object) -> Result<Value, RpcError> {
    let wrong = |why: String| RpcError::new(code::INVALID_PARAMS, why);
    let known = listed();
    let mut known = known.as_array().into_iter().flatten();
    if !known.any(|tool| tool["name"] == name) {
        return Err(wrong(format!("there is no tool {name:?}")));
    }
    let servers = match OwnServers::look().await {
        Ok(servers) => servers,
        Err(why) => return Ok(failed(&why)),
    };
    if name == "list_servers" {
        return Ok(told(&json!({"servers": servers.rows()})));
    }
    let Some(server) = arguments.text("name") else {
        return Err(wrong(format!(
            "{name} needs the argument `name`: a server's name, as a string"
        )));
    };
    let server = match servers.find(&server) {
        Ok(server) => server,
        Err(why) => return Ok(failed(&why)),
    };
    let directory = &servers.inventory.directory;
    let hidden = |texts| hidden(directory, server, texts);
    Ok(match name {
        "restart_server" => match restart::one(&servers.inventory, server).await {
            Ok(said) => told(&json!({"done": said})),
            Err(why) => failed(&hidden(vec![why]).concat()),
        },
        "server_logs" => {
            let lines = arguments.get("lines").map(|lines| lines.get().parse());
            let lines = match lines {
                None => LINES,
                Some(Ok(lines)) if (1..=LINES_MAX).contains(&lines) => lines,
                Some(_) => {
                    return Err(wrong(format!("`lines` is a number from 1 to {LINES_MAX}")));
                }
            };
            let (about, written) = logs::last(server, directory, lines).await;
            match written {
                Ok(written) => told(&json!({
                    "name": server.server,
                    "standard_error": hidden(written),
                    "mcp_sessiond": hidden(about),
                })),
                Err(why) => failed(&format!("{}: {why}", server.server)),
            }
        }
        _ => {
            let (about, _) = logs::last(server, directory, EVENTS).await;
            told(&json!({
                "name": server.server,
                "running_for": server.age_ms.map(duration),
                "restarts": server.restarts,
                "the_last_one_ended": server.last_error.clone().map(|why| hidden(vec![why]).concat()),
                "lost": servers.losses(server),
                "mcp_sessiond": hidden(about),
            }))
        }
    })
}

/// The result of a call, as data and as text.
fn told(result: &Value) -> Value {
    let text = serde_json::to_string_pretty(result).unwrap_or_default();
    json!({"content": [{"type": "text", "text": text}], "structuredContent": result})
}

/// The result of a call that has failed, which the model reads.
fn failed(why: &str) -> Value {
    json!({"content": [{"type": "text", "text": why}], "isError": true})
}
