//! The values of the interface, by their names in C. Numbers never change their
//! meaning, and fields are added at the end alone.
#![allow(non_camel_case_types, reason = "these are the names in the header")]

use std::ffi::{c_char, c_void};

/// The version of this header: the first number. `mcp_sessiond_version` has that of the library.
pub const MCP_SESSIOND_VERSION_MAJOR: u32 = 0;
/// The second number.
pub const MCP_SESSIOND_VERSION_MINOR: u32 = 1;
/// The third number.
pub const MCP_SESSIOND_VERSION_PATCH: u32 = 0;

/// Bytes that a token may have at most.
pub const MCP_SESSIOND_TOKEN_MAX: usize = 65_536;

/// Bytes of `mcp_sessiond_status.session`: a session id has 128 at most, and a NUL follows.
pub const MCP_SESSIOND_SESSION_SIZE: usize = 129;

/// Bytes of `mcp_sessiond_status.text`, with the NUL at its end. A longer text is cut.
pub const MCP_SESSIOND_TEXT_SIZE: usize = 512;

/// What became of a call. None of these has to be handled: a server that ignores them goes on
/// without resuming.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcp_sessiond_result {
    /// It was done.
    MCP_SESSIOND_OK = 0,
    /// `mcp_sessiond_load`: there is no token. Start afresh.
    MCP_SESSIOND_NOTHING = 1,
    /// Resume is disabled: there is no daemon to be had, or it can't tell which host this process
    /// belongs to. Unless `mcp_sessiond_status.is_final` is 1, a later call tries again.
    MCP_SESSIOND_DISABLED = 2,
    /// The daemon is there and did not do it: its disk is full, for example. The former token is
    /// still kept.
    MCP_SESSIOND_REFUSED = 3,
    /// The time was over first. Whether it was done is not known; the call may be repeated.
    MCP_SESSIOND_TIMEOUT = 4,
    /// The handle was made by another process, from which this one was forked. Call
    /// `mcp_sessiond_init`.
    MCP_SESSIOND_FORKED = 5,
    /// An argument can't be meant as it is. Nothing was done.
    MCP_SESSIOND_INVALID_ARGUMENT = 6,
    /// There is no thread or descriptor left for this. Nothing was done.
    MCP_SESSIOND_RESOURCES = 7,
    /// A fault of this library. Whether it was done is not known; please report it.
    MCP_SESSIOND_FAULT = 8,
}

/// Whether resume works for this instance: `mcp_sessiond_status.state`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcp_sessiond_state {
    /// Nothing was asked yet, or the lease was released.
    MCP_SESSIOND_STATE_UNCLAIMED = 0,
    /// The instance holds a session.
    MCP_SESSIOND_STATE_ACTIVE = 1,
    /// Resume does not work.
    MCP_SESSIOND_STATE_DISABLED = 2,
}

/// How an instance came to its session: `mcp_sessiond_status.outcome`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcp_sessiond_outcome {
    /// It holds none, or in a way that this version does not know.
    MCP_SESSIOND_OUTCOME_NONE = 0,
    /// The process held it already.
    MCP_SESSIOND_OUTCOME_HELD = 1,
    /// A former instance's session, which nobody held.
    MCP_SESSIOND_OUTCOME_RESUMED = 2,
    /// A new session: the host has none with this key.
    MCP_SESSIOND_OUTCOME_FRESH_FIRST = 3,
    /// A new session: another live process with this key stayed.
    MCP_SESSIOND_OUTCOME_FRESH_HELD = 4,
    /// A new session: several with this key were free, and can't be told apart.
    MCP_SESSIOND_OUTCOME_FRESH_PLURAL = 5,
    /// A new session, which ends with its holder: nothing is resumed for this host.
    MCP_SESSIOND_OUTCOME_FRESH_NEVER = 6,
    /// A new session, which nobody will resume: what the key is made of could not be read.
    MCP_SESSIOND_OUTCOME_FRESH_DOUBTFUL = 7,
}

/// Whether a daemon is started where none runs: `mcp_sessiond_options.start`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcp_sessiond_start {
    /// It is: by systemd or launchd where it is installed there, else by running its executable.
    MCP_SESSIOND_START_AUTO = 0,
    /// It is not. Without a daemon resume is disabled.
    MCP_SESSIOND_START_NEVER = 1,
}

/// What an instance gets where its host has, or had, several servers that are alike:
/// `mcp_sessiond_options.siblings`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcp_sessiond_siblings {
    /// As the daemon is configured for the host.
    MCP_SESSIOND_SIBLINGS_DEFAULT = 0,
    /// The only session that nobody holds, if no other server of the key lives; else a session of
    /// its own.
    MCP_SESSIOND_SIBLINGS_FRESH = 1,
    /// The only session that nobody holds, also while others live.
    MCP_SESSIOND_SIBLINGS_SUCCESSOR = 2,
    /// The session opened first that nobody holds.
    MCP_SESSIOND_SIBLINGS_OLDEST = 3,
    /// A session of its own, always.
    MCP_SESSIOND_SIBLINGS_NEVER = 4,
}

/// How much a log line matters.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum mcp_sessiond_level {
    /// As it should be.
    MCP_SESSIOND_INFO = 1,
    /// Something is not kept.
    MCP_SESSIOND_WARN = 2,
}

/// Gets a log line: UTF-8 without a line break, valid until it returns. It has no token in it.
///
/// It is called in the thread that has called this library, before that call returns; so it needs
/// no lock, and may call this library. It must return: by no exception and no longjmp.
pub type mcp_sessiond_log =
    Option<extern "C" fn(context: *mut c_void, level: mcp_sessiond_level, line: *const c_char)>;

/// What `mcp_sessiond_init` is told. Set everything to 0 first, then `size`: 0 and NULL are the
/// defaults, which are right for a server that its host starts once:
/// `mcp_sessiond_options options = {.size = sizeof options, .label = "staging"};` The texts are
/// copied.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcp_sessiond_options {
    /// `sizeof(mcp_sessiond_options)`: by this a later version of the library knows which fields
    /// there are.
    pub size: usize,
    /// Takes the place of directory and environment in what tells this instance from others of its
    /// host: 1 to 128 bytes of printable UTF-8, without blanks at its ends.
    pub label: *const c_char,
    /// The name of this server's entry in the host's file, of the same form.
    pub entry: *const c_char,
    /// What the host calls itself (`clientInfo.name` of its first message): UTF-8, at most 256
    /// bytes.
    pub client: *const c_char,
    /// The daemon's runtime directory, an absolute path. Default: `MCP_SESSIOND_DIR`, else the one
    /// derived from the uid.
    pub directory: *const c_char,
    /// The daemon's executable, for where it has to be started. Default: `MCP_SESSIOND_BIN`, else
    /// `mcp-sessiond` beside this process's executable, else in `PATH`.
    pub executable: *const c_char,
    /// Gets the log lines. Default: nobody does; nothing is ever written to standard output or
    /// error.
    pub log: mcp_sessiond_log,
    /// What `log` is given as its first argument.
    pub log_context: *mut c_void,
    /// Milliseconds that one call may take in all, with connecting and starting a daemon. Default:
    /// 10,000. At most 86,400,000, a day.
    pub timeout_ms: u32,
    /// A `mcp_sessiond_start`.
    pub start: u32,
    /// A `mcp_sessiond_siblings`.
    pub siblings: u32,
    /// The pid of an ancestor that the session is claimed for. Default: this process.
    pub instance: u32,
}

/// Whether resume works, as of the last call. See `mcp_sessiond_get_status`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct mcp_sessiond_status {
    /// `sizeof(mcp_sessiond_status)`: set it before the call.
    pub size: usize,
    /// The number of the lease, which only grows; 0 unless the state is
    /// `MCP_SESSIOND_STATE_ACTIVE`.
    pub epoch: u64,
    /// A `mcp_sessiond_state`.
    pub state: u32,
    /// A `mcp_sessiond_outcome`.
    pub outcome: u32,
    /// 1 where resume is disabled and no later call tries again; else 0.
    pub is_final: u32,
    /// The id of the session, with a NUL; empty unless the state is
    /// `MCP_SESSIOND_STATE_ACTIVE`.
    pub session: [c_char; MCP_SESSIOND_SESSION_SIZE],
    /// The same in words, for people: UTF-8 with a NUL. Where resume is disabled it says why, and
    /// what to do.
    pub text: [c_char; MCP_SESSIOND_TEXT_SIZE],
}
