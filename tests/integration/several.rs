//! `mcp-sessiond wrap --all`: all servers of `servers.json` in one session, seen from their host.

mod apart;
mod eras;
mod file;
mod kills;
mod lazy;
mod odd;
mod parts;
mod starts;

use std::fs;

use mcp_sessiond_tests::{Backend, Client, Front, World, until};
use serde_json::{Value, json};

use crate::wrap::{counter, counter_with, tiny};

/// Writes `servers.json`: servers by name, in this order.
pub(crate) fn write_down(world: &World, servers: &[(&str, Value)]) {
    // Not through a map: the order counts.
    let members: Vec<String> = servers
        .iter()
        .map(|(name, entry)| format!("{}: {entry}", json!(name)))
        .collect();
    let text = format!("{{\"mcpServers\": {{{}}}}}", members.join(", "));
    let path = world.root().join("servers.json");
    // In one step, as an editor does it.
    fs::write(path.with_extension("new"), text).expect("a file");
    fs::rename(path.with_extension("new"), path).expect("a file");
}

/// An entry with this command line.
pub(crate) fn entry(words: &[String]) -> Value {
    json!({"command": words[0], "args": &words[1..]})
}

/// A server that counts, as an entry.
pub(crate) fn small(world: &World) -> Value {
    entry(&tiny(world))
}

/// One that does what tests ask of it, as an entry.
pub(crate) fn able(world: &World) -> Value {
    entry(&counter(world))
}

/// The same, of the era that began with MCP 2026-07-28.
pub(crate) fn modern(world: &World) -> Value {
    entry(&counter_with(world, &["--modern"]))
}

/// The command line.
pub(crate) fn all(world: &World, options: &[&str]) -> Vec<String> {
    let mut words = world.wrapping(&[&["--all"], options].concat(), &[]);
    words.pop();
    words
}

/// This test as host of all servers.
fn connect(world: &World) -> Client<Front> {
    Client::connected(world.front(&all(world, &[])))
}

/// The names of the tools.
pub(crate) fn tools(client: &mut Client<Front>) -> Vec<String> {
    let id = client.request("tools/list", json!({}));
    let answer = client.answer(id);
    let listed = answer["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"));
    listed
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// How far the server is that has this tool.
fn count(client: &mut Client<Front>, tool: &str) -> u64 {
    client.call(tool, json!({})).parse().expect("a number")
}

/// Waits until a list of tools has changed.
fn changed(client: &mut Client<Front>) {
    client.said(|message| message["method"] == "notifications/tools/list_changed");
}

/// The backend of this name.
pub(crate) fn backend(world: &World, name: &str) -> Backend {
    found(world, name).unwrap_or_else(|| panic!("no backend {name}"))
}

/// The backend that takes the place of a former one, once there is one.
pub(crate) fn next_backend(world: &World, name: &str, former: &Backend) -> Backend {
    // The daemon tells nobody that a keeper has registered.
    until("a fresh one runs", || {
        found(world, name).filter(|now| now.keeper != former.keeper)
    })
}

fn found(world: &World, name: &str) -> Option<Backend> {
    let is_its = |known: &Value| {
        known["backend"]
            .as_str()
            .is_some_and(|of| of.rsplit_once('#').map(|of| of.0) == Some(name))
    };
    let known = world
        .listed("list_backends")
        .iter()
        .find(|known| is_its(known))?["keeper_pid"]
        .as_u64()?;
    world
        .backends()
        .into_iter()
        .find(|one| u64::from(one.keeper) == known)
}
