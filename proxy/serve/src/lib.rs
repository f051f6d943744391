//! Streamable HTTP in front of MCP servers.
//!
//! Everything that has to survive this process is in the daemon: each session of a client is a
//! session of the service `serve.NAME`, with its handshake, its streams and their events. `serve`
//! stores a message of a server before it sends it. So this process may be killed, and the next one
//! goes on.
//!
//! **Requests**
//!
//! - [`run`]: the listener, from the start of the process to its end; [`settings`]: what it serves,
//!   and how; [`start_error`]: why it does not start.
//! - [`http`]: POST, GET and DELETE of `/mcp`; [`endpoints`]: each of several servers at
//!   `/servers/NAME`.
//! - [`connections`]: how many connections there are, and which one goes when there are too many;
//!   [`half_close`]: clients that send nothing more and wait for their answer.
//! - [`admission`]: who may connect, and on whose behalf a request is made; [`token`]: the bearer
//!   token; [`jwt`]: tokens of an issuer, verified; [`protected_resource`]: where a client gets one;
//!   [`identity_headers`]: users whom a proxy names;
//!   [`passed_headers`]: what a client shows the server itself.
//! - [`refusal`]: requests that are refused; [`response`]: messages and streams of events.
//!
//! **Sessions**
//!
//! - [`table`]: the sessions that this process serves.
//! - [`live`]: one of them: how it begins, the calls of its client, the lines of its server, the
//!   readers of its streams, and which losses its client is told of.
//!   Which message goes to which stream is decided in the package `http-session`.
//! - [`record`]: where the handshake of a session is stored.
//! - [`first_answer`]: the answer of a server to our first request.
//! - [`modern`]: MCP 2026-07-28, which has no sessions.
//!
//! **Servers**
//!
//! - [`backend`]: the trait between HTTP and a server, and what was lost with one.
//! - [`keeper_backend`]: a server in a keeper, which survives this process.
//! - [`bundles`]: several servers as one, each in a keeper.
//! - [`upstream`]: a server that speaks HTTP itself (`--upstream`), over a connection of the package
//!   `upstream`.
//! - [`send_budget`]: how many bytes may wait for a server.
//!
//! **Seen from outside**
//!
//! - [`inspect`]: the page of `--inspect`; [`counts`]: metrics; [`stderr`]: lines on standard
//!   error.
//!
//! **Architecture Invariant:** `serve` sends the client of a session nothing that the daemon has
//! not stored, other than comments and errors that refuse a request.
#![forbid(unsafe_code)]
#![allow(rustdoc::private_intra_doc_links)]

pub mod admission;
pub mod backend;
pub mod bundles;
mod connections;
pub mod counts;
pub mod endpoints;
mod first_answer;
mod half_close;
pub mod http;
pub mod identity_headers;
pub mod inspect;
pub mod jwt;
pub mod keeper_backend;
pub mod live;
pub mod modern;
pub mod passed_headers;
mod protected_resource;
pub mod record;
pub mod refusal;
pub mod response;
pub mod run;
mod send_budget;
pub mod settings;
mod start_error;
mod stderr;
pub mod table;
pub mod token;
pub mod upstream;
