//! How many descriptors this process may have.

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
