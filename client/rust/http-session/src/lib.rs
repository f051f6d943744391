//! One session of MCP over Streamable HTTP: a state machine that is told facts, and hands out what is
//! to be done. No I/O, no clock.
//!
//! `serve` puts HTTP, the daemon and a server's keeper around it, and the client library's `durable`
//! a server on rmcp. Both have one way for what a client posts, for what a server says, and for
//! what a client is sent that comes back.
//!
//! # Code map
//!
//! - [`session`]: [`HttpSession`](session::HttpSession): calls, the streams on which they are
//!   answered, questions of the server, readers, and what a former process has left.
//! - [`policy`]: what is different between those that serve them.
//! - [`route`]: which stream a message of the server goes to.
//! - [`keep`]: what becomes of a message on its way into the storage, above all if it does not fit.
//! - [`reader`]: what the reader of a stream is sent, once and in order; [`sse`]: as text.
//!
//! What travels:
//!
//! - [`posted`]: what a client posts. [`messages`]: what a server says, and the ids by which each
//!   side knows requests.
//! - [`substitute`]: errors in the place of answers, and lines of ours for the client's log.
//!
//! What is on record:
//!
//! - [`handshake`]: that of a session. [`origin`]: the calls of a stream.
//!
//! # Invariants
//!
//! - **No I/O and no clock, and nothing in here can fail.** The crate has no `std`.
//! - **A call gets one answer, on its own stream**, from its server or in its place.
//! - **A message is stored before it is sent.** Only a server that goes on without the storage, as
//!   `durable` does, sends what is not stored.
#![allow(rustdoc::private_intra_doc_links)]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod handshake;
pub mod keep;
pub mod messages;
pub mod origin;
pub mod policy;
pub mod posted;
pub mod reader;
mod route;
pub mod session;
pub mod sse;
pub mod substitute;

/// The time since some moment that does not change: of a clock that is never set back.
pub type Time = core::time::Duration;
