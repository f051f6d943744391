//! Why the daemon could not be asked, or refused.

use mcp_sessiond_client::{ConnectError, Error};
use tarpc::client::RpcError;

use super::{FAILED, UNAVAILABLE, complain};

/// Why a command that only asks the daemon came to nothing.
pub(super) enum Failure {
    /// There is none, or none of ours.
    Connect(ConnectError),
    /// It did not answer.
    Call(RpcError),
    /// It refused.
    Refused(Error),
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::Call(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Failure {
    /// Says so, and returns the exit code.
    pub(super) fn report(&self) -> u8 {
        match self {
            Self::Connect(error) => {
                complain(error);
                UNAVAILABLE
            }
            Self::Call(error) => {
                complain(format_args!("the daemon did not answer: {error}"));
                UNAVAILABLE
            }
            Self::Refused(error) => {
                complain(error);
                FAILED
            }
        }
    }
}
