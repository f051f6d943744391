//! HTTP servers on the official Rust SDK, rmcp 3.9, whose sessions survive the server (feature
//! `rmcp`).
//!
//! ```no_run
//! use mcp_sessiond_client::StateKey;
//! use mcp_sessiond_client::rmcp::{DurableOptions, durable, session};
//! use rmcp::service::RequestContext;
//! use rmcp::{ErrorData, RoleServer, tool, tool_router};
//!
//! struct Shop;
//!
//! #[tool_router(server_handler)]
//! impl Shop {
//!     /// Counts the visits of this client.
//!     #[tool]
//!     async fn visit(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
//!         let (session, key): (_, StateKey) = (session(&context)?, "visits".parse().expect("a key"));
//!         let visits = session.get_as::<u64>(&key).await?.unwrap_or_default() + 1;
//!         session.set_as(&key, &visits).await?;
//!         Ok(visits.to_string())
//!     }
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mcp = durable(|| Ok(Shop), DurableOptions::new("shop".parse()?));
//! let app = axum::Router::new().route_service("/mcp", mcp);
//! axum::serve(tokio::net::TcpListener::bind("127.0.0.1:8000").await?, app).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A client comes back to the next process with the same session, without `initialize`. What was
//! sent to it is replayed once, and a call that was under way is answered, "the outcome is
//! unknown". `examples/durable_server.rs` is a whole server.

mod body;
mod context;
mod events;
mod handshake;
mod lists;
mod live;
mod manager;
mod options;
mod posted;
mod prune;
mod readers;
mod recorder;
mod request_scope;
mod request_stream;
mod service;
mod table;
mod tail;
mod tasks;
#[cfg(test)]
mod tests;
mod transport;
mod writer;

pub use body::DurableBody;
pub use context::{HasSession, notify, session};
pub use options::DurableOptions;
pub use service::{DurableService, durable};
pub use tasks::{DurableTasks, RunOptions, Work};
