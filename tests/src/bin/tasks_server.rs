//! A server on the official Rust SDK with the Tasks extension: `tasks-server ADDRESS`. Its tools:
//!
//!   plain    answers
//!   work     goes on as a task, and waits for the file that the variable `GATE` names
//!   greet    goes on as a task, asks for a name, and greets
//!   fail     ends by an error of JSON-RPC
//!   wrong    ends by an error of the tool
//!   must     can't answer without a task
//!   short    goes on as a task that is kept for 300 ms

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use mcp_sessiond_client::rmcp::{DurableTasks, RunOptions, Work};
use mcp_sessiond_client::{Options, Start, task_handlers};
use mcp_sessiond_process::changes::Changes;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, InputRequest,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::net::TcpListener;
use tracing_subscriber::filter::LevelFilter;

#[derive(Clone)]
struct Server {
    tasks: DurableTasks,
    gate: Arc<PathBuf>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let options = RunOptions::default().poll_ms(50).message("begun");
        let options = match &*request.name {
            "plain" => return Ok(CallToolResult::success(vec![ContentBlock::text("plain")]).into()),
            "must" => options.required(),
            "short" => options.ttl(Duration::from_millis(300)),
            _ => options,
        };
        let gate = self.gate.clone();
        self.tasks.run(&context, options, |work| does(request.name.into_owned(), gate, work)).await
    }

    task_handlers!(tasks);
}

async fn does(name: String, gate: Arc<PathBuf>, work: Work) -> Result<CallToolResult, ErrorData> {
    let said = |text: String| Ok(CallToolResult::success(vec![ContentBlock::text(text)]));
    match &*name {
        "work" | "short" => {
            work.tell("half of it is done").await;
            opened(&gate).await;
            said("worked".into())
        }
        "greet" => {
            let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
            let params = json!({"mode": "form", "message": "Who are you?", "requestedSchema": schema});
            let request = json!({"method": "elicitation/create", "params": params});
            let request: InputRequest = serde_json::from_value(request).expect("a request");
            let answer = work.ask(request).await?;
            said(format!("Hello, {}!", answer["content"]["name"].as_str().unwrap_or("nobody")))
        }
        "fail" => {
            Err(ErrorData::new(ErrorCode(-32050), "API rate limit exceeded", Some(json!({"after": 5}))))
        }
        "wrong" => Ok(CallToolResult::error(vec![ContentBlock::text("invalid input")])),
        _ => said(name),
    }
}

/// Waits until the file is moved to its place: the system tells.
async fn opened(gate: &Path) {
    let mut changes = Changes::new().expect("a watch");
    changes.watch_directory(gate.parent().expect("a folder")).expect("it is there");
    while !gate.exists() {
        changes.wait().await.expect("it is watched");
        changes.take();
    }
}

#[expect(clippy::print_stdout, reason = "it is what the tests wait for")]
#[tokio::main]
async fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(LevelFilter::WARN).init();
    let address = std::env::args().nth(1).expect("an address");
    // The tests start the daemon, and start it again.
    let client = Options::default().start(Start::Never).timeout(Duration::from_secs(5));
    let tasks = DurableTasks::of_service("test".parse().expect("a name")).client(client);
    let gate = Arc::new(std::env::var_os("GATE").expect("a path").into());
    let server = Server { tasks, gate };
    let config =
        StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
    let mcp =
        StreamableHttpService::new(move || Ok(server.clone()), NeverSessionManager::default().into(), config);
    let listener = TcpListener::bind(address).await.expect("a port");
    println!("listening at http://{}/mcp", listener.local_addr().expect("bound"));
    axum::serve(listener, Router::new().route_service("/mcp", mcp)).await.expect("it serves");
}
