//! A server on the official Rust SDK over HTTP, whose sessions outlive it:
//! `durable-server ADDRESS [JOURNAL]`, or, to compare with, as the SDK has it, with sessions in
//! memory: `durable-server ADDRESS plain`.
//!
//! It prints where it listens. Sessions are bound to the bearer token, if one is shown, and named
//! by a cookie, too. While the file is there that DURABLE_SERVER_BROKEN names, it panics where a
//! server is to be made.
//!
//!   visit                          answers how often this session has called it who
//!   what the server knows of its client, and of its session count {key, steps, hold, gate} writes
//!   `key` into the journal, tells so many steps as progress, waits after the step `hold` until the
//!   file `gate` is there, and answers both announce {text}                says that the resource
//!   `text` has changed, which belongs to no call roots                          asks the client
//!   for its roots, and answers how many there are large {bytes}                  answers so many
//!   bytes
//!
//! The resource `session://id`, the prompt `id` and every completion tell the id of the session
//! that they were asked in.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt as _;
use mcp_sessiond_client::rmcp::{DurableOptions, durable, session};
use mcp_sessiond_client::tower::SessionCookie;
use mcp_sessiond_client::{Json, SessionError, StateKey};
use mcp_sessiond_process::changes::Changes;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    CompletionInfo, ContentBlock, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, PromptMessage,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
    ResourceUpdatedNotificationParam, Role, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tracing_subscriber::filter::LevelFilter;

type Context = RequestContext<RoleServer>;

/// A server that has no state of its own.
struct Counter {
    journal: Option<Arc<std::fs::File>>,
}

impl Counter {
    async fn call(
        &self,
        name: &str,
        arguments: &Value,
        context: &Context,
    ) -> Result<String, ErrorData> {
        match name {
            "visit" => visit(context).await,
            "who" => who(context),
            "count" => self.count(arguments, context).await,
            "announce" => announce(arguments, context).await,
            "roots" => roots(context).await,
            "large" => Ok("x".repeat(
                usize::try_from(arguments["bytes"].as_u64().unwrap_or(0)).expect("a size"),
            )),
            _ => Err(ErrorData::invalid_params("there is no such tool", None)),
        }
    }

    async fn count(&self, arguments: &Value, context: &Context) -> Result<String, ErrorData> {
        let key = arguments["key"].as_str().unwrap_or_default();
        if let Some(journal) = &self.journal {
            (&**journal)
                .write_all(format!("{key}\n").as_bytes())
                .expect("it is written");
        }
        let steps = arguments["steps"].as_u64().unwrap_or_default();
        for step in 0..=steps {
            if let Some(token) = context.meta.get_progress_token().filter(|_| step > 0) {
                #[expect(clippy::cast_precision_loss, reason = "they are few")]
                let progress = ProgressNotificationParam::new(token, step as f64).with_message(key);
                let _ = context.peer.notify_progress(progress).await;
            }
            if arguments["hold"].as_i64() == Some(step.cast_signed()) {
                opened(arguments["gate"].as_str().expect("a path").as_ref()).await;
            }
        }
        Ok(format!("{key} {steps}"))
    }
}

/// Adds one, also where several calls do so at once.
async fn visit(context: &Context) -> Result<String, ErrorData> {
    let (session, key) = (
        session(context)?,
        "visits".parse::<StateKey>().expect("a key"),
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

fn who(context: &Context) -> Result<String, ErrorData> {
    let peer = context
        .peer
        .peer_info()
        .ok_or_else(|| ErrorData::internal_error("it is nobody", None))?;
    Ok(json!({
        "name": peer.client_info.name,
        "capabilities": peer.capabilities,
        "version": peer.protocol_version,
        "session": session(context)?.id(),
    })
    .to_string())
}

async fn announce(arguments: &Value, context: &Context) -> Result<String, ErrorData> {
    let message =
        ResourceUpdatedNotificationParam::new(arguments["text"].as_str().unwrap_or_default());
    let sent = context.peer.notify_resource_updated(message).await;
    sent.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok("announced".into())
}

#[expect(
    deprecated,
    reason = "a request of the server's, in the versions that have sessions"
)]
async fn roots(context: &Context) -> Result<String, ErrorData> {
    let asked = context.peer.list_roots().await;
    let roots = asked.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(roots.roots.len().to_string())
}

/// Waits until the file is moved to its place: the system tells.
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

impl ServerHandler for Counter {
    fn get_info(&self) -> ServerConfig {
        let offered = ServerCapabilities::builder();
        ServerConfig::new(
            offered
                .enable_tools()
                .enable_resources()
                .enable_prompts()
                .enable_completions()
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
        let names = ["visit", "who", "count", "announce", "roots", "large"];
        Ok(ListToolsResult::with_all_items(
            names
                .map(|name| Tool::new(name, name, schema.clone()))
                .into(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let text = self.call(&request.name, &arguments, &context).await?;
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let id = session(&context)?.id().to_string();
        Ok(ReadResourceResult::new(vec![ResourceContents::text(id, request.uri)]).into())
    }

    async fn get_prompt(
        &self,
        _: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let id = session(&context)?.id().to_string();
        Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, id)]).into())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let id = session(&context)?.id().to_string();
        let completion = CompletionInfo::with_all_values(vec![id]);
        Ok(CompleteResult::new(
            completion.map_err(|why| ErrorData::internal_error(why, None))?,
        ))
    }
}

#[expect(clippy::print_stdout, reason = "it is what the tests wait for")]
#[tokio::main]
async fn main() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(LevelFilter::WARN)
        .init();
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().expect("an address");
    let open = |path| {
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .expect("a journal")
    };
    let journal = arguments.next();
    let is_plain = journal.as_deref() == Some("plain");
    let journal = journal
        .filter(|_| !is_plain)
        .map(|path| Arc::new(open(path)));
    // Short, so that a test does not take long; and yet so long that a server is back before a
    // client has tried twice.
    let options = DurableOptions::new("durable".parse().expect("a name"))
        .retry(Duration::from_millis(500))
        .cookie(SessionCookie::default());
    let broken = std::env::var_os("DURABLE_SERVER_BROKEN").map(PathBuf::from);
    let counter = move || {
        assert!(
            !broken.as_ref().is_some_and(|path| path.exists()),
            "it is broken"
        );
        Ok(Counter {
            journal: journal.clone(),
        })
    };
    let app = if is_plain {
        let manager = Arc::new(LocalSessionManager::default());
        Router::new().route_service(
            "/mcp",
            StreamableHttpService::new(counter, manager, Default::default()),
        )
    } else {
        Router::new().route_service("/mcp", durable(counter, options))
    };
    let listener = TcpListener::bind(address).await.expect("a port");
    println!(
        "listening at http://{}/mcp",
        listener.local_addr().expect("bound")
    );
    // Else each event waits for the client's acknowledgement of the one before.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, app).await.expect("it serves");
}
