//! The relay between one backend and its fronts: what it remembers, what it wants done, when it is
//! due, and how lines are handed out.

pub(super) mod era;
pub(super) mod front;
pub(super) mod handshake;
pub(super) mod life;
pub(super) mod liveness;
pub(super) mod losses;
pub(super) mod messages;
pub(super) mod queue;
pub(super) mod roots;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use bytes::Bytes;
use mcp_sessiond_proto::backends::{BackendState, CallInfo, ParkedInfo, Traffic};
use mcp_sessiond_proto::facts::Learned;

use self::era::Era;
use self::front::{AttachedFront, Numbered};
use self::handshake::{Habits, Handshake};
use self::life::{CloseHistory, Draining, Life};
use self::liveness::Liveness;
use self::losses::Losses;
use self::messages::ROOTS;
use self::queue::{Queue, ToBackend, ToFront};
use self::roots::Roots;
use crate::Millis;
use crate::entry::Entry;
use crate::numbers::{AnswerInfo, Numbers, Open, Tokens};

/// Answers to calls of former fronts that are remembered.
const PARKED_MAX: usize = 64;

/// What a relay may keep, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a request of the backend waits for a front that can answer it, in ms.
    pub ask_wait_ms: u64,
    /// Messages that are kept for the next front. When there are more, the backend is not to be
    /// read from.
    pub queue_messages: usize,
    /// Bytes of them. One message may go over.
    pub queue_bytes: usize,
    /// How long a backend may take to answer a ping, in ms.
    pub ping_wait_ms: u64,
    /// How long answers are waited for before a backend is ended, in ms.
    pub stop_wait_ms: u64,
    /// Orderly closes within `closes_ms` after which a host gets a fresh backend.
    pub closes: u32,
    /// The time within which they are counted, in ms.
    pub closes_ms: u64,
    /// The backend is the user's, or several hosts': it is not replaced because one of them has other
    /// folders.
    pub is_users: bool,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start the backend now, then call [`Relay::backend_started`] or
    /// [`Relay::backend_exited`].
    Start,
    /// End the running backend and start a fresh one, then call [`Relay::backend_started`],
    /// or [`Relay::backend_exited`] if it could not be started. No line of the old one is
    /// fed from now on, nor its exit.
    Replace {
        /// Why, for people.
        why: String,
        /// Whether it is of no use to wait for it, since it hangs.
        hangs: bool,
    },
    /// The same for a backend that no host has used: nobody has to be told.
    ReplaceUnused,
    /// Something was seen of servers of this command, which other keepers and fronts are to know.
    Learned(Learned),
    /// The backend has ended by itself, while a front is attached whose host does not wait for its
    /// `initialize`; why, for people. The host is to be told.
    Ended(String),
    /// A line for people: on the front's standard error, or in the log. It contains nothing
    /// of a message.
    Say(String),
}

/// Relays between one backend and at most one front at a time. Each front either has a host of its
/// own ([`Relay::new`]), or continues the former front ([`Relay::continuing`]).
pub struct Relay {
    limits: Limits,
    front: Option<AttachedFront>,
    /// How many fronts there were; the number of the attached one, if there is one.
    connections: u64,
    life: Life,
    /// How many backends there were.
    incarnation: u64,
    /// How many backends in a row have ended soon after their start.
    failures: u32,
    handshake: Handshake,
    habits: Habits,
    /// What a former front has asked for, until the next one begins.
    former_habits: Habits,
    roots: Roots,
    liveness: Liveness,
    era: Era,
    closes: CloseHistory,
    draining: Option<Draining>,
    calls: Direction<Call>,
    asks: Direction<Ask>,
    to_backend: Queue<ToBackend>,
    /// Lines of our own for the backend. They are sent before everything else.
    lane: VecDeque<Bytes>,
    to_front: Queue<ToFront>,
    /// The numbered lines, where fronts continue each other.
    numbered: Option<Numbered>,
    parked: VecDeque<AnswerInfo>,
    effects: Vec<Effect>,
    counts: Counts,
    last_error: Option<String>,
    /// Whether the backend has done more than initialise and list for any front.
    used: bool,
    losses: Losses,
    /// Whether any backend has written anything.
    heard: bool,
    /// Why the backend ended before it had written anything and before the host had sent
    /// anything: the host's `initialize` then fails with this reason.
    died_silent: Option<String>,
}

/// Requests in one direction.
struct Direction<K> {
    numbers: Numbers,
    open: BTreeMap<u64, Open<K>>,
    tokens: Tokens,
}

impl<K> Default for Direction<K> {
    fn default() -> Self {
        Self {
            numbers: Numbers::default(),
            open: BTreeMap::new(),
            tokens: Tokens::default(),
        }
    }
}

/// What is known of a call, beside what is known of every request.
struct Call {
    purpose: Purpose,
    /// Whether the backend was handed it.
    sent: bool,
}

/// Why a call is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The host made it.
    Plain,
    /// It is the host's `initialize`, whose answer is kept.
    Initialize,
    /// It is our own `initialize` of a backend that was started again.
    Revive,
    /// It is our own, and nobody waits for the answer.
    Replay,
}

impl Call {
    /// Whether the relay itself made it.
    fn ours(&self) -> bool {
        matches!(self.purpose, Purpose::Revive | Purpose::Replay)
    }
}

/// What is known of an ask, beside what is known of every request.
struct Ask {
    /// The connection that was handed it.
    handed: Option<u64>,
}

#[derive(Default)]
struct Counts {
    /// Messages lost that no front was told of yet.
    unreported: u64,
    lost_messages: u64,
    parked: u64,
    dropped: u64,
    to_backend: Traffic,
    from_backend: Traffic,
    restarts: u32,
}

/// The state of a backend and its calls.
#[derive(Debug, Clone)]
pub struct View {
    /// What the backend is doing.
    pub state: BackendState,
    /// Calls that the backend has not answered.
    pub calls: Vec<CallInfo>,
    /// Requests of the backend that no host has answered.
    pub asks: Vec<CallInfo>,
    /// Answers to calls of former fronts, the latest last.
    pub parked: Vec<ParkedInfo>,
    /// Messages that wait for a front.
    pub waiting: usize,
    /// Bytes of them.
    pub waiting_bytes: usize,
    /// Messages that were on their way to a front that ended.
    pub lost_messages: u64,
    /// Messages that were not passed on.
    pub dropped: u64,
    /// What the backend was handed.
    pub to_backend: Traffic,
    /// What the backend has sent.
    pub from_backend: Traffic,
    /// How often the backend was started again.
    pub restarts: u32,
    /// Why the backend ended the last time.
    pub last_error: Option<String>,
}

impl Relay {
    /// A relay whose backend was not started yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            front: None,
            connections: 0,
            life: Life::New,
            incarnation: 0,
            failures: 0,
            handshake: Handshake::default(),
            habits: Habits::default(),
            former_habits: Habits::default(),
            roots: Roots::default(),
            liveness: Liveness::default(),
            era: Era::default(),
            closes: CloseHistory::default(),
            draining: None,
            calls: Direction::default(),
            asks: Direction::default(),
            to_backend: Queue::default(),
            lane: VecDeque::new(),
            to_front: Queue::default(),
            numbered: None,
            parked: VecDeque::new(),
            effects: Vec::new(),
            counts: Counts::default(),
            last_error: None,
            used: false,
            losses: Losses::default(),
            heard: false,
            died_silent: None,
        }
    }

    /// What the driver is to do, in this order.
    pub fn effects(&mut self) -> Vec<Effect> {
        core::mem::take(&mut self.effects)
    }

    /// When [`Relay::tick`] is due.
    pub fn next_deadline(&self) -> Option<Millis> {
        let start = self.start_due();
        let forgotten = self.forget_due();
        let unasked = self.asks_due();
        let due = [
            start,
            forgotten,
            unasked,
            self.liveness_due(),
            self.drain_due(),
            self.roots.due(),
            self.losses.refusal_due(),
        ];
        due.into_iter().flatten().min()
    }

    /// Whether the backend has done more than initialise, answer pings and list for any
    /// front, or has asked a front anything but a ping.
    pub fn is_used(&self) -> bool {
        self.used
    }

    /// Whether the attached front's host has begun a conversation: its `initialize` was answered, or
    /// it has sent something else than that and probes.
    pub fn has_conversed(&self) -> bool {
        let Some(front) = &self.front else {
            return false;
        };
        let waits =
            self.calls.open.values().any(|call| {
                call.kind.purpose == Purpose::Initialize && self.is_current(call.asker)
            });
        front.called || front.unparsed > 0 || front.tried && !waits && !self.handshake.awaited()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Millis) {
        self.start_if_due(now);
        self.forget(now);
        self.give_up_asks(now);
        self.check_liveness(now);
        self.end_roots_wait(now);
        self.refuse_after_losses(now);
        self.drain(now);
    }

    /// Whether a connection is the attached front.
    fn is_current(&self, connection: u64) -> bool {
        self.front.is_some() && connection == self.connections
    }

    /// Tells the attached front something of our own.
    fn tell_front(&mut self, line: Bytes) {
        if self.front.is_some() {
            self.to_front.push(Entry::one(line, ToFront::Ours));
        }
    }

    fn say(&mut self, words: impl Into<String>) {
        self.effects.push(Effect::Say(words.into()));
    }

    fn park(&mut self, answer: AnswerInfo) {
        self.closes.parked = true;
        self.counts.parked += 1;
        if self.parked.len() == PARKED_MAX {
            self.parked.pop_front();
        }
        self.parked.push_back(answer);
    }
}

/// Lines are handed out, and read only while there is room for them.
impl Relay {
    /// The next line for the attached front. It counts as handed out.
    pub fn pull_front(&mut self) -> Option<Bytes> {
        self.release_when_full();
        self.refuse_asks();
        let front = self.front.as_ref()?;
        let entry = self.to_front.pull(front.meets())?;
        let (mut is_used, mut does_more) = (false, false);
        for (_, part) in &entry.parts {
            if let ToFront::Ask(number, _) = part
                && let Some(ask) = self.asks.open.get_mut(number)
            {
                ask.kind.handed = Some(self.connections);
                // The host has it now, and the backend waits for the answer.
                is_used |= &*ask.method != "ping";
                // The next host is asked for its roots anew.
                does_more |= !matches!(&*ask.method, "ping" | ROOTS);
            }
        }
        self.used |= is_used;
        if does_more {
            self.note_use();
        }
        Some(entry.line)
    }

    /// The next line for the backend. It counts as handed out.
    pub fn pull_backend(&mut self) -> Option<Bytes> {
        if !matches!(self.life, Life::Running { .. }) {
            return None;
        }
        let line = match self.lane.pop_front() {
            Some(line) => {
                self.era_hands_more(self.handshake.revive);
                line
            }
            None if self.handshake.revive => return None,
            None => {
                let entry = if self.draining.is_some() {
                    // It finishes what it has begun, and gets nothing new.
                    let calls = &self.calls.open;
                    let is_sent = |call: &u64| calls.get(call).is_some_and(|call| call.kind.sent);
                    self.to_backend.pull_if(|part| match part {
                        ToBackend::Answer => true,
                        ToBackend::Cancel(call) => is_sent(call),
                        _ => false,
                    })?
                } else if self.roots.holds() {
                    self.pull_before_calls()?
                } else {
                    self.to_backend.pull(0)?
                };
                for (_, part) in &entry.parts {
                    let ToBackend::Call(number) = part else {
                        self.era_hands_more(false);
                        continue;
                    };
                    self.era_hands(*number);
                    if let Some(call) = self.calls.open.get_mut(number) {
                        call.kind.sent = true;
                    }
                }
                entry.line
            }
        };
        count(&mut self.counts.to_backend, line.len());
        Some(line)
    }

    /// Whether nothing waits for the backend.
    pub fn is_backend_fed(&self) -> bool {
        self.to_backend.entries.is_empty()
    }

    /// Whether the front is to be read from: not while what it has sent before still waits for the
    /// backend.
    pub fn reads_front(&self) -> bool {
        let flows = match self.life {
            Life::Running { .. } if !self.handshake.revive => !self.to_backend.overflows(0),
            // What is read is answered at once.
            Life::Stopping => true,
            Life::Down { refusing: true, .. } => !self.to_backend.overflows(0),
            // A host that begins may get its answers from us.
            _ if self.front.as_ref().is_some_and(|front| !front.ready) => {
                !self.to_backend.overflows(0)
            }
            _ => self.to_backend.entries.is_empty(),
        };
        flows && !self.to_front.overflows(0)
    }

    /// Whether the backend is to be read from: not while a front reads too slowly, nor while there
    /// is none and as much waits for it as may.
    pub fn reads_backend(&self) -> bool {
        let full = self.full();
        match &self.front {
            None => !full,
            Some(front) => !full && !self.to_front.overflows(front.meets()),
        }
    }

    /// Whether as much waits for a front as may.
    pub(super) fn full(&self) -> bool {
        self.to_front.entries.len() >= self.limits.queue_messages
            || self.to_front.bytes >= self.limits.queue_bytes
    }

    /// The backend is not read while too much is kept for the front. A front that waits for
    /// an answer of it gets what is kept now, so that the answer can be read.
    fn release_when_full(&mut self) {
        // Nor can the backend be initialised again, and the front may be unable to say that it is
        // ready.
        let unread = self.handshake.revive && !self.reads_front();
        if self.full()
            && let Some(front) = &mut self.front
            && !front.ready
        {
            let asks = |call: &Open<Call>| {
                call.asker == self.connections && call.kind.sent && !call.kind.ours()
            };
            front.ready = unread || self.handshake.awaited() || self.calls.open.values().any(asks);
        }
    }
}

/// The state of a backend, for `status`. It contains no message and no part of one, except for
/// the names of methods.
impl Relay {
    /// The state of the backend.
    pub fn view(&self, now: Millis) -> View {
        let (unconfirmed, unconfirmed_bytes) = self.unconfirmed();
        View {
            state: self.state(),
            calls: self
                .calls
                .open
                .values()
                .filter(|call| !call.kind.ours())
                .map(|call| self.call(call, now))
                .collect(),
            asks: self
                .asks
                .open
                .values()
                .map(|ask| self.ask(ask, now))
                .collect(),
            parked: self
                .parked
                .iter()
                .map(|answer| parked(answer, now))
                .collect(),
            waiting: self.to_front.entries.len() + unconfirmed,
            waiting_bytes: self.to_front.bytes + unconfirmed_bytes,
            lost_messages: self.counts.lost_messages,
            dropped: self.counts.dropped,
            to_backend: self.counts.to_backend,
            from_backend: self.counts.from_backend,
            restarts: self.counts.restarts,
            last_error: self.last_error.clone(),
        }
    }

    /// How many messages were on their way to fronts when these ended, and how many answers
    /// came after their front had ended.
    pub fn lost_and_parked(&self) -> (u64, u64) {
        (self.counts.lost_messages, self.counts.parked)
    }

    /// Why the backend ended the last time; none where it never has.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    fn state(&self) -> BackendState {
        match self.life {
            Life::Stopping => BackendState::Stopping,
            Life::Down { .. } | Life::Ordered => BackendState::Restarting,
            Life::New | Life::Running { .. } if self.handshake.pending.is_some() => {
                BackendState::Initializing
            }
            Life::New | Life::Running { .. } if self.handshake.answer.is_some() => {
                BackendState::Ready
            }
            Life::New | Life::Running { .. } => BackendState::Started,
        }
    }

    fn call<K>(&self, call: &Open<K>, now: Millis) -> CallInfo {
        let former = !self.is_current(call.asker);
        CallInfo {
            method: call.method.to_string(),
            age_ms: now.saturating_sub(call.made),
            former,
        }
    }

    fn ask(&self, ask: &Open<Ask>, now: Millis) -> CallInfo {
        let former = ask
            .kind
            .handed
            .is_some_and(|connection| !self.is_current(connection));
        CallInfo {
            method: ask.method.to_string(),
            age_ms: now.saturating_sub(ask.made),
            former,
        }
    }
}

fn count(traffic: &mut Traffic, line: usize) {
    traffic.messages += 1;
    traffic.bytes += line as u64 + 1;
}

fn parked(answer: &AnswerInfo, now: Millis) -> ParkedInfo {
    ParkedInfo {
        method: answer.method.to_string(),
        age_ms: now.saturating_sub(answer.came),
        took_ms: answer.took,
        bytes: answer.bytes,
        failed: answer.failed,
    }
}
