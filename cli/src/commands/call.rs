//! `mcp-sessiond call`: calls a tool of a server from a shell, or lists its tools.

mod arguments;
mod content;
mod tools;

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
use crate::ui::output::{json_or, print, to_json, warn};

/// The exit code where the tool says that it has failed.
const TOOL_FAILED: u8 = 2;

#[derive(Debug, Args)]
#[command(after_help = "\
SERVER is looked up in this order: a shared server of servers.json, which is joined as one more client; a server with that `--name`, which is \
used for this call only; a server of servers.json, in a session of your own that ends ten minutes after the last call. A server that \
belongs to a host is never called: write `--name NAME` behind `wrap` in its entry in the host's file, or share it (`\"shared\": true` in servers.json).

Without TOOL, each line has a tool, its arguments (those that may be left out in brackets), and the first line of what it says of itself. For that it does not matter \
whose the server is: where somebody else has it, a second one is started for the list, and ends with it.

ARGUMENT is KEY=VALUE, and the value has the type that the tool's schema says; or all arguments are one JSON object. What the tool returns is printed; images and other \
files are written, and their names are printed. Progress and notes are on standard error. Ctrl-C cancels the call. What the server asks its client \
is refused.

Exit codes: 0; 2 the tool says that it has failed; 64 an argument is wrong; 65 the server refuses the call; 66 no such server or tool; 69 the server belongs to a \
host, or can't be started; 73 a file can't be written; 75 another process has the server, or there was no answer in time; 130 Ctrl-C.

Examples:
  mcp-sessiond call browser
  mcp-sessiond call browser browser_navigate url=https://example.org
  mcp-sessiond call notes add '{\"text\": \"milk\"}'
  mcp-sessiond call browser browser_take_screenshot --output page.png")]
pub(crate) struct Arguments {
    /// A shared server, one that has a `--name`, or one of servers.json
    #[arg(add = ArgValueCandidates::new(completion::callable))]
    server: String,
    /// The tool. Without one, the tools are listed
    #[arg(add = ArgValueCandidates::new(completion::tools))]
    tool: Option<String>,
    /// KEY=VALUE, or a JSON object
    #[arg(value_name = "ARGUMENT", add = ArgValueCandidates::new(completion::arguments))]
    arguments: Vec<String>,
    /// Print JSON: the whole result, as the server has sent it; or the tools as it describes them
    #[arg(long)]
    json: bool,
    /// Where images and other files are written: a directory, or for a single one its name. By
    /// default here
    #[arg(long, value_name = "PATH", requires = "tool")]
    output: Option<PathBuf>,
    /// How long it may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let until = Instant::now() + Duration::from_secs(arguments.timeout);
    let done = block_on(async {
        match &arguments.tool {
            Some(tool) => call(arguments, tool, until).await,
            None => list(arguments, until).await,
        }
    });
    match done {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => ExitCode::from(failure.report()),
        Err(error) => {
            warn(error);
            ExitCode::from(SOFTWARE)
        }
    }
}

async fn list(arguments: &Arguments, until: Instant) -> Result<ExitCode, CallFailure> {
    let tools = tools::list(&arguments.server, until).await?;
    Ok(print(&json_or(arguments.json, &tools, |tools| {
        tools::text(tools)
    })))
}

async fn call(arguments: &Arguments, tool: &str, until: Instant) -> Result<ExitCode, CallFailure> {
    let result = result_of(arguments, tool, until).await?;
    let printed = if arguments.json {
        print(&to_json(&result))
    } else {
        print(&content::text(&result, tool, arguments.output.as_deref())?)
    };
    Ok(if result["isError"] == true {
        ExitCode::from(TOOL_FAILED)
    } else {
        printed
    })
}

async fn result_of(
    arguments: &Arguments,
    tool: &str,
    until: Instant,
) -> Result<Value, CallFailure> {
    let given = ToolArguments::read(&arguments.arguments)?;
    let target = Target::find(&arguments.server).await?;
    let mut client = McpClient::connect(&target, until).await?;
    let values = match given {
        ToolArguments::Object(values) => values,
        ToolArguments::Words(words) => {
            let tools = client.tools().await?;
            let known = tools.iter().find(|known| known["name"] == tool);
            let known = known.ok_or_else(|| no_tool(&arguments.server, tool, &tools))?;
            arguments::typed(&words, &known["inputSchema"])?
        }
    };
    let result = client.call(tool, values).await?;
    client.leave().await;
    Ok(result)
}

fn no_tool(server: &str, tool: &str, tools: &[Value]) -> CallFailure {
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let which = match did_you_mean(tool, names.iter().copied()) {
        _ if names.is_empty() => "; it has no tools".to_owned(),
        meant if meant.is_empty() => format!("; it has {}", names.join(", ")),
        meant => meant,
    };
    CallFailure::new(NO_INPUT, format!("{server} has no tool `{tool}`{which}"))
}
