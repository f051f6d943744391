//! Calls what it reads, and writes what it gets, with rmcp: campaign-rmcp URL SECONDS

use std::collections::HashMap;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ProgressNotificationParam, ServerResult,
};
use rmcp::service::{NotificationContext, Peer, PeerRequestOptions};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, RoleClient, ServiceError, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What is told about progress goes to standard output. The server says in the message of each
/// which call it belongs to.
#[derive(Clone)]
struct Teller {
    told: watch::Sender<HashMap<String, u64>>,
}

impl ClientHandler for Teller {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let key = params.message.unwrap_or_default();
        say(json!({"key": key, "progress": params.progress as u64}));
        self.told
            .send_modify(|told| *told.entry(key).or_default() += 1);
    }
}

fn say(what: Value) {
    println!("{what}");
}

async fn make(client: Peer<RoleClient>, teller: Teller, arguments: Value, patience: Duration) {
    let (key, steps) = (
        arguments["key"].as_str().unwrap().to_owned(),
        arguments["steps"].as_u64().unwrap(),
    );
    let answer = call(client, &key, &arguments, patience).await;
    if answer.get("result").is_some() {
        // Each notification has a task of its own, which may come after the answer.
        let mut told = teller.told.subscribe();
        let all = told.wait_for(|told| told.get(&key).is_some_and(|told| *told >= steps));
        let _ = timeout(Duration::from_secs(1), all).await;
    }
    say(answer);
}

async fn call(client: Peer<RoleClient>, key: &str, arguments: &Value, patience: Duration) -> Value {
    let params =
        CallToolRequestParams::new("count").with_arguments(arguments.as_object().unwrap().clone());
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let sent = client
        .send_cancellable_request(request, PeerRequestOptions::with_timeout(patience))
        .await;
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
    let teller = Teller {
        told: watch::Sender::default(),
    };
    let client = teller
        .clone()
        .serve(StreamableHttpClientTransport::from_uri(
            arguments[1].as_str(),
        ))
        .await?;
    say(json!({"ready": true}));
    let mut lines = BufReader::new(stdin()).lines();
    let mut calls = JoinSet::new();
    while let Some(line) = lines.next_line().await? {
        let arguments: Value = serde_json::from_str(&line)?;
        calls.spawn(make(
            client.peer().clone(),
            teller.clone(),
            arguments,
            patience,
        ));
    }
    calls.join_all().await;
    client.cancel().await?;
    Ok(())
}
