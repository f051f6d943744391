//! The integration tests: real processes, one harness. See `mcp_sessiond_tests`.
//!
//! Some need root: another user, a small file system, a pid that is had again. They fail without it, and say so.

mod broken;
mod cli;
mod contents_kill;
mod contract;
mod daemon_kill;
mod durable;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(any(feature = "postgres", feature = "dynamodb"))]
mod fleet;
mod http_server;
mod keepers;
mod launchers;
mod layout;
mod lifecycle;
mod links;
mod metrics;
mod node;
mod owners;
mod peers;
#[cfg(feature = "postgres")]
mod postgres;
mod python;
mod quotas;
mod refusals;
mod restarts;
mod serve;
mod serving;
mod sessions;
mod sessions_client;
mod shell;
mod siblings;
#[cfg(target_os = "linux")]
mod systemd;
mod tasks;
mod tasks_rmcp;
mod tokens;
mod tower_sessions;
mod turul;
mod wills;
mod wrap;
mod writers;

use std::path::PathBuf;

use mcp_sessiond_tests::{Binaries, World};

static BINARIES: Binaries = Binaries {
    daemon: env!("CARGO_BIN_EXE_sessiond-under-test"),
    broker: env!("CARGO_BIN_EXE_broker"),
    holding: env!("CARGO_BIN_EXE_holding"),
    host: env!("CARGO_BIN_EXE_host"),
    instance: env!("CARGO_BIN_EXE_instance"),
    keeper: env!("CARGO_BIN_EXE_keeper"),
    serving: env!("CARGO_BIN_EXE_serving"),
    stranger: env!("CARGO_BIN_EXE_stranger"),
    example_server: env!("CARGO_BIN_EXE_example-server"),
    event_service: env!("CARGO_BIN_EXE_event-service"),
    http_server: env!("CARGO_BIN_EXE_http-server"),
    durable_server: env!("CARGO_BIN_EXE_durable-server"),
    tasks_server: env!("CARGO_BIN_EXE_tasks-server"),
    durable_example: env!("CARGO_BIN_EXE_durable-example"),
};

/// A world, with the configuration that it is given.
fn world(configuration: &str) -> World {
    let world = World::new(&BINARIES);
    world.configure(configuration);
    world
}

/// A file of this directory's.
fn fixture(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    path.into_os_string().into_string().expect("UTF-8")
}

/// For what only root can arrange.
fn needs_root(what: &str) {
    assert!(nix::unistd::geteuid().is_root(), "this test needs root, {what}; run tests/run as root");
}
