//! The signals that end, stop and continue it.

use std::io;

use futures::StreamExt as _;
use mcp_sessiond_process::signals::not_ignored;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What a signal asks for.
pub(crate) enum SignalEvent {
    End,
    /// To give the terminal back, and stop.
    Stop,
    /// It was stopped, and goes on.
    Continued,
}

pub(crate) struct Signals(signal_hook_tokio::Signals);

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let answered = not_ignored(&[
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGTSTP,
            Signal::SIGCONT,
        ]);
        Ok(Self(signal_hook_tokio::Signals::new(answered)?))
    }

    pub(crate) async fn next(&mut self) -> SignalEvent {
        match self.0.next().await.map(Signal::try_from) {
            Some(Ok(Signal::SIGTSTP)) => SignalEvent::Stop,
            Some(Ok(Signal::SIGCONT)) => SignalEvent::Continued,
            _ => SignalEvent::End,
        }
    }
}

/// Does what the terminal does at Ctrl-Z where it is not in raw mode: it stops everybody of this
/// job, us among them.
pub(crate) fn suspend_group() {
    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
}

/// Stops this process, and returns when it was continued.
pub(crate) fn stop_here() {
    let _ = kill(Pid::this(), Signal::SIGSTOP);
}
