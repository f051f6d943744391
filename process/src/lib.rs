//! Who is that? Everything that the daemon knows about other processes, from the kernel alone.
//!
//! - [`ProcessId`], [`StartTime`], [`boot_id`]: what names one process, for good.
//! - [`Pinned`]: a process that is held, so that what is read of it is its own.
//! - [`peer()`], [`instance`]: who speaks on a socket, and which of its ancestors it speaks for.
//!   [`ancestor`]: any of them.
//! - [`find_host`]: from an instance up to its host, past [launchers](Table).
//! - [`Traits`], [`Key`]: what tells the instances of one host apart.
//! - [`Scarce`]: why any of it may not be known for the moment.
//! - [`tcp`]: which user is at the other end of a connection over loopback.
//! - [`changes`]: watches directories and files for changes.
//! - [`signals`]: which of them may be waited for.
//! - [`rank`]: how the system ranks this process.
//! - [`ExitWatch`]: which of many processes have exited.
//! - [`child_of`], [`is_taken`], [`leads_session`], [`session_of`], [`session_members`],
//!   [`started_by`]: whom a process has started.
//!
//! `linux.rs` and `macos.rs` read the facts, behind the same set of functions; nothing else here
//! differs between the two.
//!
//! **Architecture Invariant:** no pid is believed that was not pinned first and looked at again
//! afterwards. A fact is the process's own only if the process was alive, and the same, after it
//! was read.

mod appearance;
pub mod changes;
pub mod clock;
pub mod core_files;
pub mod descriptors;
pub mod directory;
pub mod executable;
mod exits;
pub mod fault;
mod fleeting;
mod key;
mod launchers;
mod peer;
mod pinned;
pub mod programs;
pub mod rank;
mod scarce;
mod session;
pub mod signals;
pub mod socket;
pub mod sys;
pub mod tcp;
mod variables;
mod walk;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod os;
#[cfg(target_os = "macos")]
#[path = "macos.rs"]
mod os;

#[cfg(any(target_os = "macos", test))]
mod procargs;

#[cfg(test)]
mod tests;

use std::io;

pub use appearance::{Appearance, appearance};
pub use clock::monotonic_ms;
pub use exits::ExitWatch;
pub use key::traits_of;
pub use launchers::{Launcher, Table};
pub use mcp_sessiond_identity::{
    Conversation, Former, Key, KeyDoubt, KeyDoubtError, ProcessId, Said, StartTime, StartTimeError,
    Traits, digest,
};
pub use peer::{Misnamed, Peer, PeerError, ancestor, instance, peer};
pub use pinned::{Gone, Pinned};
pub use scarce::Scarce;
pub use session::{
    child_of, children_of, is_taken, leads_session, session_members, session_of, started_by,
};
pub use variables::own_variables;
pub use walk::{HostDoubt, Role, Step, Walk, find_host, name_of};

/// The id that the system was given when it started. What was recorded under another one is from
/// before a reboot.
///
/// # Errors
/// Those of reading /proc/sys/kernel/random/boot_id, on macOS the sysctl `kern.bootsessionuuid`.
pub fn boot_id() -> io::Result<String> {
    os::boot_id()
}

/// Resident memory of a process, in bytes. None: it has exited, or is not ours to look at.
#[must_use]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    os::resident_bytes(pid).ok()
}

/// Where a process stands.
struct Kin {
    /// Its parent's pid; 0 where that is the kernel, or in another pid namespace.
    parent: u32,
    /// The real and the effective user id.
    uids: [u32; 2],
    /// Whether it is in the pid namespace whose /proc we see.
    in_our_namespace: bool,
}

impl Kin {
    /// A user id of the process that is not this one. None: it is this user's through and through.
    fn other_uid(&self, uid: u32) -> Option<u32> {
        self.uids.into_iter().find(|found| *found != uid)
    }
}
