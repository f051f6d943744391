//! Streamable HTTP in front of MCP servers.
//!
//! What has to last is the daemon's: each session of a client is a session of a service, with its handshake, its streams and their
//! events. Everything that a server says is kept there before it is sent. So this process may be killed, and another one goes on.
//!
//! - [`http`]: requests. [`who`]: who may make them. [`refusal`]: what is refused.
//! - [`live`]: a session, its server and its readers. [`which`]: which stream a message goes to. [`tail`]: what a reader is sent.
//! - [`backend`]: what stands between HTTP and a server. [`kept`]: a server in a keeper, which goes on without this process.
//!   [`upstream`]: a server that speaks HTTP itself.
//! - [`run`]: listening, until somebody asks to end.
//!
//! **Architecture Invariant:** nothing is sent to a client that the daemon has not kept, but for the answer to `initialize`, which is
//! on record, and comments.
#![forbid(unsafe_code)]

pub mod backend;
pub mod http;
pub mod kept;
pub mod live;
pub mod record;
pub mod refusal;
pub mod run;
pub mod said;
pub mod settings;
pub mod table;
pub mod tail;
pub mod token;
pub mod upstream;
pub mod which;
pub mod who;

use std::fmt::Display;
use std::io::Write as _;

/// Says what went wrong, on standard error, in one line.
pub(crate) fn complain(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "mcp-sessiond serve: {message}");
}
