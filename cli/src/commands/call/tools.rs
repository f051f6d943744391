//! `mcp-sessiond call SERVER`: what tools a server has.

use serde_json::Value;
use tokio::time::Instant;

use crate::mcp_client::target::Target;
use crate::mcp_client::{CallFailure, McpClient};
use crate::ui::output::warn;
use crate::ui::table::{self, printable};

/// The tools of a server.
///
/// # Errors
/// Where it can't be asked.
pub(super) async fn list(what: &str, until: Instant) -> Result<Vec<Value>, CallFailure> {
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

pub(super) fn text(tools: &[Value]) -> String {
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
