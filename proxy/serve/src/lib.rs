//! Streamable HTTP in front of MCP servers.
//!
//! Everything that has to survive this process is in the daemon: each session of a client is a
//! session of a service, with its handshake, its streams and their events. `serve` stores what a
//! server says before it sends it. So this process may be killed, and the next one goes on.
//!
//! - [`http`]: requests. [`who`]: who may make them; [`jwt`]: verified tokens. [`refusal`]: why
//!   they are refused. [`response`]: messages and streams.
//! - [`live`]: a session, its server and its readers. [`which`]: the stream that a message goes to.
//!   [`tail`]: the events that a reader is sent. [`said`]: the messages themselves.
//! - [`modern`]: MCP 2026-07-28, which has no sessions.
//! - [`backend`]: the trait between HTTP and a server. [`kept`]: a server that a keeper holds,
//!   which survives this process. [`upstream`]: a server that speaks HTTP itself.
//! - [`inspect`]: a page about the sessions. [`run`]: the listener. [`counts`]: metrics.
//!
//! **Architecture Invariant:** `serve` sends the client of a session nothing that the daemon has
//! not stored, other than comments and errors that refuse a request.
#![forbid(unsafe_code)]

pub mod backend;
pub mod bundled;
pub mod counts;
pub mod endpoints;
pub mod http;
pub mod inspect;
pub mod jwt;
pub mod kept;
pub mod live;
pub mod modern;
mod not_served;
pub mod record;
pub mod refusal;
pub mod response;
pub mod run;
pub mod said;
pub mod settings;
pub mod table;
pub mod tail;
pub mod token;
mod unsent;
pub mod upstream;
pub mod which;
pub mod who;

use std::fmt::Display;
use std::io::Write as _;

/// Writes a line to standard error.
pub(crate) fn complain(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "mcp-sessiond serve: {message}");
}
