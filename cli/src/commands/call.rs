//! `mcp-sessiond call`: calls a tool of a server from a shell.

mod arguments;
mod content;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap_complete::ArgValueCandidates;
use mcp_sessiond_proto::text::did_you_mean;
use serde_json::Value;
use tokio::time::Instant;

use self::arguments::ToolArguments;
use crate::completion;
use crate::exit_code::{NO_INPUT, SOFTWARE};
use crate::mcp_client::target::Target;
use crate::mcp_client::{CallFailure, McpClient};
use crate::runtime::block_on;
use crate::ui::output::{print, to_json, warn};

/// The exit code where the tool says that it has failed.
const TOOL_FAILED: u8 = 2;

#[derive(Debug, Args)]
#[command(after_help = "\
SERVER is looked up in this order: a shared server of servers.json, which is joined as one more client; a server with that `--name`, which is \
used for this call only; a server of servers.json, in a session of your own that ends ten minutes after the last call. A server that \
belongs to a host is never called: write `--name NAME` behind `wrap` in its entry in the host's file, or share it (`\"shared\": true` in servers.json).

ARGUMENT is KEY=VALUE, and the value has the type that the tool's schema says; or all arguments are one JSON object. What the tool returns is printed; images and other \
files are written, and their names are printed. Progress and notes are on standard error. Ctrl-C cancels the call. What the server asks its client \
is refused.

Exit codes: 0; 2 the tool says that it has failed; 64 an argument is wrong; 65 the server refuses the call; 66 no such server or tool; 69 the server belongs to a \
host, or can't be started; 73 a file can't be written; 75 another process has the server, or there was no answer in time; 130 Ctrl-C.

Examples:
  mcp-sessiond call browser browser_navigate url=https://example.org
  mcp-sessiond call notes add '{\"text\": \"milk\"}'
  mcp-sessiond call browser browser_take_screenshot --output page.png")]
pub(crate) struct Arguments {
    /// A shared server, one that has a `--name`, or one of servers.json
    #[arg(add = ArgValueCandidates::new(completion::callable))]
    server: String,
    /// The tool; `mcp-sessiond tools SERVER` lists them
    #[arg(add = ArgValueCandidates::new(completion::tools))]
    tool: String,
    /// KEY=VALUE, or a JSON object
    #[arg(value_name = "ARGUMENT", add = ArgValueCandidates::new(completion::arguments))]
    arguments: Vec<String>,
    /// Print JSON: the whole result, as the server has sent it
    #[arg(long)]
    json: bool,
    /// Where images and other files are written: a directory, or for a single one its name. By
    /// default here
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// How long it may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let result = match block_on(call(arguments)) {
        Ok(Ok(result)) => result,
        Ok(Err(failure)) => return ExitCode::from(failure.report()),
        Err(error) => {
            warn(error);
            return ExitCode::from(SOFTWARE);
        }
    };
    let printed = if arguments.json {
        print(&to_json(&result))
    } else {
        match content::text(&result, &arguments.tool, arguments.output.as_deref()) {
            Ok(text) => print(&text),
            Err(failure) => return ExitCode::from(failure.report()),
        }
    };
    if result["isError"] == true {
        ExitCode::from(TOOL_FAILED)
    } else {
        printed
    }
}

async fn call(arguments: &Arguments) -> Result<Value, CallFailure> {
    let given = ToolArguments::read(&arguments.arguments)?;
    let until = Instant::now() + Duration::from_secs(arguments.timeout);
    let target = Target::find(&arguments.server).await?;
    let mut client = McpClient::connect(&target, until).await?;
    let values = match given {
        ToolArguments::Object(values) => values,
        ToolArguments::Words(words) => {
            let tools = client.tools().await?;
            let tool = tools.iter().find(|tool| tool["name"] == *arguments.tool);
            let tool = tool.ok_or_else(|| no_tool(arguments, &tools))?;
            arguments::typed(&words, &tool["inputSchema"])?
        }
    };
    let result = client.call(&arguments.tool, values).await?;
    client.leave().await;
    Ok(result)
}

fn no_tool(arguments: &Arguments, tools: &[Value]) -> CallFailure {
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let Arguments { server, tool, .. } = arguments;
    let which = match did_you_mean(tool, names.iter().copied()) {
        _ if names.is_empty() => "; it has no tools".to_owned(),
        meant if meant.is_empty() => format!("; it has {}", names.join(", ")),
        meant => meant,
    };
    CallFailure::new(NO_INPUT, format!("{server} has no tool `{tool}`{which}"))
}
