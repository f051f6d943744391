//! What stands between a host and its MCP server: the data plane of mcp-sessiond. `ARCHITECTURE.md` has the bird's eye view.
//!
//! - [`front`]: what `mcp-sessiond wrap` is to its host.
//! - [`keeper`]: the small process that holds one server's pipes.
//! - [`service`]: the same for a process that serves sessions which belong to no host, such as an HTTP
//!   server.
//! - [`unkept`]: which servers run without one.
#![forbid(unsafe_code)]

pub mod front;
pub mod keeper;
pub mod service;
pub mod signals;
pub mod unkept;
