//! Whether the backend still listens. Before a host that comes back is answered from memory, the
//! backend is asked by a ping.
//!
//! A backend that hangs and one that never answers pings are told apart by what is known of it from
//! before: once, when it has been initialised for a while and nothing is under way, it gets a ping
//! of ours; and the host's own pings count. Only one that is known to answer is replaced. MCP
//! 2026-07-28 has no ping, and a backend that speaks it is never asked.

use super::Relay;
use super::life::Life;
use crate::numbers::Numbers;
use crate::{Millis, words};

/// What is known of how the running backend takes pings.
#[derive(Default)]
pub(super) struct Pulse {
    known: Known,
    /// The last ping of ours, until it is answered.
    asked: Option<Asked>,
    /// Since when the backend is initialised.
    initialized: Option<Millis>,
    /// How long the attached host's `initialize` waits for a sign of life.
    until: Option<Millis>,
    /// Pings of ours, to any backend.
    sent: u64,
    /// A backend has ended with a ping of ours and nothing else: none is sent any more.
    feared: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Unknown,
    /// It has answered one.
    Answers,
    /// It has said other things when it had one, for longer than it may take.
    Deaf,
}

#[derive(Clone, Copy)]
struct Asked {
    at: Millis,
    /// It has said something since.
    heard: bool,
}

impl Relay {
    /// The backend has answered `initialize`.
    pub(super) fn pulse_begins(&mut self, now: Millis) {
        self.pulse.initialized = Some(now);
    }

    /// The backend is gone, or is about to be. `alone` says that it has ended by itself.
    pub(super) fn pulse_ends(&mut self, alone: bool) {
        let Pulse {
            known,
            asked,
            sent,
            feared,
            ..
        } = core::mem::take(&mut self.pulse);
        let silent = known == Known::Unknown && asked.is_some_and(|asked| !asked.heard);
        let feared = feared || alone && silent && self.is_idle();
        self.pulse = Pulse {
            sent,
            feared,
            ..Pulse::default()
        };
    }

    /// The host that has waited for a sign of life is gone.
    pub(super) fn pulse_unwatched(&mut self) {
        self.pulse.until = None;
    }

    /// Whether no call is under way that anybody wants to be answered. A ping is no work.
    pub(super) fn is_idle(&self) -> bool {
        let mut calls = self.calls.open.values();
        calls.all(|call| call.cancelled.is_some() || call.kind.ours() || &*call.method == "ping")
    }

    /// Until when a host that comes back has to wait for a sign of life of the backend; none where
    /// it can be answered at once.
    pub(super) fn sign_due(&mut self, now: Millis) -> Option<Millis> {
        let Pulse {
            known,
            asked,
            feared,
            ..
        } = self.pulse;
        let runs = matches!(self.life, Life::Running { .. }) && !self.handshake.revive;
        let may_be_asked = self.is_idle() || self.left.orderly;
        // Where it has said more than we take, it is not it that hangs.
        if !runs || feared || known == Known::Deaf || !may_be_asked || self.full() {
            return None;
        }
        let wait = self.limits.ping_wait_ms;
        match asked {
            Some(Asked { at, heard: false }) if known == Known::Answers => Some(at + wait),
            Some(Asked { at, heard: false }) => Some(at + wait).filter(|due| *due > now),
            Some(_) if known == Known::Unknown => None,
            _ => {
                self.ping(now);
                Some(now + wait)
            }
        }
    }

    /// The attached host's `initialize` waits until then.
    pub(super) fn await_sign(&mut self, until: Millis) {
        self.pulse.until = Some(until);
    }

    fn ping(&mut self, now: Millis) {
        let number = Numbers::of_ping(self.pulse.sent);
        self.pulse.sent += 1;
        self.pulse.asked = Some(Asked {
            at: now,
            heard: false,
        });
        self.lane.push_back(words::ping(number));
    }

    /// The backend has said something.
    pub(super) fn heard_from(&mut self, now: Millis) {
        let wait = self.limits.ping_wait_ms;
        if let Some(asked) = &mut self.pulse.asked {
            asked.heard = true;
            if self.pulse.known == Known::Unknown && asked.at + wait <= now {
                self.pulse.known = Known::Deaf;
            }
        }
        self.serve_who_waits_for_a_sign(now);
    }

    /// The host that waits for a sign of life is answered from memory.
    pub(super) fn serve_who_waits_for_a_sign(&mut self, now: Millis) {
        if self.pulse.until.take().is_some() {
            self.serve_waiter(now);
        }
    }

    /// The backend has answered a ping, the host's or ours.
    pub(super) fn ponged(&mut self) {
        self.pulse.known = Known::Answers;
    }

    /// The backend has answered a ping of ours.
    pub(super) fn ponged_us(&mut self) {
        self.pulse.asked = None;
        self.ponged();
    }

    /// When a ping is due, or the wait for its answer is over.
    pub(super) fn pulse_due(&self) -> Option<Millis> {
        let first = || {
            let since = self.pulse.initialized?;
            let wanted = self.pulse.known == Known::Unknown
                && self.pulse.asked.is_none()
                && !self.pulse.feared;
            let quiet = self.lane.is_empty() && self.to_backend.entries.is_empty();
            let runs = matches!(self.life, Life::Running { .. }) && self.handshake.initialized;
            (wanted && runs && quiet && !self.full() && self.is_idle())
                .then(|| since + self.limits.ping_wait_ms)
        };
        self.pulse.until.or_else(first)
    }

    /// Pings, or replaces a backend that has answered pings, and has not answered this one.
    pub(super) fn feel_pulse(&mut self, now: Millis) {
        if self.pulse_due().is_none_or(|due| due > now) {
            return;
        }
        if self.pulse.until.is_none() {
            self.ping(now);
        } else if self.pulse.known == Known::Answers {
            self.pulse.until = None;
            self.hangs(now);
        } else {
            self.serve_who_waits_for_a_sign(now);
        }
    }
}
