//! The daemon behind the `mcp-sessiond` command. `ARCHITECTURE.md` has the bird's eye view.

pub mod cli;
pub mod config;
pub mod contents;
pub mod counters;
pub mod directory;
pub mod edge;
pub mod executable;
pub mod fault;
pub mod front;
pub mod keeper;
pub mod keepers;
pub mod ledger;
pub mod listener;
pub mod process;
pub mod reaper;
pub mod registry;
pub mod run;
pub mod service;
pub mod storage;
pub mod tokens;
pub mod writer;

mod sys;
