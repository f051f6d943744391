//! Why there is no connection, why there is no resuming, and why a call of a session's failed. Each
//! sentence says what to do next.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::hello::HelloError;
use mcp_sessiond_proto::paths::DirectoryError;

/// Why the daemon could not be reached, or was not trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no runtime directory that could be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The runtime directory is a symbolic link.
    #[error("{} is a symbolic link, which is never followed; remove it, and the daemon makes a directory", path.display())]
    Symlink {
        /// The directory.
        path: PathBuf,
    },
    /// The runtime directory is something else.
    #[error("{} is not a directory; remove it, and the daemon makes one", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The runtime directory belongs to somebody else.
    #[error("{} belongs to uid {owner}, not to {ours}; remove it, or set MCP_SESSIOND_DIR to another", path.display())]
    WrongOwner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        ours: u32,
    },
    /// The runtime directory is open to others.
    #[error("{} has mode {mode:04o} and must have 0700; see who changed it, then `chmod 700` it", path.display())]
    WrongMode {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Nobody listens.
    #[error("no daemon listens at {}; start one with `mcp-sessiond run`, or `mcp-sessiond install` it", socket.display())]
    NotRunning {
        /// The socket.
        socket: PathBuf,
    },
    /// Whoever listens is somebody else.
    #[error("the process at the daemon's socket has uid {0}; nothing was sent to it")]
    DaemonUid(u32),
    /// The daemon ended the connection with its hello.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// There is no program to start.
    #[error("no daemon runs, and {} could not be started: {error}; install it, or set MCP_SESSIOND_BIN to its path", binary.display())]
    NotStarted {
        /// The program.
        binary: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The daemon was started and gave up.
    #[error("`{} run` failed ({status}){}; run it in a terminal to see why", binary.display(), hint(*status))]
    StartFailed {
        /// The program.
        binary: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// It took too long.
    #[error("the daemon at {} was not reached within {} ms ({last}); see `mcp-sessiond doctor`", socket.display(), waited.as_millis())]
    Timeout {
        /// The socket.
        socket: PathBuf,
        /// For how long it was tried.
        waited: Duration,
        /// What the last attempt came to.
        last: String,
    },
    /// There is no daemon for this operating system.
    #[error("mcp-sessiond runs only on Linux and macOS")]
    Unsupported,
    /// There is no tokio runtime here, and none of our own could be started.
    #[error("the daemon can't be asked: no thread could be started for that: {0}")]
    NoRuntime(io::Error),
    /// The operating system refused.
    #[error("{} can't be reached: {error}", socket.display())]
    Io {
        /// The socket.
        socket: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The exit code of `run` for a bad configuration (`EX_USAGE` of sysexits.h).
const BAD_CONFIGURATION: i32 = 64;

fn hint(status: std::process::ExitStatus) -> &'static str {
    if status.code() == Some(BAD_CONFIGURATION) {
        ": its configuration has an error"
    } else {
        ""
    }
}

/// Why resume is disabled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The daemon could not be reached, or was not trusted. Final where there is none for this
    /// operating system, else tried again at a later call.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The daemon refused. Final where it could not identify this instance, else tried again at a
    /// later call.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The daemon did not answer in time. Tried again at a later call.
    #[error("the daemon did not answer within {} ms; see `mcp-sessiond doctor`", .0.as_millis())]
    NoAnswer(Duration),
    /// Final: this instance's session is no longer to be had, and the one that the daemon offers
    /// instead has a history of its own, which must not be overwritten.
    #[error("this instance's session was lost; the next instance starts afresh")]
    SessionLost,
}

impl Reason {
    /// Whether no later call will find it changed, so that none tries again. False: a later call
    /// tries again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused(error) => {
                matches!(
                    error,
                    Error::NoVerifiedHost { .. }
                        | Error::NotAnAncestor { .. }
                        | Error::NamesHost { .. }
                        | Error::InvalidArgument { .. }
                )
            }
            Self::SessionLost | Self::Connect(ConnectError::Unsupported) => true,
            Self::Connect(_) | Self::NoAnswer(_) => false,
        }
    }
}

/// Why a call about a session came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The daemon refused. What to do follows from the code.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The daemon could not be reached in time, or was not trusted.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The daemon did not answer in time. Whether the call was carried out is not known.
    #[error("the daemon did not answer within {} ms; see `mcp-sessiond doctor`", .0.as_millis())]
    NoAnswer(Duration),
    /// The answer to a conditional write was lost, and when it was repeated the condition did not
    /// hold any more: by somebody else's doing, or by its own where many other writes have
    /// followed. Read the value, and decide again.
    #[error(
        "the answer to a write was lost, and then {0}: whether it was carried out is not known"
    )]
    Uncertain(Error),
    /// The value is not of the type that it was to be read as, or can't be written as JSON. It is
    /// not shown.
    #[error("the value does not fit its type: line {line}, column {column} of the JSON")]
    Type {
        /// The line, from 1.
        line: usize,
        /// The column, from 1; 0 where the line had not begun.
        column: usize,
    },
}

impl SessionError {
    /// What the daemon said, where it refused.
    #[must_use]
    pub fn refusal(&self) -> Option<&Error> {
        match self {
            Self::Refused(error) | Self::Uncertain(error) => Some(error),
            Self::Connect(_) | Self::NoAnswer(_) | Self::Type { .. } => None,
        }
    }

    /// The HTTP status (RFC 9110, section 15) that a server may answer: that of the refusal, 503
    /// without the daemon.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Refused(error) | Self::Uncertain(error) => error.http_status(),
            Self::Connect(_) | Self::NoAnswer(_) => 503,
            Self::Type { .. } => 500,
        }
    }

    /// Whether the same call may succeed later, without anybody changing anything: the daemon is
    /// away or busy.
    #[must_use]
    pub fn passes(&self) -> bool {
        let busy = |error: &Error| {
            matches!(
                error,
                Error::Unavailable { .. } | Error::OutcomeUnknown { .. }
            )
        };
        matches!(self, Self::Connect(_) | Self::NoAnswer(_))
            || matches!(self, Self::Refused(error) if busy(error))
    }

    /// Whether the session has ended, or was never there.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(
            self.refusal(),
            Some(Error::UnknownSession | Error::SessionTerminated)
        )
    }
}

impl From<Reason> for SessionError {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Connect(error) => Self::Connect(error),
            Reason::Refused(error) => Self::Refused(error),
            Reason::NoAnswer(waited) => Self::NoAnswer(waited),
            Reason::SessionLost => Self::Refused(Error::UnknownSession),
        }
    }
}

#[cfg(feature = "sessions")]
impl From<serde_json::Error> for SessionError {
    fn from(error: serde_json::Error) -> Self {
        Self::Type {
            line: error.line(),
            column: error.column(),
        }
    }
}
