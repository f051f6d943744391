//! The link between a host and a server that may be replaced, as a front has it: it goes on with
//! whichever connection there is, and keeps the host's view whole. What the host says while there is
//! none is held; what it waits for when a server is lost is answered; and a server is told from the
//! one before it by the ids of its requests.
//!
//! `open.rs`: what the host waits for.

mod open;
#[cfg(test)]
mod tests;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::id_prefix::{from_asked, tagged};

use self::open::{Open, refusals};
use crate::{Millis, Probe};

/// What is different between links.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// How long what the host says waits for a server, in ms, before it is refused; and how long a
    /// probe waits for its answer whose host has closed its end and sent nothing else. A server may
    /// never answer one, and its own end, at which a direct one stops waiting, may not come.
    pub hold_ms: Millis,
    /// The pause after the first attempt to connect that has failed, in ms. Each is twice the one
    /// before.
    pub pause_ms: Millis,
    /// The longest pause, in ms.
    pub pause_max_ms: Millis,
    /// Whether the host has several servers: then the first connection has a prefix, too.
    pub shares_host: bool,
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable<'a> {
    /// The next attempt may go better.
    Passing(&'a str),
    /// The server's keeper lives and does not answer: what the host says is held as long as the host
    /// waits.
    Stalled,
    /// Somebody else has what the user has named. It is not taken back.
    Taken(&'a str),
    /// There will be none.
    Never(&'a str),
    /// The host is gone.
    NoHost,
}

/// What has happened.
#[derive(Debug)]
pub enum In<'a> {
    /// A line of the host.
    Host(Bytes),
    /// The host will say nothing more. It still reads.
    HostClosed,
    /// Nobody reads what is said to the host.
    HostGone,
    /// There is a connection, and this tells it from all others.
    Connected(&'a str),
    /// The attempt to connect has failed.
    Unreachable(Unreachable<'a>),
    /// A line of the server.
    FromServer(Bytes),
    /// The connection has ended, and whether the server was ended on purpose.
    Gone {
        /// A server that was stopped stays stopped until it is used.
        on_purpose: bool,
    },
    /// It is as late as [`Link::due`] says.
    Time,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Out {
    /// The line of the server that has just come, for the host.
    Pass(Bytes),
    /// An answer in the server's place, for the host.
    Answer(Bytes),
    /// A line for the server.
    ToServer(Bytes),
    /// Connect. [`Link::initialized`] is what a fresh server has to hear.
    Connect,
    /// The host has sent more than a probe: somebody reads what is told.
    Used,
    /// This sentence is for the user.
    Say(String),
    /// The server is told that the host leaves.
    Leave,
    /// All is said: this is the end.
    End,
}

/// What there is of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// There is none, and nobody needs one.
    Asleep,
    /// One is attempted.
    Connecting,
    /// The next attempt is made then.
    Pausing(Millis),
    /// There is one.
    Up,
    /// There won't be one.
    Never,
    /// The host has got all that it gets.
    Ended,
}

/// A host, and whichever server there is.
#[derive(Debug)]
pub struct Link {
    policy: Policy,
    phase: Phase,
    /// Since when there was no server that was wanted, and the pause after the next attempt.
    since: Millis,
    pause: Millis,
    /// Whether there was a connection before.
    had: bool,
    /// Whether calls have failed with the last one.
    has_failed_call: bool,
    open: Open,
    /// What the host has said while there was no server.
    held: VecDeque<Bytes>,
    /// Why what the host asks is refused, while there is no server.
    refusal: Option<String>,
    /// What was said last of attempts that fail.
    said: String,
    prefix: Option<Box<str>>,
    used: bool,
    closed: bool,
    /// Until when a host that has closed its end and has only probed waits for the answer.
    probes_until: Option<Millis>,
    out: VecDeque<Out>,
}

impl Link {
    /// A link without a connection.
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            phase: Phase::Asleep,
            since: 0,
            pause: policy.pause_ms,
            had: false,
            has_failed_call: false,
            open: Open::default(),
            held: VecDeque::new(),
            refusal: None,
            said: String::new(),
            prefix: None,
            used: false,
            closed: false,
            probes_until: None,
            out: VecDeque::new(),
        }
    }

    /// A server is wanted, whether the host has said anything or not.
    pub fn connect(&mut self, now: Millis) {
        if self.phase == Phase::Asleep {
            self.since = now;
            self.pause = self.policy.pause_ms;
            self.attempt();
        }
    }

    /// There may be no server for long: what the host asks is refused for this reason until there is.
    pub fn refuse(&mut self, why: &str) {
        self.refusal = Some(why.to_owned());
        let unanswered = self.open.unanswered().cloned();
        if unanswered.is_some() {
            self.open.forget();
        }
        let held = core::mem::take(&mut self.held);
        for line in unanswered.into_iter().chain(held) {
            self.answer(refusals(&line, why));
        }
    }

    /// Takes in what has happened.
    pub fn on(&mut self, what: In<'_>, now: Millis) {
        if self.phase == Phase::Ended {
            // What had come by the end is still passed on.
            if let In::FromServer(line) = what {
                self.pass(line);
            }
            return;
        }
        match what {
            In::Host(line) => self.host(line, now),
            In::HostClosed => {
                if !core::mem::replace(&mut self.closed, true) {
                    self.out.push_back(Out::Leave);
                    let until = now.saturating_add(self.policy.hold_ms);
                    self.probes_until = (!self.used).then_some(until);
                }
            }
            In::HostGone | In::Unreachable(Unreachable::NoHost) => self.end(),
            In::Connected(prefix) => self.connected(prefix),
            In::Unreachable(why) => self.unreachable(why, now),
            In::FromServer(line) => self.pass(line),
            In::Gone { on_purpose } => self.gone(on_purpose, now),
            In::Time => {
                if self.probes_until.is_some_and(|until| until <= now) {
                    return self.end();
                }
                if matches!(self.phase, Phase::Pausing(until) if until <= now) {
                    self.attempt();
                }
            }
        }
        let has_lost_it = self.had && self.phase != Phase::Up;
        if self.closed && self.held.is_empty() && (has_lost_it || self.open.is_settled()) {
            self.end();
        }
    }

    /// The next thing to be done, in order.
    pub fn next_out(&mut self) -> Option<Out> {
        self.out.pop_front()
    }

    /// Whether a line of the host can be taken.
    pub fn reads_host(&self) -> bool {
        !self.closed && (self.phase == Phase::Up || self.refusal.is_some() || self.held.is_empty())
    }

    /// When [`In::Time`] is to come, if it is.
    pub fn due(&self) -> Option<Millis> {
        let attempt = match self.phase {
            Phase::Ended => return None,
            Phase::Pausing(until) => Some(until),
            _ => None,
        };
        attempt.into_iter().chain(self.probes_until).min()
    }

    /// For how much the host waits.
    pub fn waiting(&self) -> usize {
        self.open.waiting() + self.held.len()
    }

    /// Whether the host waits for nothing.
    pub fn is_settled(&self) -> bool {
        self.open.is_settled()
    }

    /// Whether the host has closed its end.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether calls of the host's have failed with the last connection, so that it knows of its end.
    pub fn has_failed_call(&self) -> bool {
        self.has_failed_call
    }

    /// Whether the host has sent more than a probe.
    pub fn is_used(&self) -> bool {
        self.used
    }

    /// Whether a conversation has begun that can be closed: the host has sent more than a probe, and
    /// has no `initialize` that waits for its answer.
    pub fn has_begun(&self) -> bool {
        self.used && self.open.unanswered().is_none()
    }

    /// The host's `initialize`, once it was answered, as a fresh server has to know it.
    pub fn initialized(&self) -> Option<&Bytes> {
        self.open.initialized()
    }

    fn host(&mut self, line: Bytes, now: Millis) {
        if !self.used && Probe::of(&line).is_none() {
            self.used = true;
            self.out.push_back(Out::Used);
        }
        if self.phase == Phase::Up {
            self.pass_on(line);
        } else if let Some(why) = &self.refusal {
            let refused = refusals(&line, why);
            self.answer(refused);
        } else {
            self.held.push_back(line);
            self.connect(now);
        }
    }

    /// What is about a request of a former server goes nowhere.
    fn pass_on(&mut self, line: Bytes) {
        let line = match &self.prefix {
            Some(prefix) => from_asked(&line, prefix),
            None => Some(line),
        };
        if let Some(line) = line {
            self.open.host_said(&line);
            self.out.push_back(Out::ToServer(line));
        }
    }

    fn pass(&mut self, line: Bytes) {
        self.open.server_said(&line);
        let line = match &self.prefix {
            Some(prefix) => tagged(&line, prefix),
            None => line,
        };
        self.out.push_back(Out::Pass(line));
    }

    fn connected(&mut self, prefix: &str) {
        self.phase = Phase::Up;
        self.refusal = None;
        self.said.clear();
        if self.had || self.policy.shares_host {
            self.prefix = Some(prefix.into());
        }
        self.had = true;
        // Nothing has come of it.
        if let Some(initialize) = self.open.unanswered() {
            self.out.push_back(Out::ToServer(initialize.clone()));
        }
        for line in core::mem::take(&mut self.held) {
            self.pass_on(line);
        }
    }

    fn gone(&mut self, on_purpose: bool, now: Millis) {
        self.phase = Phase::Asleep;
        let failed = self.open.fail_all();
        self.has_failed_call = !failed.is_empty();
        self.answer(failed);
        let is_wanted = self.open.unanswered().is_some() || !self.held.is_empty();
        if !self.closed && (!on_purpose || is_wanted) {
            self.connect(now);
        }
    }

    fn unreachable(&mut self, why: Unreachable<'_>, now: Millis) {
        self.phase = Phase::Pausing(now.saturating_add(self.pause));
        self.pause = (self.pause * 2).min(self.policy.pause_max_ms);
        match why {
            Unreachable::Stalled => self.since = now,
            Unreachable::Taken(why) => {
                let why = match self.had {
                    true => format!("taken: {why}"),
                    false => why.to_owned(),
                };
                self.refuse(&why);
                self.say_once(why);
                if self.had {
                    self.phase = Phase::Never;
                }
            }
            Unreachable::Never(why) => {
                self.refuse(why);
                self.phase = Phase::Never;
            }
            Unreachable::Passing(why) => {
                if now.saturating_sub(self.since) >= self.policy.hold_ms {
                    self.refuse(why);
                    self.say_once(format!(
                        "the server can't be started again: {why}; the wrapper keeps trying"
                    ));
                }
            }
            Unreachable::NoHost => {}
        }
    }

    fn say_once(&mut self, what: String) {
        if self.said != what {
            self.said.clone_from(&what);
            self.out.push_back(Out::Say(what));
        }
    }

    fn attempt(&mut self) {
        self.phase = Phase::Connecting;
        self.out.push_back(Out::Connect);
    }

    fn answer(&mut self, answers: Vec<Bytes>) {
        self.out.extend(answers.into_iter().map(Out::Answer));
    }

    fn end(&mut self) {
        self.phase = Phase::Ended;
        self.out.push_back(Out::End);
    }
}
