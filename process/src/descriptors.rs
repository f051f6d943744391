//! How many descriptors this process may have, and which ones another process has.

use std::os::fd::{AsFd, AsRawFd as _};
use std::path::PathBuf;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Allows this process as many descriptors as it may have: one for each connection. Returns the
/// limit until now, which a child that knows nothing of this should have: programs that use
/// select(2) can't have more than 1,024.
pub fn raise() -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        .ok()
        .map(|()| soft)
}

/// Sets the limit back to what [`raise`] has returned.
pub fn restore(soft: u64) {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
    }
}

/// What `/proc` calls the open file, pipe or socket behind a descriptor of this process: both ends of a
/// pipe have one name. None where there is no `/proc`.
#[must_use]
pub fn name_of(descriptor: impl AsFd) -> Option<PathBuf> {
    let number = descriptor.as_fd().as_raw_fd();
    std::fs::read_link(format!("/proc/self/fd/{number}")).ok()
}

/// The same of each descriptor that another process has. Empty where it may not be looked at.
pub fn names_in(pid: u32) -> impl Iterator<Item = PathBuf> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok();
    descriptors
        .into_iter()
        .flatten()
        .filter_map(|descriptor| std::fs::read_link(descriptor.ok()?.path()).ok())
}
