//! Fronts come and go. Each has a host of its own; or each continues the former one: it takes over
//! where that stopped, and the relay changes nothing when a front goes. Then each line for the
//! front has a number, and is kept until the front confirms it; the next front gets every
//! unconfirmed line again.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use bytes::Bytes;
use mcp_sessiond_jsonrpc::answers;
use mcp_sessiond_jsonrpc::message::{LISTEN, Line};
use mcp_sessiond_proto::backends::Attached;

use super::life::{FirstRequest, Life};
use super::queue::{Requirements, ToBackend, ToFront};
use super::{Call, Limits, Purpose, Relay};
use crate::Millis;
use crate::entry::Entry;
use crate::numbers::Open;
use crate::version::{Capabilities, Capability};

/// Calls of former fronts that are remembered until they are answered. The oldest go first: a
/// backend that never answers must not cost more and more.
const FORMER_CALLS_MAX: usize = 1024;

/// How many unconfirmed lines a front may be handed: it need not keep more than these.
const WINDOW_LINES: usize = 256;
/// How many bytes of them. The last message may exceed it.
const WINDOW_BYTES: usize = 1024 * 1024;

/// The attached front.
pub(super) struct AttachedFront {
    /// Whether it is past the handshake, and may be sent what it did not ask for.
    pub ready: bool,
    /// Whether it gets every ask, whatever its host says it can do: the backend was initialised by
    /// it, and knows.
    pub takes_every_ask: bool,
    /// What its host can do.
    pub capabilities: Capabilities,
    /// Whether its host has done more than find out whether somebody is there.
    pub tried: bool,
    /// Whether its host has sent a probe.
    pub has_probed: bool,
    /// Whether a backend has ended on a probe of its host's.
    pub is_second_try: bool,
    /// Whether its host has asked for anything but that and `initialize`.
    pub called: bool,
    /// Why a backend was replaced while it was attached.
    pub replaced: Option<String>,
    /// Lines of it that were not JSON-RPC, and may be answered by an error without an id.
    pub unparsed: u32,
}

impl AttachedFront {
    /// The requirements that it meets now.
    pub(super) fn meets(&self) -> Requirements {
        if !self.ready {
            return ToFront::FOREIGN;
        }
        let can = |need: &Capability| self.takes_every_ask || self.capabilities.include(*need);
        let needs = [
            Capability::Sampling,
            Capability::Elicitation,
            Capability::Roots,
        ]
        .into_iter()
        .filter(can);
        needs.fold(ToFront::FOREIGN | ToFront::READY, |meets, need| {
            meets | ToFront::capability(need)
        })
    }
}

/// The unconfirmed lines.
#[derive(Default)]
pub(super) struct Numbered {
    lines: VecDeque<Bytes>,
    bytes: usize,
    /// The number of the last confirmed line.
    confirmed: u64,
    /// How many of the lines the attached front was handed, and how many bytes.
    handed: usize,
    handed_bytes: usize,
}

impl Numbered {
    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    fn is_full(&self, limits: &Limits) -> bool {
        self.lines.len() >= limits.queue_messages || self.bytes >= limits.queue_bytes
    }

    fn next(&mut self) -> Option<(u64, Bytes)> {
        if self.handed >= WINDOW_LINES || self.handed_bytes >= WINDOW_BYTES {
            return None;
        }
        let line = self.lines.get(self.handed)?.clone();
        self.handed += 1;
        self.handed_bytes += line.len();
        Some((self.confirmed + self.handed as u64, line))
    }

    /// Ignores the numbers of lines that this front was not handed.
    fn confirm(&mut self, number: u64) {
        while self.confirmed < number && self.handed > 0 {
            let Some(line) = self.lines.pop_front() else {
                return;
            };
            self.confirmed += 1;
            self.handed -= 1;
            self.handed_bytes -= line.len();
            self.bytes -= line.len();
        }
    }

    fn begin_again(&mut self) {
        (self.handed, self.handed_bytes) = (0, 0);
    }
}

impl Relay {
    /// A front has attached. `initialize` is what its host has sent before, where a former keeper
    /// answered it. `changed` is what has changed of the program since the backend was started, for
    /// people.
    pub fn attach(
        &mut self,
        initialize: Option<Bytes>,
        changed: Option<&str>,
        now: Millis,
    ) -> Attached {
        if self.front.is_some() {
            self.detach(0, false, now);
        }
        let comes_back = self.connections > 0;
        self.connections += 1;
        let why = if comes_back && initialize.is_none() {
            self.reason_to_replace(changed, now)
        } else {
            None
        };
        let resumed = comes_back && why.is_none();
        // A fresh one, for whoever is the first to use it; and one that has ended, or was started
        // again since, has nothing that could go on. Who had it was told why.
        let goes_on = matches!(self.life, Life::Running { .. }) && !self.handshake.revive;
        // Nor had anybody the one that was started while nobody was there.
        let is_begun = goes_on && self.is_begun() && self.losses.seen;
        self.losses.seen = true;
        let replaced = why.clone();
        if let Some(why) = why {
            self.replace_wanted(why, FirstRequest::OfHost, now);
            self.losses.renewed = None;
        }
        self.front = Some(AttachedFront {
            ready: !resumed || initialize.is_some(),
            takes_every_ask: !resumed,
            capabilities: Capabilities::default(),
            tried: false,
            has_probed: false,
            is_second_try: false,
            replaced: replaced.clone(),
            // Its host has begun with a former keeper.
            called: initialize.is_some(),
            unparsed: 0,
        });
        self.losses.forget_unread();
        let waiting = self.to_front.entries.len();
        let lost_messages = core::mem::take(&mut self.counts.unreported);
        if let Some(initialize) = initialize {
            self.initialize_for(&initialize, now);
        }
        Attached {
            resumed: resumed && is_begun,
            waiting,
            lost: lost_messages,
            ended: self.losses.untold(),
            fresh: self.losses.renewed.map(ToOwned::to_owned),
            ..Attached::default()
        }
    }

    /// The front is gone. `unconfirmed` is how many of the messages that it was handed it may not
    /// have passed on; `orderly`, that it had said before that it was about to leave.
    pub fn detach(&mut self, unconfirmed: u64, orderly: bool, now: Millis) {
        let Some(front) = self.front.take() else {
            return;
        };
        self.note_close(orderly, front.tried, now);
        if front.tried {
            self.losses.renewed = None;
        }
        self.era_left(front.has_probed, front.tried);
        if let Some(why) = front.replaced.filter(|_| !front.tried) {
            // Whoever only probes does not read why it was replaced.
            self.push_end(why);
        }
        self.counts.lost_messages += unconfirmed;
        self.counts.unreported += unconfirmed;
        for part in self
            .to_front
            .retain(|part| matches!(part, ToFront::Notice | ToFront::Ask(..)))
        {
            match part {
                ToFront::Answer(answer) => self.park(answer),
                ToFront::Bound => self.counts.dropped += 1,
                ToFront::Ours | ToFront::Notice | ToFront::Ask(..) => {}
            }
        }
        let handed: Vec<u64> = self
            .asks
            .open
            .iter()
            .filter(|(_, ask)| ask.kind.handed.is_some())
            .map(|(number, _)| *number)
            .collect();
        for number in handed {
            self.fail_ask(number, &answers::unanswered("the host disconnected"));
        }
        self.cancel_listens(now);
        // The next host begins with a server that is started for it.
        self.died_silent = None;
        self.calls.tokens.clear();
        self.habits_end();
        self.roots_host_left();
        self.handshake.forget_waiter();
        self.cancel_liveness_wait();
        self.forget_former();
        self.drain(now);
    }

    /// Answers an ask in place of the host.
    pub(super) fn fail_ask(&mut self, number: u64, message: &str) {
        if let Some(ask) = self.asks.open.remove(&number) {
            self.to_backend.push(Entry::one(
                answers::failed(&ask.id, message),
                ToBackend::Answer,
            ));
        }
    }

    /// Cancels the subscriptions of the front that leaves (MCP 2026-07-28).
    fn cancel_listens(&mut self, now: Millis) {
        let current = self.connections;
        let listens = |call: &Open<Call>| call.asker == current && &*call.method == LISTEN;
        let open = self
            .calls
            .open
            .iter_mut()
            .map(|(number, call)| (*number, call));
        let mut cancelled = Vec::new();
        for (number, call) in open.filter(|(_, call)| listens(call) && call.cancelled.is_none()) {
            call.cancelled = Some(now);
            cancelled.push(number);
        }
        for number in cancelled {
            let line = answers::cancelled(number, "the host disconnected");
            self.to_backend
                .push(Entry::one(line, ToBackend::Cancel(number)));
        }
    }

    fn forget_former(&mut self) {
        let sent: Vec<u64> = self
            .calls
            .open
            .iter()
            .filter(|(_, call)| call.kind.sent && call.kind.purpose == Purpose::Plain)
            .map(|(number, _)| *number)
            .collect();
        for number in sent.iter().rev().skip(FORMER_CALLS_MAX) {
            self.calls.open.remove(number);
        }
    }
}

/// Fronts that continue each other.
impl Relay {
    /// A relay whose fronts continue each other.
    pub fn continuing(limits: Limits) -> Self {
        Self {
            numbered: Some(Numbered::default()),
            ..Self::new(limits)
        }
    }

    /// A front has attached that continues the former one, if there was one. There is no
    /// call for its end.
    pub fn attach_continuing(&mut self, now: Millis) -> Attached {
        let resumed = self.front.is_some();
        if !resumed {
            self.attach(None, None, now);
        }
        let initialized = self.handshake.answer.is_some();
        let Some(numbered) = &mut self.numbered else {
            return Attached::default();
        };
        numbered.begin_again();
        Attached {
            resumed,
            initialized,
            waiting: numbered.lines.len(),
            ended: self.losses.untold(),
            ..Attached::default()
        }
    }

    /// Numbers the lines that wait for the front, as far as there is room for them.
    pub fn number_lines(&mut self) {
        while self
            .numbered
            .as_ref()
            .is_some_and(|numbered| !numbered.is_full(&self.limits))
        {
            let Some(line) = self.pull_front() else {
                return;
            };
            if let Some(numbered) = &mut self.numbered {
                numbered.push(line);
            }
        }
    }

    /// Whether there are lines that the attached front was not handed: it has to confirm others
    /// first.
    pub fn waits_for_confirmation(&self) -> bool {
        let unhanded = |numbered: &Numbered| numbered.lines.len() > numbered.handed;
        self.numbered.as_ref().is_some_and(unhanded) || !self.to_front.entries.is_empty()
    }

    /// The next line for the attached front, and its number.
    pub fn pull_numbered(&mut self) -> Option<(u64, Bytes)> {
        self.number_lines();
        self.numbered.as_mut()?.next()
    }

    /// The front confirms all lines up to this number.
    pub fn confirm(&mut self, number: u64) {
        if let Some(numbered) = &mut self.numbered {
            numbered.confirm(number);
        }
        self.number_lines();
    }

    /// The ids of the calls that fronts have made and whose answers no front has confirmed:
    /// raw JSON, as it came.
    pub fn known_calls(&self) -> Vec<Box<str>> {
        let open = self.calls.open.values().filter(|call| {
            // A backend may never answer what was cancelled.
            self.is_current(call.asker) && !call.kind.ours() && call.cancelled.is_none()
        });
        let unconfirmed = self.numbered.iter().flat_map(|numbered| &numbered.lines);
        let waiting = self.to_front.entries.iter().map(|entry| &entry.line);
        let answered = unconfirmed.chain(waiting).flat_map(answered);
        open.map(|call| call.id.clone()).chain(answered).collect()
    }

    /// How many lines are unconfirmed, and how many bytes.
    pub(super) fn unconfirmed(&self) -> (usize, usize) {
        self.numbered
            .as_ref()
            .map_or((0, 0), |numbered| (numbered.lines.len(), numbered.bytes))
    }
}

/// The ids of the calls that this line answers.
fn answered(line: &Bytes) -> Vec<Box<str>> {
    let copy = OnceCell::new();
    Line::of(line, &copy).answered().map(Box::from).collect()
}
