//! When the running backend is ended in favour of a fresh one, and what becomes of its calls.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use core::cell::OnceCell;

use bytes::Bytes;

use super::entry::Entry;
use super::life::{Fall, Life};
use super::message::{Kind, Line};
use super::queue::{ToBackend, ToFront};
use super::{Millis, Order, Relay, What};

/// How the last front has left.
#[derive(Default)]
pub(super) struct Left {
    /// It had said so before.
    pub orderly: bool,
    /// Answers have come since that nobody got.
    pub parked: bool,
    /// When fronts have left in an orderly way, the latest last: as many as matter.
    closes: VecDeque<Millis>,
}

/// What a fresh backend is asked first.
pub(super) enum Next {
    /// Whatever the host that has just attached will say.
    Open,
    /// The latest host's `initialize`.
    Initialize,
    /// The same, by ourselves: the host was answered before.
    Revive,
    /// The host's `server/discover`, which stands here.
    Discover(Bytes),
}

/// The calls that the backend has are waited for before it is ended.
pub(super) struct Draining {
    until: Millis,
    /// Whether it is started again.
    restarts: bool,
}

impl Relay {
    /// A front has left.
    pub(super) fn note_leaving(&mut self, orderly: bool, tried: bool, now: Millis) {
        self.left.orderly = orderly;
        self.left.parked = false;
        // A host that has only looked which version to speak has not tried anything.
        if orderly && tried {
            self.left.closes.push_back(now);
            if self.left.closes.len() > self.limits.closes as usize {
                self.left.closes.pop_front();
            }
        }
    }

    /// Why a front that attaches now begins with a fresh backend, if it does. `changed` is what has
    /// changed of the program since the backend was started.
    pub(super) fn outdated(&mut self, changed: Option<&str>, now: Millis) -> Option<String> {
        if !matches!(self.life, Life::Running { .. }) || self.handshake.revive {
            return None;
        }
        let (closes, within) = (self.limits.closes as usize, self.limits.closes_ms);
        let closed = &mut self.left.closes;
        closed.retain(|at| at.saturating_add(within) > now);
        if closed.len() >= closes {
            closed.clear();
            return Some(format!(
                "the server was closed {closes} times within {} s",
                within.div_ceil(1000)
            ));
        }
        let changed = changed?;
        let is_free = self.is_idle() && self.asks.open.is_empty() && !self.left.parked;
        if self.left.orderly && is_free {
            return Some(format!(
                "{changed} has changed since the server was started"
            ));
        }
        let because = if self.left.orderly {
            "it has calls that were not answered"
        } else {
            "its host was cut off"
        };
        self.say(format!(
            "{changed} has changed since the server was started, which goes on as it is, since {because}; \
             `mcp-sessiond restart` gives a fresh one"
        ));
        None
    }

    /// The backend has answered pings, and does not any more.
    pub(super) fn hangs(&mut self, now: Millis) {
        let why = format!(
            "the running server did not answer a ping within {} ms",
            self.limits.ping_wait_ms
        );
        self.replace(why, Next::Initialize, true, now);
    }

    /// Ends the running backend in favour of a fresh one. `kills` says that there is no use in
    /// waiting for it.
    pub(super) fn replace(&mut self, why: String, next: Next, kills: bool, now: Millis) {
        self.end_calls("the server was replaced before it answered; the outcome is unknown");
        let mut dropped = self.forget_backend().len();
        let calls = &self.calls.open;
        let current = self.connections;
        let queued = self.to_backend.retain(
            |part| matches!(part, ToBackend::Call(call) if calls.get(call).is_some_and(|call| call.asker == current)),
        );
        dropped += queued.len();
        for part in queued {
            if let ToBackend::Call(call) = part {
                self.calls.open.remove(&call);
            }
        }
        dropped += self
            .to_front
            .retain(|part| matches!(part, ToFront::Answer(_) | ToFront::Ours))
            .len();
        self.counts.dropped += dropped as u64;
        let calls = &self.calls.open;
        self.handshake.pending = self
            .handshake
            .pending
            .filter(|call| calls.contains_key(call));
        self.handshake.answer = None;
        self.handshake.forget_waiter();
        self.handshake.revive = matches!(next, Next::Revive);
        if matches!(next, Next::Open | Next::Discover(_)) {
            self.handshake.host = None;
        }
        if let Some(front) = &mut self.front {
            front.ready = true;
        }
        if dropped > 0 {
            self.say(format!(
                "{dropped} messages of the server that is replaced are dropped"
            ));
        }
        if matches!(self.life, Life::Running { .. }) {
            self.life = Life::Ordered;
            self.last_error = Some(why.clone());
            self.orders.push(Order::Replace { why, kills });
        }
        match next {
            Next::Open | Next::Revive => {}
            Next::Initialize => self.send_initialize(true, now),
            Next::Discover(line) => self.send_first(&line, now),
        }
        self.wake(now);
    }

    /// Sends the host's request to a fresh backend, before everything else.
    fn send_first(&mut self, line: &Bytes, now: Millis) {
        let copy = OnceCell::new();
        let Some(message) = Line::of(line, &copy).message() else {
            return;
        };
        let Kind::Request { id, method } = &message.kind else {
            return;
        };
        let (edits, number) = self.take_call(&message, id, method, What::Plain, now);
        self.to_backend.push_front(Entry::one(
            edits.spliced(&message).into(),
            ToBackend::Call(number),
        ));
    }

    /// Somebody wants a fresh backend. A running one is ended when the attached host has the
    /// answers that it waits for, or has waited for long enough, and no line of it is fed from then
    /// on, nor its exit: what the host calls meanwhile is the next one's. One that was due later is
    /// started now. Hosts notice what they notice when it dies, but that no `initialize` fails of
    /// it.
    pub fn restart(&mut self, now: Millis) {
        self.failures = 0;
        match &mut self.life {
            Life::New | Life::Stopping | Life::Ordered => {}
            Life::Down { at, .. } => {
                *at = now;
                self.wake(now);
            }
            Life::Running { .. } if self.draining.is_none() => {
                self.draining = Some(Draining {
                    until: now + self.limits.stop_wait_ms,
                    restarts: true,
                });
                self.drain(now);
            }
            Life::Running { .. } => {}
        }
    }

    /// The backend is to be taken down for good when the attached host has the answers that it
    /// waits for, or has waited for long enough. What it calls meanwhile is refused.
    pub fn wind_down(&mut self, now: Millis) {
        if !matches!(self.life, Life::Stopping) {
            self.draining = Some(Draining {
                until: now + self.limits.stop_wait_ms,
                restarts: false,
            });
            self.refuse_queued(now);
        }
    }

    /// Whether nothing is to be waited for any more before [`Relay::stopping`] is told.
    #[must_use]
    pub fn is_drained(&self, now: Millis) -> bool {
        let runs = matches!(self.life, Life::Running { .. });
        let late = self
            .draining
            .as_ref()
            .is_none_or(|draining| draining.until <= now);
        // Its `initialize` is sent again to whichever is next.
        let awaited = |call: &super::Open<super::Call>| {
            let is_plain = call.kind.what == What::Plain && call.cancelled.is_none();
            is_plain && call.kind.sent && self.is_current(call.asker)
        };
        late || !runs || self.front.is_none() || !self.calls.open.values().any(awaited)
    }

    /// Whether calls are refused, since the backend is about to be taken down for good.
    pub(super) fn winds_down(&self) -> bool {
        self.draining
            .as_ref()
            .is_some_and(|draining| !draining.restarts)
    }

    /// When the wait is over.
    pub(super) fn drain_due(&self) -> Option<Millis> {
        self.draining.as_ref().map(|draining| draining.until)
    }

    /// Ends the backend that is to be started again, if it is time.
    pub(super) fn drain(&mut self, now: Millis) {
        if self.winds_down() || self.draining.is_none() || !self.is_drained(now) {
            return;
        }
        self.draining = None;
        if !matches!(self.life, Life::Running { .. }) {
            return;
        }
        self.last_error = Some("it was restarted by hand".to_owned());
        let again = self.ends_initialize(None);
        self.end_calls("the server was restarted before it answered; the outcome is unknown");
        if again {
            self.send_initialize(true, now);
        }
        self.fall(
            Fall::Replaced("the server is restarted by `mcp-sessiond restart`".to_owned()),
            now,
        );
    }
}
