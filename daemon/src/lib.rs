//! The daemon behind the `mcp-sessiond` command. `ARCHITECTURE.md` has the bird's eye view.

pub mod cli;
pub mod config;
pub mod contents;
pub mod counters;
pub mod edge;
pub mod front;
pub mod gauge;
pub mod keeper;
pub mod keepers;
pub mod ledger;
pub mod listener;
pub mod reaper;
pub mod run;
pub mod service;
pub mod storage;
pub mod tokens;
pub mod writer;

#[cfg(test)]
mod small_disk;
