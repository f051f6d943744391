//! Who is that? Everything that the daemon knows about other processes, from the kernel alone, and
//! what else the operating system is asked.
//!
//! Who it is:
//! - [`ProcessId`], [`StartTime`], [`boot_id`]: what names one process, for good. [`Traits`],
//!   [`Key`]: what tells the instances of one host apart. These values are of the crate
//!   `mcp-sessiond-identity`; [`traits_of`] reads them ([`key`]).
//! - [`PinnedProcess`]: a process that is held, so that what is read of it is its own.
//! - [`peer()`], [`Challenge`], [`instance`], [`ancestor`]: who speaks on a socket, and which of its
//!   ancestors it speaks for. [`listener`], [`ListenerLock`]: who listens there. [`tcp`]: which user is at the other end of a connection over loopback.
//! - [`find_host`]: from an instance up to its host, past launchers ([`walk`], [`launchers`]).
//! - [`programs`]: the one table of launchers, interpreters and runners, with their verbs and
//!   options. [`variables`]: the one table of variables that say nothing about a server.
//!   [`temporary_dirs`]: directories that a launcher makes anew for each start.
//! - [`CommandLine`]: which program a host is.
//! - [`ExitWatch`]: which of many processes have exited. [`child_of`], [`is_taken`],
//!   [`leads_session`], [`session_of`], [`session_members`], [`started_by`] ([`session`], in the
//!   sense of setsid(2)): whom a process has started.
//! - [`health`]: what a process is doing that does not answer.
//! - [`Exhausted`]: why any of it may not be known for the moment.
//!
//! What else the system is asked:
//! - [`directory`]: the runtime directory and the lock on it. [`socket`]: binding a socket, and who
//!   is behind its path. [`note`]: small files for other processes. [`changes`]: watches directories and files.
//! - [`runtime`]: the asynchronous runtime of a process, which gives memory back on its way to sleep.
//! - [`executable`]: where this program is, after an upgrade, too. [`descriptors`]: how many this
//!   process may have. [`priority`]: resets nice value and OOM score. [`core_files`]: none are
//!   left. [`regular_file`]: reads files that others have named. [`clock`]: the clock that all processes of a machine read alike. [`signals`]: which of
//!   them may be waited for.
//! - [`fault`]: where tests may have the daemon, or `setup`, killed. [`sys`]: the only `unsafe`
//!   code.
//!
//! `linux.rs` and `macos.rs` read the facts, behind the same set of functions; nothing else here
//! differs between the two.
//!
//! **Architecture Invariant:** no pid is believed that was not pinned first and looked at again
//! afterwards. A fact is the process's own only if the process was alive, and the same, after it
//! was read.
#![allow(rustdoc::private_intra_doc_links)]

mod challenge;
pub mod changes;
pub mod clock;
mod command_line;
pub mod core_files;
pub mod descriptors;
pub mod directory;
pub mod executable;
mod exhausted;
mod exits;
pub mod fault;
pub mod health;
mod key;
mod launchers;
mod listening;
pub mod note;
mod peer;
mod peer_error;
mod pinned;
pub mod priority;
pub mod programs;
pub mod regular_file;
pub mod runtime;
mod session;
pub mod signals;
pub mod socket;
pub mod sys;
pub mod tcp;
mod temporary_dirs;
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

pub use challenge::{CHALLENGE_BYTES, Challenge};
pub use clock::{latest_start_ms, monotonic_ms, start_clock_ms};
pub use command_line::{CommandLine, arguments_of, command_line, directory_of};
pub use exhausted::Exhausted;
pub use exits::ExitWatch;
pub use health::{Health, HealthWatch};
pub use key::traits_of;
pub use launchers::{Launcher, Table};
pub use listening::{ListenerLock, holder as lock_holder, listener};
pub use mcp_sessiond_identity::{
    Conversation, Key, KeyDoubt, ProcessId, SelfDescription, StartTime, StartTimeError, Traits,
    digest,
};
pub use peer::{NotAnInstance, Peer, ancestor, instance, is_ours, peer, peers_are_known};
pub use peer_error::PeerError;
pub use pinned::{Gone, PinnedProcess};
pub use session::{
    child_of, children_of, is_taken, leads_session, session_members, session_of, started_by,
};
pub use variables::{is_set_by, own_variables};
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
pub fn resident_bytes(pid: u32) -> Option<u64> {
    os::resident_bytes(pid).ok()
}

/// Where a process stands.
struct ProcessStatus {
    /// Its parent's pid; 0 where that is the kernel, or in another pid namespace.
    parent: u32,
    /// The real and the effective user id.
    uids: [u32; 2],
    /// Whether it is in the pid namespace whose /proc we see.
    in_our_namespace: bool,
}

impl ProcessStatus {
    /// A user id of the process that is not this one. None: it is this user's through and through.
    fn other_uid(&self, uid: u32) -> Option<u32> {
        self.uids.into_iter().find(|found| *found != uid)
    }
}
