//! A reboot: every process is gone, and what is on record is of another boot.

use mcp_sessiond_tests::{Client, World, gone, signal};
use nix::sys::signal::Signal;

use super::{connect, tiny};
use crate::{needs_root, world};

/// The command, on a machine with another boot id (`random(4)`, `/proc/sys/kernel/random/boot_id`).
fn booted_again(world: &World, words: &[String]) -> Vec<String> {
    let id = world.root().join("boot_id");
    std::fs::write(&id, "5f0c8c8e-0000-4000-8000-00000000b007\n").expect("written");
    let script = format!(
        "mount --bind '{}' /proc/sys/kernel/random/boot_id && exec \"$@\"",
        id.to_str().expect("UTF-8")
    );
    let before = ["unshare", "--mount", "sh", "-c", &script, "sh"].map(str::to_owned);
    before.into_iter().chain(words.iter().cloned()).collect()
}

/// A runtime directory in /tmp outlives a reboot; one in /run/user does not.
#[test]
#[ignore = "needs root"]
fn after_a_reboot_a_host_gets_a_fresh_server_and_no_token() {
    needs_root("for a mount namespace of its own");
    let world = world("");
    let mut daemon = world.daemon();
    let mut client = connect(&world, &tiny(&world));
    assert_eq!((client.count(), client.count()), (1, 2));
    let mut peer = world.peer();
    let claimed = peer.claim();
    peer.store(&claimed, "b25l").expect("stored");
    let backend = world.backend();
    let server = backend.pid();
    for pid in [client.pipe.pid(), backend.keeper, server] {
        signal(pid, Signal::SIGKILL);
    }
    daemon.kill();
    client.pipe.wait();
    [backend.keeper, server].into_iter().for_each(gone);
    assert!(world.directory().join("sessions.db").exists());

    let run = [world.binaries.daemon, "run"].map(str::to_owned);
    let words = booted_again(&world, &run);
    let mut command = world.command(&words[0]);
    command.args(&words[1..]);
    let daemon = world.spawn(command);
    daemon.ready();
    let front = booted_again(&world, &world.wrapping(&[], &tiny(&world)));
    assert_eq!(Client::connected(world.front(&front)).count(), 1);
    let mut peer = world.peer();
    let again = peer.claim();
    assert_eq!(
        (&again["token_status"], &again["outcome"]),
        (&"absent".into(), &"fresh_first".into()),
        "{again}"
    );
    assert_eq!(world.token_files(), Vec::<String>::new());
}
