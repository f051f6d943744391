//! A server on the official Rust SDK over HTTP, which forgets everything when it ends:
//! `rmcp-server PORT`.
//!
//! It prints where it listens, a line for each session, and one for each stream that is resumed,
//! with the event. Each session counts for itself. What it says on a stream that has no connection
//! at that moment is lost, and the stream with it.
//!
//!   increment            answers the count, as text steps {n, gate}      tells n steps as
//!   progress, waits until the file `gate` is there after the first one, and answers n

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::service::Service as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use mcp_sessiond_process::changes::Changes;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock,
    ProgressNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::net::TcpListener;

/// What a session's count is in.
#[derive(Clone, Default)]
struct Counter(Arc<AtomicU64>);

impl ServerHandler for Counter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = match &*request.name {
            "increment" => self.0.fetch_add(1, Ordering::Relaxed) + 1,
            _ => {
                let n = arguments["n"].as_u64().unwrap_or_default();
                let token = context.meta.get_progress_token().expect("a token");
                for step in 1..=n {
                    #[expect(clippy::cast_precision_loss, reason = "they are few")]
                    let progress = ProgressNotificationParam::new(token.clone(), step as f64);
                    let _ = context.peer.notify_progress(progress).await;
                    if step == 1 {
                        opened(arguments["gate"].as_str().expect("a path").as_ref()).await;
                    }
                }
                n
            }
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text.to_string())]).into())
    }
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

#[expect(clippy::print_stdout, reason = "it is what the tests wait for")]
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let port = std::env::args()
        .nth(1)
        .and_then(|port| port.parse().ok())
        .unwrap_or(0);
    let made = || {
        println!("initialize");
        Ok(Counter::default())
    };
    let sessions = Arc::<LocalSessionManager>::default();
    let service = StreamableHttpService::new(made, sessions, StreamableHttpServerConfig::default());
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .expect("a port");
    println!(
        "listening at http://{}/mcp",
        listener.local_addr().expect("bound")
    );
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let inner = TowerToHyperService::new(service.clone());
        let service = hyper::service::service_fn(move |request: hyper::Request<_>| {
            let event = request.headers().get("last-event-id").cloned();
            let answering = inner.call(request);
            async move {
                let answer = answering.await;
                if let Some(event) = event {
                    println!("resumed {}", event.to_str().unwrap_or_default());
                }
                answer
            }
        });
        tokio::spawn(async move {
            let _ = Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
