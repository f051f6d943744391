//! Relays messages between a backend and its fronts: it is told lines and facts, and hands out
//! lines. No I/O, no clock.
//!
//! One backend (an MCP server on stdio) outlives its *fronts*, the pipes to the host, of which at
//! most one is attached. A *call* is a request of the host, an *ask* one of the backend. Each gets
//! a number in the namespace of the receiver, so that an answer goes to the sender, and nowhere
//! else. A message is handed on byte for byte, except for its id, its progress token and the id of
//! the request that it cancels.
//!
//! Lines have no newline, neither incoming nor outgoing ones.
//!
//! **Architecture Invariant:** no I/O and no clock, and nothing in here can fail. The crate has no
//! `std`, so that the compiler keeps it; what could of `proto` is kept out by
//! `tests/integration/layout.rs`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod entry;
pub mod message;
pub mod multiplexer;
mod numbers;
mod oversized;
mod raw;
mod relay;
pub mod sse;
mod unreadable;
mod version;
mod words;

pub use self::entry::Edits;
pub use self::oversized::{Oversized, too_large};
pub use self::relay::{Limits, Order, Relay, View};
pub use self::unreadable::unreadable_answer;

/// A monotonic time in ms.
pub type Millis = u64;
