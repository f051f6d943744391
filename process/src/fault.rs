//! Named points at which a test may have the daemon, or `setup`, killed, as SIGKILL would at any
//! other.

use std::time::Duration;

/// The variable that names the point, and after a colon how often it is passed first:
/// `token-renamed:3`.
pub const VARIABLE: &str = "MCP_SESSIOND_FAULT";

/// Every point, in the order in which a store passes them.
pub const POINTS: [&str; 6] = [
    "digest-recorded",
    "token-created",
    "token-written",
    "token-renamed",
    "token-settled",
    "ledger-commit",
];

/// After a group of changes of sessions' contents was committed, before anybody is told.
pub const CONTENTS_COMMIT: &str = "contents-commit";

/// After a change of a session's contents was appended to the redo log, before anybody is told.
pub const REDO_WRITTEN: &str = "redo-written";

/// After what the redo log had was committed at the start, before the log is emptied.
pub const REDO_COMMITTED: &str = "redo-committed";

/// The points of contents, in the order in which a change passes them.
pub const CONTENTS_POINTS: [&str; 3] = [REDO_WRITTEN, CONTENTS_COMMIT, REDO_COMMITTED];

/// Each time that `setup` replaces a file: its record first, then the host's file.
pub const FILE_POINTS: [&str; 3] = ["file-created", "file-written", "file-renamed"];

/// Dies here, if the environment says so. Without the feature `fault-points` this is nothing.
#[inline]
pub fn point(name: &'static str) {
    debug_assert!(
        POINTS.contains(&name) || FILE_POINTS.contains(&name) || CONTENTS_POINTS.contains(&name),
        "{name} is not in the list of points"
    );
    #[cfg(feature = "fault-points")]
    armed::pass(name);
}

/// The variable that makes a build speak another version of the protocol on keepers' sockets, as
/// the next one will.
pub const VERSION_VARIABLE: &str = "MCP_SESSIOND_PROTOCOL";

/// The version that the environment asks for. Without the feature `fault-points` there is none.
pub fn protocol_version() -> Option<u16> {
    if cfg!(feature = "fault-points") {
        std::env::var(VERSION_VARIABLE).ok()?.parse().ok()
    } else {
        None
    }
}

/// The variable that says how often daemons that share a storage give signs of life, and after how
/// long without one a daemon is taken for dead, in ms: `50:300`.
pub const FLEET_VARIABLE: &str = "MCP_SESSIOND_FLEET_MS";

/// What the environment says of that. Without the feature `fault-points` it is not asked.
pub fn fleet_ms() -> Option<(u64, u64)> {
    let value = if cfg!(feature = "fault-points") {
        std::env::var(FLEET_VARIABLE).ok()?
    } else {
        return None;
    };
    let (sign, silence) = value.split_once(':')?;
    Some((sign.parse().ok()?, silence.parse().ok()?))
}

/// The variable that says how long a task's result is offered to a daemon that is away, in ms.
pub const PATIENCE_VARIABLE: &str = "MCP_SESSIOND_PATIENCE_MS";

/// What the environment says of that. Without the feature `fault-points` it is not asked.
pub fn patience() -> Option<Duration> {
    let value = if cfg!(feature = "fault-points") {
        std::env::var(PATIENCE_VARIABLE).ok()?
    } else {
        return None;
    };
    value.parse().ok().map(Duration::from_millis)
}

/// The variable that says how often a keeper without a front looks whether its socket is in place,
/// in ms.
pub const LOOK_VARIABLE: &str = "MCP_SESSIOND_LOOK_MS";

/// What the environment says of that. Without the feature `fault-points` it is not asked.
pub fn look() -> Option<Duration> {
    let value = if cfg!(feature = "fault-points") {
        std::env::var(LOOK_VARIABLE).ok()?
    } else {
        return None;
    };
    value.parse().ok().map(Duration::from_millis)
}

/// The variable that has `status -w` panic at the key `P`.
pub const PANIC_VARIABLE: &str = "MCP_SESSIOND_PANIC";

/// Panics, if the environment says so. Without the feature `fault-points` this is nothing.
///
/// # Panics
/// Where the environment says so.
pub fn panic_if_asked() {
    assert!(
        !cfg!(feature = "fault-points") || std::env::var_os(PANIC_VARIABLE).is_none(),
        "{PANIC_VARIABLE} asks for it"
    );
}

#[cfg(feature = "fault-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    use nix::sys::signal::{Signal, kill};

    struct Armed {
        name: String,
        passes: AtomicI64,
    }

    pub(super) fn pass(name: &str) {
        static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
        let armed = ARMED.get_or_init(|| {
            let value = std::env::var(super::VARIABLE).ok()?;
            let (name, passes) = value.split_once(':').unwrap_or((&value, "0"));
            Some(Armed {
                name: name.into(),
                passes: AtomicI64::new(passes.parse().ok()?),
            })
        });
        if let Some(armed) = armed.as_ref().filter(|armed| armed.name == name)
            && armed.passes.fetch_sub(1, Ordering::Relaxed) == 0
        {
            // Not exit or abort: nothing may be flushed or unwound.
            let _ = kill(nix::unistd::getpid(), Signal::SIGKILL);
        }
    }
}
