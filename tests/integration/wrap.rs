//! `mcp-sessiond wrap`: servers that outlive whoever speaks to them, seen from hosts.
//!
//! Hosts are the official client (`NodeHost`), the test itself (`Front`), or helper processes
//! (`Host`); servers are the official ones, or those of the harness and of `tests/node`, which do what
//! a test asks of them.

mod asks;
mod at_name;
mod browser;
mod by_hand;
mod counts;
mod cuts;
mod deaths;
mod ends;
mod exits;
mod failed_starts;
mod fidelity;
mod host_state;
mod input_end;
mod isolation;
mod named;
mod official;
mod other_protocols;
mod programs;
mod races;
mod reboot;
mod renewal;
mod resume;
mod signals;
mod sizes;
mod slow;
mod soak;
mod strays;
mod terminal;
mod twins;
mod watching;
mod without;

use mcp_sessiond_tests::{Backend, Client, Daemon, Front, NodeHost, Raw, World};

use crate::world;

/// A server that does what tests ask of it. The last word tells whose processes these are.
pub(crate) fn counter(world: &World) -> Vec<String> {
    counter_with(world, &[])
}

/// The same with these options.
pub(crate) fn counter_with(world: &World, options: &[&str]) -> Vec<String> {
    let words = [&[world.binaries.counter], options].concat();
    let words = words.into_iter().map(str::to_owned);
    words.chain([root(world)]).collect()
}

/// A server that counts, as small as can be.
pub(crate) fn tiny(world: &World) -> Vec<String> {
    vec![world.binaries.tiny.into(), root(world)]
}

/// Those of them that run in a world.
pub(crate) fn servers(world: &World) -> Vec<u32> {
    let is_server = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name == "tiny\n")
    };
    world.processes().into_iter().filter(is_server).collect()
}

fn root(world: &World) -> String {
    world.root().to_str().expect("UTF-8").to_owned()
}

/// The command line that wraps a server.
pub(crate) fn wrapped(world: &World, server: &[String]) -> Vec<String> {
    world.wrapping(&[], server)
}

/// This test as host of a wrapped server, which it has initialised.
pub(crate) fn connect(world: &World, server: &[String]) -> Client<Front> {
    Client::connected(world.front(&wrapped(world, server)))
}

/// The official client as host of a wrapped server, which it calls `main`.
fn connect_official(world: &World, server: &[String]) -> NodeHost {
    let mut host = world.node_host();
    host.connect("main", &wrapped(world, server));
    host
}

/// A server that says what it is told to, wrapped, with this test as its host.
fn connect_raw(world: &World) -> (Raw, Client<Front>) {
    let raw = world.raw("server");
    let client = connect(world, &raw.command);
    (raw, client)
}

/// A world with a daemon, a server that says what it is told to, its client, and its backend.
fn raw_backend() -> (World, Daemon, Raw, Client<Front>, Backend) {
    let world = keeping("");
    let daemon = world.daemon();
    let (raw, client) = connect_raw(&world);
    let backend = world.backend();
    (world, daemon, raw, client, backend)
}

/// A world whose daemon starts, with this configuration of backends. Where it does not say
/// otherwise, hosts may close a server as often as they like, and a server that is slow to answer a
/// ping is not taken for one that hangs.
pub(crate) fn keeping(settings: &str) -> World {
    let usual = [
        ("closes", "closes = 1000"),
        ("ping_wait_ms", "ping_wait_ms = 20000"),
    ];
    let missing = usual
        .into_iter()
        .filter(|(name, _)| !settings.contains(name))
        .map(|(_, line)| line);
    let lines: Vec<&str> = missing.chain([settings]).collect();
    world(&format!(
        "claim_wait_ms = 5000\n[backends]\n{}\n",
        lines.join("\n")
    ))
}

/// The host closes its end, and the front is gone.
fn close(mut client: Client<Front>) {
    client.pipe.close();
    client.pipe.wait();
}

/// A file that is not there yet, for tools that wait for one.
pub(crate) fn gate(world: &World, name: &str) -> String {
    world
        .root()
        .join(name)
        .into_os_string()
        .into_string()
        .expect("UTF-8")
}

/// Lets through who waits at a gate. The file is moved there, as some are told of that alone.
pub(crate) fn open(gate: &str) {
    let new = format!("{gate}.new");
    std::fs::write(&new, "").expect("a file");
    std::fs::rename(&new, gate).expect("moved");
}
