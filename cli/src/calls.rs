//! Calls of a command to the daemon: what all of them share, and why one came to nothing.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use mcp_sessiond_client::{
    CallError, ConnectError, Connection, Directory, Error, SessionId, Start, connect,
};
use mcp_sessiond_proto::debug::{About, PAGE_MAX};
use mcp_sessiond_proxy::keeper::dial::DialError;

use crate::exit_code::{SOFTWARE, UNAVAILABLE};
use crate::runtime::block_on;
use crate::ui::output::{print, warn};

/// How long the daemon may take for an answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the daemon may take for its first answer where there is something to be said without it.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_secs(2);

/// A connection to the daemon that runs, which has answered on it. None is started.
///
/// # Errors
/// [`Failure::Hangs`] after [`FIRST_ANSWER`], by which the keepers are asked instead.
pub(crate) async fn reach(directory: &Directory) -> Result<(Connection, About), Failure> {
    let instead = ", so this is only what the keepers of the servers say";
    reach_or(directory, instead).await
}

async fn reach_or(
    directory: &Directory,
    instead: &'static str,
) -> Result<(Connection, About), Failure> {
    let reached = async {
        let connection = connect(directory, &Start::Never).await?;
        let about = connection.about(ANSWER_TIMEOUT).await?;
        Ok((connection, about))
    };
    let hangs = |_| Failure::Hangs(directory.socket(), instead);
    tokio::time::timeout(FIRST_ANSWER, reached)
        .await
        .map_err(hangs)?
}

/// Why a command that only asks the daemon came to nothing.
pub(crate) enum Failure {
    /// There is none, or none of ours.
    Connect(ConnectError),
    /// It did not answer.
    Call(CallError),
    /// It listens on this socket, and does not answer; and what is said instead.
    Hangs(PathBuf, &'static str),
    /// It refused.
    Refused(Error),
    /// No daemon knows of the keeper with this socket, and it can't be identified.
    Keeper(DialError, PathBuf),
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
            Self::Connect(error @ ConnectError::NotRunning { .. }) => write!(
                formatter,
                "{error}; that is normal while no server is kept: `mcp-sessiond wrap` and `serve` start one"
            ),
            Self::Connect(error) => error.fmt(formatter),
            Self::Call(error) => write!(formatter, "the daemon did not answer: {error}"),
            Self::Hangs(socket, instead) => write!(
                formatter,
                "the daemon has not answered for {} s{instead}; `fuser -v {}` shows its \
                 pid, `kill -CONT PID` lets it continue if it is stopped, and `kill -KILL PID` ends it; the servers stay, and the next \
                 client starts another daemon",
                FIRST_ANSWER.as_secs(),
                socket.display()
            ),
            Self::Refused(error) => error.fmt(formatter),
            Self::Keeper(error, socket) => {
                write!(
                    formatter,
                    "{error}; `fuser -v {}` shows which process it is",
                    socket.display()
                )
            }
        }
    }
}

impl Failure {
    /// Says so, and returns the exit code.
    pub(crate) fn report(&self) -> u8 {
        warn(self);
        match self {
            Self::Connect(_) | Self::Call(_) | Self::Hangs(..) | Self::Keeper(..) => UNAVAILABLE,
            Self::Refused(_) => SOFTWARE,
        }
    }
}

/// Whether there is no daemon: none is started.
pub(crate) fn has_no_daemon() -> bool {
    let reached = block_on(async {
        let directory = Directory::of_user()?;
        connect(&directory, &Start::Never).await
    });
    matches!(reached, Ok(Err(ConnectError::NotRunning { .. })))
}

/// Prints what this work makes of the answers of the daemon that runs; none is started.
pub(crate) fn print_answer(
    work: impl AsyncFnOnce(&Connection, &Directory) -> Result<String, Failure>,
) -> ExitCode {
    let answer = block_on(async {
        let directory = Directory::of_user()?;
        let (connection, _) = reach_or(&directory, "").await?;
        work(&connection, &directory).await
    });
    match answer {
        Ok(Ok(text)) => print(&text),
        Ok(Err(failure)) => ExitCode::from(failure.report()),
        Err(error) => {
            warn(error);
            ExitCode::from(SOFTWARE)
        }
    }
}

/// Every entry of a list, a page at a time. A page that is not full is the last; one of backends
/// may be fuller than full.
pub(crate) async fn all_pages<T, F: Future<Output = Result<Vec<T>, CallError>>>(
    page: impl Fn(Option<SessionId>) -> F,
    id: impl Fn(&T) -> &SessionId,
) -> Result<Vec<T>, Failure> {
    let mut all = Vec::new();
    loop {
        let next = page(all.last().map(|last| id(last).clone())).await?;
        let more = next.len() >= PAGE_MAX;
        all.extend(next);
        if !more {
            return Ok(all);
        }
    }
}
