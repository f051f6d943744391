//! What fronts have in common whose server is a pipe: several servers, a remote one, and one that is
//! started at its first call.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mcp_sessiond_bundle::Pipe;
use mcp_sessiond_process::runtime;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::FAILED;
use super::client::Client;
use super::drive::{Driver, Start};
use super::first_line::{self, FirstLine};
use super::input_end::{self, InputEnd, exit_within, wait_until_unread};
use super::leave::LAST_WORDS;
use crate::closed;
use crate::front_settings::FrontSettings;
use crate::lines::LineBuffer;
use crate::notices::print;
use crate::server::connector::Connected;
use crate::server::keeper_connector::SessionCalls;
use crate::signals::{die_of, note_signal, when_told_to_end};

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
    /// Says whether the host has closed its end.
    pub(crate) leave: watch::Sender<bool>,
    /// How long what is under way is waited for then.
    pub(crate) stop: Duration,
    /// Whether a conversation has begun, where the session is closed by a mark, as there is no keeper
    /// that could tell the daemon.
    pub(crate) marks: Option<Arc<AtomicBool>>,
}

impl PipeFront {
    /// That of servers without one keeper, and what its host has begun with.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) fn begin(settings: FrontSettings) -> io::Result<(Self, FirstLine)> {
        let (leave, has_begun) = (watch::Sender::new(false), Arc::<AtomicBool>::default());
        signals(leave.clone(), has_begun.clone())?;
        let mut input: File = io::stdin().as_fd().try_clone_to_owned()?.into();
        let output: File = io::stdout().as_fd().try_clone_to_owned()?.into();
        input_end::watch(
            &input,
            &output,
            settings.stop_wait,
            input_end(leave.clone()),
        )?;
        let mut lines = LineBuffer::default();
        let first = first_line::read(&mut input, &mut lines, settings.first_line_wait);
        let front = Self {
            input,
            lines,
            leave,
            stop: settings.stop_wait,
            marks: Some(has_begun),
        };
        Ok((front, first))
    }

    /// Carries lines between the host and this pipe, and ends this process when all is said, or the
    /// host has closed its end and reads nothing any more. `close` follows the last line, and then
    /// `leave`, also where nobody reads that line.
    ///
    /// # Errors
    /// When there can be no more descriptors or threads.
    pub(crate) async fn carry(
        self,
        pipe: Pipe,
        driver: impl FnOnce(Client) -> Driver,
        session: Option<SessionCalls>,
        close: impl Future<Output = ()>,
        leave: impl Future<Output = ()>,
    ) -> io::Result<Infallible> {
        let Self {
            input,
            lines,
            leave: leaves,
            stop,
            marks,
        } = self;
        let mut leaving = leaves.subscribe();
        let output: File = io::stdout().as_fd().try_clone_to_owned()?.into();
        let until_unread = output.try_clone()?;
        let client = Client::host(input, output, lines)?;
        let carried = async {
            let start = Start::Connected(Connected::Pipe(pipe), None);
            let at_close = self::close(leaves, session, marks.is_some(), stop);
            let driver = driver(client).beginning(marks.unwrap_or_default());
            driver.at_close(at_close).run(None, start).await;
            close.await;
        };
        let gone = async {
            // Its sender is the front's.
            let _ = leaving.wait_for(|leaving| *leaving).await;
            let _ = tokio::task::spawn_blocking(move || wait_until_unread(&until_unread)).await;
        };
        tokio::select! {
            () = carried => {}
            () = gone => {}
        }
        leave.await;
        // Threads still wait for what never comes.
        std::process::exit(0)
    }
}

/// What a front does when its host has closed its end, and whether a conversation had begun: it exits
/// within `stop`. `marks`: where there is no keeper that could tell the daemon.
pub(crate) fn close(
    leave: watch::Sender<bool>,
    session: Option<SessionCalls>,
    marks: bool,
    stop: Duration,
) -> impl FnOnce(bool) + Send + 'static {
    move |has_begun| {
        if marks && has_begun {
            closed::mark();
        }
        leave.send_replace(true);
        let timer = std::thread::Builder::new().name("exit".into());
        match io::stdout().as_fd().try_clone_to_owned() {
            Ok(output) => drop(timer.spawn(move || exit_within(&output.into(), stop))),
            Err(_) => std::process::exit(0),
        }
        if let Some(session) = session {
            // A daemon that hangs must not delay our exit.
            tokio::spawn(session.release());
        }
    }
}

/// What happens at the end of the input of such a front.
fn input_end(leave: watch::Sender<bool>) -> InputEnd {
    InputEnd {
        leave: Box::new(move || _ = leave.send_replace(true)),
        exits: Box::new(|| true),
    }
}

/// Ends this process by a signal that asks it to, once the keepers were told that this is orderly. There
/// is no keeper that could tell the daemon.
fn signals(leave: watch::Sender<bool>, has_begun: Arc<AtomicBool>) -> io::Result<()> {
    when_told_to_end(move |signal| {
        if has_begun.load(Ordering::Relaxed) {
            closed::mark();
        }
        note_signal(signal);
        leave.send_replace(true);
        // Long enough for a few bytes to each of them; the host may have no patience for more.
        std::thread::sleep(LAST_WORDS);
        die_of(signal)
    })
}
