//! What stands between a host and its MCP server: the data plane of mcp-sessiond. `ARCHITECTURE.md`
//! has the bird's eye view.
#![forbid(unsafe_code)]

pub mod front;
pub mod id_prefix;
pub mod keeper;
mod launch_env;
pub mod lines;
pub mod memory;
mod notices;
pub mod program;
pub mod server;
pub mod signals;
mod stderr;
pub mod unkept;
pub mod waits;
