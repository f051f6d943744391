//! An MCP server on rmcp whose tool goes on as a task that outlives its request and its connection: `tasks_server [ADDRESS]`.
//!
//! It speaks MCP 2026-07-28. Start two of them: either answers for the tasks of both, and for those of one that was killed.

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use axum::Router;
use mcp_sessiond_client::rmcp::{DurableTasks, RunOptions};
use mcp_sessiond_client::task_handlers;
use rmcp::model::{CallToolResponse, ServerCapabilities, ServerConfig};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::{ErrorData, RoleServer, ServerHandler, tool, tool_handler, tool_router};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing_subscriber::filter::LevelFilter;

/// An MCP server with a tool that takes long.
#[derive(Clone)]
struct Shop {
    tasks: DurableTasks,
}

#[tool_router]
impl Shop {
    /// Makes a report, which takes ten seconds.
    #[tool]
    async fn report(&self, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let options = RunOptions::default().message("begun");
        self.tasks
            .run(&context, options, |work| async move {
                for page in 1..=10 {
                    work.tell(format!("page {page} of 10")).await;
                    sleep(Duration::from_secs(1)).await;
                }
                "ten pages".to_owned()
            })
            .await
    }
}

#[tool_handler]
impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tasks().build())
    }

    task_handlers!(tasks);
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(LevelFilter::WARN).init();
    let address = std::env::args().nth(1).unwrap_or_else(|| "localhost:8000".into());
    let shop = Shop { tasks: DurableTasks::of_service("shop".parse()?) };
    let mcp = StreamableHttpService::new(
        move || Ok(shop.clone()),
        NeverSessionManager::default().into(),
        rmcp::transport::streamable_http_server::StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false),
    );
    let listener = TcpListener::bind(address).await?;
    writeln!(std::io::stdout(), "listening at http://{}/mcp", listener.local_addr()?)?;
    Ok(axum::serve(listener, Router::new().route_service("/mcp", mcp)).await?)
}
