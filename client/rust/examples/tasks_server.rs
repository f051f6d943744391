//! An MCP server on rmcp whose tool goes on as a task that outlives its request and its connection:
//! `tasks_server [ADDRESS]`.
//!
//! It speaks MCP 2026-07-28. Start two of them: either answers for the tasks of both, and for those
//! of one that was killed. `sh client/rust/examples/tasks_server.sh` does that, with curl.

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use axum::Router;
use mcp_sessiond_client::rmcp::{DurableTasks, RunOptions};
use mcp_sessiond_client::task_handlers;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResponse, ServerCapabilities, ServerConfig};
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, tool, tool_handler, tool_router};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing_subscriber::filter::LevelFilter;

/// An MCP server with a tool that takes long.
#[derive(Clone)]
struct Shop {
    tasks: DurableTasks,
}

/// How long a report is.
#[derive(Deserialize, JsonSchema)]
struct Report {
    pages: u32,
}

#[tool_router]
impl Shop {
    /// Makes a report, a page each second.
    #[tool]
    async fn report(
        &self,
        Parameters(Report { pages }): Parameters<Report>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let options = RunOptions::default().message("begun");
        self.tasks
            .run(&context, options, move |work| async move {
                for page in 1..=pages {
                    work.tell(format!("page {page} of {pages}")).await;
                    sleep(Duration::from_secs(1)).await;
                }
                format!("a report of {pages} pages")
            })
            .await
    }
}

#[tool_handler]
impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tasks()
                .build(),
        )
    }

    task_handlers!(tasks);
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(LevelFilter::WARN)
        .init();
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "localhost:8000".into());
    let shop = Shop {
        tasks: DurableTasks::of_service("shop".parse()?),
    };
    let mcp = StreamableHttpService::new(
        move || Ok(shop.clone()),
        NeverSessionManager::default().into(),
        StreamableHttpServerConfig::default().with_legacy_session_mode(false),
    );
    let listener = TcpListener::bind(address).await?;
    writeln!(
        std::io::stdout(),
        "listening at http://{}/mcp",
        listener.local_addr()?
    )?;
    Ok(axum::serve(listener, Router::new().route_service("/mcp", mcp)).await?)
}
