//! The signals that the daemon answers.

use std::future::pending;
use std::io;

use futures::StreamExt as _;
use mcp_sessiond_process::signals::not_ignored;
use nix::sys::signal::{SigSet, Signal as Number};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals that have come.
pub(super) struct Signals(signal_hook_tokio::Signals);

/// Unblocks the signals that the daemon handles: the program that started it may have blocked them.
/// Call it before there is another thread.
pub(super) fn let_in() {
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
        let answered = not_ignored(&[
            Number::SIGTERM,
            Number::SIGINT,
            Number::SIGHUP,
            // A write beyond the limit of a file's size fails, and ends nobody.
            Number::SIGXFSZ,
        ]);
        Ok(Self(signal_hook_tokio::Signals::new(answered)?))
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        loop {
            match self.0.next().await {
                Some(number) if number == Number::SIGXFSZ as i32 => {}
                Some(number) if number == Number::SIGHUP as i32 => return Signal::Reload,
                Some(_) => return Signal::Stop,
                // Only what was closed has an end.
                None => return pending().await,
            }
        }
    }

    /// Waits for the one that asks to stop.
    pub(super) async fn stop(&mut self) {
        while self.next().await != Signal::Stop {}
    }
}
