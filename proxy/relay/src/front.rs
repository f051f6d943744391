//! Fronts come and go.

use alloc::vec::Vec;

use bytes::Bytes;
use mcp_sessiond_proto::backends::Attached;

use super::fresh::Next;
use super::message::LISTEN;
use super::numbers::Open;
use super::queue::{ToBackend, ToFront, Wants};
use super::version::Can;
use super::{Call, Entry, Millis, Need, Relay, words};

/// Calls of former fronts that are remembered until they are answered. The oldest go first: a
/// backend that never answers must not cost more and more.
const FORMER: usize = 1024;

/// The attached front.
pub(super) struct Front {
    /// Whether it is past the beginning, and can be told what it did not ask for.
    pub ready: bool,
    /// Whether it gets every ask, whatever its host says it can do: the backend was initialised by
    /// it, and knows.
    pub regardless: bool,
    /// What its host can do.
    pub can: Can,
    /// Whether its host has done more than find out whether somebody is there.
    pub tried: bool,
    /// Lines of it that were no JSON-RPC, and may be answered by an error without an id.
    pub unparsed: u32,
}

impl Front {
    /// What it meets now.
    pub(super) fn meets(&self) -> Wants {
        if !self.ready {
            return ToFront::FOREIGN;
        }
        let can = |need: &Need| self.regardless || self.can.meet(*need);
        let needs = [Need::Sampling, Need::Elicitation, Need::Roots]
            .into_iter()
            .filter(can);
        needs.fold(ToFront::FOREIGN | ToFront::READY, |meets, need| {
            meets | ToFront::need(need)
        })
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
            self.outdated(changed, now)
        } else {
            None
        };
        let resumed = comes_back && why.is_none();
        if let Some(why) = why {
            self.replace(why, Next::Open, false, now);
        }
        self.front = Some(Front {
            ready: !resumed || initialize.is_some(),
            regardless: !resumed,
            can: Can::default(),
            tried: false,
            unparsed: 0,
        });
        let waiting = self.to_front.entries.len();
        let lost = core::mem::take(&mut self.counts.untold);
        if let Some(initialize) = initialize {
            self.adopt(&initialize, now);
        }
        let exited = core::mem::take(&mut self.exited_alone);
        Attached {
            resumed,
            waiting,
            lost,
            exited,
            ..Attached::default()
        }
    }

    /// The front is gone. `unconfirmed` is how many of the messages that it was handed it may not
    /// have passed on; `orderly`, that it had said before that it was about to leave.
    pub fn detach(&mut self, unconfirmed: u64, orderly: bool, now: Millis) {
        let Some(front) = self.front.take() else {
            return;
        };
        self.note_leaving(orderly, front.tried, now);
        self.counts.lost += unconfirmed;
        self.counts.untold += unconfirmed;
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
            self.fail_ask(
                number,
                "the host disconnected before it answered; the outcome is unknown",
            );
        }
        self.cancel_listens(now);
        // Another host begins with a server that is started for it.
        self.stillborn = None;
        self.calls.tokens.clear();
        self.habits.clear();
        self.handshake.forget_waiter();
        self.pulse_unwatched();
        self.forget_former();
        self.drain(now);
    }

    /// Answers an ask in place of the host.
    pub(super) fn fail_ask(&mut self, number: u64, message: &str) {
        if let Some(ask) = self.asks.open.remove(&number) {
            self.to_backend.push(Entry::one(
                words::failed(&ask.id, message),
                ToBackend::Answer,
            ));
        }
    }

    /// What the leaving front listens to (MCP 2026-07-28), nobody does any more.
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
            let line = words::cancelled(number, "the host disconnected");
            self.to_backend
                .push(Entry::one(line, ToBackend::Cancel(number)));
        }
    }

    fn forget_former(&mut self) {
        let sent: Vec<u64> = self
            .calls
            .open
            .iter()
            .filter(|(_, call)| call.kind.sent && call.kind.what == super::What::Plain)
            .map(|(number, _)| *number)
            .collect();
        for number in sent.iter().rev().skip(FORMER) {
            self.calls.open.remove(number);
        }
    }
}
