//! An MCP server over HTTP, on rmcp, whose sessions and calls outlive it:
//! `durable_server [ADDRESS]`.
//!
//! `sh client/rust/examples/durable_server.sh` calls it with curl, kills it with SIGKILL in the
//! middle of a call, and calls it again: the count goes on, and the client is told that the outcome
//! of the call is unknown.

use std::error::Error;
use std::io::Write as _;
use std::time::Duration;

use axum::Router;
use mcp_sessiond_client::StateKey;
use mcp_sessiond_client::rmcp::{DurableOptions, durable, session};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::ProgressNotificationParam;
use rmcp::schemars::{self, JsonSchema};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, tool, tool_router};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tracing_subscriber::filter::LevelFilter;

/// An MCP server that has no state: each client's is in its session.
struct Shop;

/// How many steps.
#[derive(Deserialize, JsonSchema)]
struct Steps {
    n: u32,
}

#[tool_router(server_handler)]
impl Shop {
    /// Counts the visits of this client.
    #[tool]
    async fn visit(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let (session, key): (_, StateKey) = (session(&context)?, "visits".parse().expect("a key"));
        let visits = session.get_as::<u64>(&key).await?.unwrap_or_default() + 1;
        session.set_as(&key, &visits).await?;
        Ok(format!("visit {visits}"))
    }

    /// Makes n steps, one each second, and tells each as progress.
    #[tool]
    async fn steps(
        &self,
        Parameters(Steps { n }): Parameters<Steps>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        for step in 1..=n {
            if let Some(token) = context.meta.get_progress_token() {
                let progress =
                    ProgressNotificationParam::new(token, step.into()).with_total(n.into());
                let _ = context.peer.notify_progress(progress).await;
            }
            sleep(Duration::from_secs(1)).await;
        }
        Ok(format!("{n} steps"))
    }
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
    let mcp = durable(|| Ok(Shop), DurableOptions::new("shop".parse()?));
    let listener = TcpListener::bind(address).await?;
    writeln!(
        std::io::stdout(),
        "listening at http://{}/mcp",
        listener.local_addr()?
    )?;
    Ok(axum::serve(listener, Router::new().route_service("/mcp", mcp)).await?)
}
