//! The daemon: the control plane of mcp-sessiond. `ARCHITECTURE.md` has the bird's eye view.
#![forbid(unsafe_code)]

pub mod config;
pub mod contents;
pub mod counters;
pub mod engine;
pub mod exporter;
pub mod fleet;
pub mod gauge;
pub mod keepers;
pub mod ledger;
pub mod logging;
pub mod metered;
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
