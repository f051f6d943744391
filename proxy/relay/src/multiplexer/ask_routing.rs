//! Which place an ask of the server is about. On stdio nothing in the ask says so. What is known is
//! for whom the server is at work, and for whom it was until just now.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Ask, Call, Kind, Many};
use crate::Millis;

/// How long after the server has done something for one place an ask is not taken for another
/// one's, in ms. It may have begun the ask before it had answered, or may go on after its answer:
/// that takes no time that a person would notice.
pub(crate) const QUIET: Millis = 2_000;

/// Calls that are remembered though nobody waits for them: cancelled ones, and those of places that
/// are gone. When there are more, nobody is asked anything any more.
const LEFT_BEHIND: usize = 1024;

/// For whom the server was at work last, and when it was at work for anybody else.
#[derive(Default)]
pub(super) struct Served {
    last: Option<(u64, Millis)>,
    /// When it last was for a place that is not the last one.
    other: Option<Millis>,
}

impl Served {
    pub(super) fn note(&mut self, place: u64, now: Millis) {
        if let Some((last, at)) = self.last
            && last != place
        {
            self.other = Some(at);
        }
        self.last = Some((place, now));
    }

    /// Whether it was at work for anybody but this place until just now.
    fn is_just_now_others(&self, place: u64, now: Millis) -> bool {
        let at = match self.last {
            Some((last, at)) if last != place => Some(at),
            _ => self.other,
        };
        at.is_some_and(|at| now < at + QUIET)
    }
}

impl Many {
    /// The one place that an ask of the server can be about, if there is only one.
    pub(super) fn concerned(&mut self, now: Millis) -> Option<u64> {
        let work = self.calls.values().filter(|call| call.kind == Kind::Work);
        let asking: BTreeSet<u64> = work.filter_map(|call| call.place).collect();
        self.asks_apart |= asking.is_empty();
        if self.asks_apart {
            return None;
        }
        let only = asking
            .first()
            .copied()
            .filter(|only| self.places.contains_key(only))?;
        let calls = self.calls.values().filter_map(|call| call.place);
        let mut busy = calls.chain(self.asks.values().map(|ask| ask.place));
        let is_anothers =
            busy.any(|place| place != only) || self.served.is_just_now_others(only, now);
        (!is_anothers).then_some(only)
    }

    /// An ask is open no more.
    pub(super) fn end_ask(&mut self, id: &str, now: Millis) -> Option<Ask> {
        let ask = self.asks.remove(id)?;
        self.served.note(ask.place, now);
        Some(ask)
    }

    /// Drops the oldest calls that nobody waits for, where there are too many.
    pub(super) fn drop_unwanted(&mut self) {
        let gone = |call: &Call| call.place.is_some_and(|of| !self.places.contains_key(&of));
        let unwanted: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| call.cancelled || gone(call))
            .map(|(number, _)| *number)
            .collect();
        for number in unwanted.iter().rev().skip(LEFT_BEHIND) {
            self.calls.remove(number);
            self.asks_apart = true;
        }
    }
}
