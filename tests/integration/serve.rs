//! `mcp-sessiond serve`: servers over HTTP, for clients whose connection breaks, and while `serve`
//! and the daemon are killed.

mod admission;
mod basics;
mod browser;
mod bundle;
mod eras;
mod errors;
mod forgetful;
mod identity;
mod inspect;
mod killed;
mod limits;
mod load;
mod losses;
mod modern;
mod names;
mod page;
mod probes;
mod streams;
mod upstream;

use mcp_sessiond_tests::{Daemon, Serve, World};

use crate::world;

/// A world with a daemon and with `serve` in front of this server.
fn serving(
    configuration: &str,
    server: impl FnOnce(&World) -> Vec<String>,
) -> (World, Daemon, Serve) {
    let world = world(configuration);
    let daemon = world.daemon();
    let server = server(&world);
    let serve = world.serve(&["--name", "test"], &server);
    (world, daemon, serve)
}
