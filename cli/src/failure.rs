//! Why the daemon could not be asked, or refused.

use std::fmt;

use mcp_sessiond_client::CallError;
use mcp_sessiond_client::{ConnectError, Error};

use super::{FAILED, UNAVAILABLE, complain};

/// Why a command that only asks the daemon came to nothing.
pub(super) enum Failure {
    /// There is none, or none of ours.
    Connect(ConnectError),
    /// It did not answer.
    Call(CallError),
    /// It refused.
    Refused(Error),
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(formatter),
            Self::Call(error) => write!(formatter, "the daemon did not answer: {error}"),
            Self::Refused(error) => error.fmt(formatter),
        }
    }
}

impl Failure {
    /// Says so, and returns the exit code.
    pub(super) fn report(&self) -> u8 {
        complain(self);
        match self {
            Self::Connect(_) | Self::Call(_) => UNAVAILABLE,
            Self::Refused(_) => FAILED,
        }
    }
}
