//! Kernels that lack a system call, and containers that refuse one: what takes its place.

use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;

use mcp_sessiond_tests::{Client, until};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::wrap::{tiny, wrapped};
use crate::{fixture, world};

/// The command line that runs this one with system calls refused, for all that it starts.
fn refusing(rules: &[&str], command: &[String]) -> Vec<String> {
    let script = fixture("python/refusing.py");
    let prefix = ["python3", "-I", &script].into_iter();
    prefix
        .chain(rules.iter().copied())
        .chain(["--"])
        .map(str::to_owned)
        .chain(command.iter().cloned())
        .collect()
}

#[test]
fn without_close_range_what_is_detached_has_no_descriptor_of_the_host() {
    for error in ["ENOSYS", "EINVAL", "EPERM"] {
        let world = world("");
        let pipe = world.root().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let mut reader = options.open(&pipe).expect("its end to read from");
        // Nothing to read: an error as long as somebody has the other end, and the end then.
        let mut is_held = || reader.read(&mut [0]).is_err();

        // Descriptors of one and of three digits.
        let script = format!("exec 9>'{0}' 200>'{0}'; exec \"$@\"", pipe.display());
        let opening = ["bash", "-c", &script, "bash"].map(String::from);
        let command = [&opening[..], &wrapped(&world, &tiny(&world))].concat();
        let command = refusing(&[&format!("close_range={error}")], &command);
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 1, "{error}");
        assert!(is_held(), "the front has what its host has left open");

        client.pipe.signal(Signal::SIGKILL);
        client.pipe.wait();
        until("the front was the last to have it", || {
            (!is_held()).then_some(())
        });
        // The daemon and the keeper live, and so does the server.
        let mut client = Client::connected(world.front(&command));
        assert_eq!(client.count(), 2, "{error}");
    }
}
