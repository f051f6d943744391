//! An MCP server over HTTP, on rmcp and axum, whose sessions outlive it: `http_server [ADDRESS]`.
//!
//! The layer opens each request's session before rmcp or a handler gets the request. rmcp keeps
//! none of its own (`with_legacy_session_mode(false)`), so nothing is lost with this process.
//!
//! ```text
//! curl -i localhost:8000/mcp -H 'Authorization: Bearer me' -H 'Accept: application/json, text/event-stream' \
//!   -H 'Content-Type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"initialize","params":
//!   {"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"curl","version":"1"}}}'
//! curl localhost:8000/count -H 'Authorization: Bearer me' -H 'Mcp-Session-Id: …'
//! ```

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{delete, get};
use mcp_sessiond_client::tower::{Refusal, SessionCookie, SessionLayer, SessiondSession, caller};
use mcp_sessiond_client::{Json, Options, Session, SessionError, Sessions, StateKey};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, tool, tool_router};
use tokio::net::TcpListener;

/// An MCP server that has no state: each client's is in its session.
struct Counter;

#[tool_router(server_handler)]
impl Counter {
    /// Counts the calls of this client.
    #[tool]
    async fn count(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let failed = |why: String| ErrorData::internal_error(why, None);
        let session = context
            .extensions
            .get::<Parts>()
            .and_then(SessiondSession::of_parts);
        let session = session.ok_or_else(|| failed("the request has no session".into()))?;
        let count = count_one(&session)
            .await
            .map_err(|error| failed(error.to_string()))?;
        Ok(count.to_string())
    }
}

fn calls() -> StateKey {
    "calls".parse().expect("a key")
}

/// Adds one, also where several calls do so at once.
async fn count_one(session: &Session) -> Result<u64, SessionError> {
    loop {
        let entry = session.entry(&calls()).await?;
        let count = entry
            .value
            .and_then(|value| value.as_str().parse().ok())
            .unwrap_or(0)
            + 1;
        let value = Json::trusted(count.to_string());
        match session
            .compare_and_set(&calls(), entry.version, Some(&value))
            .await
        {
            Err(error) if error.http_status() == 409 => {}
            written => return written.map(|_| count),
        }
    }
}

/// The count, for a page.
async fn count(session: SessiondSession) -> Result<String, Refusal> {
    Ok(session
        .get_as::<u64>(&calls())
        .await?
        .unwrap_or_default()
        .to_string())
}

/// Ends the session.
async fn end(session: SessiondSession) -> Result<StatusCode, Refusal> {
    session.terminate().await?;
    Ok(StatusCode::NO_CONTENT)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "localhost:8000".into());
    let sessions = Sessions::of_service("http_server".parse()?, Options::default());
    // Sessions are bound to the bearer token. A server that is not an example checks the token
    // first.
    let layer = SessionLayer::new(sessions, caller::bearer).cookie(SessionCookie::default());
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true);
    let mcp = StreamableHttpService::new(
        || Ok(Counter),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let app = Router::new()
        .route("/mcp", delete(end).fallback_service(mcp))
        .route("/count", get(count))
        .layer(layer);
    let listener = TcpListener::bind(address).await?;
    writeln!(
        std::io::stdout(),
        "listening at http://{}/mcp",
        listener.local_addr()?
    )?;
    Ok(axum::serve(listener, app).await?)
}
