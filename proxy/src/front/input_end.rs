//! The end of a front's input. The host has closed its end, or is gone: the keeper is told at
//! once, and the front waits until everything is answered, as long as somebody can read the answers, and
//! for `wrap.input_end_wait_ms` at most. What it waits for by then may never come: an
//! answer of a server that hangs, room for a line to one that reads nothing, or a keeper.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::signals::Leaving;

/// The other end of a socket was shut down for writing (poll(2)). Where there is no such flag, its
/// end is seen once it is closed.
#[cfg(target_os = "linux")]
const SHUT_DOWN: PollFlags = PollFlags::from_bits_retain(0x2000);
#[cfg(not(target_os = "linux"))]
const SHUT_DOWN: PollFlags = PollFlags::empty();

/// What happens at the end of the input.
pub(crate) struct InputEnd {
    /// Tells the keepers that the host leaves.
    pub(crate) leave: Box<dyn FnOnce() + Send>,
    /// Nobody waits for answers any more: nobody can read them, or they have not come in time.
    pub(crate) done: Box<dyn FnOnce(Leaving) + Send>,
}

/// Waits, in a thread of its own, until nobody can write to the input any more: whoever reads it
/// may be busy with what came before. Files and terminals have no such end, and their readers call
/// [`when_unread`].
///
/// # Errors
/// When there can be no more threads or descriptors.
pub(crate) fn watch(
    input: &File,
    output: &File,
    within: Duration,
    end: InputEnd,
) -> io::Result<()> {
    let (input, output) = (input.try_clone()?, output.try_clone()?);
    let watching = move || {
        wait_until_closed(&input);
        let InputEnd { leave, done } = end;
        // Telling them may have to wait for whoever writes to the host.
        when_unread(output, within, done);
        leave();
    };
    std::thread::Builder::new()
        .name("input-end".into())
        .spawn(watching)
        .map(drop)
}

/// Does this when nobody can read the output any more, and at the latest after this time.
pub(crate) fn when_unread(
    output: File,
    within: Duration,
    done: impl FnOnce(Leaving) + Send + 'static,
) {
    let waiting = move || {
        done(match wait_until_unread_for(&output, within) {
            true => Leaving::Done,
            false => Leaving::Late,
        });
    };
    let timer = std::thread::Builder::new().name("unread".into());
    drop(timer.spawn(waiting));
}

/// Waits until the host can't write to us any more.
fn wait_until_closed(input: &File) {
    // Errors and hang-ups are told without being asked for.
    let _ = wait_for(input, SHUT_DOWN, None);
}

/// Waits until no process can read our output any more: the host is gone, or has closed that end,
/// too. False: the time was over before.
fn wait_until_unread_for(output: &File, time: Duration) -> bool {
    wait_for(output, PollFlags::empty(), Some(Instant::now() + time))
}

/// False: the time is over.
fn wait_for(descriptor: &File, events: PollFlags, until: Option<Instant>) -> bool {
    loop {
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now());
            // A part of a millisecond that is left is waited for as well.
            PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut [PollFd::new(descriptor.as_fd(), events)], timeout) {
            Ok(0) if until.is_some_and(|until| until <= Instant::now()) => return false,
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use super::*;

    /// The keepers are told while what the host has said is still unread.
    fn told_at_the_end_of(input: OwnedFd, end: impl FnOnce()) {
        let (said, told) = mpsc::channel();
        let (output, _reader) = UnixStream::pair().expect("a pair");
        let leave = Box::new(move || said.send(()).expect("a test"));
        let done = Box::new(|_| {});
        let (input, output) = (File::from(input), File::from(OwnedFd::from(output)));
        watch(&input, &output, Duration::ZERO, InputEnd { leave, done }).expect("a thread");
        assert!(told.try_recv().is_err());
        end();
        told.recv().expect("told");
    }

    #[test]
    fn the_end_is_seen_behind_what_is_unread() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        io::Write::write_all(&mut writer, b"unread").expect("written");
        told_at_the_end_of(reader.into(), || drop(writer));
        for shut in [false, cfg!(target_os = "linux")] {
            let (ours, mut host) = UnixStream::pair().expect("a pair");
            io::Write::write_all(&mut host, b"unread").expect("written");
            told_at_the_end_of(ours.into(), || {
                if shut {
                    host.shutdown(std::net::Shutdown::Write).expect("shut");
                } else {
                    drop(host);
                }
            });
        }
    }
}
