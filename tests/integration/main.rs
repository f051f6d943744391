//! The integration tests: real processes, one harness. See `mcp_sessiond_tests`.

mod restarts;

use mcp_sessiond_tests::{Binaries, World};

static BINARIES: Binaries = Binaries {
    daemon: env!("CARGO_BIN_EXE_sessiond-under-test"),
    broker: env!("CARGO_BIN_EXE_broker"),
    host: env!("CARGO_BIN_EXE_host"),
    instance: env!("CARGO_BIN_EXE_instance"),
    stranger: env!("CARGO_BIN_EXE_stranger"),
    example_server: env!("CARGO_BIN_EXE_example-server"),
};

/// A world, with the configuration that it is given.
fn world(configuration: &str) -> World {
    let world = World::new(&BINARIES);
    world.configure(configuration);
    world
}
