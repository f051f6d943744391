//! Why a keeper could not be reached, or has refused.

use std::io;
use std::time::Duration;

use mcp_sessiond_process::PeerError;
use mcp_sessiond_proto::Error;
use mcp_sessiond_proto::hello::HelloError;

/// How long a keeper may be silent while it could answer.
pub const HUNG_AFTER: Duration = Duration::from_secs(6);

/// Why a keeper did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody listens any more, or the connection broke.
    #[error("the keeper can't be reached: {0}")]
    Io(io::Error),
    /// It is there, and does not answer: it hangs, or is stopped.
    #[error("the keeper did not answer in time")]
    Silent,
    /// It does not answer, and can't: it is stopped, or gets no processor time.
    #[error("the keeper (pid {0}) is stopped")]
    Stalled(u32),
    /// It could answer, and has not for a long time.
    #[error("the keeper hangs: it has not answered for {} s", HUNG_AFTER.as_secs())]
    Hung,
    /// It has exited.
    #[error("the keeper has exited")]
    Gone,
    /// It lives, and has no descriptor left for another connection.
    #[error("the keeper has no free descriptor for another connection")]
    Busy,
    /// It ended the connection with its hello.
    #[error(transparent)]
    Hello(HelloError),
    /// It can't be known which process listens there.
    #[error("the keeper can't be identified: {0}")]
    Unidentified(#[from] PeerError),
    /// Its answer can't be read.
    #[error("the keeper's answer can't be understood")]
    Answer,
    /// It refused.
    #[error(transparent)]
    Refused(Error),
    /// The former connection was closed, and its host's rule forbids a resume.
    #[error("the previous connection was closed, and the server is not kept for the next one")]
    Closed {
        /// Whether the backend had been used.
        used: bool,
    },
}

impl DialError {
    /// Whether the keeper does not listen yet, has exited, or just exits.
    pub fn is_end(&self) -> bool {
        use io::ErrorKind::{
            BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof,
        };
        match self {
            Self::Gone => true,
            Self::Io(error) => matches!(
                error.kind(),
                NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | UnexpectedEof
            ),
            _ => false,
        }
    }
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // What a socket's timeouts come to.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Io(error),
        }
    }
}
