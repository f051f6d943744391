//! What a front leaves behind that its host has closed in an orderly way, for the daemon: a session
//! of remote servers has no keeper that could tell it, and there may be no daemon just now.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};

use mcp_sessiond_process::directory::{DIRECTORY_MODE, Directory};
use mcp_sessiond_process::{PinnedProcess, start_clock_ms};
use mcp_sessiond_proto::paths;
use nix::fcntl::OFlag;

/// Says that this process closes its session. Where that can't be said, the session counts as cut
/// off.
pub(crate) fn mark() {
    let _ = try_mark();
}

fn try_mark() -> io::Result<()> {
    let now = start_clock_ms();
    let directory = paths::directory().map_err(io::Error::other)?;
    // Where there is none, nothing is kept.
    Directory::open_existing(&directory).map_err(io::Error::other)?;
    let closed = paths::closed(&directory);
    match std::fs::DirBuilder::new()
        .mode(DIRECTORY_MODE)
        .create(&closed)
    {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let own = PinnedProcess::own().map_err(io::Error::other)?.id();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(closed.join(paths::closed_name(own.pid, own.start.0)))?
        .write_all(now.to_string().as_bytes())
}
