//! Processes as the kernel knows them, whoever has started them.

use std::os::fd::AsFd as _;
use std::process::{Child, ExitStatus};

use mcp_sessiond_process::{ExitWatch, PinnedProcess};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{PATIENCE, until};

/// Whether a process runs. A zombie does not.
#[must_use]
pub fn lives(pid: u32) -> bool {
    fields(pid).is_some_and(|fields| fields[0] != "Z" && fields[0] != "X")
}

/// Waits until a process is gone, by its pidfd.
///
/// # Panics
/// When it is still there after [`PATIENCE`].
pub fn gone(pid: u32) {
    let Ok(process) = PinnedProcess::open(pid) else {
        return;
    };
    let mut exits = ExitWatch::new().expect("a descriptor");
    exits.add(process).expect("it can be watched");
    let within = PollTimeout::try_from(PATIENCE).expect("some seconds");
    let told = poll(&mut [PollFd::new(exits.as_fd(), PollFlags::POLLIN)], within).expect("polled");
    assert!(told > 0, "process {pid} is still there after {PATIENCE:?}");
}

/// Waits until a child is gone, and reaps it.
///
/// # Panics
/// When it is still there after [`PATIENCE`].
pub(crate) fn exit_of(child: &mut Child) -> ExitStatus {
    gone(child.id());
    child.wait().expect("it is our child")
}

/// Sends a signal to a process.
///
/// # Panics
/// When there is no such process.
#[track_caller]
pub fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("it runs");
}

/// Stops a process, and waits until it has stopped: it goes on for a moment after the signal was sent.
/// Nothing tells of that but to its parent.
///
/// # Panics
/// When there is no such process.
#[track_caller]
pub fn suspend(pid: u32) {
    signal(pid, Signal::SIGSTOP);
    until("it has stopped", || (stat(pid)[0] == "T").then_some(()));
}

/// What /proc/PID/stat says of a process, from its state on, which is field 3.
///
/// # Panics
/// When it is gone.
#[must_use]
pub fn stat(pid: u32) -> Vec<String> {
    fields(pid).expect("it is there")
}

/// A line of /proc/PID/status that tells KiB.
pub(crate) fn kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect(name);
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

/// When a process was started, in ticks since the boot: field 22.
///
/// # Panics
/// When it is gone.
#[must_use]
pub fn start_time(pid: u32) -> u64 {
    stat(pid)[22 - 3].parse().expect("ticks")
}

fn fields(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program before it may hold blanks and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}
