//! The backend starts, ends, and is started again.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::queue::{ToBackend, ToFront};
use super::{Millis, Order, Relay, What, words};

/// A backend that has lived this long, in ms, did not die of being started.
const LIVED_MS: u64 = 10_000;
/// How long to wait after the first backend that did, in ms; doubled for each further one.
const BACKOFF_MS: u64 = 100;
/// The longest such wait, in ms.
const BACKOFF_MAX_MS: u64 = 30_000;
/// A start that is further ahead than this, in ms, is not waited for: calls fail at once.
const PATIENCE_MS: u64 = 2_000;

/// Why a call is refused when the backend is taken down for good.
const STOPPED: &str = "the server was stopped; this call was not sent";

/// So many backends get an `initialize` before its host is told that they end.
const TRIES: u32 = 3;

/// How a backend is lost.
pub(super) enum Fall {
    /// It has exited.
    Exited,
    /// It refuses to be initialised.
    Refused,
    /// It is ended on purpose, and why.
    Replaced(String),
}

/// Where the backend is in its life.
pub(super) enum Life {
    /// It was not started yet. The first start is the driver's.
    New,
    /// It runs.
    Running {
        /// Since when.
        since: Millis,
    },
    /// It has ended, or refuses to be initialised.
    Down {
        /// Not to be started before.
        at: Millis,
        /// Whether it is to be started then, or only when it is needed.
        wanted: bool,
        /// Whether calls are refused, since the start is too far ahead.
        refusing: bool,
        /// Why it is to be replaced, if it still runs.
        lingers: Option<Box<str>>,
    },
    /// The driver was told to start it.
    Ordered,
    /// It is being taken down for good.
    Stopping,
}

impl Relay {
    /// The backend was started.
    pub fn backend_started(&mut self, now: Millis) {
        if matches!(self.life, Life::Stopping) {
            return;
        }
        if self.incarnation > 0 {
            self.counts.restarts += 1;
        }
        self.incarnation += 1;
        self.life = Life::Running { since: now };
        self.revive(now);
    }

    /// The backend has exited, or could not be started. `why` is for people: "exit status: 1".
    /// `last_words` is the last line of its standard error: the host is shown it where the backend
    /// has said nothing else.
    pub fn backend_exited(&mut self, why: &str, last_words: Option<&str>, now: Millis) {
        self.last_error = Some(why.to_owned());
        if matches!(self.life, Life::Stopping) {
            return;
        }
        self.exited_alone |= self.front.is_none() && self.connections > 0;
        let told = match last_words {
            Some(words) if !self.heard => format!("{why}: {words}"),
            _ => why.to_owned(),
        };
        if !self.heard && self.handshake.pending.is_none() && !self.handshake.revive {
            self.stillborn = Some(told.clone());
        }
        self.serve_who_waits_for_a_sign(now);
        self.pulse_ends(true);
        let again = self.ends_initialize(Some(&told));
        self.end_calls(&format!(
            "the server ended ({why}) before it answered; the outcome is unknown"
        ));
        if again {
            self.send_initialize(true, now);
        }
        self.fall(Fall::Exited, now);
    }

    /// The backend has ended. The `initialize` that the attached front waits for has come to
    /// nothing, and the next backend gets it, unless several have ended of it, or none has ever
    /// said anything: then there is something wrong with the command, and its host hears of it as
    /// soon as of a direct child's. True if it has to be sent again. Without a reason it was ended
    /// by us, and there is nothing wrong with the command.
    pub(super) fn ends_initialize(&mut self, why: Option<&str>) -> bool {
        let Some(number) = self.handshake.pending else {
            return false;
        };
        let (Some(call), Some(host)) = (self.calls.open.get(&number), &self.handshake.host) else {
            return false;
        };
        let alone = host.connection == call.asker && host.id == call.id && call.cancelled.is_none();
        if call.kind.what != What::Initialize || !self.is_current(call.asker) || !alone {
            return false;
        }
        self.handshake.deaths += u32::from(why.is_some());
        let failed = why.filter(|_| self.handshake.deaths >= TRIES || !self.heard);
        let sent = call.kind.sent;
        if failed.is_some() || sent {
            self.to_backend
                .retain(|part| !matches!(part, ToBackend::Call(call) if *call == number));
            self.handshake.pending = None;
            let call = self.calls.open.remove(&number);
            if let (Some(call), Some(why)) = (call, failed) {
                self.handshake.deaths = 0;
                self.tell_front(words::failed(&call.id, &words::ended_unheard(why)));
            }
        }
        sent && failed.is_none()
    }

    /// The backend refuses to be initialised by us: it is replaced, after a while.
    pub(super) fn refused(&mut self, now: Millis) {
        self.say("the server refused to be initialised again, and is replaced");
        self.last_error = Some("it refused to be initialised again".to_owned());
        self.end_calls(
            "the server refused to be initialised again before it answered; the outcome is unknown",
        );
        self.handshake.revive = true;
        self.fall(Fall::Refused, now);
    }

    /// The backend is gone, or as good as gone.
    pub(super) fn fall(&mut self, how: Fall, now: Millis) {
        // As if it had come a moment later.
        self.serve_who_waits_for_a_sign(now);
        if !self.winds_down() {
            self.draining = None;
        }
        let lived = if let Life::Running { since } = self.life {
            now.saturating_sub(since)
        } else {
            0
        };
        if lived >= LIVED_MS {
            self.failures = 0;
        }
        let wait = if matches!(how, Fall::Replaced(_))
            || lived >= LIVED_MS && matches!(how, Fall::Exited)
        {
            0
        } else {
            let doubled = BACKOFF_MS << self.failures.min(16);
            self.failures = self.failures.saturating_add(1);
            doubled.min(BACKOFF_MAX_MS)
        };
        self.forget_backend();
        let calls = &self.calls.open;
        self.to_backend.retain(|part| match part {
            ToBackend::Call(_) | ToBackend::Notice | ToBackend::Other => true,
            ToBackend::Cancel(call) => calls.contains_key(call),
            ToBackend::Initialized | ToBackend::Answer => false,
        });
        self.handshake.revive |= self.handshake.answer.is_some();
        let is_replaced = matches!(how, Fall::Replaced(_));
        let lingers: Option<Box<str>> = match how {
            Fall::Exited => None,
            Fall::Refused => Some("it refused to be initialised again".into()),
            Fall::Replaced(why) => Some(why.into()),
        };
        self.life = Life::Down {
            at: now + wait,
            wanted: false,
            refusing: wait > PATIENCE_MS,
            lingers,
        };
        if self.handshake.pending.is_none() && !self.handshake.revive {
            self.requeue_waiter(now);
        }
        if is_replaced || self.handshake.revive || !self.to_backend.entries.is_empty() {
            self.wake(now);
        }
        if wait > PATIENCE_MS {
            self.refuse_queued(now);
        }
    }

    /// The backend is being taken down for good.
    pub fn stopping(&mut self, why: &str, now: Millis) {
        if matches!(self.life, Life::Stopping) {
            return;
        }
        self.draining = None;
        self.last_error = Some(why.to_owned());
        self.end_calls("the server was stopped before it answered; the outcome is unknown");
        self.life = Life::Stopping;
        self.refuse_queued(now);
        self.to_backend.retain(|_| false);
        self.orders.retain(|order| matches!(order, Order::Say(_)));
    }

    /// Every call that the backend was handed ends: the attached front is told so, former ones
    /// can't be.
    pub(super) fn end_calls(&mut self, message: &str) {
        let (sent, kept) = core::mem::take(&mut self.calls.open)
            .into_iter()
            .partition(|(_, call)| call.kind.sent);
        self.calls.open = kept;
        for call in sent.into_values() {
            if self.is_current(call.asker) && !call.kind.ours() {
                self.tell_front(words::unknown(&call.id, message));
            }
        }
        let calls = &self.calls.open;
        self.handshake.pending = self
            .handshake
            .pending
            .filter(|call| calls.contains_key(call));
    }

    /// Forgets what the backend has asked and was told. Gives back the asks that nobody was handed.
    pub(super) fn forget_backend(&mut self) -> Vec<ToFront> {
        self.lane.clear();
        self.handshake.initialized = false;
        self.pulse_ends(false);
        self.forget_era();
        self.asks.tokens.clear();
        for (number, ask) in core::mem::take(&mut self.asks.open) {
            if ask
                .kind
                .handed
                .is_some_and(|connection| self.is_current(connection))
                && ask.cancelled.is_none()
            {
                self.tell_front(words::cancelled(number, "the server ended"));
            }
        }
        self.to_front
            .retain(|part| !matches!(part, ToFront::Ask(..)))
    }

    /// Calls that still wait for the backend are not made.
    pub(super) fn refuse_queued(&mut self, now: Millis) {
        let Some(why) = self.refusal(now) else { return };
        for part in self
            .to_backend
            .retain(|part| !matches!(part, ToBackend::Call(_) | ToBackend::Cancel(_)))
        {
            if let ToBackend::Call(number) = part
                && let Some(call) = self.calls.open.remove(&number)
                && self.is_current(call.asker)
            {
                self.tell_front(words::not_sent(&call.id, &why));
            }
        }
        let calls = &self.calls.open;
        self.handshake.pending = self
            .handshake
            .pending
            .filter(|call| calls.contains_key(call));
    }

    /// Why no call can be made now, if none can.
    pub(super) fn refusal(&mut self, now: Millis) -> Option<String> {
        self.wake(now);
        match self.life {
            _ if self.winds_down() => Some(STOPPED.to_owned()),
            Life::Stopping => Some(STOPPED.to_owned()),
            Life::Down { at, .. } if at > now.saturating_add(PATIENCE_MS) => {
                let why = self.last_error.as_deref().unwrap_or_default();
                let wait = at - now;
                Some(format!(
                    "the server has ended ({why}) and is started again in {wait} ms; this call was not sent"
                ))
            }
            _ => None,
        }
    }

    /// The backend is needed: if it has ended, it is started as soon as may be.
    pub(super) fn wake(&mut self, now: Millis) {
        if let Life::Down { wanted, .. } = &mut self.life {
            *wanted = true;
        }
        self.start_if_due(now);
    }

    /// When the next start is due, or calls begin to wait for it.
    pub(super) fn start_due(&self) -> Option<Millis> {
        match self.life {
            Life::Down {
                at, refusing: true, ..
            } => Some(at.saturating_sub(PATIENCE_MS)),
            Life::Down {
                at, wanted: true, ..
            } => Some(at),
            _ => None,
        }
    }

    /// Orders the start that is due.
    pub(super) fn start_if_due(&mut self, now: Millis) {
        let Life::Down {
            at,
            wanted,
            refusing,
            lingers,
        } = &mut self.life
        else {
            return;
        };
        *refusing = *at > now.saturating_add(PATIENCE_MS);
        if !*wanted || *at > now || self.draining.is_some() {
            return;
        }
        let order = match lingers.take() {
            Some(why) => Order::Replace {
                why: why.into(),
                kills: false,
            },
            None => Order::Start,
        };
        self.life = Life::Ordered;
        self.orders.push(order);
    }
}
