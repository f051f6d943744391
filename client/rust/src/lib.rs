//! Keeps an MCP server's broker session across restarts, with the per-user daemon `mcp-sessiond`.
//!
//! A server that holds a session with a broker gets a *resume token* from it. This crate hands that token to the
//! daemon, which gives it to the next instance of the same server under the same host, and to nobody else. Three
//! calls do it: [`Sessiond::load`] at start, [`Sessiond::store`] for each token that the broker issues,
//! [`Sessiond::reject`] when the broker refuses the one that was loaded.
//!
//! None of them can fail the server: without daemon, directory or identity, resume is disabled, one line is
//! logged through [`tracing`], and the server goes on as if nothing had been asked. [`Sessiond::status`] tells
//! which it is.
//!
//! ```no_run
//! use mcp_sessiond_client::{Options, Sessiond};
//! # use std::{future::Future, io};
//! # struct Broker;
//! # impl Broker {
//! #     async fn resume(_: &[u8]) -> Result<Broker, io::Error> { Ok(Broker) }
//! #     async fn fresh() -> Result<Broker, io::Error> { Ok(Broker) }
//! #     fn token(&self) -> &[u8] { b"token" }
//! # }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let sessiond = Sessiond::init(Options::default());
//! let broker = match sessiond.load().await {
//!     None => Broker::fresh().await?,
//!     Some(token) => match Broker::resume(token.expose()).await {
//!         Ok(broker) => broker,
//!         Err(_) => {
//!             sessiond.reject().await;
//!             Broker::fresh().await?
//!         }
//!     },
//! };
//! // `store` after `load` without `reject` tells the daemon that the broker accepted.
//! sessiond.store(broker.token()).await;
//! # Ok(())
//! # }
//! ```
//!
//! Where the configuration of the host tells two instances of a server apart, and nothing else does, give each a
//! label: `Options::default().label("staging".parse()?)`.
//!
//! **Runtime.** Every call must be made within a tokio runtime that has its I/O and time drivers enabled
//! (`#[tokio::main]` does). A future that is dropped half-way does no harm: the next call finds the lease again.
//!
//! **Below.** [`connect`] is for who wants every failure to be visible, as the command line does: it finds or
//! starts the daemon, makes sure that it is ours, and returns the service itself.

mod calls;
mod connection;
mod directory;
mod error;
mod line;
mod log;
mod options;
mod session;
mod sessiond;
mod sessions;
mod start;

#[cfg(test)]
mod tests;

pub use connection::{CONNECT_TIMEOUT, Connection, connect};
pub use directory::Directory;
pub use error::{ConnectError, Reason, SessionError};
pub use mcp_sessiond_proto::sessions::{
    Binding, Caller, CredentialHash, FailedPart, Handle, Lifetimes, Minted, OnMismatch,
    Session as SessionView, Status as SessionStatus,
};
pub use mcp_sessiond_proto::state::{StateEntry, StateKeyInfo, StateVersion, StateWrite};
pub use mcp_sessiond_proto::streams::{
    Appended, Cursor, Event, EventId, Gap, Replayed, Stream as StreamView,
};
pub use mcp_sessiond_proto::types::Outcome;
pub use mcp_sessiond_proto::{
    ClaimRequest, Epoch, Error, Json, Label, ServiceName, SessionId, Siblings, StateKey, StreamId, Token,
};
pub use options::{CALL_TIMEOUT, Options};
pub use session::{Attachment, Session, Stream, Update};
pub use sessiond::{Sessiond, Status};
pub use sessions::{CreateOptions, Sessions, credential};
pub use start::{BINARY_VARIABLE, Start};

/// The target of every line that this crate logs.
pub const LOG_TARGET: &str = "mcp_sessiond_client";
