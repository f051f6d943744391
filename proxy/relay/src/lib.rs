//! What becomes of each line between an MCP server and its hosts: a state machine that is told
//! lines and facts, and hands out lines and effects. No I/O, no clock.
//!
//! One backend (an MCP server on stdio) outlives its *fronts*, the pipes to the host, of which at
//! most one is attached. A *call* is a request of the host, an *ask* one of the backend. Each gets
//! a number in the namespace of the receiver, so that an answer goes to the sender, and nowhere
//! else. A message is handed on byte for byte, except for its id, its progress token and the id of
//! the request that it cancels. Lines have no newline, neither incoming nor outgoing ones.
//!
//! # Code map
//!
//! The relay of one server:
//!
//! - [`relay`]: [`Relay`], what it remembers, its [`Effect`]s and deadlines, how lines are handed
//!   out, and the [`View`] for `status`.
//! - [`relay::messages`]: what becomes of each message of either side.
//! - [`relay::front`]: fronts attach and leave, or continue each other with numbered lines.
//! - [`relay::life`]: backends start, end, and are replaced.
//! - [`relay::handshake`]: `initialize`, and what a backend that was started again is sent again.
//! - [`relay::roots`]: whether the next host has the folders in which a backend works.
//! - [`relay::era`]: what a host's probe for MCP's era gets, and what is learned from it.
//! - [`relay::liveness`]: whether the backend still answers.
//! - [`relay::losses`]: what fronts, the host's log and models are told of former backends.
//! - [`relay::queue`]: the lines that wait for either side.
//!
//! A host whose server may be replaced:
//!
//! - [`link`]: [`Link`](link::Link), which a front is around.
//!
//! One server for several hosts:
//!
//! - [`multiplexer`]: clients, calls, asks, and what becomes of each message.
//! - [`multiplexer::admission`]: which host may share the server, and its `initialize`.
//! - [`multiplexer::ask_routing`]: which client an ask of the server is for.
//! - [`multiplexer::fields`]: the members that it reads of messages.
//!
//! Messages are read and spliced by [`mcp_sessiond_jsonrpc`]. What both use besides:
//!
//! - [`entry`]: lines that are spliced, and wait. [`numbers`]: the numbers of requests.
//! - [`version`]: protocol versions, and what `initialize` declares.
//! - [`sse`]: server-sent events, and [`verdict`]: what a refusal means, for the HTTP transports of
//!   other crates.
//!
//! # Invariants
//!
//! - **No I/O and no clock, and nothing in here can fail.** The crate has no `std`, so the compiler
//!   checks it; what of `proto` could do I/O is kept out by `tests/integration/layout.rs`.
//! - **A request's answer goes to its sender or to nobody.** `relay::tests::model` and
//!   `multiplexer::tests` check it for any order of events.
#![allow(rustdoc::private_intra_doc_links)]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod entry;
pub mod link;
pub mod multiplexer;
mod numbers;
mod relay;
pub mod sse;
pub mod verdict;
mod version;

pub use self::relay::era::{Probe, is_initialize};
pub use self::relay::{Effect, Limits, Relay, View};

/// A monotonic time in ms.
pub type Millis = u64;
