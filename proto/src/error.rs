//! What a peer may see when something was refused. Internals stay in the daemon's log.

use serde::{Deserialize, Serialize};

use crate::names::StateKey;
use crate::state::StateVersion;
use crate::types::Epoch;

/// What the names of quotas of memory begin with.
pub const MEMORY: &str = "the memory";

/// A refusal: a stable code ([`Error::code`]), an HTTP status for who needs one, and a sentence for
/// people.
///
/// Each code means one thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Error {
    /// The instance has no host that can be verified: go on without resuming.
    #[error("{sentence}; session resume is disabled for this instance")]
    NoVerifiedHost {
        /// What stood in the way.
        sentence: String,
    },
    /// The pid that the claim names is not the sender, nor an ancestor of it.
    #[error(
        "process {pid} is not an ancestor of the process that asked, so nothing can be claimed for it"
    )]
    NotAnAncestor {
        /// The pid that was named.
        pid: u32,
    },
    /// The pid that the claim names is the host of whoever asked, or above that: name the server.
    #[error(
        "process {pid} is the host or one of its ancestors, and not one of its servers: nothing can be claimed for it; say `--for $$` in a shell script"
    )]
    NamesHost {
        /// The pid that was named.
        pid: u32,
    },
    /// Somebody claimed the session since: stop using it.
    #[error(
        "the lease is not the newest (epoch {given}, newest {newest}): another process has claimed this session since"
    )]
    StaleEpoch {
        /// What the request carried.
        given: Epoch,
        /// The session's newest.
        newest: Epoch,
    },
    /// Nobody holds the session, the sender neither: claim again.
    #[error("the lease has ended: it was released, or its process has exited")]
    LeaseEnded,
    /// There is no such session, or no longer: claim again.
    #[error("there is no such session: its host is gone, or it was never there")]
    UnknownSession,
    /// The owner has a session of that id already: take another id, or open that one.
    #[error("there is a session of that id already")]
    AlreadyExists,
    /// The session was terminated, and nothing brings it back: begin a new one.
    #[error("the session was terminated; begin a new one")]
    SessionTerminated,
    /// Another live process holds the session: it can be had when that process is gone.
    #[error("another live process holds the session")]
    SessionHeld,
    /// A session with a name is somebody else's now, or another command's: wait, take it, or take
    /// another name.
    #[error("{sentence}")]
    NameTaken {
        /// Who has it, and what can be done.
        sentence: String,
    },
    /// Another live process holds the lease on this service's name.
    #[error("process {pid} already serves this name; only one process can")]
    ServiceTaken {
        /// Its pid.
        pid: u32,
        /// When it got the lease, in ms since the Unix epoch.
        #[serde(with = "crate::text")]
        since_ms: u64,
    },
    /// A value was not at the version that the write was conditional on: read it, and decide again.
    #[error("the value is at version {}, not at the one that was expected", current.0)]
    VersionConflict {
        /// Which value.
        key: StateKey,
        /// The version that it has; 0: there is none.
        current: StateVersion,
    },
    /// The session is bound to another caller than the one that the request names, or it names
    /// none.
    #[error("the session is bound to another caller")]
    BindingMismatch,
    /// There is no such handle, or no longer.
    #[error("there is no such handle")]
    UnknownHandle,
    /// The handle was good once. Mint another one.
    #[error("the handle has expired")]
    HandleExpired,
    /// There is no such stream, or no longer: open it.
    #[error("there is no such stream in this session")]
    UnknownStream,
    /// The stream is closed. What it has said can be replayed.
    #[error("the stream is closed")]
    StreamClosed,
    /// There is no such task, or no longer: its time is over, or its session's.
    #[error("there is no such task in this session")]
    UnknownTask,
    /// The task has ended. What has become of it can be read.
    #[error("the task has ended")]
    TaskEnded,
    /// The cursor names no place in this session: it is another session's, or was made up, or its
    /// stream is gone.
    #[error("the cursor names no place in this session")]
    UnknownCursor,
    /// The session has no backend, or it is not held by the keeper that speaks: start one, or, as
    /// that keeper, end.
    #[error("the session has no such backend: none is registered, or another keeper holds it")]
    UnknownBackend,
    /// The request can't be meant as it is: correct it.
    #[error("{sentence}")]
    InvalidArgument {
        /// What was wrong, and what would be right.
        sentence: String,
    },
    /// A bound was reached: free something, or ask for less.
    #[error("{what} reached the limit of {limit}")]
    QuotaExceeded {
        /// What there is too much of.
        what: String,
        /// How much there may be.
        #[serde(with = "crate::text")]
        limit: u64,
    },
    /// The token could not be written. The former one is still in place.
    #[error("Failed to write token file: {sentence}")]
    WriteFailed {
        /// The operating system's words.
        sentence: String,
    },
    /// For the moment it can't be done, and nothing was: try again after the given time.
    #[error("{sentence}; try again in {retry_after_ms} ms")]
    Unavailable {
        /// What is the matter.
        sentence: String,
        /// When to try again, in ms.
        retry_after_ms: u32,
    },
    /// It was carried out, or will be, or not: repeat it with the same `request`, which has no
    /// further effect. Without one, look first.
    #[error("{sentence}: whether it was carried out is not known")]
    OutcomeUnknown {
        /// What is the matter.
        sentence: String,
        /// When to ask again, in ms.
        retry_after_ms: u32,
    },
    /// A code that this build does not know: the daemon is newer.
    #[error("the daemon refused with a code that this client does not know; upgrade the client")]
    #[serde(other)]
    Unknown,
}

/// The table of refusals: the code of each on the wire, and the HTTP status (RFC 9110, section 15)
/// that a server in front would answer.
macro_rules! codes {
    ($($refusal:ident $code:literal $status:literal;)*) => {
        /// The codes of all refusals that a daemon of this version sends.
        pub const CODES: [&str; [$($code),*].len()] = [$($code),*];

        impl Error {
            /// The stable code, as it stands on the wire.
            #[must_use]
            pub fn code(&self) -> &'static str {
                match self {
                    $(Self::$refusal { .. } => $code,)*
                    Self::Unknown => "unknown",
                }
            }

            /// The HTTP status (RFC 9110, section 15) that a server in front would answer.
            #[must_use]
            pub fn http_status(&self) -> u16 {
                match self {
                    $(Self::$refusal { .. } => $status,)*
                    Self::Unknown => 500,
                }
            }
        }
    };
}

// 404 tells a client to begin a new session (MCP 2025-11-25, Streamable HTTP). Where nothing is the
// matter with the session it is 400, since by a 404 the client would throw that away.
codes! {
    NoVerifiedHost    "no_verified_host"   403;
    NotAnAncestor     "not_an_ancestor"    403;
    NamesHost         "names_host"         403;
    StaleEpoch        "stale_epoch"        409;
    LeaseEnded        "lease_ended"        409;
    UnknownSession    "unknown_session"    404;
    AlreadyExists     "already_exists"     409;
    SessionTerminated "session_terminated" 404;
    SessionHeld       "session_held"       409;
    NameTaken         "name_taken"         409;
    ServiceTaken      "service_taken"      409;
    VersionConflict   "version_conflict"   409;
    BindingMismatch   "binding_mismatch"   403;
    UnknownHandle     "unknown_handle"     404;
    HandleExpired     "handle_expired"     410;
    UnknownStream     "unknown_stream"     400;
    StreamClosed      "stream_closed"      409;
    UnknownTask       "unknown_task"       400;
    TaskEnded         "task_ended"         409;
    UnknownCursor     "unknown_cursor"     400;
    UnknownBackend    "unknown_backend"    400;
    InvalidArgument   "invalid_argument"   400;
    QuotaExceeded     "quota_exceeded"     429;
    WriteFailed       "write_failed"       507;
    Unavailable       "unavailable"        503;
    OutcomeUnknown    "outcome_unknown"    504;
}

impl Error {
    /// Whether it is a quota of memory, so that it helps to delete something.
    #[must_use]
    pub fn is_of_memory(&self) -> bool {
        matches!(self, Self::QuotaExceeded { what, .. } if what.starts_with(MEMORY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_on_the_wire_is_the_code() {
        let errors = [
            Error::NoVerifiedHost {
                sentence: "x".into(),
            },
            Error::NotAnAncestor { pid: 1 },
            Error::NamesHost { pid: 1 },
            Error::StaleEpoch {
                given: Epoch(1),
                newest: Epoch(2),
            },
            Error::LeaseEnded,
            Error::UnknownSession,
            Error::AlreadyExists,
            Error::SessionTerminated,
            Error::SessionHeld,
            Error::NameTaken {
                sentence: "x".into(),
            },
            Error::ServiceTaken {
                pid: 1,
                since_ms: 2,
            },
            Error::VersionConflict {
                key: "k".parse().expect("a key"),
                current: StateVersion(1),
            },
            Error::BindingMismatch,
            Error::UnknownHandle,
            Error::HandleExpired,
            Error::UnknownStream,
            Error::StreamClosed,
            Error::UnknownTask,
            Error::TaskEnded,
            Error::UnknownCursor,
            Error::UnknownBackend,
            Error::InvalidArgument {
                sentence: "x".into(),
            },
            Error::QuotaExceeded {
                what: "x".into(),
                limit: 1,
            },
            Error::WriteFailed {
                sentence: "x".into(),
            },
            Error::Unavailable {
                sentence: "x".into(),
                retry_after_ms: 1,
            },
            Error::OutcomeUnknown {
                sentence: "x".into(),
                retry_after_ms: 1,
            },
        ];
        assert_eq!(errors.each_ref().map(Error::code), CODES);
        for error in errors {
            let json = serde_json::to_value(&error).expect("json");
            assert_eq!(json["code"], error.code());
            assert_eq!(serde_json::from_value::<Error>(json).expect("back"), error);
            let bytes = rmp_serde::to_vec_named(&error).expect("msgpack");
            assert_eq!(rmp_serde::from_slice::<Error>(&bytes).expect("back"), error);
        }
        let newer = serde_json::json!({"code": "from_the_future", "detail": 1});
        assert_eq!(
            serde_json::from_value::<Error>(newer).expect("other"),
            Error::Unknown
        );
    }
}
