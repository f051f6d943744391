//! What stands between an MCP host and its server: the data plane of mcp-sessiond. A *front* speaks
//! with the host, a *keeper* holds one server's pipes, and a front can be replaced while the server
//! goes on.
//!
//! - [`front`]: what `mcp-sessiond wrap` is to its host. [`front::first_line`] reads the client's
//!   name, `front::drive` carries lines between the host and whichever server there is (what
//!   becomes of them is `mcp_sessiond_relay::link`'s), [`front::leave`] ends the front. Its kinds:
//!   one server (in `front.rs`), [`front::lazy`] (started at the first call), [`front::remote`]
//!   (over HTTP), [`front::shared`] (one server of all hosts), and [`front::bundle`] (several
//!   servers as one).
//! - [`server`]: how a front reaches its server: by a [`server::connector`]. That in
//!   [`server::keeper_connector`] claims a session and finds or starts its keeper, [`server::child`]
//!   runs a command without a keeper, [`server::remote`] keeps what a connection over HTTP needs to go
//!   on, [`server::shared`] leads to one server for all hosts of the user. [`server::service`] is the
//!   library of a process that serves sessions of a service, such as `mcp-sessiond serve`.
//!   `server::without_daemon` says what a front may do where the daemon does not answer,
//!   `server::daemon_calls` are what it says to the daemon later (that it leaves, that a loss was told),
//!   and `server::keeper_watch` finds out whether a silent keeper lives.
//! - [`keeper`]: the small process that holds one server. [`keeper::hold`] is its loop,
//!   [`keeper::requests`] its socket and [`keeper::dial`] the client's side of that,
//!   `keeper::sharing` the hosts that share its server,
//!   [`keeper::launch`] how it is started, [`keeper::backend`] and [`keeper::children`] its child
//!   processes, [`keeper::program_change`] notices another version of the program.
//!
//! Below all three:
//!
//! - [`connection`]: lines to a server and from it, by its keeper's socket or by a pipe.
//! - [`lines`]: lines out of bytes. [`frames`]: frames between a front and its keeper, on their way.
//!   [`socket`]: the connections that they take. [`alarm`]: the timer of a loop.
//!   [`id_prefix`]: ids of a server's requests, told from those of
//!   the server before it.
//! - [`program`]: what is run, and [`program::display_name`], which has no secret in it.
//!   [`launch_env`]: what of this process's environment a server's answers may depend on.
//! - [`secrets`]: what looks like one, and is left out of what a model reads.
//! - [`closed`]: what a front without a keeper leaves behind that its host has closed.
//! - [`stderr`] and [`notices`]: what the user is told on standard error. [`named_lines`]: whose
//!   lines they are, where servers share one. [`unkept`]: notes of servers without a keeper, for
//!   `mcp-sessiond status`.
//! - [`signals`]: the signals that end a process, and the masks of what it starts.
//!   [`front_settings`]: how long a front waits, and how it tells of losses. [`memory`]: memory given
//!   back, and kept out of core files.
//!
//! What becomes of a line is not decided here, but in `mcp_sessiond_relay`; what several servers
//! are as one, in `mcp_sessiond_bundle`.
//!
//! Invariants:
//!
//! - What was read from the host before a keeper has answered is passed on whole, to the keeper or
//!   to the command that is run in its place ([`front`]).
//! - A keeper gives its server to a front only if the daemon says that the front holds the lease,
//!   or, while the daemon is away, if no other process has attached under that epoch or a newer one;
//!   to any process of the user, where hosts share the server ([`keeper`]).
//! - A keeper sends each unconfirmed line again, under the same number, to this front of a service
//!   or to the next one; it acknowledges a front's line only once the server gets it even if that
//!   front is killed ([`keeper::hold`]).
//! - What a process starts gets the signal mask that its own host gave ([`signals`]).
//! - A connection to a shared server ends with its host; nothing of it is given to another one
//!   (`keeper::sharing`).
#![allow(rustdoc::private_intra_doc_links)]
#![forbid(unsafe_code)]

mod alarm;
mod closed;
mod connection;
pub mod frames;
pub mod front;
pub mod front_settings;
pub mod id_prefix;
pub mod keeper;
mod launch_env;
pub mod lines;
pub mod memory;
mod named_lines;
mod notices;
pub mod program;
pub mod secrets;
pub mod server;
pub mod signals;
pub mod socket;
mod stderr;
pub mod unkept;
