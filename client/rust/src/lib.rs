//! Keeps an MCP server's sessions across restarts, with the per-user daemon `mcp-sessiond`: the one
//! with its broker by a token ([`Sessiond`]), and those with its clients by their state and what
//! was said in them ([`Sessions`]).
//!
//! # A token
//!
//! A server that holds a session with a broker gets a *resume token* from it. This crate hands that
//! token to the daemon, which gives it to the next instance of the same server under the same host,
//! and to nobody else. Three calls do it: [`Sessiond::load`] at start, [`Sessiond::store`] for each
//! token that the broker issues, [`Sessiond::reject`] when the broker refuses the one that was
//! loaded.
//!
//! None of them can fail the server: without daemon, directory or identity, resume is disabled, one
//! line is logged through [`tracing`], and the server goes on as if nothing had been asked.
//! [`Sessiond::status`] tells which it is.
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
//! Where the configuration of the host tells two instances of a server apart, and nothing else
//! does, give each a label: `Options::default().label("staging".parse()?)`.
//!
//! # State and streams
//!
//! A server that serves many clients keeps each one's session with the daemon: JSON values by key,
//! and events that can be said again from any place. It is a *service*, and finds its sessions
//! again by their ids, whoever started it. The sessions of a *host* belong to the process that
//! started this one, and end with it; [`Sessiond::session`] is the one that this instance has
//! claimed.
//!
//! ```no_run
//! use mcp_sessiond_client::{CreateOptions, Cursor, Json, Options, Sessions, StateKey};
//! use std::time::Duration;
//!
//! # async fn example(last_event_id: mcp_sessiond_client::EventId) -> Result<(), Box<dyn std::error::Error>> {
//! let sessions = Sessions::of_service("shop".parse()?, Options::default());
//! let session = sessions.create(CreateOptions::default()).await?;
//! // For `Mcp-Session-Id`; `sessions.open` finds the session by it.
//! let id = session.id();
//!
//! let cart: StateKey = "cart".parse()?;
//! session.set_as(&cart, &["apples"]).await?;
//! let message = Json::new(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#)?;
//! let appended = session.standalone().append(message).await?;
//! // Kept, and only now said: with `appended.id` for the id of the SSE event.
//!
//! // A client comes back with its `Last-Event-ID`.
//! let missed = session.replay_all(&Cursor::Event(last_event_id)).await?;
//! let more = session.wait(&missed.next, Duration::from_secs(15)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! These calls say what went wrong ([`SessionError`]). What passes is none of it: a daemon that is
//! restarted between two calls, or during one, is not noticed. `examples/event_service.rs` is a
//! whole server. With the feature `tower` a layer opens the session of each HTTP request, and with
//! `axum` handlers get it by an extractor: `examples/http_server.rs`. With `rmcp` the sessions of a
//! server on the official SDK survive the server: `examples/durable_server.rs`.
//!
//! **Runtime.** Within a tokio runtime a call uses that, which must have its I/O and time drivers
//! enabled (`#[tokio::main]` does). Under any other executor a thread of this crate's own does the
//! work, and a server that is not async waits for a call with [`block_on`]. A future that is
//! dropped half-way does no harm: the next call finds the lease again.
//!
//! **Systems.** The daemon runs on Linux and macOS. Elsewhere, as on Windows, the crate compiles,
//! and resume is disabled.
//!
//! **Below.** With the feature `control`, `connect` shows its caller every failure, as the command
//! line needs it: it finds or starts the daemon, checks that the daemon is ours, and returns the
//! service itself.
//!
//! # Code map
//!
//! - [`sessiond`]: the three calls for a token; they never fail. [`mod@start`]: whether a daemon is
//!   started where none runs. [`log`]: each line that is logged.
//! - [`sessions`](mod@sessions): the sessions of one owner. [`session`](mod@session): one of them,
//!   with its state, streams, tasks and attachments. [`mod@credential`]: callers that are known by
//!   a hash.
//! - [`connections`]: the connections that the sessions of one owner share. [`retrying_client`]:
//!   calls on a connection that may break at any moment. [`deadline`]: by when a call has to be
//!   answered.
//! - [`connection`]: one connection to a daemon that is ours. [`directory`]: the directory that its
//!   socket is in. [`error`]: what can go wrong. [`mod@options`]: settings. [`runtime`]: what
//!   drives the calls.
//! - [`control`]: bare calls, for programs that are part of mcp-sessiond.
//! - `tower`, `rmcp`, `turul`, each with the feature of its name: a layer for HTTP servers; HTTP
//!   servers on the official SDK; a storage for another framework.
//!
//! **Architecture Invariants:** nothing is sent to a daemon of another user, nor through a
//! directory that others may enter. [`Sessiond`] returns `Option` and `bool`: no call of it fails
//! the server. The daemon's framework for RPCs is not among the dependencies of a server that uses
//! this crate.
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]
#![cfg_attr(
    not(all(unix, feature = "sessions", feature = "control")),
    allow(
        dead_code,
        unreachable_pub,
        reason = "what tokens share with a feature that is off, or with other systems"
    )
)]

mod connection;
mod connections;
#[cfg(feature = "control")]
mod control;
#[cfg(feature = "sessions")]
mod credential;
mod deadline;
mod directory;
mod error;
mod log;
mod options;
mod retrying_client;
#[cfg(feature = "rmcp")]
pub mod rmcp;
mod runtime;
#[cfg(feature = "sessions")]
mod session;
mod sessiond;
#[cfg(feature = "sessions")]
mod sessions;
mod start;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "turul")]
pub mod turul;

#[cfg(test)]
mod tests;

#[cfg(feature = "control")]
pub use connection::{CONNECT_TIMEOUT, Connection, connect};
#[cfg(feature = "control")]
pub use control::{Answer, Control};
#[cfg(feature = "sessions")]
pub use credential::credential;
#[cfg(feature = "control")]
pub use directory::Directory;
#[cfg(any(feature = "sessions", feature = "control"))]
pub use error::SessionError;
pub use error::{ConnectError, Reason};
pub use log::LOG_TARGET;
#[cfg(feature = "control")]
pub use mcp_sessiond_proto::client::CallError;
#[cfg(feature = "sessions")]
pub use mcp_sessiond_proto::services::{SecretKey, ServiceSecret};
#[cfg(feature = "sessions")]
pub use mcp_sessiond_proto::sessions::{
    Binding, Caller, CredentialHash, Handle, Lifetimes, Minted, OnMismatch, Part, PartState,
    Session as SessionView, Status as SessionStatus,
};
#[cfg(feature = "sessions")]
pub use mcp_sessiond_proto::state::{StateEntry, StateKeyInfo, StateVersion, StateWrite};
#[cfg(feature = "sessions")]
pub use mcp_sessiond_proto::streams::{
    Appended, Cursor, Event, EventId, FoundEvent, Gap, Replayed, Stream as StreamView,
};
#[cfg(feature = "sessions")]
pub use mcp_sessiond_proto::tasks::{
    Task as TaskView, TaskAnswer, TaskAsk, TaskEnd, TaskInput, TaskStatus,
};
pub use mcp_sessiond_proto::types::Outcome;
#[cfg(feature = "control")]
pub use mcp_sessiond_proto::{ClaimRequest, Loss, Named};
pub use mcp_sessiond_proto::{ClientName, Epoch, Error, Label, SessionId, Siblings, Token};
#[cfg(feature = "sessions")]
pub use mcp_sessiond_proto::{InputKey, Json, RequestId, ServiceName, StateKey, StreamId, TaskId};
pub use options::{CALL_TIMEOUT, Options};
pub use runtime::block_on;
#[cfg(feature = "sessions")]
pub use session::{Attachment, Session, Stream, Task, TaskOptions, TaskUpdate, Update};
pub use sessiond::{Sessiond, Status};
#[cfg(feature = "sessions")]
pub use sessions::{CreateOptions, Sessions};
pub use start::{BINARY_VARIABLE, Start};
