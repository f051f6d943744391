//! Requests of the backend.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::entry::{Edits, Entry, Verdict};
use super::message::{LISTEN, Message};
use super::numbers::{Open, shown};
use super::queue::{ToBackend, ToFront};
use super::raw::number;
use super::{Ask, Millis, Need, Relay, words};

/// How long a call or an ask that was cancelled is remembered, in ms: the answer may come all the
/// same.
const CANCELLED_MS: u64 = 10 * 60 * 1000;

impl Relay {
    pub(super) fn backend_asks(
        &mut self,
        message: &Message<'_>,
        id: &str,
        method: &str,
        now: Millis,
    ) -> Verdict<ToFront> {
        // While we initialise it, we are its client.
        if method == "ping" && self.handshake.revive {
            self.lane.push_back(words::empty_result(id));
            return None;
        }
        let number = self.asks.numbers.take(id);
        let text = number.to_string();
        let mut edits = Edits::default();
        if let Some(token) = message.asked_progress() {
            let open = &self.asks.open;
            self.asks
                .tokens
                .insert(number, token, |of| open.contains_key(&of));
            edits.replace(message, token, text.clone());
        }
        edits.replace(message, id, text);
        let ask = Open {
            id: id.into(),
            method: shown(method),
            asker: self.incarnation,
            made: now,
            cancelled: None,
            kind: Ask { handed: None },
        };
        self.asks.open.insert(number, ask);
        let need = match method {
            "sampling/createMessage" => Some(Need::Sampling),
            "elicitation/create" => Some(Need::Elicitation),
            "roots/list" => Some(Need::Roots),
            _ => None,
        };
        Some((edits, ToFront::Ask(number, need)))
    }

    pub(super) fn backend_cancels(
        &mut self,
        message: &Message<'_>,
        now: Millis,
    ) -> Verdict<ToFront> {
        let found = message.cancelled().and_then(|id| {
            let (number, ask) = self
                .asks
                .open
                .iter_mut()
                .rev()
                .find(|(_, ask)| *ask.id == *id)?;
            ask.cancelled = Some(now);
            Some((id, *number, ask.kind.handed.is_some()))
        });
        match found {
            None => self.backend_ends_listen(message, now),
            Some((_, number, false)) => {
                self.asks.open.remove(&number);
                self.to_front
                    .retain(|part| !matches!(part, ToFront::Ask(ask, _) if *ask == number));
                None
            }
            Some((id, number, true)) => {
                let mut edits = Edits::default();
                edits.replace(message, id, number.to_string());
                Some((edits, ToFront::Bound))
            }
        }
    }

    /// A server ends a subscription by this, too (MCP 2026-07-28, Cancellation, "Behavior
    /// Requirements").
    fn backend_ends_listen(&mut self, message: &Message<'_>, now: Millis) -> Verdict<ToFront> {
        let listen = message.cancelled().and_then(|id| Some((id, number(id)?)));
        let current = self.front.is_some().then_some(self.connections);
        let open = listen.and_then(|(id, number)| {
            let call = self.calls.open.get_mut(&number)?;
            let is_theirs =
                Some(call.asker) == current && &*call.method == LISTEN && call.cancelled.is_none();
            is_theirs.then_some((id, call))
        });
        let Some((id, call)) = open else {
            self.counts.dropped += 1;
            return None;
        };
        call.cancelled = Some(now);
        let mut edits = Edits::default();
        for id in [Some(id), message.subscription()].into_iter().flatten() {
            edits.replace(message, id, call.id.clone());
        }
        Some((edits, ToFront::Bound))
    }

    /// Fails the asks that the attached host can't answer, as it would itself: nobody waits for
    /// another host while one is there.
    pub(super) fn refuse_asks(&mut self) {
        let Some(front) = self
            .front
            .as_ref()
            .filter(|front| front.ready && !front.regardless)
        else {
            return;
        };
        if !self.to_front.wants_more(front.meets()) {
            return;
        }
        let can = front.can;
        let met = |part: &ToFront| !matches!(part, ToFront::Ask(_, Some(need)) if !can.meet(*need));
        for part in self.to_front.retain(met) {
            if let ToFront::Ask(number, _) = part
                && let Some(ask) = self.asks.open.remove(&number)
            {
                self.to_backend
                    .push(Entry::one(words::not_able(&ask.id), ToBackend::Answer));
            }
        }
    }

    /// When the next ask has waited long enough for a front.
    pub(super) fn asks_due(&self) -> Option<Millis> {
        let waiting = self
            .asks
            .open
            .values()
            .filter(|ask| ask.kind.handed.is_none());
        waiting
            .map(|ask| ask.made.saturating_add(self.limits.ask_wait_ms))
            .min()
    }

    /// Fails the asks that have waited long enough for a front.
    pub(super) fn give_up_asks(&mut self, now: Millis) {
        let wait = self.limits.ask_wait_ms;
        let due =
            |ask: &Open<Ask>| ask.kind.handed.is_none() && ask.made.saturating_add(wait) <= now;
        let given_up: Vec<u64> = self
            .asks
            .open
            .iter()
            .filter(|(_, ask)| due(ask))
            .map(|(number, _)| *number)
            .collect();
        if given_up.is_empty() {
            return;
        }
        self.to_front
            .retain(|part| !matches!(part, ToFront::Ask(ask, _) if given_up.contains(ask)));
        for number in given_up {
            self.fail_ask(
                number,
                &format!("no host that can answer was attached within {wait} ms"),
            );
        }
    }

    /// When the next cancelled request may be forgotten.
    pub(super) fn forget_due(&self) -> Option<Millis> {
        let calls = self.calls.open.values().filter_map(|call| call.cancelled);
        let asks = self.asks.open.values().filter_map(|ask| ask.cancelled);
        calls.chain(asks).min().map(|at| at + CANCELLED_MS)
    }

    /// Forgets what was cancelled long ago.
    pub(super) fn forget(&mut self, now: Millis) {
        let kept = |cancelled: Option<Millis>| cancelled.is_none_or(|at| at + CANCELLED_MS > now);
        self.calls.open.retain(|_, call| kept(call.cancelled));
        self.asks.open.retain(|_, ask| kept(ask.cancelled));
    }
}
