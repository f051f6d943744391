//! The harness: real processes in a directory of their own, in the shape that tests are told in.
//!
//! A [`World`] has a runtime directory, a configuration and a log; in it run [`Daemon`]s, [`Host`]s
//! with the servers that they start ([`Instance`], [`McpServer`], or any [`Server`]), a
//! [`BrokerProcess`], and [`Peer`]s that say to the daemon whatever they like. Servers that are
//! kept have a [`Front`], where the test itself is the host, or a [`NodeHost`], and a [`Backend`]
//! to look at; a [`Client`] speaks MCP to whatever takes lines. An [`EventService`] is a service
//! over HTTP, an [`Upstream`] a server that speaks HTTP itself, a [`Page`] is one in Chromium, and
//! a [`SmallDisk`] is soon full.
//!
//! Nothing in here sleeps. A test waits for an event (a line of a log, an answer, an exit) under
//! one deadline, [`PATIENCE`], which only a broken test ever sees; where there is no event,
//! [`until`] looks again and again.
//!
//! Everything ends with the test: daemons are killed when they are dropped, and every helper ends
//! when the pipe to its standard input does, however its owner came to its end.

mod backend;
pub mod broker;
mod broker_process;
mod client;
mod daemon;
mod disk;
mod event_service;
mod front;
mod host;
mod instance;
mod keeper;
mod log;
mod mcp;
mod node;
mod other_version;
mod own_port;
mod page;
mod peer;
mod process;
mod program;
mod raw;
mod remote;
mod retrying_peer;
mod serve;
mod serving;
mod terminal;
mod upstream;
mod world;

pub use backend::Backend;
pub use broker_process::BrokerProcess;
pub use client::{Client, Pipe};
pub use daemon::{Daemon, leave_descriptors};
pub use disk::SmallDisk;
pub use event_service::EventService;
pub use front::Front;
pub use host::{Host, Server};
pub use instance::{Instance, Loaded};
pub use keeper::Keeper;
pub use log::Log;
pub use mcp::McpServer;
pub use node::NodeHost;
pub use other_version::OtherVersion;
pub use own_port::OwnPort;
pub use page::Page;
pub use peer::Peer;
pub use process::{gone, lives, signal, start_time, stat, suspend};
pub use program::{copy_program, write_program};
pub use raw::Raw;
pub use remote::{Connected, get};
pub use retrying_peer::RetryingPeer;
pub use serve::{HttpClient, Reply, Serve, SseEvent, base64, many_sessions};
pub use serving::Serving;
pub use terminal::Terminal;
pub use upstream::Upstream;
pub use world::{Binaries, World};

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use mcp_sessiond_process::changes::Changes;
use serde_json::Value;

/// How long anything may take on the slowest machine. It is a bound, never a measure.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Looks until something is there, where nothing tells of it; the caller says why. Where something
/// does, there are [`until_written`], [`until_removed`], [`gone`], [`World::until_recorded`],
/// [`World::nothing_left`], and the logs.
///
/// # Panics
/// When it is not there within [`PATIENCE`].
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, look)
}

/// [`until`], with a patience of its own: for what takes many processes at once.
///
/// # Panics
/// When it is not there in time.
pub fn until_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "waited {patience:?} in vain: {what}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Looks until something is there, each time that the file was written to or made shorter: the
/// operating system tells.
///
/// # Panics
/// When it is not there within [`PATIENCE`].
pub fn until_written<T>(file: &Path, what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_changed(what, |changes| changes.watch_file(file), look)
}

/// Looks until something is there, each time that a file of this directory was deleted or moved:
/// the operating system tells.
///
/// # Panics
/// When it is not there within [`PATIENCE`].
pub fn until_removed<T>(directory: &Path, what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_changed(what, |changes| changes.watch_directory(directory), look)
}

fn until_changed<T>(
    what: &str,
    mut watch: impl FnMut(&mut Changes) -> io::Result<()>,
    mut look: impl FnMut() -> Option<T>,
) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut changes = Changes::new().expect("a watch");
        let found = async {
            loop {
                let watched = watch(&mut changes);
                changes.take();
                if let Some(found) = look() {
                    return found;
                }
                watched.expect("it is there");
                changes.wait().await.expect("it is watched");
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain: {what}"))
    })
}

/// Asserts that a call was refused with this code. Returns the whole error.
///
/// # Panics
/// When it was not.
#[track_caller]
pub fn assert_refused<T: Debug>(answer: Result<T, Value>, code: &str) -> Value {
    let error = answer.expect_err(code);
    assert_eq!(error["code"], code, "{error}");
    error
}

/// Randomness from a seed, which is printed, so that a failure can be had again:
/// `SEED=n cargo nextest run …`.
#[must_use]
pub fn random() -> fastrand::Rng {
    use std::io::Write as _;
    let given = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    let _ = writeln!(io::stderr(), "SEED={seed}");
    fastrand::Rng::with_seed(seed)
}
