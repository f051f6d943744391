//! Remote servers over Streamable HTTP: a process that is connected to one is killed, and the next
//! one goes on; the server is killed; a user is logged in.

mod balanced;
mod codings;
mod front;
mod listening;
mod login;
mod nginx;
mod oauth_example;
mod pipe;
mod strangers;

use mcp_sessiond_tests::{Client, Front, Upstream, World};

use crate::fixture;
use crate::wrap::wrapped;

/// Servers on the official SDKs, each of which numbers its events and says them again.
fn resumable(world: &World) -> Vec<(&'static str, Upstream)> {
    vec![
        ("TypeScript", express(world, &["events"])),
        (
            "Python",
            world.upstream(
                &[
                    fixture("../target/fastmcp/bin/python"),
                    fixture("python/upstream.py"),
                ],
                &["events"],
            ),
        ),
        (
            "Rust",
            world.upstream(&[env!("CARGO_BIN_EXE_rmcp-server").into()], &[]),
        ),
    ]
}

/// A server on the official TypeScript SDK, under Express.
pub(crate) fn express(world: &World, options: &[&str]) -> Upstream {
    world.upstream(&["node".into(), fixture("node/express.mjs")], options)
}

/// A server whose answer to a ping is in the file `ping`.
pub(crate) fn pinged(world: &World) -> Upstream {
    let program = ["python3", "-I", "-S"]
        .map(String::from)
        .into_iter()
        .chain([fixture("python/ping_on_demand.py")]);
    world.upstream(
        &program.collect::<Vec<_>>(),
        &[world.root().to_str().expect("UTF-8")],
    )
}

/// A front of this server, whose host is this test.
fn front(world: &World, server: &Upstream) -> Client<Front> {
    Client::new(world.front(&wrapped(world, std::slice::from_ref(&server.url))))
}
