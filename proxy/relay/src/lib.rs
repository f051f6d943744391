//! Relays messages between a backend and its fronts: it is told lines and facts, and hands out
//! lines. No I/O, no clock.
//!
//! One backend (an MCP server on stdio) outlives its *fronts*, the pipes to the host, of which at
//! most one is attached. A *call* is a request of the host, an *ask* one of the backend. Each gets
//! a number in the namespace of the receiver, so that an answer goes to the sender, and nowhere
//! else. A message is handed on byte for byte, except for its id, its progress token and the id of
//! the request that it cancels.
//!
//! Lines have no newline, neither incoming nor outgoing ones.
//!
//! **Architecture Invariant:** no I/O and no clock, and nothing in here can fail. The crate has no
//! `std`, so that the compiler keeps it; what could of `proto` is kept out by
//! `tests/integration/layout.rs`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod asks;
mod continuing;
mod entry;
mod era;
mod flow;
mod fresh;
mod from_backend;
mod from_front;
mod front;
mod handshake;
mod life;
pub mod many;
pub mod message;
mod numbers;
mod oversized;
mod pulse;
mod queue;
mod raw;
mod revival;
pub mod sse;
#[cfg(test)]
mod tests;
mod unreadable;
mod version;
mod view;
mod words;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use mcp_sessiond_proto::backends::Traffic;

use self::continuing::Numbered;
pub use self::entry::Edits;
use self::entry::Entry;
use self::era::Eras;
use self::fresh::{Draining, Left};
use self::front::Front;
use self::handshake::Handshake;
use self::life::Life;
use self::numbers::{Answered, Numbers, Open, Tokens};
pub use self::oversized::{Oversized, too_large};
use self::pulse::Pulse;
use self::queue::{Queue, ToBackend, ToFront};
use self::revival::Habits;
pub use self::unreadable::unreadable_answer;
pub use self::view::View;

/// A monotonic time in ms.
pub type Millis = u64;

/// Answers to calls of former fronts that are remembered.
const PARKED: usize = 64;

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
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Start the backend now, then tell [`Relay::backend_started`] or [`Relay::backend_exited`].
    Start,
    /// End the running backend and start a fresh one, of which [`Relay::backend_started`] tells (or
    /// [`Relay::backend_exited`], if it could not be started). No line of the old one is fed from
    /// now on, nor its exit.
    Replace {
        /// Why, for people.
        why: String,
        /// Whether it is of no use to wait for it: it hangs.
        kills: bool,
    },
    /// A line for people: on the front's standard error, or in the log. It has nothing of a message
    /// in it.
    Say(String),
}

/// Relays between one backend and at most one front at a time. Each front either has a host of its
/// own ([`Relay::new`]), or continues the former front ([`Relay::continuing`]).
pub struct Relay {
    limits: Limits,
    front: Option<Front>,
    /// How many fronts there were; the number of the attached one, if there is one.
    connections: u64,
    life: Life,
    /// How many backends there were.
    incarnation: u64,
    /// How many of the latest ones have died young.
    failures: u32,
    handshake: Handshake,
    habits: Habits,
    pulse: Pulse,
    eras: Eras,
    left: Left,
    draining: Option<Draining>,
    calls: Direction<Call>,
    asks: Direction<Ask>,
    to_backend: Queue<ToBackend>,
    /// Lines of our own for the backend, which go before everything else.
    lane: VecDeque<Bytes>,
    to_front: Queue<ToFront>,
    /// The numbered lines, where fronts continue each other.
    numbered: Option<Numbered>,
    parked: VecDeque<Answered>,
    orders: Vec<Order>,
    counts: Counts,
    last_error: Option<String>,
    /// Whether any front has had the backend do more than greet and list.
    used: bool,
    /// Whether a backend has exited while no front was attached, and nobody was told.
    exited_alone: bool,
    /// Whether any backend has said anything.
    heard: bool,
    /// Why the backend ended before it had said anything, and before its host had: the host's
    /// `initialize` fails of it, as if it had been in time.
    stillborn: Option<String>,
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
    what: What,
    /// Whether the backend was handed it.
    sent: bool,
}

/// Why there is a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// The host made it.
    Plain,
    /// It is the host's `initialize`, whose answer is kept.
    Initialize,
    /// It is our own `initialize` of a backend that was started again.
    Revive,
    /// It is our own, and nobody waits for the answer.
    Habit,
}

impl Call {
    /// Whether the relay itself made it.
    fn ours(&self) -> bool {
        matches!(self.what, What::Revive | What::Habit)
    }
}

/// What is known of an ask, beside what is known of every request.
struct Ask {
    /// The connection that was handed it.
    handed: Option<u64>,
}

/// What a host must be able to do to answer an ask.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Sampling,
    Elicitation,
    Roots,
}

#[derive(Default)]
struct Counts {
    /// Messages lost since the last front was told.
    untold: u64,
    lost: u64,
    parked: u64,
    dropped: u64,
    to_backend: Traffic,
    from_backend: Traffic,
    restarts: u32,
}

impl Relay {
    /// A relay whose backend was not started yet.
    #[must_use]
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
            pulse: Pulse::default(),
            eras: Eras::default(),
            left: Left::default(),
            draining: None,
            calls: Direction::default(),
            asks: Direction::default(),
            to_backend: Queue::default(),
            lane: VecDeque::new(),
            to_front: Queue::default(),
            numbered: None,
            parked: VecDeque::new(),
            orders: Vec::new(),
            counts: Counts::default(),
            last_error: None,
            used: false,
            exited_alone: false,
            heard: false,
            stillborn: None,
        }
    }

    /// What the driver is to do, in this order.
    pub fn orders(&mut self) -> Vec<Order> {
        core::mem::take(&mut self.orders)
    }

    /// When [`Relay::tick`] is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Millis> {
        let start = self.start_due();
        let forgotten = self.forget_due();
        let unasked = self.asks_due();
        let due = [
            start,
            forgotten,
            unasked,
            self.pulse_due(),
            self.drain_due(),
        ];
        due.into_iter().flatten().min()
    }

    /// Whether any front has had the backend do more than greet, ping and list; or was asked
    /// something by it, but for a ping.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.used
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Millis) {
        self.start_if_due(now);
        self.forget(now);
        self.give_up_asks(now);
        self.feel_pulse(now);
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
        self.orders.push(Order::Say(words.into()));
    }

    fn park(&mut self, answer: Answered) {
        self.left.parked = true;
        self.counts.parked += 1;
        if self.parked.len() == PARKED {
            self.parked.pop_front();
        }
        self.parked.push_back(answer);
    }
}

fn count(traffic: &mut Traffic, line: usize) {
    traffic.messages += 1;
    traffic.bytes += line as u64 + 1;
}
