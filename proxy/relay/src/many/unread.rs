//! Messages that can't be read, or are too large to be. Of some it can be told who waits for them,
//! and nobody else hears of them.

use super::Many;
use crate::message::Unreadable;
use crate::oversized::{Glimpse, OVERSIZED_ANSWER};
use crate::unreadable::UNREADABLE_ANSWER;
use crate::{Millis, words};

impl Many {
    /// A place has sent what can't be read, though it has an id.
    pub(super) fn unreadable_from_place(
        &mut self,
        place: u64,
        unreadable: &Unreadable,
        now: Millis,
    ) {
        let Unreadable {
            id,
            request,
            answer,
        } = unreadable;
        match id.as_deref().filter(|id| self.is_asked(place, id)) {
            Some(asked) if !request => {
                self.fail_ask(asked, UNREADABLE_ANSWER, now);
            }
            _ if *answer && !request => {}
            _ => {
                // A call that was made in this name is not what has failed.
                let is_open = |id: &str| {
                    self.calls
                        .values()
                        .any(|call| call.place == Some(place) && *call.id == *id)
                };
                let id = id.as_deref().filter(|id| !is_open(id)).unwrap_or("null");
                self.tell_place(place, words::unreadable(id));
            }
        }
    }

    /// A place has sent a line of more than 16 MiB, which was discarded: its first and its last
    /// bytes.
    pub fn oversized_from_place(&mut self, place: u64, head: &[u8], tail: &[u8], now: Millis) {
        let Glimpse {
            id,
            request,
            answer,
        } = Glimpse::of(head, tail);
        if !answer || request {
            return self.tell_place(place, words::too_large(id.as_deref().unwrap_or("null")));
        }
        if let Some(asked) = id.filter(|id| self.is_asked(place, id)) {
            self.fail_ask(&asked, OVERSIZED_ANSWER, now);
        }
    }

    /// The server has sent a line of more than 16 MiB, which was discarded: its first and its last
    /// bytes.
    pub fn oversized_from_server(&mut self, head: &[u8], tail: &[u8], now: Millis) {
        let Glimpse {
            id: Some(id),
            request,
            answer,
        } = Glimpse::of(head, tail)
        else {
            return;
        };
        if request {
            // No answer to a call that happens to have its number.
            self.tell_server(words::too_large(&id));
        } else if answer {
            // It goes the way that an error of the server's own would go.
            self.from_server(&words::too_large(&id), now);
        }
    }

    /// Whether this place was handed an ask of this id, which is open.
    pub(super) fn is_asked(&self, place: u64, id: &str) -> bool {
        self.asks.get(id).is_some_and(|ask| ask.place == place)
    }

    /// Nobody answers an ask.
    pub(super) fn fail_ask(&mut self, id: &str, why: &str, now: Millis) {
        self.end_ask(id, now);
        self.tell_server(words::failed(id, why));
    }
}
