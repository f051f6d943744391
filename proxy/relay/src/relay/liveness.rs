//! Whether the backend still answers. Before a host that comes back is answered from memory,
//! the backend is pinged.
//!
//! A backend that hangs is told from one that never answers pings by what it did before: once,
//! when it has been initialised for a while and nothing is under way, it gets a ping of ours;
//! and the host's own pings count. Only one that is known to answer is replaced. MCP 2026-07-28
//! has no ping, and a backend that speaks it is never asked.

use mcp_sessiond_jsonrpc::answers;

use super::Relay;
use super::life::Life;
use crate::Millis;
use crate::numbers::Numbers;

/// What is known of how the running backend takes pings.
#[derive(Default)]
pub(super) struct Liveness {
    known: Known,
    /// The last ping of ours, until it is answered.
    asked: Option<Ping>,
    /// Since when the backend is initialised.
    initialized: Option<Millis>,
    /// Until when the attached host's `initialize` waits for the backend to write
    /// something.
    until: Option<Millis>,
    /// Pings of ours, to any backend.
    sent: u64,
    /// A backend has ended with a ping of ours and nothing else: none is sent any more.
    ends_of_pings: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Unknown,
    /// It has answered one.
    Answers,
    /// It has written other things for longer than a ping may take.
    IgnoresPings,
}

#[derive(Clone, Copy)]
struct Ping {
    at: Millis,
    /// The backend has written something since.
    heard: bool,
}

impl Relay {
    /// The backend has answered `initialize`.
    pub(super) fn liveness_begins(&mut self, now: Millis) {
        self.liveness.initialized = Some(now);
    }

    /// The backend is gone, or is about to be. `alone` says that it has ended by itself.
    pub(super) fn liveness_ends(&mut self, alone: bool) {
        let Liveness {
            known,
            asked,
            sent,
            ends_of_pings,
            ..
        } = core::mem::take(&mut self.liveness);
        let silent = known == Known::Unknown && asked.is_some_and(|asked| !asked.heard);
        let ends_of_pings = ends_of_pings || alone && silent && self.is_idle();
        self.liveness = Liveness {
            sent,
            ends_of_pings,
            ..Liveness::default()
        };
    }

    /// The host that has waited for the backend is gone.
    pub(super) fn cancel_liveness_wait(&mut self) {
        self.liveness.until = None;
    }

    /// Whether no call is under way that anybody wants to be answered. Pings don't count.
    pub(super) fn is_idle(&self) -> bool {
        let mut calls = self.calls.open.values();
        calls.all(|call| call.cancelled.is_some() || call.kind.ours() || &*call.method == "ping")
    }

    /// Until when a host that comes back has to wait for the backend to write something;
    /// none where it can be answered at once.
    pub(super) fn liveness_deadline(&mut self, now: Millis) -> Option<Millis> {
        let Liveness {
            known,
            asked,
            ends_of_pings,
            ..
        } = self.liveness;
        let runs = matches!(self.life, Life::Running { .. }) && !self.handshake.revive;
        let may_be_asked = self.is_idle() || self.closes.orderly;
        // Where it has written more than is read, the backend does not hang.
        if !runs || ends_of_pings || known == Known::IgnoresPings || !may_be_asked || self.full() {
            return None;
        }
        let wait = self.limits.ping_wait_ms;
        match asked {
            Some(Ping { at, heard: false }) if known == Known::Answers => Some(at + wait),
            Some(Ping { at, heard: false }) => Some(at + wait).filter(|due| *due > now),
            Some(_) if known == Known::Unknown => None,
            _ => {
                self.ping(now);
                Some(now + wait)
            }
        }
    }

    /// The attached host's `initialize` waits until then.
    pub(super) fn wait_for_liveness(&mut self, until: Millis) {
        self.liveness.until = Some(until);
    }

    fn ping(&mut self, now: Millis) {
        let number = Numbers::of_ping(self.liveness.sent);
        self.liveness.sent += 1;
        self.liveness.asked = Some(Ping {
            at: now,
            heard: false,
        });
        self.lane.push_back(answers::ping(number));
    }

    /// The backend has written something.
    pub(super) fn on_backend_output(&mut self, now: Millis) {
        let wait = self.limits.ping_wait_ms;
        if let Some(asked) = &mut self.liveness.asked {
            asked.heard = true;
            if self.liveness.known == Known::Unknown && asked.at + wait <= now {
                self.liveness.known = Known::IgnoresPings;
            }
        }
        self.end_liveness_wait(now);
    }

    /// The host that waits for the backend is answered from memory.
    pub(super) fn end_liveness_wait(&mut self, now: Millis) {
        if self.liveness.until.take().is_some() {
            self.serve_waiter(now);
        }
    }

    /// The backend has answered a ping, the host's or ours.
    pub(super) fn on_pong(&mut self) {
        self.liveness.known = Known::Answers;
    }

    /// The backend has answered a ping of ours.
    pub(super) fn on_own_pong(&mut self) {
        self.liveness.asked = None;
        self.on_pong();
    }

    /// When a ping is due, or the wait for its answer is over.
    pub(super) fn liveness_due(&self) -> Option<Millis> {
        let first = || {
            let since = self.liveness.initialized?;
            let wanted = self.liveness.known == Known::Unknown
                && self.liveness.asked.is_none()
                && !self.liveness.ends_of_pings;
            let quiet = self.lane.is_empty() && self.to_backend.entries.is_empty();
            let runs = matches!(self.life, Life::Running { .. }) && self.handshake.initialized;
            (wanted && runs && quiet && !self.full() && self.is_idle())
                .then(|| since + self.limits.ping_wait_ms)
        };
        self.liveness.until.or_else(first)
    }

    /// Pings, or replaces a backend that has answered pings, and has not answered this one.
    pub(super) fn check_liveness(&mut self, now: Millis) {
        if self.liveness_due().is_none_or(|due| due > now) {
            return;
        }
        if self.liveness.until.is_none() {
            self.ping(now);
        } else if self.liveness.known == Known::Answers {
            self.liveness.until = None;
            self.replace_hung(now);
        } else {
            self.end_liveness_wait(now);
        }
    }
}
