//! Several MCP servers as one. A *bundle* is a domain object: it owns its backends, knows what they
//! list, and brings each call to the backend that it is for. It runs and is tested without a
//! server; sockets, processes, hosts and the daemon are its caller's.
//!
//! # Code map
//!
//! A bundle:
//!
//! - [`bundle`]: the trait [`Bundle`], its errors and its settings. [`call`]: what can be asked
//!   for. [`status`]: the state of a bundle and of its backends.
//! - [`backends`]: [`Backends`], the bundle itself. [`mod@core`]: what its tasks share, and which
//!   backend a call is for. [`told`]: what a backend that is started again is sent again.
//!   [`roots`]: the host's folders, of which it is asked once for all backends.
//! - [`names`]: the names under which tools and prompts are listed.
//! - [`mod@decorate`]: features that stand around a bundle, each a file below it.
//! - [`server`]: [`BundleServer`], a bundle as one MCP server: messages in and messages out.
//!
//! A backend:
//!
//! - [`pipe`]: what the caller provides: a [`Source`] that can be opened, and then two channels of
//!   messages ([`Pipe`]); a [`Host`]; a [`BundleStore`].
//! - [`life`]: backends are started, a few at a time, and again when they were lost.
//! - [`backend`]: its state, handshake and lists. [`pages`]: a list that comes in pages. [`refresh`]
//!   and [`pace`]: lists that have changed.
//! - [`connection`]: requests and their answers.
//! - [`modern`]: backends and hosts of MCP 2026-07-28.
//! - [`lazy`]: [`Lazy`], a backend that is started at its first call, and answered for from memory
//!   until then. [`lazy::known`]: what is stored; [`lazy::state`]: what is answered from it.
//!
//! Messages are [`mcp_sessiond_jsonrpc::owned`], which keeps what others have written as it was written.
//!
//! # Invariants
//!
//! - **No I/O:** nothing in here knows a socket, a file, a process or the daemon. A backend is two
//!   channels; time is tokio's. `tests/integration/layout.rs` lists what this crate may use: of
//!   ours, JSON-RPC alone.
//! - **Ids are derived and never counted.** A host's request has the same id at its backend; a
//!   backend's request has `backend:id` at the host. So a process that comes after this one knows
//!   which backend an answer is for.
//! - **A name leads back to one tool**, for as long as its backend is in the file.
#![allow(rustdoc::private_intra_doc_links)]
#![forbid(unsafe_code)]

mod backend;
mod backends;
mod bundle;
pub mod call;
mod connection;
mod core;
pub mod decorate;
pub mod lazy;
mod life;
mod lock;
pub mod modern;
pub mod names;
mod pace;
mod pages;
mod pipe;
mod refresh;
mod roots;
mod server;
mod status;
#[cfg(test)]
mod tests;
mod told;

pub use backends::Backends;
pub use bundle::{Bundle, Error, Handshake, Settings};
pub use call::{Call, Item, List, Target};
pub use connection::Answer;
pub use decorate::{Decorations, decorate};
pub use lazy::{Known, KnownStore, Lazy, Unused, Waking};
pub use mcp_sessiond_jsonrpc::error::RpcError;
pub use mcp_sessiond_jsonrpc::owned::{Id, Message};
pub use names::{Names, Style};
pub use pipe::{BundleStore, End, Host, Pipe, Receipt, Source, Told, TrackedLine, WAITING};
pub use server::BundleServer;
pub use status::{BackendState, BundleState, FailedStart, Failure, FailureCode, Status};
