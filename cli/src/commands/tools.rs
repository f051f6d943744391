//! `mcp-sessiond tools`: what tools a server has.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap_complete::ArgValueCandidates;
use serde_json::Value;
use tokio::time::Instant;

use crate::completion;
use crate::exit_code::SOFTWARE;
use crate::mcp_client::target::Target;
use crate::mcp_client::{CallFailure, McpClient};
use crate::runtime::block_on;
use crate::ui::output::{print, to_json, warn};
use crate::ui::table::{self, printable};

#[derive(Debug, Args)]
#[command(after_help = "\
SERVER is looked up as `mcp-sessiond call` does. Each line has a tool, its arguments (those that may be left out in brackets), and the \
first line of what it says of itself. Where somebody else has the server, a second one is started for the list, and ends with it.

Exit codes: 0; 65 the server refuses; 66 no such server; 69 it can't be started; 75 it took too long; 130 Ctrl-C.

Examples:
  mcp-sessiond tools browser
  mcp-sessiond tools browser --json")]
pub(crate) struct Arguments {
    /// A shared server, one that has a `--name`, or one of servers.json
    #[arg(add = ArgValueCandidates::new(completion::callable))]
    server: String,
    /// Print JSON: the tools as the server describes them
    #[arg(long)]
    json: bool,
    /// How long it may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match block_on(list(arguments)) {
        Ok(Ok(tools)) if arguments.json => print(&to_json(&tools)),
        Ok(Ok(tools)) => print(&text(&tools)),
        Ok(Err(failure)) => ExitCode::from(failure.report()),
        Err(error) => {
            warn(error);
            ExitCode::from(SOFTWARE)
        }
    }
}

async fn list(arguments: &Arguments) -> Result<Vec<Value>, CallFailure> {
    let until = Instant::now() + Duration::from_secs(arguments.timeout);
    let what = &*arguments.server;
    let asked = async { list_of(&Target::find(what).await?, until).await };
    match asked.await {
        // What tools a server has is no matter of whose it is.
        Err(failure) if failure.is_of_another => match Target::twin(what).await {
            Some(twin) => {
                warn(format_args!(
                    "somebody else has {what}: a second one is started for this list, in this shell's environment, and ends with it"
                ));
                list_of(&twin, until).await
            }
            None => Err(failure),
        },
        listed => listed,
    }
}

async fn list_of(target: &Target, until: Instant) -> Result<Vec<Value>, CallFailure> {
    let mut client = McpClient::connect(target, until).await?;
    let tools = client.tools().await?;
    client.leave().await;
    Ok(tools)
}

fn text(tools: &[Value]) -> String {
    let row = |tool: &Value| {
        let text = |field: &str| tool[field].as_str().unwrap_or_default();
        let first = text("description")
            .trim()
            .lines()
            .next()
            .unwrap_or_default();
        vec![
            printable(text("name")),
            printable(&parameters(&tool["inputSchema"])),
            printable(first),
        ]
    };
    table::listing_or(
        &["tool", "arguments", "description"],
        tools.iter().map(row),
        "The server has no tools.",
    )
}

/// The arguments of a tool, in the order of its schema.
fn parameters(schema: &Value) -> String {
    let required = |name: &str| {
        schema["required"]
            .as_array()
            .is_some_and(|names| names.iter().any(|required| required == name))
    };
    let properties = schema["properties"].as_object();
    let names = properties
        .into_iter()
        .flat_map(|properties| properties.keys());
    let shown: Vec<String> = names
        .map(|name| {
            if required(name) {
                name.clone()
            } else {
                format!("[{name}]")
            }
        })
        .collect();
    if shown.is_empty() {
        "-".to_owned()
    } else {
        shown.join(" ")
    }
}
