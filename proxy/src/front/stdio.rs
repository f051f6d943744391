//! What fronts have in common that have a runtime from their beginning.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use mcp_sessiond_bundle::Pipe;
use tokio::sync::watch;

use super::client::Client;
use super::drive::{Driver, Start};
use super::input_end::{InputEnd, exit_within, wait_until_unread};
use super::leave::LAST_WORDS;
use crate::closed;
use crate::lines::LineBuffer;
use crate::server::connector::Connected;
use crate::server::keeper_connector::SessionCalls;
use crate::signals::{die_of, note_signal, when_told_to_end};

/// A front that has a runtime, and what its host has said already.
pub(crate) struct Front {
    pub(crate) input: File,
    pub(crate) lines: LineBuffer,
    /// Whether the host has closed its end.
    pub(crate) leaving: watch::Receiver<bool>,
}

impl Front {
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
        close: impl Future<Output = ()>,
        leave: impl Future<Output = ()>,
    ) -> io::Result<Infallible> {
        let Self {
            input,
            lines,
            mut leaving,
        } = self;
        let output: File = io::stdout().as_fd().try_clone_to_owned()?.into();
        let until_unread = output.try_clone()?;
        let client = Client::host(input, output, lines)?;
        let carried = async {
            let start = Start::Connected(Connected::Pipe(pipe), None);
            driver(client).run(None, start).await;
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

/// What happens at the end of the input of a front that has a runtime.
pub(crate) fn input_end(leave: watch::Sender<bool>) -> InputEnd {
    InputEnd {
        leave: Box::new(move || _ = leave.send_replace(true)),
        exits: Box::new(|| true),
    }
}

/// Ends this process by a signal that asks it to, once the keepers were told that this is orderly.
pub(crate) fn signals(leave: watch::Sender<bool>) -> io::Result<()> {
    when_told_to_end(move |signal| {
        closed::mark();
        note_signal(signal);
        leave.send_replace(true);
        // Long enough for a few bytes to each of them; the host may have no patience for more.
        std::thread::sleep(LAST_WORDS);
        die_of(signal)
    })
}
