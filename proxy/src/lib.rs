//! What stands between a host and its MCP server: the data plane of mcp-sessiond. `ARCHITECTURE.md`
//! has the bird's eye view.
//!
//! - [`apart`]: how a server is told from the one that came before it.
//! - [`front`]: what `mcp-sessiond wrap` is to its host.
//! - [`elsewhere`]: a front of a server that runs elsewhere, and is reached over HTTP.
//! - [`keeper`]: the small process that holds one server's pipes.
//! - [`several`]: a front of several servers, as one.
//! - [`service`]: the same for a process that serves sessions which belong to no host, such as an
//!   HTTP server.
//! - [`shared`]: one server for all hosts of the user.
//! - [`unkept`]: which servers run without one.
#![forbid(unsafe_code)]

pub mod apart;
pub mod elsewhere;
pub mod front;
pub mod keeper;
pub mod memory;
pub mod service;
pub mod several;
pub mod shared;
pub mod signals;
mod stdio;
pub mod unkept;
