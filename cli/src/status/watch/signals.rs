//! The signals that end, stop and continue it.

use std::io;

use nix::sys::signal::{Signal as Number, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
pub(super) enum Signalled {
    End,
    /// To give the terminal back, and stop.
    Stop,
    /// It was stopped, and goes on.
    Continued,
}

pub(super) struct Signals {
    ends: [Signal; 4],
    stop: Signal,
    continued: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        let [interrupt, terminate, hangup, quit] = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ]
        .map(signal);
        let kind = |number: Number| SignalKind::from_raw(number as i32);
        Ok(Self {
            ends: [interrupt?, terminate?, hangup?, quit?],
            stop: signal(kind(Number::SIGTSTP))?,
            continued: signal(kind(Number::SIGCONT))?,
        })
    }

    pub(super) async fn next(&mut self) -> Signalled {
        let [interrupt, terminate, hangup, quit] = &mut self.ends;
        tokio::select! {
            _ = interrupt.recv() => Signalled::End,
            _ = terminate.recv() => Signalled::End,
            _ = hangup.recv() => Signalled::End,
            _ = quit.recv() => Signalled::End,
            _ = self.stop.recv() => Signalled::Stop,
            _ = self.continued.recv() => Signalled::Continued,
        }
    }
}

/// Does what the terminal does at Ctrl-Z where it is not in raw mode: it stops everybody of this
/// job, us among them.
pub(super) fn suspend_group() {
    let _ = kill(Pid::from_raw(0), Number::SIGTSTP);
}

/// Stops this process, and returns when it was continued.
pub(super) fn stop_here() {
    let _ = kill(Pid::this(), Number::SIGSTOP);
}
