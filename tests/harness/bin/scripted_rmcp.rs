//! The scripted server of `tests/conformance`, on the official Rust SDK with `durable`:
//! `scripted-rmcp PORT JOURNAL GATES REVOKED`. Its tools are those of
//! `tests/conformance/servers/stdio.py`, without `raw`. It lets each bearer token in that begins
//! with `t`, but for those whose name the folder REVOKED has as a file. After the runner's Nth
//! `deploy` it has a tool `deployed_N`, too. No deploy changes its prompts.

#![expect(
    deprecated,
    reason = "logging and roots, of the versions that have sessions"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use mcp_sessiond_client::rmcp::{DurableOptions, durable, notify, session};
use mcp_sessiond_client::{Json, SessionError, StateKey};
use mcp_sessiond_process::changes::Changes;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientResult, ContentBlock,
    ListRootsRequest, ListToolsResult, LoggingLevel, LoggingMessageNotification,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam,
    ServerCapabilities, ServerConfig, ServerRequest, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceError};
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Context = RequestContext<RoleServer>;

#[derive(Clone)]
struct Scripted {
    journal: Arc<std::fs::File>,
    gates: PathBuf,
    /// How often this server of the session got `notifications/initialized`.
    greeted: Arc<AtomicU64>,
    /// The tool that this version of the app has besides.
    deployed: Option<String>,
}

impl Scripted {
    async fn call(
        &self,
        name: &str,
        given: &Value,
        context: &Context,
    ) -> Result<String, ErrorData> {
        if let Some(key) = given["key"].as_str() {
            let line = format!("{key}\n");
            (&*self.journal)
                .write_all(line.as_bytes())
                .expect("it is written");
        }
        match name {
            "count" => count(context).await,
            "echo" => Ok(given["value"].to_string()),
            "log" => log(given, context).await,
            "ask" => ask(given, context).await,
            "big" => {
                let bytes = given["bytes"].as_u64().unwrap_or(0);
                Ok("x".repeat(usize::try_from(bytes).expect("a size")))
            }
            "nan" => Ok("null".into()),
            "slow" => {
                let steps = given["steps"].as_u64().unwrap_or(0);
                for step in 1..=steps {
                    if let Some(token) = context.meta.get_progress_token() {
                        #[expect(clippy::cast_precision_loss, reason = "they are few")]
                        let progress = ProgressNotificationParam::new(token, step as f64);
                        let _ = context.peer.notify_progress(progress).await;
                    }
                }
                opened(&self.gates.join(given["key"].as_str().unwrap_or_default())).await;
                Ok("slow".into())
            }
            "die" => std::process::exit(1),
            "greeted" => Ok(self.greeted.load(Ordering::Relaxed).to_string()),
            _ => Err(ErrorData::invalid_params("there is no such tool", None)),
        }
    }
}

/// Adds one, also where several calls do so at once.
async fn count(context: &Context) -> Result<String, ErrorData> {
    let (session, key) = (
        session(context)?,
        "count".parse::<StateKey>().expect("a key"),
    );
    loop {
        let entry = session.entry(&key).await?;
        let count = entry
            .value
            .and_then(|value| value.as_str().parse().ok())
            .unwrap_or(0)
            + 1;
        let value = Json::trusted(count.to_string());
        match session
            .compare_and_set(&key, entry.version, Some(&value))
            .await
        {
            Err(SessionError::Refused(error)) if error.http_status() == 409 => {}
            written => return Ok(written.map(|_| count)?.to_string()),
        }
    }
}

async fn log(given: &Value, context: &Context) -> Result<String, ErrorData> {
    let text = given["text"].as_str().unwrap_or("line");
    for number in 1..=given["times"].as_u64().unwrap_or(1) {
        let data = json!(format!("{text} {number}"));
        let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, data);
        // As most servers do it; rmcp does not say then for which request it is.
        let sent = match given["plain"] == true {
            true => context.peer.notify_logging_message(message).await,
            false => notify(context, LoggingMessageNotification::new(message)).await,
        };
        sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    }
    Ok("logged".into())
}

async fn ask(given: &Value, context: &Context) -> Result<String, ErrorData> {
    let text = "x".repeat(usize::try_from(given["bytes"].as_u64().unwrap_or(0)).expect("a size"));
    let ask = match text.is_empty() {
        true => json!({"method": "roots/list"}),
        false => json!({"method": "roots/list", "params": {"_meta": {"text": text}}}),
    };
    let ask: ListRootsRequest = serde_json::from_value(ask).expect("a request");
    let asked = context
        .peer
        .send_request(ServerRequest::ListRootsRequest(ask));
    match asked.await {
        Ok(ClientResult::ListRootsResult(roots)) => Ok(roots.roots.len().to_string()),
        Err(ServiceError::McpError(_)) => Ok("refused".into()),
        answered => Err(ErrorData::internal_error(format!("{answered:?}"), None)),
    }
}

/// Waits until the file is there: the system tells.
async fn opened(gate: &Path) {
    let mut changes = Changes::new().expect("a watch");
    changes
        .watch_directory(gate.parent().expect("a folder"))
        .expect("it is there");
    while !gate.exists() {
        changes.wait().await.expect("it is watched");
        changes.take();
    }
}

impl ServerHandler for Scripted {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tool_list_changed()
                .enable_prompts()
                .enable_prompts_list_changed()
                .enable_logging()
                .build(),
        )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = Arc::new(serde_json::Map::from_iter([(
            "type".into(),
            "object".into(),
        )]));
        let names = [
            "count", "echo", "log", "ask", "big", "nan", "slow", "die", "greeted",
        ];
        let names = names.map(str::to_owned).into_iter();
        let tools = names
            .chain(self.deployed.clone())
            .map(|name| Tool::new(name, "scripted", schema.clone()));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn on_initialized(&self, _: rmcp::service::NotificationContext<RoleServer>) {
        self.greeted.fetch_add(1, Ordering::Relaxed);
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let given = Value::Object(request.arguments.unwrap_or_default());
        let text = self.call(&request.name, &given, &context).await?;
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// The app's own check, before anything else.
async fn let_in(State(revoked): State<Arc<PathBuf>>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION);
    let token = shown
        .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
        .filter(|token| token.starts_with('t') && !token.contains('/'));
    match token {
        Some(token) if !revoked.join(token).exists() => next.run(request).await,
        _ => (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Bearer")],
        )
            .into_response(),
    }
}

#[expect(clippy::print_stdout, reason = "it is what the runner waits for")]
#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, journal, gates, revoked] = &arguments[..] else {
        panic!("usage: scripted-rmcp PORT JOURNAL GATES REVOKED");
    };
    let opened = std::fs::OpenOptions::new().append(true).open(journal);
    let server = Scripted {
        journal: Arc::new(opened.expect("a journal")),
        gates: gates.into(),
        greeted: Arc::default(),
        deployed: std::fs::read_to_string(Path::new(gates).with_file_name("deploys"))
            .ok()
            .map(|deploys| format!("deployed_{deploys}")),
    };
    let options =
        DurableOptions::new("scripted".parse().expect("a name")).retry(Duration::from_millis(100));
    let server = move || {
        Ok(Scripted {
            greeted: Arc::default(),
            ..server.clone()
        })
    };
    let service = durable(server, options);
    let app = Router::new()
        .route_service("/mcp", service)
        .layer(middleware::from_fn_with_state(
            Arc::new(PathBuf::from(revoked)),
            let_in,
        ));
    let listener = TcpListener::bind(("127.0.0.1", port.parse().expect("a port")))
        .await
        .expect("a port");
    println!(
        "listening at http://{}/mcp",
        listener.local_addr().expect("bound")
    );
    axum::serve(listener, app).await.expect("it serves");
}
