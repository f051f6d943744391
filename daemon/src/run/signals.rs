//! The signals that the daemon answers.

use std::io;

use tokio::signal::unix::{self, SignalKind};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals that have come, in order.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: unix::Signal,
}

/// Unblocks the signals that the daemon handles: the program that started it may have blocked them.
/// Call it before there is another thread.
pub(super) fn let_in() {
    use nix::sys::signal::{SigSet, Signal as Number};
    let answered: SigSet = [
        Number::SIGTERM,
        Number::SIGINT,
        Number::SIGHUP,
        Number::SIGCHLD,
    ]
    .into_iter()
    .collect();
    // What can't be done changes nothing.
    let _ = answered.thread_unblock();
}

impl Signals {
    /// Takes the signals over from their default actions.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hangup: unix::signal(SignalKind::hangup())?,
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.hangup.recv() => Signal::Reload,
        }
    }

    /// Waits for the one that asks to stop.
    pub(super) async fn stop(&mut self) {
        while self.next().await != Signal::Stop {}
    }
}
