//! The connection to a remote MCP server over Streamable HTTP: JSON-RPC messages in both
//! directions, with which another process can go on.
//!
//! [`connect`] gives the [`Connection`], and the server's messages. What has to outlive this process goes to a [`SaveState`] before a
//! message that depends on it is passed on, and a next process gives it back as [`SavedState`]:
//! then the session with the server goes on, calls under way are resumed by `Last-Event-ID` where
//! the server numbers its events, and those that can't be are answered "outcome unknown". If the
//! server has forgotten the session (404), the handshake on record is repeated.
//!
//! OAuth is that of the official Rust SDK (`rmcp`, feature `auth`): discovery, registration, PKCE,
//! refresh. Its transport is not used, and neither is the layer below it, `StreamableHttpClient`:
//! the one hides the ids of events, and both read each message into types of their own and write it
//! anew, which loses what they don't know. Here messages pass as they came, over `reqwest`, which
//! the SDK is built on, too.
//!
//! `wrap` and the bundle use it for a host that begins anew in each process, `serve --upstream` for
//! clients that stay. They differ in [`Ids`], and in what a [`Remote`] says of logins, connections
//! and waiting.
//!
//! A session goes on only with the URL, the headers and the login that it was begun with: with
//! others it may be another account's.
//!
//! - [`connection`]: what becomes of a message of the host, and what is found of a former process.
//!   [`forward`]: a request that is passed on as it came, without any session.
//! - [`calls`]: a request until its last answer. [`initialize`]: the handshake, also with a server
//!   that has forgotten it. [`listen`]: the standalone stream. [`link`]: what these have in common.
//! - [`http`]: requests and their replies. [`body`]: content codings. [`events`]: events as they come. [`cookies`]: those of a session. [`session_headers`]: the session that a request is of.
//!   [`request_headers`]: what one of no session says of itself.
//!   [`remote`]: the server's address and the headers of its entry. [`url`], [`tls`].
//! - [`ledger`]: what a next process needs, on record before a message that depends on it is passed
//!   on. [`numbers`]: by which a message that comes again is recognized.
//! - [`messages`]: ids of the server's requests, the stream that a message belongs to, and the
//!   messages that are ours. [`call_ids`]: ids of calls, where each process has a host of its own.
//!   [`news`]: what the user should know.
//! - [`login`]: the user's login. `login::file`: its tokens. `login::refresh`: new ones.
//!   `login::authority`: which authorization server is believed. [`login::browser`]: how a login
//!   begins.
//!
//! Invariants:
//!
//! - What a next process needs is with the caller's [`SaveState`] before a message that depends on
//!   it is passed on ([`ledger`]).
//! - A session is used only with the URL, the headers and the login that it was begun with
//!   ([`connection`], [`session_headers`]).
//! - A refresh holds the lock of the login's file, and its tokens are on the disk before they are
//!   used ([`login`]).
#![allow(rustdoc::private_intra_doc_links)]
#![forbid(unsafe_code)]

mod body;
mod call_ids;
mod calls;
mod connection;
mod cookies;
mod events;
mod forward;
mod http;
mod initialize;
mod ledger;
mod link;
mod listen;
pub mod login;
mod messages;
mod news;
mod numbers;
mod remote;
pub mod request_headers;
mod session_headers;
#[cfg(test)]
mod tests;
mod tls;
mod url;

pub use self::call_ids::Ids;
pub use self::connection::{Connection, NotTaken, connect};
pub use self::forward::{ForwardedResponse, NotForwarded};
pub use self::ledger::{SaveState, SavedState};
pub use self::link::ServerMessage;
pub use self::messages::StreamHint;
pub use self::news::News;
pub use self::remote::{Remote, RemoteError};
