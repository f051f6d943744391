//! The daemon: the control plane of mcp-sessiond, served over a Unix socket.
//!
//! From the socket down:
//!
//! - [`run`]: a daemon's life, from its configuration to the last drained call. [`config`]: the
//!   settings. [`logging`]: where log lines go.
//! - [`rpc`]: connections, and the table of RPCs: method, class, histogram and who carries it out.
//!   [`connections`]: how many there are, and how many each process may have. [`awaited`]: whether
//!   somebody still waits for a call.
//! - [`engine`]: the registry with the processes, the records and the token files as one. It tells
//!   the registry facts in one order, and carries out its effects.
//! - [`ledger`]: `sessions.db`, the registry's memory. [`tokens`]: the token files. [`keepers`]:
//!   what keepers are asked by their sockets. [`terminator`]: ends keepers, and what is left of
//!   their backends.
//! - [`contents`]: the rules of what sessions contain (state, streams, events, tasks), without I/O,
//!   over any storage. [`reaper`]: ends what has outlived its owner or its time. [`wills`]: carries
//!   out the last wills of streams and tasks. [`fleet`]: what daemons on one storage do for each
//!   other.
//! - [`storage`]: one trait, four backends: memory, SQLite, PostgreSQL, DynamoDB.
//!   [`writer`]: the thread that commits to SQLite in groups.
//! - [`parts`]: which parts of sessions can't be used.
//! - [`counters`]: what is counted and measured. [`exporter`]: serves it to a scraper over HTTP.
//!
//! **Architecture Invariant:** everything that happens to the registry happens under one lock, in
//! which exits are taken in first, and nothing is answered before it is kept.
//!
//! **Architecture Invariant:** a module names only modules that stand above it in the table of
//! `tests/integration/layout.rs`. So `contents` knows no process, and `storage` no session.
//!
//! **Architecture Invariant:** a peer sees the errors of `proto` and nothing else. What is fatal to
//! the daemon is [`run::Fatal`], and is logged.
#![forbid(unsafe_code)]

pub mod awaited;
pub mod config;
pub mod connections;
pub mod contents;
pub mod counters;
pub mod engine;
pub mod exporter;
pub mod fleet;
pub mod keepers;
pub mod ledger;
pub mod logging;
pub mod parts;
pub mod reaper;
pub mod rpc;
pub mod run;
pub mod storage;
pub mod terminator;
pub mod tokens;
pub mod wills;
pub mod writer;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tmpfs;
