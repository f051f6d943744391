//! What fronts have in common whose server is a pipe: several servers, a remote one, and one that is
//! started at its first call.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use mcp_sessiond_bundle::Pipe;
use mcp_sessiond_process::runtime;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::sleep;

use super::FAILED;
use super::client::Client;
use super::drive::{Driver, Start, Untold};
use super::first_line::{self, FirstLine};
use super::input_end::{self, when_unread};
use super::leave::{CurrentKeeper, Leaver, advance, done_within, release};
use super::pending_leaves::PendingLeaves;
use crate::closed;
use crate::front_settings::FrontSettings;
use crate::lines::LineBuffer;
use crate::notices::print;
use crate::server::connector::Connected;
use crate::server::keeper_connector::SessionCalls;
use crate::signals::{Leaving, exit};

/// How long what carries lines may take to say what is not answered.
const CARRIED_WAIT: Duration = Duration::from_millis(50);

/// Runs a front in a runtime, and returns its exit code.
pub(crate) fn in_runtime(serve: impl FnOnce(&Runtime) -> io::Result<ExitCode>) -> ExitCode {
    let runtime = runtime::current_thread();
    let served = runtime.and_then(|runtime| serve(&runtime));
    served.unwrap_or_else(|error| {
        print(&error);
        ExitCode::from(FAILED)
    })
}

/// A front whose server is a pipe, and what its host has said already.
pub(crate) struct PipeFront {
    pub(crate) input: File,
    pub(crate) lines: LineBuffer,
    pub(crate) leaver: Leaver,
    /// How long answers are waited for when the host has closed its input, and how long a server has
    /// to end.
    pub(crate) waits: (Duration, Duration),
    /// Whether a conversation has begun, where the session is closed by a mark, as there is no keeper
    /// that could tell the daemon.
    pub(crate) marks: Option<Arc<AtomicBool>>,
    /// Whether the host speaks MCP 2026-07-28 and asks by `server/discover`, perhaps on a connection of
    /// its own: when it leaves then, its servers wait for its next one.
    pub(crate) probes_apart: bool,
}

impl PipeFront {
    /// That of servers without one keeper, and what its host has begun with.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn begin(settings: FrontSettings) -> io::Result<(Self, FirstLine)> {
        let has_begun = Arc::<AtomicBool>::default();
        let current = CurrentKeeper::default();
        let leaver = Leaver::listen(&current, settings.stop_wait, Some(has_begun.clone()))?;
        let mut input: File = io::stdin().as_fd().try_clone_to_owned()?.into();
        let output: File = io::stdout().as_fd().try_clone_to_owned()?.into();
        input_end::watch(
            &input,
            &output,
            settings.input_end_wait,
            leaver.at_input_end(&current),
        )?;
        let mut lines = LineBuffer::default();
        let first = first_line::read(&mut input, &mut lines, settings.first_line_wait);
        let front = Self {
            input,
            lines,
            leaver,
            waits: (settings.input_end_wait, settings.stop_wait),
            marks: Some(has_begun),
            probes_apart: false,
        };
        Ok((front, first))
    }

    /// Carries lines between the host and this pipe, and ends this process when all is said, or nobody
    /// waits for answers any more. `close` follows the last line. Servers that end with their host
    /// are waited for: `pending` counts their keepers.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) async fn carry(
        self,
        pipe: Pipe,
        driver: impl FnOnce(Client) -> Driver,
        session: Option<SessionCalls>,
        close: impl Future<Output = ()>,
        pending: PendingLeaves,
    ) -> io::Result<Infallible> {
        let Self {
            input,
            lines,
            leaver,
            waits,
            marks,
            probes_apart,
        } = self;
        match probes_apart {
            true => leaver.has_only_probed(),
            false => leaver.tells_carriers(),
        }
        let leave = leaver.leave().clone();
        let mut leaving = leave.subscribe();
        let output: File = io::stdout().as_fd().try_clone_to_owned()?.into();
        let client = Client::host(input, output, lines)?;
        let carried = async {
            let start = Start::Connected(Connected::Pipe(pipe), None);
            let at_close = self::close(leave.clone(), session.clone(), marks.is_some(), waits);
            let ends = pending.clone();
            let has_begun = probes_apart.then(|| {
                let leaver = leaver.clone();
                Box::new(move || leaver.tells_carriers()) as Untold
            });
            let driver = driver(client)
                .telling(has_begun)
                .beginning(marks.unwrap_or_default());
            driver
                .leaving(leave.subscribe(), PendingLeaves::default())
                .at_close(move |has_begun, _| {
                    if probes_apart && !has_begun {
                        exit();
                    }
                    at_close(has_begun, ends.end_with_front());
                })
                .run(None, start)
                .await;
            close.await;
        };
        let done = async {
            // Its sender is the front's.
            let _ = leaving.wait_for(|leaving| *leaving >= Leaving::Late).await;
            // What carries lines hears of it by a waker of its own, perhaps later, and ends by itself.
            sleep(CARRIED_WAIT).await;
        };
        // What is not answered is said before nobody carries lines any more.
        tokio::select! {
            biased;
            () = carried => {}
            () = done => {}
        }
        if pending.end_with_front()
            && let Some(session) = session
        {
            release(session).await;
        }
        let (_, stop) = waits;
        done_within(&leave, Leaving::Done, stop);
        pending.wait(stop).await;
        // Threads still wait for what never comes.
        exit()
    }
}

/// What a front does when its host has closed its end. It gets whether a conversation had begun, and
/// whether servers end with this front: then it holds its lease until it waits for no answer any more.
/// `marks`: where there is no keeper that could tell the daemon of the close.
pub(crate) fn close(
    leave: watch::Sender<Leaving>,
    session: Option<SessionCalls>,
    marks: bool,
    (within, stop): (Duration, Duration),
) -> impl FnOnce(bool, bool) + Send + 'static {
    move |has_begun, end_with_front| {
        if marks && has_begun {
            closed::mark();
        }
        advance(&leave, Leaving::Closed);
        match io::stdout().as_fd().try_clone_to_owned() {
            Ok(output) => {
                let done = move |leaving| done_within(&leave, leaving, stop);
                when_unread(output.into(), within, done);
            }
            Err(_) => done_within(&leave, Leaving::Done, stop),
        }
        if let Some(session) = session.filter(|_| !end_with_front) {
            // A daemon that hangs must not delay our exit.
            tokio::spawn(session.release());
        }
    }
}
