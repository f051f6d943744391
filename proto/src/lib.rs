//! What travels between `mcp-sessiond` and its clients.
//!
//! - [`hello`]: the fixed-size greeting that opens every connection, each way.
//! - [`frame`]: the daemon's frames: length-prefixed, with bounds on size and on time. Those of
//!   keepers are [`backends::frame`]: they pass messages on.
//! - `codec`: the daemon's side, with the feature `server`: two codecs behind one service,
//!   MessagePack for Rust, JSON-RPC 2.0 for everybody else.
//! - [`client`]: the client's side, in MessagePack.
//! - [`service`]: the RPCs.
//! - [`types`], [`token`]: claims, leases, tokens. [`losses`]: what is gone, and why.
//! - [`sessions`], [`state`], [`streams`], [`tasks`]: what a session holds. [`names`], [`json`],
//!   [`error`], [`debug`]: what they are made of, refused with, and looked at by.
//! - [`backends`]: keepers, and what is said on their sockets. [`end_note`]: why they end. [`facts`]: what is known of servers.
//! - [`text`], [`time`], [`lock`]: values as text, the time of day, and mutexes, for all crates.
//! - [`paths`]: where the daemon lives, derived from the uid alone, and the user's own directories.
//!
//! `PROTOCOL.md`, beside this crate's manifest, is the same for readers of other languages.
//!
//! **Architecture Invariant:** this crate does no I/O beyond reading and writing frames on a stream
//! that it is given, and looking at which of the candidate runtime directories exists.
#![forbid(unsafe_code)]

pub mod backends;
mod bounded;
pub mod client;
#[cfg(feature = "server")]
pub mod codec;
pub mod debug;
pub mod end_note;
pub mod error;
pub mod facts;
pub mod frame;
pub mod hello;
pub mod json;
pub mod lock;
pub mod losses;
pub mod names;
pub mod paths;
pub mod service;
pub mod services;
pub mod sessions;
pub mod state;
pub mod streams;
pub mod tasks;
pub mod text;
pub mod time;
pub mod token;
pub mod types;

pub use backends::KeeperName;
pub use error::{CODES, Error, MEMORY};
pub use json::Json;
pub use lock::Lock;
pub use losses::{Loss, LossId, LossRecord, begins_afresh};
pub use names::{BackendName, InputKey, RequestId, ServiceName, StateKey, StreamId, TaskId};
pub use token::Token;
pub use types::{
    ClaimRequest, Claimed, ClientName, Epoch, Label, Named, Resume, SessionId, Siblings,
};

/// The version of the protocol that this build speaks.
///
/// It grows only when an old peer could misunderstand a new one. Fields and methods are added
/// without it.
pub const PROTOCOL_VERSION: u16 = 2;

/// The oldest version that this build still serves.
pub const OLDEST_PROTOCOL_VERSION: u16 = 1;
