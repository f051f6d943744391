//! `mcp-sessiond stop`: ends a session's backend.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use mcp_sessiond_client::{Connection, Directory, Error, SessionId, Start, connect};
use mcp_sessiond_process::Pinned;
use mcp_sessiond_proto::backends::{Backend, StopRequest};
use mcp_sessiond_proto::debug::{PAGE_MAX, Page};

use super::failure::Failure;
use super::{FAILED, block_on, complain};

/// There is no such backend (EX_NOINPUT of sysexits.h).
const NO_BACKEND: u8 = 66;

/// How long the daemon may take for an answer, and the keeper to exit. With `backends.stop_wait_ms` as it is by default a
/// keeper that does not end by itself is killed before that.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause before the daemon is asked again.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
#[command(after_help = "\
The session stays, and so does whoever speaks to it; the next call starts the server anew.

Exit codes: 0 it has ended; 66 the session has no backend; 69 no daemon (none is started); 70 it is still ending after 10 s.

Example: mcp-sessiond stop 019a4e3c-5d2f-7c1e-9a51-3f0d6c1b2a77")]
pub(super) struct Arguments {
    /// The session's id, as `debug sessions` shows it
    session: SessionId,
}

/// Why it was not stopped.
enum NotStopped {
    Failed(Failure),
    StillEnding,
}

impl<E: Into<Failure>> From<E> for NotStopped {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let stopped = match block_on(stop(&arguments.session)) {
        Ok(stopped) => stopped,
        Err(error) => {
            complain(error);
            return ExitCode::from(FAILED);
        }
    };
    let session = &arguments.session;
    ExitCode::from(match stopped {
        Ok(()) => 0,
        Err(NotStopped::Failed(Failure::Refused(Error::UnknownBackend))) => {
            complain(format_args!(
                "there is no backend of session {session}; `mcp-sessiond debug backends` shows those that there are"
            ));
            NO_BACKEND
        }
        Err(NotStopped::Failed(failure)) => failure.report(),
        Err(NotStopped::StillEnding) => {
            complain(format_args!("the backend of session {session} was asked to end, and is still there"));
            FAILED
        }
    })
}

async fn stop(session: &SessionId) -> Result<(), NotStopped> {
    let connection = connect(&Directory::of_user()?, &Start::Never).await?;
    // What is waited for is that these processes exit: a front may start the next one before that, which is listed then.
    let of_session = all(&connection).await?.into_iter().filter(|backend| backend.session == *session);
    let keepers: Vec<Pinned> =
        of_session.filter_map(|backend| Pinned::open(backend.keeper_pid).ok()).collect();
    let request = StopRequest { session: session.clone() };
    connection.stop_backend(Connection::context(PATIENCE), request).await??;
    let deadline = Instant::now() + PATIENCE;
    while keepers.iter().any(Pinned::is_alive) {
        if Instant::now() >= deadline {
            return Err(NotStopped::StillEnding);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Every backend, a page at a time. Those of one id are in one page, which may so have more entries than others.
async fn all(connection: &Connection) -> Result<Vec<Backend>, Failure> {
    let mut all: Vec<Backend> = Vec::new();
    loop {
        let after = all.last().map(|last| last.session.clone());
        let page = connection.list_backends(Connection::context(PATIENCE), Page { after }).await?;
        let more = page.len() >= PAGE_MAX;
        all.extend(page);
        if !more {
            return Ok(all);
        }
    }
}
