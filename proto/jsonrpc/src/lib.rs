//! JSON-RPC 2.0 as MCP peers write it.
//!
//! A line is read once: what kind of message it carries, and where its ids and progress tokens
//! stand. What is passed on is what was sent; ids and tokens are spliced at byte ranges. Lines have
//! no newline, neither incoming nor outgoing ones.
//!
//! # Code map
//!
//! What is read:
//!
//! - [`message`]: [`Line`](message::Line), its [`Part`](message::Part)s and the
//!   [`Message`](message::Message)s among them. [`members`]: the members of an object, in one pass.
//! - [`readable`]: text that may be a copy. [`repair`]: how that copy is made.
//! - [`unreadable`]: what can be seen of what can't be read. [`oversized`]: what is larger than 16
//!   MiB.
//! - [`id`]: ids as they were written.
//! - [`owned`]: a message that outlives its line; [`object`] and [`error`]: what it carries.
//!
//! What is written:
//!
//! - [`edits`]: splices. [`id_prefix`]: ids that tell whose they are. [`capabilities`]: what a
//!   server's answer to `initialize` declares.
//! - [`answers`]: the messages that we write ourselves. [`code`]: the codes of errors.
//!
//! # Invariants
//!
//! - **What is passed on is what was sent.** A readable copy has a type of its own, which has no
//!   way into an [`Edits`] or a line. What an [`owned`] message carries is restored where it is
//!   written.
//! - **Nothing in here panics, and nothing recurses**: depth is skipped without a stack.
//! - **Where a member that decides something is there twice, readers differ in which they take.**
//!   With `id`, `method`, `params`, `result` or `error` twice, a message is unreadable; with `_meta`
//!   or `progressToken` twice, a request is refused.
#![allow(rustdoc::private_intra_doc_links)]
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod answers;
pub mod capabilities;
pub mod code;
pub mod edits;
pub mod error;
#[cfg(test)]
mod fuzz;
pub mod id;
pub mod id_prefix;
mod members;
pub mod message;
pub mod object;
pub mod oversized;
pub mod owned;
pub mod readable;
mod repair;
pub mod unreadable;

pub use self::edits::{Edits, edited, is_one_line, one_line};
pub use self::oversized::Oversized;
pub use self::repair::NotJson;
pub use self::unreadable::Unreadable;
