//! `mcp-sessiond mcp`: a small MCP server, by which a model sees how the servers of its own host are,
//! and has a fresh one started in the place of one that hangs.

mod servers;
mod tools;

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use mcp_sessiond_jsonrpc::code;
use mcp_sessiond_jsonrpc::error::RpcError;
use mcp_sessiond_jsonrpc::object::{Object, raw};
use mcp_sessiond_jsonrpc::owned::{Message, Outcome, Unreadable};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::exit_code::SOFTWARE;
use crate::mcp_client::MODERN;
use crate::runtime::block_on;
use crate::ui::output::warn;

/// The versions of MCP that begin with `initialize`, the newest last.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Lines that may wait while one is carried out.
const WAITING: usize = 16;

/// What a model reads before it uses a tool.
const INSTRUCTIONS: &str = "Looks after the MCP servers of this host that mcp-sessiond keeps. When a tool of another server hangs, \
                            times out or fails again and again, read `server_logs`, and `restart_server` it: the host stays \
                            connected, but what that server had in memory is gone, and its open calls fail. When a server seems to \
                            have forgotten something, `why_fresh` says what has happened to it.";

#[derive(Debug, Args)]
#[command(after_help = "\
An MCP server on standard input and output, with four tools: `list_servers`, `server_logs`, `restart_server` and `why_fresh`. They are about the \
servers of the host that has started it, and of no other. Write it into the host's own file: the command is `mcp-sessiond`, its argument \
`mcp`. Then the model can have a server restarted that hangs, and the conversation goes on.

Servers that the user has named (`wrap --name`) are among them while this host has them; shared ones are not. What looks like a secret of a server's is left out of what is shown.

Exit codes: 0 its input has ended; 70 it could not begin.

Examples:
  claude mcp add mcp-sessiond -- mcp-sessiond mcp
  codex mcp add mcp-sessiond -- mcp-sessiond mcp")]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> ExitCode {
    match block_on(serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            warn(error);
            ExitCode::from(SOFTWARE)
        }
    }
}

/// Answers all that comes, until the input has ended and all is answered.
async fn serve() {
    let (send, mut lines) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        let lines = io::stdin().lock().split(b'\n').map_while(Result::ok);
        for line in lines.filter(|line| !line.trim_ascii().is_empty()) {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let mut answers = FuturesUnordered::new();
    let mut has_ended = false;
    loop {
        tokio::select! {
            line = lines.recv(), if !has_ended => match line {
                Some(line) => answers.push(answer_line(line)),
                None => has_ended = true,
            },
            Some(answer) = answers.next() => {
                if say(answer).is_err() {
                    return;
                }
            }
            else => return,
        }
    }
}

/// Writes an answer, if it is one.
fn say(answer: Option<Vec<u8>>) -> io::Result<()> {
    let Some(mut line) = answer else {
        return Ok(());
    };
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}

/// The answer to a line, if it wants one: to a batch, which MCP 2025-03-26 has, a batch.
async fn answer_line(line: Vec<u8>) -> Option<Vec<u8>> {
    let messages = Message::read_all(&line).into_iter().map(answer);
    let answers: Vec<Vec<u8>> = join_all(messages).await.into_iter().flatten().collect();
    match line.trim_ascii_start().first() {
        _ if answers.is_empty() => None,
        Some(b'[') => Some([&b"["[..], &answers.join(&b','), b"]"].concat()),
        _ => Some(answers.concat()),
    }
}

/// The answer to a message, if it wants one.
async fn answer(message: Result<Message, Unreadable>) -> Option<Vec<u8>> {
    match message {
        Ok(Message::Request { id, method, params }) => {
            let params = params.as_deref().and_then(Object::read);
            let outcome = carry_out(&method, &params.unwrap_or_default()).await;
            Some(Message::Answer { id, outcome }.write().into())
        }
        Ok(Message::Notification { .. } | Message::Answer { .. }) => None,
        Err(unreadable) => unreadable.refusal().map(Into::into),
    }
}

async fn carry_out(method: &str, params: &Object) -> Outcome {
    let meta = params.object("_meta").unwrap_or_default();
    let version = meta.text("io.modelcontextprotocol/protocolVersion");
    if let Some(version) = version.as_deref().filter(|version| *version != MODERN) {
        return Err(RpcError {
            data: Some(raw(&json!({"supported": [MODERN], "requested": version}))),
            ..RpcError::new(code::OTHER_VERSION, "Unsupported protocol version")
        });
    }
    let result = match method {
        "initialize" => {
            let wanted = params.text("protocolVersion");
            let known = VERSIONS
                .into_iter()
                .find(|one| Some(*one) == wanted.as_deref());
            json!({
                "protocolVersion": known.or(VERSIONS.last().copied()),
                "capabilities": {"tools": {}},
                "serverInfo": own_info(),
                "instructions": INSTRUCTIONS,
            })
        }
        "server/discover" => json!({
            "supportedVersions": [MODERN],
            "capabilities": {"tools": {}},
            "instructions": INSTRUCTIONS,
            "_meta": {"io.modelcontextprotocol/serverInfo": own_info()},
        }),
        "ping" => json!({}),
        "tools/list" => json!({"tools": tools::listed()}),
        "tools/call" => {
            let arguments = params.object("arguments").unwrap_or_default();
            tools::call(&params.text("name").unwrap_or_default(), &arguments).await?
        }
        _ => return Err(RpcError::new(code::NO_METHOD, "Method not found")),
    };
    Ok(raw(&of_version(result, version.as_deref())))
}

/// The result as the version has it in which it was asked for.
fn of_version(mut result: Value, version: Option<&str>) -> Value {
    if version == Some(MODERN) {
        result["resultType"] = "complete".into();
        if result.get("tools").is_some() || result.get("supportedVersions").is_some() {
            result["ttlMs"] = 0.into();
            result["cacheScope"] = "private".into();
        }
    }
    result
}

fn own_info() -> Value {
    json!({"name": "mcp-sessiond", "version": env!("CARGO_PKG_VERSION")})
}
