//! Losses: when they are told, and when they count as told.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

use mcp_sessiond_tests::{Client, Front, World, signal};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::by_every_door;
use crate::told_to_models::wrapping;
use crate::world;

/// The command line that runs this one with another standard error. What the shell changes of its
/// environment tells servers apart, so all fronts are run by it.
fn printing_to(path: &str, words: &[String]) -> Vec<String> {
    let prefix = ["sh", "-c", "exec 2>\"$0\"; exec \"$@\"", path].map(str::to_owned);
    [&prefix[..], words].concat()
}

/// A front whose standard error nobody reads, and which has no room for a byte.
fn unread(world: &World, words: &[String]) -> (Client<Front>, std::fs::File) {
    let pipe = world.root().join("stderr");
    let _ = std::fs::remove_file(&pipe);
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let mut full = options
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(&pipe)
        .expect("both ends");
    for size in [4096, 1] {
        while full.write(&vec![b'x'; size]).is_ok() {}
    }
    let path = pipe.to_str().expect("UTF-8");
    let client = Client::connected(world.front(&printing_to(path, words)));
    (client, full)
}

/// A front tells nothing that its host can't read; the next one tells it.
#[test]
fn a_loss_counts_as_told_only_after_its_line_was_written() {
    by_every_door(|door| {
        for is_keeper_lost in [true, false] {
            let world = world("");
            let _daemon = world.daemon();
            let words = wrapping(&world, door);
            let printing = printing_to("/dev/stderr", &words);
            let mut client = Client::connected(world.front(&printing));
            assert_eq!(client.count(), 1, "{door:?}");
            let backend = world.backend();
            backend.cut_off(&mut client.pipe);
            if is_keeper_lost {
                backend.kill_keeper();
                backend.ended();
            } else {
                signal(backend.pid(), Signal::SIGKILL);
                backend.wait("it has ended", |status| status.pid.is_none());
            }
            let (mut silent, full) = unread(&world, &words);
            // Long enough for it to be confirmed, if it were.
            for count in 1..=100 {
                assert_eq!(silent.count(), count, "{door:?}");
            }
            silent.pipe.kill();
            drop(full);
            let mut next = Client::connected(world.front(&printing));
            assert_eq!(next.count(), 101, "{door:?}");
            next.pipe.errors.wait("this server begins afresh");
        }
    });
}
