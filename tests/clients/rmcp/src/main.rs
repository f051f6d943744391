//! Calls what it reads, and writes what it gets, with rmcp: campaign-rmcp URL SECONDS

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ProgressNotificationParam, ServerResult};
use rmcp::service::{NotificationContext, PeerRequestOptions, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceError, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::watch;
use tokio::time::timeout;

/// What is told about progress goes to standard output. Calls come one after the other.
#[derive(Clone)]
struct Teller {
    key: Arc<Mutex<String>>,
    told: watch::Sender<u64>,
}

impl ClientHandler for Teller {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        say(json!({"key": *self.key.lock().unwrap(), "progress": params.progress as u64}));
        self.told.send_modify(|told| *told += 1);
    }
}

fn say(what: Value) {
    println!("{what}");
}

async fn call(client: &RunningService<RoleClient, Teller>, arguments: Value, patience: Duration) -> Value {
    let key = arguments["key"].as_str().unwrap().to_owned();
    let params = CallToolRequestParams::new("count").with_arguments(arguments.as_object().unwrap().clone());
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let sent = client.send_cancellable_request(request, PeerRequestOptions::with_timeout(patience)).await;
    let answer = match sent {
        Ok(sent) => sent.await_response().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(ServerResult::CallToolResult(result)) => {
            let result = serde_json::to_value(result).unwrap();
            json!({"key": key, "result": result["content"][0]["text"]})
        }
        Ok(other) => json!({"key": key, "error": format!("{other:?}")}),
        Err(ServiceError::McpError(error)) => {
            json!({"key": key, "error": error.message, "code": error.code.0, "data": error.data})
        }
        Err(error) => {
            json!({"key": key, "error": error.to_string(), "late": matches!(error, ServiceError::Timeout { .. })})
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let patience = Duration::from_secs(arguments[2].parse()?);
    let teller = Teller { key: Arc::default(), told: watch::Sender::new(0) };
    let client = teller.clone().serve(StreamableHttpClientTransport::from_uri(arguments[1].as_str())).await?;
    say(json!({"ready": true}));
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let arguments: Value = serde_json::from_str(&line)?;
        *teller.key.lock().unwrap() = arguments["key"].as_str().unwrap().to_owned();
        teller.told.send_replace(0);
        let steps = arguments["steps"].as_u64().unwrap();
        let answer = call(&client, arguments, patience).await;
        if answer.get("result").is_some() {
            // Each notification has a task of its own, which may come after the answer.
            let _ = timeout(Duration::from_secs(1), teller.told.subscribe().wait_for(|told| *told >= steps)).await;
        }
        say(answer);
    }
    client.cancel().await?;
    Ok(())
}
