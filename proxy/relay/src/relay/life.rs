//! The lives of backends: one starts, ends, and is started again; and the running one is ended in
//! favour of a fresh one. What becomes of its calls then.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::message::{Kind, Line, Message};

use super::losses::{Before, Noted};
use super::queue::{ToBackend, ToFront};
use super::{Call, Effect, Purpose, Relay};
use crate::Millis;
use crate::entry::Entry;
use crate::numbers::Open;

/// A backend that has run for this long, in ms, did not fail at its start.
const STABLE_MS: u64 = 10_000;

/// How long to wait after the first failed start, in ms; doubled for each further one.
const BACKOFF_MS: u64 = 100;

/// The longest such wait, in ms.
const BACKOFF_MAX_MS: u64 = 30_000;

/// A start that is further ahead than this, in ms, is not waited for: calls fail at once.
const START_WAIT_MAX_MS: u64 = 2_000;

/// Why a call is refused when the backend is taken down for good.
const STOPPED: &str = "the server was stopped; this call was not sent";

/// Why there is a fresh backend after a restart by hand, which the next front tells.
const RESTARTED: &str = "the previous one was restarted by `mcp-sessiond restart`";

/// So many backends in a row get an `initialize` before its host gets an error.
const INITIALIZE_TRIES: u32 = 3;

/// Whether the backend runs.
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
        replaces: Option<Box<str>>,
    },
    /// The driver was told to start it.
    Ordered,
    /// It is being taken down for good.
    Stopping,
}

/// How fronts have left.
#[derive(Default)]
pub(super) struct CloseHistory {
    /// The last one had said so before.
    pub orderly: bool,
    /// Answers have come since then that no front got.
    pub parked: bool,
    /// When fronts have left in an orderly way, the latest last: as many as
    /// [`Limits::closes`](super::Limits::closes).
    times: VecDeque<Millis>,
}

/// What a fresh backend is asked first.
pub(super) enum FirstRequest {
    /// Whatever the host that has just attached will say.
    OfHost,
    /// The latest host's `initialize`.
    Initialize,
    /// The same, sent by the relay itself: the host was answered before.
    Revive,
    /// The host's `server/discover`: this line.
    Discover(Bytes),
}

/// The backend is ended once the calls that it was handed are answered.
pub(super) struct Draining {
    until: Millis,
    /// Whether a fresh one is started then.
    restarts: bool,
}

impl Relay {
    /// The backend was started.
    pub fn backend_started(&mut self, now: Millis) {
        if matches!(self.life, Life::Stopping) {
            return;
        }
        let is_probe_start = self.begin_era();
        if self.incarnation > 0 && !is_probe_start {
            self.counts.restarts += 1;
        }
        self.incarnation += 1;
        self.losses.seen = self.front.is_some();
        self.life = Life::Running { since: now };
        self.revive(now);
    }

    /// The backend has exited, or could not be started. `why` is for people: "exit status: 1".
    /// `last_words` is the last line of its standard error: the host is shown it where the backend
    /// has said nothing else.
    pub fn backend_exited(&mut self, why: &str, last_words: Option<&str>, now: Millis) {
        if matches!(self.life, Life::Stopping) {
            self.last_error = Some(why.to_owned());
            return;
        }
        if self.ends_on_probe() {
            self.probe_ended_backend(why, now);
            return;
        }
        self.last_error = Some(why.to_owned());
        let told = match last_words {
            Some(words) if !self.heard => format!("{why}: {words}"),
            _ => why.to_owned(),
        };
        if !self.heard && self.handshake.pending.is_none() && !self.handshake.revive {
            self.died_silent = Some(told.clone());
        }
        let before = self.note(Before::Ended(why.to_owned()));
        self.end_liveness_wait(now);
        self.liveness_ends(true);
        let again = self.end_initialize(Some(&told));
        self.end_calls(&format!("the server ended ({why})"));
        if again {
            self.send_initialize(true, now);
        }
        self.on_backend_lost(&before, now);
    }

    /// The backend has exited on a probe. That is how servers of its kind say that they know no
    /// such request; the host goes on with `initialize`, and finds a fresh one.
    fn probe_ended_backend(&mut self, why: &str, now: Millis) {
        let before = self.note(Before::OnProbe(why.to_owned()));
        self.end_liveness_wait(now);
        self.liveness_ends(true);
        let again = self.era_ended_on_probe();
        self.end_calls(&format!("the server ended ({why})"));
        if again {
            self.send_initialize(true, now);
        }
        self.on_backend_lost(&before, now);
    }

    /// The backend has ended before it had answered the `initialize` that the attached
    /// front waits for. The next backend gets it, unless several in a row have ended so, or
    /// none has ever written anything: then the command is wrong, and the host gets an
    /// error as soon as it would from a child process. True if it has to be sent again.
    /// Without a reason it was ended by us, and there is nothing wrong with the command.
    pub(super) fn end_initialize(&mut self, why: Option<&str>) -> bool {
        let Some(number) = self.handshake.pending else {
            return false;
        };
        let (Some(call), Some(host)) = (self.calls.open.get(&number), &self.handshake.host) else {
            return false;
        };
        let alone = host.connection == call.asker && host.id == call.id && call.cancelled.is_none();
        if call.kind.purpose != Purpose::Initialize || !self.is_current(call.asker) || !alone {
            return false;
        }
        self.handshake.deaths += u32::from(why.is_some());
        let failed = why.filter(|_| self.handshake.deaths >= INITIALIZE_TRIES || !self.heard);
        let sent = call.kind.sent;
        if failed.is_some() || sent {
            self.to_backend
                .retain(|part| !matches!(part, ToBackend::Call(call) if *call == number));
            self.handshake.pending = None;
            let call = self.calls.open.remove(&number);
            if let (Some(call), Some(why)) = (call, failed) {
                self.handshake.deaths = 0;
                self.tell_front(answers::failed(
                    &call.id,
                    &answers::ended_uninitialized(why),
                ));
            }
        }
        sent && failed.is_none()
    }

    /// The backend refuses to be initialised by us: it is replaced, after a while.
    pub(super) fn on_revival_refused(&mut self, now: Millis) {
        self.say("the server refused to be initialised again, and is replaced");
        self.last_error = Some("it refused to be initialised again".to_owned());
        self.end_calls("the server refused to be initialised again");
        self.handshake.revive = true;
        let before = self.note(Before::Refuses(
            "it refused to be initialised again".to_owned(),
        ));
        self.on_backend_lost(&before, now);
    }

    /// The backend is gone, or as good as gone.
    fn on_backend_lost(&mut self, before: &Noted, now: Millis) {
        // The waiting host gets what it would have got a moment later.
        self.end_liveness_wait(now);
        if !self.winds_down() {
            self.draining = None;
        }
        let lived = if let Life::Running { since } = self.life {
            now.saturating_sub(since)
        } else {
            0
        };
        if lived >= STABLE_MS {
            self.failures = 0;
        }
        let is_no_failure = match before.before() {
            Before::Wanted(_) | Before::Unused(_) | Before::OnProbe(_) => true,
            Before::Ended(_) => lived >= STABLE_MS,
            Before::Refuses(_) | Before::Hangs(_) => false,
        };
        let wait = if is_no_failure {
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
        let is_wanted = matches!(before.before(), Before::Wanted(_));
        let is_on_probe = matches!(before.before(), Before::OnProbe(_));
        let replaces = match before.before() {
            Before::Ended(_) | Before::OnProbe(_) => None,
            Before::Refuses(_) | Before::Hangs(_) | Before::Wanted(_) | Before::Unused(_) => {
                Some(before.why().into())
            }
        };
        self.life = Life::Down {
            at: now + wait,
            wanted: false,
            refusing: wait > START_WAIT_MAX_MS,
            replaces,
        };
        if self.handshake.pending.is_none() && !self.handshake.revive {
            self.requeue_waiter(now);
        }
        let probes = is_on_probe && self.front.is_some();
        let is_awaited = self.handshake.awaited() || !self.to_backend.entries.is_empty();
        if is_wanted || probes || is_awaited || self.habits.subscribes() {
            self.wake(now);
        }
        if wait > START_WAIT_MAX_MS {
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
        self.end_calls("the server was stopped");
        self.life = Life::Stopping;
        self.refuse_queued(now);
        self.to_backend.retain(|_| false);
        self.effects.retain(|order| matches!(order, Effect::Say(_)));
    }

    /// Every call that the backend was handed ends, since that is `gone`, in words: the attached front
    /// is told so, former ones can't be.
    pub(super) fn end_calls(&mut self, gone: &str) {
        let message = answers::unanswered(gone);
        let (sent, kept) = core::mem::take(&mut self.calls.open)
            .into_iter()
            .partition(|(_, call)| call.kind.sent);
        self.calls.open = kept;
        for call in sent.into_values() {
            if self.is_current(call.asker) && !call.kind.ours() {
                self.tell_front(answers::unknown(&call.id, &message));
            }
        }
        let calls = &self.calls.open;
        self.handshake.pending = self
            .handshake
            .pending
            .filter(|call| calls.contains_key(call));
    }

    /// Forgets what the backend has asked, and how far it was initialised. Gives back the
    /// asks that nobody was handed.
    pub(super) fn forget_backend(&mut self) -> Vec<ToFront> {
        self.lane.clear();
        self.forget_roots();
        self.forget_former_habits();
        self.handshake.initialized = false;
        self.liveness_ends(false);
        self.asks.tokens.clear();
        for (number, ask) in core::mem::take(&mut self.asks.open) {
            if ask
                .kind
                .handed
                .is_some_and(|connection| self.is_current(connection))
                && ask.cancelled.is_none()
            {
                self.tell_front(answers::cancelled(number, "the server ended"));
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
                self.tell_front(answers::not_sent(&call.id, &why));
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
            Life::Down { at, .. } if at > now.saturating_add(START_WAIT_MAX_MS) => {
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

    /// Whether the backend has ended and nothing wants another one yet.
    pub(super) fn rests(&self) -> bool {
        matches!(self.life, Life::Down { wanted: false, .. })
    }

    /// When the next start is due, or calls begin to wait for it.
    pub(super) fn start_due(&self) -> Option<Millis> {
        match self.life {
            Life::Down {
                at, refusing: true, ..
            } => Some(at.saturating_sub(START_WAIT_MAX_MS)),
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
            replaces,
        } = &mut self.life
        else {
            return;
        };
        *refusing = *at > now.saturating_add(START_WAIT_MAX_MS);
        if !*wanted || *at > now || self.draining.is_some() {
            return;
        }
        let order = match replaces.take() {
            Some(why) => Effect::Replace {
                why: why.into(),
                hangs: false,
            },
            None => Effect::Start,
        };
        self.life = Life::Ordered;
        self.effects.push(order);
    }
}

/// A fresh backend in place of the running one.
impl Relay {
    /// A front has left.
    pub(super) fn note_close(&mut self, orderly: bool, tried: bool, now: Millis) {
        self.closes.orderly = orderly;
        self.closes.parked = false;
        // A host that has only asked for the protocol version has not used the server.
        if orderly && tried {
            self.closes.times.push_back(now);
            if self.closes.times.len() > self.limits.closes as usize {
                self.closes.times.pop_front();
            }
        }
    }

    /// A tool call has its result. Unless that says that the tool has failed, nobody has to repair the
    /// server by coming back, and the closes so far do not count.
    pub(super) fn note_answered_call(&mut self, answer: &Message<'_>) {
        if self.closes.times.is_empty() {
            return;
        }
        let is_error = answer.result().and_then(|result| result.member("isError"));
        if is_error.and_then(|is_error| is_error.read()) != Some(true) {
            self.closes.times.clear();
        }
    }

    /// Why a front that attaches now begins with a fresh backend, if it does. `changed` is what has
    /// changed of the program since the backend was started.
    pub(super) fn reason_to_replace(
        &mut self,
        changed: Option<&str>,
        now: Millis,
    ) -> Option<String> {
        if !matches!(self.life, Life::Running { .. }) || self.handshake.revive {
            return None;
        }
        let (closes, within) = (self.limits.closes as usize, self.limits.closes_ms);
        let closed = &mut self.closes.times;
        closed.retain(|at| at.saturating_add(within) > now);
        if closed.len() >= closes {
            closed.clear();
            self.unlearn();
            return Some(format!(
                "the server was closed {closes} times within {} s",
                within.div_ceil(1000)
            ));
        }
        let changed = changed?;
        if self.is_free_to_change() {
            return Some(format!(
                "{changed} has changed since the server was started"
            ));
        }
        let because = if self.closes.orderly {
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

    /// Whether a host that comes now may get a fresh backend because its program has changed: the
    /// former one has closed it, no call is open, and no answer undelivered.
    pub fn is_free_to_change(&self) -> bool {
        let is_idle = self.is_idle() && self.asks.open.is_empty();
        self.closes.orderly && is_idle && !self.closes.parked
    }

    /// The backend has answered pings, and does not any more.
    pub(super) fn replace_hung(&mut self, now: Millis) {
        let why = format!(
            "the running server did not answer a ping within {} ms",
            self.limits.ping_wait_ms
        );
        let before = self.note(Before::Hangs(why));
        self.replace(&before, FirstRequest::Initialize, now);
    }

    /// Ends the running backend in favour of a fresh one, since a host wants that.
    pub(super) fn replace_wanted(&mut self, why: String, next: FirstRequest, now: Millis) {
        self.replace_for(Before::Wanted(why), next, now);
    }

    /// The same, for a reason that says whether anybody is told.
    pub(super) fn replace_for(&mut self, before: Before, next: FirstRequest, now: Millis) {
        let before = self.note(before);
        self.replace(&before, next, now);
    }

    fn replace(&mut self, before: &Noted, next: FirstRequest, now: Millis) {
        let why = before.why().to_owned();
        // There is no use in waiting for one that hangs.
        let hangs = matches!(before.before(), Before::Hangs(_));
        self.end_calls("the server was replaced");
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
        self.handshake.revive = matches!(next, FirstRequest::Revive);
        if matches!(next, FirstRequest::OfHost | FirstRequest::Discover(_)) {
            self.handshake.host = None;
        }
        if let Some(front) = &mut self.front {
            front.ready = true;
            front.replaced = Some(why.clone());
        }
        if dropped > 0 {
            self.say(format!(
                "{dropped} messages of the server that is replaced are dropped"
            ));
        }
        if matches!(self.life, Life::Running { .. }) {
            self.life = Life::Ordered;
            self.last_error = Some(why.clone());
            self.effects.push(match before.before() {
                Before::Unused(_) => Effect::ReplaceUnused,
                _ => Effect::Replace { why, hangs },
            });
        }
        match next {
            FirstRequest::OfHost | FirstRequest::Revive => {}
            FirstRequest::Initialize => self.send_initialize(true, now),
            FirstRequest::Discover(line) => self.send_first(&line, now),
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
        let (edits, number) = self.take_call(&message, id, method, Purpose::Plain, now);
        self.to_backend.push_front(Entry::one(
            edits.spliced(&message).into(),
            ToBackend::Call(number),
        ));
    }

    /// The user wants a fresh backend. A running one is ended when the attached host has
    /// the answers that it waits for, or has waited for long enough, and no line of it is
    /// fed from then on, nor its exit: what the host calls meanwhile is the next one's. One
    /// that was due later is started now. Hosts notice what they notice when it dies, but
    /// that no `initialize` fails of it.
    pub fn restart(&mut self, now: Millis) {
        self.failures = 0;
        self.unlearn();
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

    /// Whether there is nothing left to wait for before [`Relay::stopping`] is called.
    pub fn is_drained(&self, now: Millis) -> bool {
        let runs = matches!(self.life, Life::Running { .. });
        let late = self
            .draining
            .as_ref()
            .is_none_or(|draining| draining.until <= now);
        // Its `initialize` is sent again to the next backend.
        let awaited = |call: &Open<Call>| {
            let is_plain = call.kind.purpose == Purpose::Plain && call.cancelled.is_none();
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
        if self.front.is_none() && self.losses.is_used() {
            self.losses.renewed = Some(RESTARTED);
        }
        let why = "the server is restarted by `mcp-sessiond restart`";
        let before = self.note(Before::Wanted(why.to_owned()));
        let again = self.end_initialize(None);
        self.end_calls("the server was restarted");
        if again {
            self.send_initialize(true, now);
        }
        self.on_backend_lost(&before, now);
    }
}
