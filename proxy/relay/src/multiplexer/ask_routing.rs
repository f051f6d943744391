//! Which client an ask of the server is about. On stdio nothing in the ask says so. What is known
//! is for whom the server is at work, and for whom it was until just now.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Ask, Call, Kind, Multiplexer};
use crate::Millis;

/// How long after the server has done something for one client an ask is not taken for another
/// one's, in ms. It may have begun the ask before it had answered, or may go on after its answer:
/// that takes no time that a person would notice.
pub(crate) const RECENT_MS: Millis = 2_000;

/// Calls that are remembered though nobody waits for them: cancelled ones, and those of clients
/// that are gone. When there are more, no ask can be routed any more.
const UNWANTED_CALLS_MAX: usize = 1024;

/// For which client the server was at work last, and when it last was for another one.
#[derive(Default)]
pub(super) struct LastWork {
    last: Option<(u64, Millis)>,
    /// When it was last at work for any other client.
    other: Option<Millis>,
}

impl LastWork {
    pub(super) fn note(&mut self, client: u64, now: Millis) {
        if let Some((last, at)) = self.last
            && last != client
        {
            self.other = Some(at);
        }
        self.last = Some((client, now));
    }

    /// Whether it was at work for another client than this one until just now.
    fn was_just_working_for_others(&self, client: u64, now: Millis) -> bool {
        let at = match self.last {
            Some((last, at)) if last != client => Some(at),
            _ => self.other,
        };
        at.is_some_and(|at| now < at + RECENT_MS)
    }
}

impl Multiplexer {
    /// The one client that an ask of the server can be about, if there is only one.
    pub(super) fn route_ask(&mut self, now: Millis) -> Option<u64> {
        let work = self.calls.values().filter(|call| call.kind == Kind::Work);
        let asking: BTreeSet<u64> = work.filter_map(|call| call.client).collect();
        self.asks_unroutable |= asking.is_empty();
        if self.asks_unroutable {
            return None;
        }
        let only = asking
            .first()
            .copied()
            .filter(|only| self.clients.contains_key(only))?;
        let calls = self.calls.values().filter_map(|call| call.client);
        let mut busy = calls.chain(self.asks.values().map(|ask| ask.client));
        let is_anothers = busy.any(|client| client != only)
            || self.last_work.was_just_working_for_others(only, now);
        (!is_anothers).then_some(only)
    }

    /// An ask has ended.
    pub(super) fn end_ask(&mut self, id: &str, now: Millis) -> Option<Ask> {
        let ask = self.asks.remove(id)?;
        self.last_work.note(ask.client, now);
        Some(ask)
    }

    /// Drops the oldest calls that nobody waits for, where there are too many.
    pub(super) fn drop_unwanted(&mut self) {
        let gone = |call: &Call| {
            call.client
                .is_some_and(|of| !self.clients.contains_key(&of))
        };
        let unwanted: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| call.cancelled || gone(call))
            .map(|(number, _)| *number)
            .collect();
        for number in unwanted.iter().rev().skip(UNWANTED_CALLS_MAX) {
            self.calls.remove(number);
            self.asks_unroutable = true;
        }
    }
}
