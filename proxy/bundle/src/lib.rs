//! Several MCP servers as one. A *bundle* is a domain object: it owns its backends, knows what they
//! have, and brings each call to the one that it is meant for. It runs and is tested without a
//! server; sockets, processes, hosts and the daemon are its caller's.
//!
//! - [`Bundle`]: what can be done with one. [`Backends`] is the bundle itself; the types of
//!   [`mod@decorate`] stand around it.
//! - [`Source`], [`Pipe`]: a backend is somebody who can be connected, and then two channels of
//!   messages.
//! - `life`: how a backend is started, a few at a time, and again when it was lost. `backend`: the
//!   handshake, and the lists.
//! - [`names`]: by which names tools and prompts are listed. [`call`]: what can be asked for.
//! - [`Lazy`]: a backend that is started at its first call, and answered for from memory until
//!   then.
//! - [`Speaker`]: a bundle as one MCP server, messages in and messages out.
//! - [`message`], [`object`]: JSON-RPC; what others have written is passed on as it was written.
//!
//! **Architecture Invariant:** ids are derived and never counted. A host's request has the same id
//! at its backend; a backend's request has `backend:id` at the host. So a process that comes after
//! this one can tell whose an answer is.
#![forbid(unsafe_code)]

mod backend;
mod backends;
mod bundle;
pub mod call;
mod connection;
mod core;
pub mod decorate;
mod id;
pub mod lazy;
mod life;
pub mod message;
pub mod names;
pub mod object;
mod pace;
mod pipe;
mod refresh;
mod speaker;
mod status;
#[cfg(test)]
mod tests;
mod told;
mod unread;

pub use backends::Backends;
pub use bundle::{Bundle, Error, Handshake, Settings};
pub use call::{Call, Item, List, Target};
pub use connection::Answer;
pub use decorate::{Decorations, decorate};
pub use lazy::{Known, Lazy, Recall};
pub use message::{Id, Message, RpcError};
pub use names::{Names, Style};
pub use pipe::{End, Host, Memory, Pipe, Receipt, Said, Source, Told, WAITING};
pub use speaker::{Speaker, Spoken};
pub use status::{Failure, FailureCode, State, Status, Whole};
pub use unread::Unread;
