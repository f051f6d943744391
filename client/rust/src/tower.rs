//! HTTP servers: a tower layer that opens the session of each request (feature `tower`), and
//! extractors for axum (feature `axum`).
//!
//! ```no_run
//! # #[cfg(feature = "axum")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, routing::get};
//! use mcp_sessiond_client::tower::{Refusal, SessionCookie, SessionLayer, SessiondSession, caller};
//! use mcp_sessiond_client::{Options, Sessions, StateKey};
//!
//! async fn visits(session: SessiondSession) -> Result<String, Refusal> {
//!     let key: StateKey = "visits".parse().expect("a key");
//!     let visits = session.get_as::<u64>(&key).await?.unwrap_or_default() + 1;
//!     session.set_as(&key, &visits).await?;
//!     Ok(visits.to_string())
//! }
//!
//! let sessions = Sessions::of_service("shop".parse()?, Options::default());
//! let layer = SessionLayer::new(sessions, caller::bearer).cookie(SessionCookie::default());
//! let app = Router::new().route("/visits", get(visits)).layer(layer);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await?;
//! axum::serve(listener, app).await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`SessionLayer`] says what becomes of each request, [`SessiondSession`] how a handler or a tool
//! gets its session, and [`Refusal`] which response an error becomes. `examples/http_server.rs` is
//! a whole server on rmcp and axum.

mod begin_policy;
pub mod caller;
mod layer;
mod refusal;
mod session;
mod unannounced;
mod wire;

pub use begin_policy::Begin;
pub use layer::{SessionLayer, SessionService};
pub use refusal::{CONNECTION, INVALID, NO_METHOD, NO_SESSION, Refusal};
#[cfg(feature = "rmcp")]
pub(crate) use session::BeginsSession;
pub use session::SessiondSession;
pub use wire::{
    SESSION_COOKIE, SESSION_HEADER, SameSite, SessionCookie, name_session, named_by_cookies,
    named_by_header,
};
