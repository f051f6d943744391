//! The integration tests: real processes, one harness. See `mcp_sessiond_tests`.
//!
//! Some need root: another user, a small file system, a pid that is had again. They fail without
//! it, and say so.

mod broken;
mod call;
mod cli;
mod contents_kill;
mod contract;
mod daemon_kill;
mod doctor;
mod durable;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod error_codes;
mod errors;
mod fleet;
mod http_server;
mod import;
mod keepers;
#[cfg(target_os = "linux")]
mod kernels;
mod launchers;
mod layout;
mod lazy;
mod lifecycle;
mod links;
mod logs;
mod mcp;
mod metrics;
mod names;
mod node;
mod orderings;
mod owners;
mod pages;
mod peers;
mod postgres;
mod probes;
mod protocol_types;
mod python;
mod quotas;
mod refusals;
mod remote;
mod reports;
mod restarts;
mod screens;
mod serve;
mod serving;
mod sessions;
mod sessions_client;
mod setup;
mod several;
mod share;
mod shared;
mod shell;
mod siblings;
#[cfg(target_os = "linux")]
mod systemd;
mod tasks;
mod tasks_rmcp;
mod tokens;
mod told_to_models;
#[cfg(target_os = "linux")]
mod wild;
mod wills;
mod wrap;
mod writers;
mod written_files;

use std::path::PathBuf;

use mcp_sessiond_tests::{Binaries, World};

static BINARIES: Binaries = mcp_sessiond_tests::binaries!();

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
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test needs root, {what}; run tests/run as root"
    );
}

/// A test for each of several storages, and what it needs beside Rust.
macro_rules! needs {
    (nothing $($test:tt)*) => { $($test)* };
    (postgresql $($test:tt)*) => {
        #[ignore = "needs postgresql"]
        $($test)*
    };
}
use needs;

/// What the script of an example in Rust prints, with a daemon of its own and the server that was
/// built for it.
#[track_caller]
fn example(script: &str, server: &str) -> String {
    let world = world("");
    let _daemon = world.daemon();
    let mut command = world.command("sh");
    command.arg(fixture(&format!("../client/rust/examples/{script}")));
    let said = command.env("SERVER", server).output().expect("sh");
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).expect("UTF-8")
}
